import { expect, test } from "vitest";
import { handshake, head, namesOf, readAnswers, SWITCH } from "../support/faults.ts";
import { serviceOf, startFaultEdge } from "../support/fault-routes.ts";
import { rawClient, rawExchange } from "../support/raw-client.ts";

/** K05: fields of one connection stay on it, and `Connection` takes nothing away that is ours. */

const FIXED = [
  "Keep-Alive: timeout=5",
  "Proxy-Connection: keep-alive",
  "Proxy-Authorization: Basic eDp5",
  "Proxy-Authenticate: Basic",
  "TE: trailers, deflate",
  "Trailer: X-Sum",
  "Upgrade: h2c",
  "HTTP2-Settings: AAMAAABkAAQAAP__",
];
const NOMINATED = ["X-One: 1", "x-TWO: 2", "X-Three: 3", "X-Four: 4"];
const OURS = [
  "X-Real-IP",
  "X-Forwarded-For",
  "X-Forwarded-Proto",
  "Host",
  "Content-Length",
  "Transfer-Encoding",
];
const CONNECTION = [
  "Connection: close ,X-One,\tx-two\t,, ,",
  `connection: ${OURS.join(", ")}`,
  'CONNECTION: X-THREE, upgrade, "X-Kept", HTTP2-Settings',
  "Connection: x_four, X-Four",
];
const KEPT = ["X-Kept: kept", "X-One-More: kept"];

function check(names: string[], where: string): void {
  for (const gone of [...FIXED, ...NOMINATED].map((line) => line.split(":")[0]!.toLowerCase())) {
    if (gone !== "upgrade") {
      expect([where, gone, names.includes(gone)]).toEqual([where, gone, false]);
    }
  }
  for (const once of [
    "host",
    "x-real-ip",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-kept",
    "x-one-more",
  ]) {
    expect([where, once, names.filter((name) => name === once).length]).toEqual([where, once, 1]);
  }
}

test("no route passes on fields of the client's connection, none loses the edge's own", async () => {
  const faults = await startFaultEdge();
  const { edge, routes } = faults;
  for (const route of routes) {
    const answer = await rawExchange(
      edge.port,
      head(
        `PUT ${route.path} HTTP/1.1`,
        `Host: ${route.host}`,
        ...CONNECTION,
        ...FIXED,
        ...NOMINATED,
        ...KEPT,
        "Content-Length: 4",
      ) + "body",
      10_000,
    );
    expect([route.name, answer.slice(0, 12)]).toEqual([route.name, "HTTP/1.1 200"]);
    const service = serviceOf(faults, route);
    if (route.shows === "service") {
      const request = service.requests.at(-1);
      check(namesOf(request?.lines), route.name);
      expect([route.name, request?.body]).toEqual([route.name, "body"]);
    } else {
      const { seen } = JSON.parse(readAnswers(answer)[0]?.body ?? "{}") as { seen: string[] };
      check(seen, route.name);
    }
  }
  const counted = faults.upstream.requests.length;
  expect(counted).toBe(6);
}, 40_000);

test("a handshake passes on the switch of our own making only", async () => {
  const faults = await startFaultEdge(() => SWITCH);
  for (const route of faults.routes.filter(({ name }) =>
    ["plain", "port", "alias", "agent"].includes(name),
  )) {
    const client = await rawClient(faults.edge.port);
    client.send(
      handshake(
        route.host,
        route.path,
        ...CONNECTION,
        ...FIXED.filter((line) => !line.startsWith("Upgrade")),
        ...NOMINATED,
        ...KEPT,
      ),
    );
    const text = await client.waitFor("\r\n\r\n");
    expect([route.name, text.slice(0, 12)]).toEqual([route.name, "HTTP/1.1 101"]);
    const lines = serviceOf(faults, route).requests.at(-1)?.lines ?? [];
    check(namesOf(lines), route.name);
    expect(lines.filter((line) => /^(?:connection|upgrade):/i.test(line))).toEqual([
      "Connection: Upgrade",
      "Upgrade: websocket",
    ]);
    client.socket.destroy();
  }
});

test("no route passes on fields of the service's connection", async () => {
  const faults = await startFaultEdge(
    () =>
      head(
        "HTTP/1.1 200 OK",
        "Connection: keep-alive, X-Secret ,x-other,Content-Length, Date",
        "X-Secret: 1",
        "x-secret: 2",
        "X-Other: 1",
        "Keep-Alive: timeout=5, max=100",
        "Proxy-Authenticate: Basic",
        "Proxy-Connection: close",
        "Trailer: X-Sum",
        "TE: trailers",
        "Upgrade: h2c",
        "X-Kept: kept",
        "Content-Length: 2",
      ) + "ok",
  );
  for (const route of faults.routes.filter(({ shows }) => shows === "service")) {
    const text = await rawExchange(
      faults.edge.port,
      head(`GET ${route.path} HTTP/1.1`, `Host: ${route.host}`, "Connection: close"),
      10_000,
    );
    const [answer] = readAnswers(text);
    const names = namesOf(answer?.lines);
    expect([route.name, answer?.status, answer?.body]).toEqual([route.name, 200, "ok"]);
    for (const gone of [
      "x-secret",
      "x-other",
      "proxy-authenticate",
      "proxy-connection",
      "trailer",
      "te",
      "upgrade",
    ]) {
      expect([route.name, gone, names.includes(gone)]).toEqual([route.name, gone, false]);
    }
    expect([route.name, names.filter((name) => name === "x-kept").length]).toEqual([route.name, 1]);
    expect([route.name, names.filter((name) => name === "content-length").length]).toEqual([
      route.name,
      1,
    ]);
  }
}, 40_000);
