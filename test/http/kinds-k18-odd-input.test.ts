import { expect, test } from "vitest";
import { CONTAINER } from "../support/edge.ts";
import { head, readAnswers } from "../support/faults.ts";
import { startFaultEdge } from "../support/fault-routes.ts";
import { rawClient, rawExchange } from "../support/raw-client.ts";

/** K18: odd input ends in a 4xx or travels as it is; it never throws, and it never passes because a check threw. */

const TARGETS = [
  "/%",
  "/%%%",
  "/%zz/%2",
  "/%u0041",
  "/%c0%ae%c0%ae/x",
  "/%ff%fe",
  "/%ed%a0%80",
  "/%00",
  "/x?a=%ZZ",
  "/x?%",
  "/x?=&&=%=&%00=%ff",
  "/x?terminal_id=%",
  "/x?terminal%5fid=%zz&terminal_id",
  "/x?%74erminal_id[]=1&terminal_id[0]=2",
  `/x?${"a=1&".repeat(3000)}`,
  `/x?${"%41=".repeat(3000)}`,
  `/${"%2f".repeat(5000)}`,
  "/__proto__",
  "/constructor/prototype?__proto__[x]=1&constructor=2",
  "/toString",
  "/%5f%5fproto%5f%5f",
];
const FIELDS = [
  "Authorization: Basic %%%",
  "Authorization: Basic",
  "Authorization:",
  "Authorization: Bearer ..",
  "Authorization: Bearer \xff\xfe",
  "Cookie: %; =; ;;; a; =b; a=%zz; \xff=\xfe",
  "Cookie: __Host-k=%E0%A4%A",
  "Cookie: __proto__=1; constructor=2; hasOwnProperty=3",
  `Cookie: ${"a=b; ".repeat(4000)}`,
  "X-Hoody-Identity-Claim: %.%.%",
  "X-Hoody-Identity-Claim: v1..",
  "X-Forwarded-For: %, ::, 999.9.9.9, [::1]:80, unknown, _hidden",
  'Forwarded: for="[::1"',
  "Content-Type: multipart/form-data; boundary=",
  'Content-Type: multipart/form-data; boundary="a\r b"'.replace("\r", "\t"),
  "Content-Type: application/json; charset=nonsense",
  "Content-Type: ;;;",
  "Content-Encoding: gzip, nonsense",
  "Accept-Encoding: ;q=nan",
  "If-Modified-Since: yesterday",
  "Range: bytes=9999999999999999999-1",
  "Expires: never",
  "__proto__: 1",
  "constructor: 2",
  "toString: 3",
  "Date: \xe4",
];

test("odd targets and fields get an answer on every route, and the edge serves on", async () => {
  const faults = await startFaultEdge();
  const { edge } = faults;
  const path = `/api/v1/containers/${CONTAINER}/proxy/permissions`;
  const stored = await edge.api(
    "PUT",
    path,
    {
      groups: {
        web: { type: "password", username: "u", password: "p", salt: "s" },
        ci: { type: "token", cookie: "__Host-k", value: "v" },
        q: { type: "token", param: "a", value: "v" },
        app: { type: "jwt", algorithm: "HS256", secret: "k", sources: ["header:Authorization"] },
        id: { type: "hoody-identity", audience: "a" },
        near: { type: "ip", range: "203.0.113.0/24" },
      },
      permissions: {
        ci: { notes: true },
        q: { notes: true },
        app: { notes: true },
        id: { notes: true },
      },
      default: "allow",
    },
    (await edge.api("GET", path)).etag ?? "",
  );
  expect(stored.status).toBe(200);
  await Promise.all(
    faults.routes.map(async (route) => {
      for (const target of TARGETS) {
        const prefix = route.path === "/plain" || route.name === "exec" ? "" : route.path;
        const text = await rawExchange(
          edge.port,
          head(`GET ${prefix}${target} HTTP/1.1`, `Host: ${route.host}`, "Connection: close"),
          15_000,
        );
        const answer = readAnswers(text)[0];
        const wanted = prefix === "" && route.name === "exec" ? [200, 404] : [200, 400, 414];
        expect([route.name, target.slice(0, 30), wanted.includes(answer?.status ?? 0)]).toEqual([
          route.name,
          target.slice(0, 30),
          true,
        ]);
      }
      for (const field of FIELDS) {
        const text = await rawExchange(
          edge.port,
          head(
            `POST ${route.path} HTTP/1.1`,
            `Host: ${route.host}`,
            field,
            "Content-Length: 4",
            "Connection: close",
          ) + "\xff{%\0",
          15_000,
        );
        const status = readAnswers(text)[0]?.status ?? 0;
        // The exec host parses JSON for ordinary calls; a cookie line of 20 kB is no fault.
        expect([route.name, field.slice(0, 50), [200, 400].includes(status)]).toEqual([
          route.name,
          field.slice(0, 50),
          true,
        ]);
        expect([route.name, field.slice(0, 50), status === 200 || route.name === "exec"]).toEqual([
          route.name,
          field.slice(0, 50),
          true,
        ]);
      }
    }),
  );
  // With a guarded service none of it is a credential.
  for (const field of FIELDS) {
    const text = await rawExchange(
      edge.port,
      head("GET /?a=%&a=%zz HTTP/1.1", `Host: ${edge.host("notes-1")}`, field, "Connection: close"),
    );
    expect([field, readAnswers(text)[0]?.status]).toEqual([field, 502]); // admitted by default, nobody listens
  }
  expect(edge.log.filter((line) => line["msg"] === "a request failed inside the edge")).toEqual([]);
  expect(
    edge.log.filter(
      (line) =>
        Number(line["level"]) >= 50 || line["level"] === "error" || line["level"] === "fatal",
    ),
  ).toEqual([]);
}, 90_000);

