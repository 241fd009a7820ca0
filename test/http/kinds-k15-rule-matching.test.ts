import { expect, test } from "vitest";
import { CONTAINER, startTestEdge } from "../support/edge.ts";
import { all, eachStatus, head, readAnswers } from "../support/faults.ts";
import { rawExchange } from "../support/raw-client.ts";
import { recordingUpstream } from "../support/recording-upstream.ts";

/** K15: two lines of grammar and nothing else, in linear time, first match wins. */

const CLOSE = "Connection: close";

/** An edge where a rule that takes a request answers 503 (there is no exec host), everything else the service. */
async function ruleEdge(...rules: unknown[]) {
  const upstream = await recordingUpstream();
  const edge = await startTestEdge({
    upstream: upstream.port,
    container: { exec: { kind: "none" } },
  });
  for (const rule of rules) {
    await edge.hook("terminal", { script: { path: "/x" }, ...(rule as object) });
  }
  const H = `Host: ${edge.host("terminal-1")}`;
  const taken = async (method: string, path: string, ...lines: string[]) => {
    const text = await rawExchange(
      edge.port,
      head(`${method} ${path} HTTP/1.1`, H, CLOSE, ...lines),
    );
    return readAnswers(text, method === "HEAD")[0]?.status === 503;
  };
  return { edge, upstream, H, taken };
}

const GLOBS: readonly (readonly [glob: string, fits: string[], not: string[]])[] = [
  [
    "/api/*",
    ["/api/.env", "/api/", "/api/a/b", "/api/..hidden", "/api/-", "/api/%41", "/api/%2a", "/api//"],
    ["/api", "/apis", "/API/x", "/xapi/"],
  ],
  [
    "/a/*/c",
    ["/a/b/c", "/a/.git/c", "/a/b.c-d_e/c", "/a/%20/c", "/a/*/c", "/a//x/c", "/a/x%2f/c"],
    ["/a/b/x/c", "/a/c", "/a/b/cc", "/a/b/c/d"],
  ],
  ["/x.y", ["/x.y", "/x%2ey", "/./x.y"], ["/xzy", "/x..y", "/x.y/", "/x.yz"]],
  [
    "/v*/*.js",
    ["/v1/a.js", "/v1/.min.js", "/vv/x.js.js"],
    ["/v1/.js", "/v/a.js", "/v1/a/b.js", "/v1/a.jsx", "/v1/ajs"],
  ],
  ["/**", ["/a", "/ab/c"], ["/"]],
  ["/a*b*c*", ["/axbxc", "/axbxcx/y", "/aabbcc"], ["/abc", "/axb/xc", "/xaxbxc"]],
  ["/-._", ["/-._", "/-%2e_"], ["/-x_", "/a._"]],
];

test("a star is one segment or the rest, and no other character means anything", async () => {
  for (const [glob, fits, not] of GLOBS) {
    const { taken } = await ruleEdge({ match: { path: glob } });
    for (const [paths, wanted] of [
      [fits, true],
      [not, false],
    ] as const) {
      for (const path of paths) {
        expect([glob, path, await taken("GET", path)]).toEqual([glob, path, wanted]);
      }
    }
  }
}, 40_000);

test("what a shell would understand in a rule is refused when it is written", async () => {
  const edge = await startTestEdge();
  const path = `/api/v1/containers/${CONTAINER}/proxy/hooks/terminal`;
  for (const glob of [
    "/+(a|b)",
    "/@(a)",
    "/!(a)",
    "/{a,b}",
    "/[a-z]",
    "/a?",
    "!/a",
    "/a$",
    "/^a",
    "/(a|b)",
    "/a\\*",
    "/a%2a",
    "/a b",
    "a",
    "",
    "**",
    "*/a",
    "/a\n",
    "/\u0000",
    "/é",
    `/${"a".repeat(257)}`,
    "http://x/a",
    null,
    7,
    ["/a"],
  ]) {
    const answer = await edge.api(
      "POST",
      path,
      { match: { path: glob }, script: { path: "/x" } },
      "file:v0",
    );
    expect([glob, answer.status]).toEqual([glob, 422]);
  }
});

test("matching costs time in proportion to the path, for any glob", async () => {
  const stars = [
    "/" + "*a".repeat(60),
    "/" + "a*".repeat(100) + "b",
    "/*" + "/*".repeat(100) + "/x",
    "/*a*a*a*a*a*a*a*a*a*a*a*a*b*/c*d*e*f*g",
  ];
  const { taken } = await ruleEdge(...stars.map((path) => ({ match: { path } })));
  for (const path of [
    `/${"a".repeat(12_000)}`,
    `/${"a/".repeat(6000)}`,
    `/${"aab".repeat(4000)}/c`,
    `/${"%61".repeat(5000)}`,
    `/${"..%2f".repeat(3000)}`,
    `/${"%25".repeat(5000)}`,
    `/${"/".repeat(15_000)}`,
    `/${"./".repeat(7000)}`,
  ]) {
    const startedAt = performance.now();
    await taken("GET", path);
    expect([path.slice(0, 10), performance.now() - startedAt < 1500]).toEqual([
      path.slice(0, 10),
      true,
    ]);
  }
}, 30_000);

