import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { CONTAINER, policyApi } from "../support/policy-api.ts";

const BASE = `/api/v1/containers/${CONTAINER}/proxy`;
const id = (n: number) => String(n).padStart(26, "0");

function withRules(hooks: unknown) {
  const api = policyApi();
  const groups = { staff: { type: "ip", range: "10.0.0.0/8" } };
  writeFileSync(
    join(api.dataDir, "policy/containers", `${CONTAINER}.json`),
    JSON.stringify({ file_version: 1, groups, hooks }),
  );
  return api;
}

const RULES = [
  { id: id(0), match: { method: "POST" }, script: { path: "/a" } },
  { id: id(1), match: { path: "/x" }, script: { path: "/b" } },
  { id: id(2), match: { headers: { "x-tenant": "alice" } }, script: { path: "/c" } },
  { id: id(3), match: {}, script: { path: "/d" }, applies_to: { groups: ["staff"] } },
  { id: id(4), match: { path: "/api/*" }, script: { path: "/e", execId: "obs" } },
  { id: id(5), match: {}, script: {} },
];

test("explains every rule, those behind the winner too", async () => {
  const { call } = withRules({ terminal: RULES });
  const answer = await call("POST", `${BASE}/explain`, {
    body: { service: "t", method: "GET", path: "/api/a?b" },
  });
  expect(answer.status).toBe(200);
  expect(answer.body.data).toMatchObject({
    outcome: "dispatch",
    hook_id: id(4),
    script: { path: "/e", execId: "obs" },
    rules: [
      { hook_id: id(0), position: 0, fits: false, failed: "method" },
      { fits: false, failed: "path" },
      { fits: false, failed: "headers" },
      { fits: false, failed: "groups" },
      { fits: true, failed: null, detail: "takes the request" },
      { fits: true, failed: "invalid" },
    ],
  });
  expect((await call("GET", `${BASE}/audit`)).body.data.records).toEqual([]);
});

test.for([
  [
    { method: "POST", path: "/" },
    { outcome: "dispatch", hook_id: id(0) },
  ],
  [
    { method: "GET", path: "/%78" },
    { outcome: "dispatch", hook_id: id(1) },
  ],
  [
    { method: "GET", path: "/", headers: { "X-Tenant": "alice" } },
    { outcome: "dispatch", hook_id: id(2) },
  ],
  [
    { method: "GET", path: "/", groups: ["staff"] },
    { outcome: "dispatch", hook_id: id(3) },
  ],
  [
    { method: "GET", path: "/" },
    { outcome: "refuse", status: 503, code: "HOOK_UNAVAILABLE", hook_id: id(5) },
  ],
  [
    { method: "POST", path: "/x", upgrade: true },
    { outcome: "refuse", status: 403, code: "HOOK_WEBSOCKET_UNSUPPORTED", hook_id: id(1) },
  ],
  [
    { method: "GET", path: `/api/${"a".repeat(5000)}` },
    { outcome: "refuse", status: 414, code: "HOOK_PATH_TOO_LONG" },
  ],
  [{ method: "OPTIONS", path: "/" }, { outcome: "forward" }],
] as const)("%# gives %o", async ([request, expected]) => {
  const { call } = withRules({ terminal: request.method === "OPTIONS" ? [RULES[0]] : RULES });
  const answer = await call("POST", `${BASE}/explain`, {
    body: { service: "terminal", ...request },
  });
  expect(answer.body.data).toMatchObject(expected);
});

test("an unreadable service is refused without rules; others are forwarded", async () => {
  const { call } = withRules({ terminal: 1 });
  const body = { service: "terminal", method: "GET", path: "/" };
  expect((await call("POST", `${BASE}/explain`, { body })).body.data).toEqual({
    outcome: "refuse",
    status: 503,
    code: "HOOK_UNAVAILABLE",
    rules: [],
  });
  const other = await call("POST", `${BASE}/explain`, { body: { ...body, service: "logs" } });
  expect(other.body.data).toEqual({ outcome: "forward", rules: [] });
});

test.for([
  [{ service: "nope", method: "GET", path: "/" }, "/service"],
  [{ service: "terminal", method: "G T", path: "/" }, "/method"],
  [{ service: "terminal", method: "GET" }, "/path"],
  [{ service: "terminal", method: "GET", path: "/", headers: { "a b": "c" } }, "/headers/a b"],
  [{ service: "terminal", method: "GET", path: "/", more: 1 }, "/more"],
] as const)("%j is 422 at %s", async ([body, path]) => {
  const { call } = policyApi();
  const answer = await call("POST", `${BASE}/explain`, { body });
  expect(answer.status).toBe(422);
  expect(answer.body.data[0].path).toBe(path);
});

test("works without a document and before any request", async () => {
  const { call } = policyApi();
  const body = { service: "terminal", method: "GET", path: "/" };
  expect((await call("POST", `${BASE}/explain`, { body })).body.data).toEqual({
    outcome: "forward",
    rules: [],
  });
});