test("under default deny odd credentials are refused, each with 401 or 400", async () => {
  const faults = await startFaultEdge();
  const { edge, upstream } = faults;
  const path = `/api/v1/containers/${CONTAINER}/proxy/permissions`;
  const stored = await edge.api(
    "PUT",
    path,
    {
      groups: {
        web: { type: "password", username: "u", password: "p", salt: "s" },
        ci: { type: "token", cookie: "__Host-k", value: "v" },
        q: { type: "token", param: "a", value: "v" },
        app: {
          type: "jwt",
          algorithm: "ES256",
          secret: "not a key at all",
          sources: ["header:Authorization", "cookie:c"],
        },
      },
      permissions: {
        web: { terminal: true },
        ci: { terminal: true },
        q: { terminal: true },
        app: { terminal: true },
      },
      default: "deny",
    },
    (await edge.api("GET", path)).etag ?? "",
  );
  expect([200, 400]).toContain(stored.status);
  if (stored.status === 400) {
    const again = await edge.api(
      "PUT",
      path,
      {
        groups: { ci: { type: "token", cookie: "__Host-k", value: "v" } },
        permissions: { ci: { terminal: true } },
        default: "deny",
      },
      (await edge.api("GET", path)).etag ?? "",
    );
    expect(again.status).toBe(200);
  }
  for (const field of FIELDS) {
    for (const target of ["/x", "/%?a=%", "/x?a=%zz&a=v&a"]) {
      const text = await rawExchange(
        edge.port,
        head(
          `GET ${target} HTTP/1.1`,
          `Host: ${edge.host("terminal-1")}`,
          field,
          "Connection: close",
        ),
      );
      expect([field.slice(0, 40), target, readAnswers(text)[0]?.status]).toEqual([
        field.slice(0, 40),
        target,
        401,
      ]);
    }
  }
  expect(upstream.bytes).toEqual([]);
}, 40_000);

test("random bytes never bring the edge down, and never reach a service as a request", async () => {
  const faults = await startFaultEdge();
  const { edge, upstream } = faults;
  let seed = 42;
  const random = (): number => (seed = (seed * 1_103_515_245 + 12_345) & 0x7fffffff);
  const template = head(
    "POST /plain?x=1 HTTP/1.1",
    "Host: nobody.example",
    "Content-Length: 4",
    "Cookie: a=b",
  );
  await Promise.all(
    Array.from({ length: 8 }, async () => {
      for (let i = 0; i < 30; i++) {
        const bytes = Buffer.from(`${template}body`, "latin1");
        for (let flips = 0; flips < 1 + (random() % 6); flips++) {
          bytes[random() % bytes.length] = random() & 0xff;
        }
        const client = await rawClient(edge.port);
        client.send(bytes);
        client.end();
        await client.closed(8000).catch(() => {});
        client.socket.destroy();
      }
    }),
  );
  expect(upstream.requests).toEqual([]);
  const good = await rawExchange(
    edge.port,
    head("GET /pass HTTP/1.1", `Host: ${edge.host("terminal-1")}`, "Connection: close"),
    10_000,
  );
  expect(readAnswers(good)[0]?.status).toBe(200);
  expect(edge.log.filter((line) => line["msg"] === "a request failed inside the edge")).toEqual([]);
}, 60_000);