test("GET covers HEAD, the star leaves OPTIONS out, and no spelling of a method slips through", async () => {
  const table: readonly (readonly [unknown, string[], string[]])[] = [
    ["GET", ["GET", "HEAD"], ["POST", "OPTIONS", "PROPFIND"]],
    ["HEAD", ["HEAD"], ["GET"]],
    ["*", ["GET", "HEAD", "POST", "PROPFIND", "LOCK", "MKCOL", "TRACE", "REPORT"], ["OPTIONS"]],
    [undefined, ["DELETE", "PATCH"], ["OPTIONS"]],
    [
      ["post", "Options"],
      ["POST", "OPTIONS"],
      ["GET", "HEAD", "PUT"],
    ],
  ];
  for (const [method, fits, not] of table) {
    const { taken } = await ruleEdge({ match: method === undefined ? {} : { method } });
    for (const name of fits) {
      expect([method, name, await taken(name, "/x")]).toEqual([method, name, true]);
    }
    for (const name of not) {
      expect([method, name, await taken(name, "/x")]).toEqual([method, name, false]);
    }
  }
  const { H, edge, upstream } = await ruleEdge({ match: { method: "POST" } });
  const odd = ["post", "Post", "pOST", "POST\t", " POST"].map(
    (name) => [name, head(`${name} /x HTTP/1.1`, H, CLOSE)] as const,
  );
  expect(await eachStatus(edge.port, odd)).toEqual(all(odd, "400"));
  expect(upstream.bytes).toEqual([]);
});

test("header predicates look at what arrives: after sweeping, all lines joined, exact and without case in names", async () => {
  const { taken } = await ruleEdge({ match: { headers: { "X-Tenant": "alice" } } });
  expect(await taken("GET", "/", "X-Tenant: alice")).toBe(true);
  expect(await taken("GET", "/", "x-tENANT:\t alice \t")).toBe(true);
  expect(await taken("GET", "/", "X-Tenant: Alice")).toBe(false);
  expect(await taken("GET", "/", "X-Tenant: alice, bob")).toBe(false);
  expect(await taken("GET", "/", "X-Tenant: alice", "X-Tenant: bob")).toBe(false);
  expect(await taken("GET", "/", "X-Tenant: alice", "Connection: X-Tenant")).toBe(false);
  expect(await taken("GET", "/", "X_Tenant: alice")).toBe(false);
  const forwarded = await ruleEdge({ match: { headers: { "X-Forwarded-For": "6.6.6.6" } } });
  expect(await forwarded.taken("GET", "/", "X-Forwarded-For: 6.6.6.6")).toBe(false);
  const two = await ruleEdge({ match: { headers: { "x-list": "a, b", "X-Two": "c" } } });
  expect(await two.taken("GET", "/", "X-List: a", "X-List: b", "x-two: c")).toBe(true);
  expect(await two.taken("GET", "/", "X-List: a, b")).toBe(false);
});

test("the first rule that fits decides, groups send a request on to the next, and HEAD and OPTIONS meet permissions", async () => {
  const upstream = await recordingUpstream();
  const edge = await startTestEdge({ upstream: upstream.port });
  for (const name of ["one", "two", "three"]) {
    edge.script(
      `${name}.js`,
      `module.exports = (req, res) => { res.setHeader("X-By", "${name}"); res.end(); };`,
    );
  }
  const base = `/api/v1/containers/${CONTAINER}/proxy`;
  const stored = await edge.api(
    "PUT",
    `${base}/permissions`,
    {
      groups: {
        staff: { type: "token", header: "X-Key", value: "s" },
        guest: { type: "token", header: "X-Guest", value: "g" },
      },
      permissions: { staff: { terminal: [1] }, guest: { terminal: true } },
      default: "deny",
    },
    "file:v0",
  );
  expect(stored.status).toBe(200);
  const rule = (path: string, script: string, groups?: string[]) => ({
    match: { path },
    script: { path: `/${script}` },
    timeout: 15_000,
    ...(groups === undefined ? {} : { applies_to: { groups } }),
  });
  await edge.hook("terminal", rule("/a*", "one", ["staff"]));
  await edge.hook("terminal", rule("/a/b*", "two"));
  await edge.hook("terminal", rule("/a*", "three", ["guest"]));
  const by = async (method: string, path: string, instance: number, ...lines: string[]) => {
    const text = await rawExchange(
      edge.port,
      head(
        `${method} ${path} HTTP/1.1`,
        `Host: ${edge.host(`terminal-${instance}`)}`,
        CLOSE,
        ...lines,
      ),
      10_000,
    );
    const answer = readAnswers(text, method === "HEAD")[0];
    return answer?.lines.find((line) => line.startsWith("X-By: "))?.slice(6) ?? answer?.status;
  };
  expect(await by("GET", "/a/b", 1, "X-Key: s")).toBe("one");
  expect(await by("HEAD", "/a/b", 1, "X-Key: s", "X-Guest: g")).toBe("one");
  expect(await by("GET", "/a/b", 2, "X-Key: s", "X-Guest: g")).toBe("two"); // staff does not grant terminal-2
  expect(await by("GET", "/a/c", 2, "X-Key: s", "X-Guest: g")).toBe("three");
  expect(await by("GET", "/a/c", 1, "X-Guest: g")).toBe("three");
  expect(await by("GET", "/b", 1, "X-Guest: g")).toBe(200);
  expect(await by("OPTIONS", "/a/b", 1, "X-Key: s")).toBe(200); // not hooked, but admitted
  for (const method of ["OPTIONS", "HEAD", "TRACE", "PROPFIND"]) {
    expect([method, await by(method, "/a/b", 1)]).toEqual([method, 401]);
    expect([method, await by(method, "/a/b", 2, "X-Key: s")]).toEqual([method, 403]);
  }
}, 30_000);
