import { connect } from "node:net";
import { describe, test } from "vitest";
import { edgeAuthField, isEdgeAuthValid } from "../../exec-host/agent/edge-auth.ts";
import { codeOf, detailsOf, SECRET, startGateway } from "../support/agent-gateway.ts";

const P = "/api/v1/agent";
const REALM = "67e89abc123def456789abcd";

describe("the edge's signature", () => {
  test("isEdgeAuthValid() accepts the request it was made for, for a minute, with either secret", ({
    expect,
  }) => {
    const now = 1_800_000_000_000;
    const field = edgeAuthField(SECRET, "GET", "/a?b", now);
    expect(isEdgeAuthValid(field, [SECRET], "GET", "/a?b", now + 59_000)).toBe(true);
    expect(
      isEdgeAuthValid(field, ["other-secret-other", SECRET], "GET", "/a?b", now - 59_000),
    ).toBe(true);
    expect(isEdgeAuthValid(field, [SECRET], "GET", "/a?b", now + 62_000)).toBe(false);
    expect(isEdgeAuthValid(field, [SECRET], "POST", "/a?b", now)).toBe(false);
    expect(isEdgeAuthValid(field, [SECRET], "GET", "/a?c", now)).toBe(false);
    expect(isEdgeAuthValid(field, [], "GET", "/a?b", now)).toBe(false);
    expect(isEdgeAuthValid(edgeAuthField("", "GET", "/", now), [""], "GET", "/", now)).toBe(false);
    for (const bad of [
      undefined,
      "",
      "v1",
      field.replace("v1", "v2"),
      field.toUpperCase(),
      `${field}0`,
    ]) {
      expect(isEdgeAuthValid(bad, [SECRET], "GET", "/a?b", now)).toBe(false);
    }
  });

  test.for([
    ["GET", "/tools"],
    ["GET", "/tools/bash"],
    ["POST", "/tools/bash/run"],
    ["POST", "/tools/bash/stream"],
    ["POST", "/sessions"],
    ["GET", "/sessions/x/stream"],
    ["GET", "/jobs/x"],
    ["GET", "/changes"],
    ["GET", "/openapi.json"],
    ["GET", "/nowhere"],
    ["PUT", "/health"],
  ])("%s %s without it is 403, health is open", async ([method = "", path = ""], { expect }) => {
    const gateway = await startGateway();
    const answer = await gateway.call(method, P + path, {
      sign: false,
      ...(method === "POST" ? { body: {} } : {}),
    });
    expect([answer.status, codeOf(answer)]).toEqual([403, "forbidden"]);
    expect((await gateway.call("GET", `${P}/health`, { sign: false })).status).toBe(200);
  });

  test("no secret, no service", async ({ expect }) => {
    const gateway = await startGateway({ options: { secrets: [] } });
    expect((await gateway.call("GET", `${P}/tools`)).status).toBe(403);
  });
});

describe("routes", () => {
  test("unknown paths are 404, other verbs 405 with Allow, and answers are not stored", async ({
    expect,
  }) => {
    const gateway = await startGateway();
    const unknown = await gateway.call("GET", `${P}/nowhere`);
    expect([unknown.status, codeOf(unknown)]).toEqual([404, "not_found"]);
    const verb = await gateway.call("DELETE", `${P}/tools`);
    expect([verb.status, codeOf(verb), verb.headers["allow"]]).toEqual([
      405,
      "method_not_allowed",
      "GET",
    ]);
    expect((await gateway.call("GET", `${P}/tools`)).headers["cache-control"]).toBe("no-store");
  });

  test("the catalogue pages, and read-only is a list and not a tool", async ({ expect }) => {
    const gateway = await startGateway();
    const all = await gateway.call("GET", `${P}/tools`);
    expect(all.json).toMatchObject({ meta: { total: 10, page: 1, limit: 10 }, has_more: false });
    const second = await gateway.call("GET", `${P}/tools?page=2&limit=4`);
    expect(second.json).toMatchObject({ meta: { total: 10, page: 2, limit: 4 }, has_more: true });
    expect((second.json["items"] as unknown[]).length).toBe(4);
    const past = await gateway.call("GET", `${P}/tools?page=9&limit=4`);
    expect(past.json).toMatchObject({
      items: [],
      meta: { total: 10, page: 9, limit: 4 },
      has_more: false,
    });
    for (const query of ["page=0", "page=-1", "limit=x", "limit=1.5", "page=1e3&limit=2"]) {
      expect((await gateway.call("GET", `${P}/tools?${query}`)).status, query).toBe(400);
    }
    const readOnly = await gateway.call("GET", `${P}/tools/read-only`);
    expect((readOnly.json["items"] as { name: string }[]).map((tool) => tool.name)).toEqual([
      "read_file",
      "list_dir",
      "glob",
      "grep",
    ]);
    const one = await gateway.call("GET", `${P}/tools/bash`);
    expect(one.json).toMatchObject({
      name: "bash",
      read_only: false,
      input_schema: { required: ["cmd"] },
      tool: { name: "bash" },
    });
    expect(codeOf(await gateway.call("GET", `${P}/tools/nope`))).toBe("tool_not_found");
    expect(codeOf(await gateway.call("GET", `${P}/tools/__proto__`))).toBe("tool_not_found");
  });

  test("the OpenAPI document has every route", async ({ expect }) => {
    const gateway = await startGateway();
    const { json } = await gateway.call("GET", `${P}/openapi.json`);
    const paths = Object.keys(json["paths"] as object);
    for (const path of [
      "/tools",
      "/tools/read-only",
      "/tools/{name}",
      "/tools/{name}/run",
      "/tools/{name}/runAsync",
      "/tools/{name}/stream",
      "/sessions",
      "/sessions/{id}",
      "/sessions/{id}/tools",
      "/sessions/{id}/tools/mcp",
      "/sessions/{id}/tools/{name}/run",
      "/sessions/{id}/stream",
      "/sessions/{id}/confirm",
      "/jobs/{id}",
      "/jobs/{id}/result",
      "/changes",
    ]) {
      expect(paths).toContain(P + path);
    }
  });
});

describe("scope selectors", () => {
  const reject: readonly (readonly [string, string])[] = [
    ["GET", "/tools"],
    ["GET", "/tools/read-only"],
    ["GET", "/tools/bash"],
    ["POST", "/tools/bash/run"],
    ["POST", "/tools/bash/runAsync"],
    ["POST", "/tools/bash/stream"],
    ["GET", "/sessions/x/tools"],
    ["GET", "/sessions/x/tools/mcp"],
    ["POST", "/sessions/x/tools/bash/run"],
  ];
  test.for(reject)("%s %s rejects every realm selector", async ([method, path], { expect }) => {
    const gateway = await startGateway();
    for (const realm of ["global", REALM, "", "nonsense"]) {
      const header = await gateway.call(method, P + path, { headers: { "x-hoody-realm": realm } });
      const query = await gateway.call(method, `${P}${path}?realm=${realm}`);
      expect([header.status, codeOf(header), codeOf(query)]).toEqual([
        400,
        "realm_scope_unsupported",
        "realm_scope_unsupported",
      ]);
    }
    const relative = await gateway.call(method, P + path, { headers: { "x-hoody-cwd": "a/b" } });
    expect(codeOf(relative)).toBe("bad_request");
  });

  test("a container is rejected where there is none, and must be the session's where there is", async ({
    expect,
  }) => {
    const gateway = await startGateway();
    const headers = { "x-hoody-container": "c1" };
    expect(detailsOf(await gateway.call("GET", `${P}/tools`, { headers }))).toEqual({
      header: "X-Hoody-Container",
    });
    expect(codeOf(await gateway.call("POST", `${P}/tools/bash/run`, { headers, body: {} }))).toBe(
      "realm_scope_unsupported",
    );
    const bound = await gateway.createSession({ container: "c1" });
    expect((await gateway.call("GET", `${P}/sessions/${bound}/tools`, { headers })).status).toBe(
      200,
    );
    const other = { "x-hoody-container": "c2" };
    expect(
      codeOf(await gateway.call("GET", `${P}/sessions/${bound}/tools`, { headers: other })),
    ).toBe("realm_scope_unsupported");
  });

  test("realms are served as configured", async ({ expect }) => {
    const gateway = await startGateway({ options: { realms: [REALM] } });
    expect((await gateway.call("POST", `${P}/sessions`, { body: { realm: REALM } })).status).toBe(
      200,
    );
    expect(
      codeOf(await gateway.call("POST", `${P}/sessions`, { body: { realm: "0".repeat(24) } })),
    ).toBe("not_found");
    expect(codeOf(await gateway.call("POST", `${P}/sessions`, { body: { realm: "x" } }))).toBe(
      "invalid_realm",
    );
    expect(
      codeOf(
        await gateway.call("GET", `${P}/changes`, { headers: { "x-hoody-realm": "0".repeat(24) } }),
      ),
    ).toBe("not_found");
  });

  test("modes and scopes are checked, a folder must exist", async ({ expect }) => {
    const gateway = await startGateway();
    const body = { params: { cmd: "ls" } };
    expect(codeOf(await gateway.run("bash", body, { "x-hoody-tool-mode": "x" }))).toBe(
      "invalid_tool_mode",
    );
    expect(codeOf(await gateway.run("bash", body, { "x-hoody-dir-scope": "x" }))).toBe(
      "invalid_dir_scope",
    );
    expect(
      codeOf(await gateway.run("bash", body, { "x-hoody-cwd": `${gateway.root}/missing` })),
    ).toBe("bad_request");
    expect(codeOf(await gateway.call("POST", `${P}/sessions`, { body: { tool_mode: "x" } }))).toBe(
      "invalid_tool_mode",
    );
    expect(codeOf(await gateway.call("POST", `${P}/sessions`, { body: { dir_scope: "x" } }))).toBe(
      "invalid_dir_scope",
    );
    expect(codeOf(await gateway.call("POST", `${P}/sessions`, { body: { cwd: "relative" } }))).toBe(
      "bad_request",
    );
  });
});

describe("bodies", () => {
  test("the cap holds with and without a length, to the byte", async ({ expect }) => {
    const gateway = await startGateway();
    const cap = 8 * 1024 * 1024;
    const text = (size: number): string => {
      const [head, tail] = [
        '{"params":{"path":"a","content":"',
        '"},"allow_mutations":true}',
      ] as const;
      return head + "x".repeat(size - head.length - tail.length) + tail;
    };
    const headers = { "x-hoody-cwd": gateway.project };
    for (const chunked of [false, true]) {
      const over = await gateway.call("POST", `${P}/tools/write_file/run`, {
        raw: text(cap + 1),
        chunked,
        headers,
      });
      expect([over.status, codeOf(over)]).toEqual([413, "payload_too_large"]);
      const far = await gateway.call("POST", `${P}/tools/write_file/run`, {
        raw: text(4 * cap),
        chunked,
        headers,
      });
      expect(far.status).toBe(413);
      const fits = await gateway.call("POST", `${P}/tools/write_file/run`, {
        raw: text(cap),
        chunked,
        headers,
      });
      expect(fits.status).toBe(200);
    }
  }, 60_000);

  test("what is malformed is 400, what is empty is {}", async ({ expect }) => {
    const gateway = await startGateway();
    const target = `${P}/tools/bash/run`;
    for (const raw of [
      "{",
      "[]",
      "1",
      '"x"',
      "null",
      '{"params":[]}',
      '{"params":{"cmd":1}}',
      '{"confirm":"yes"}',
      '{"allow_mutations":1}',
      "\u00ff",
      `${"[".repeat(100_000)}`,
    ]) {
      const answer = await gateway.call("POST", target, { raw });
      expect([answer.status, codeOf(answer)], raw.slice(0, 40)).toEqual([400, "bad_request"]);
    }
    const empty = await gateway.call("POST", target, { raw: "" });
    expect(detailsOf(empty)).toEqual({ field: "cmd" });
    expect((await gateway.call("POST", `${P}/sessions`, { raw: "" })).status).toBe(200);
    const extra = await gateway.run("bash", {
      params: { cmd: "ls", _x: 1, confirmed: true },
      other: 1,
      confirmed: true,
    });
    expect(extra.status).toBe(200);
    const unknown = await gateway.run("bash", { params: { cmd: "ls", unknown: 1 } });
    expect(detailsOf(unknown)).toMatchObject({ field: "unknown" });
    for (const route of ["runAsync", "stream"]) {
      expect(
        codeOf(await gateway.call("POST", `${P}/tools/bash/${route}`, { body: {} })),
        route,
      ).toBe("bad_request");
    }
  });

  test("deeply nested parameters are refused and harm nothing", async ({ expect }) => {
    const gateway = await startGateway();
    const nested = `{"params":{"cmd":"ls","deep":${"[".repeat(200_000)}${"]".repeat(200_000)}}}`;
    expect((await gateway.call("POST", `${P}/tools/bash/run`, { raw: nested })).status).toBe(400);
    expect((await gateway.call("GET", `${P}/tools`)).status).toBe(200);
  });
});

describe("limits", () => {
  test("a client over its rate is told when to come back, others are not held up", async ({
    expect,
  }) => {
    const gateway = await startGateway({ options: { rateLimit: { perSecond: 0.01, burst: 3 } } });
    const ask = (ip: string) => gateway.call("GET", `${P}/tools`, { headers: { "x-real-ip": ip } });
    const statuses = [];
    for (let i = 0; i < 4; i++) {
      statuses.push((await ask("192.0.2.1")).status);
    }
    expect(statuses).toEqual([200, 200, 200, 429]);
    const limited = await ask("192.0.2.1");
    expect(codeOf(limited)).toBe("rate_limited");
    expect(Number(limited.headers["retry-after"])).toBeGreaterThanOrEqual(1);
    expect((await ask("192.0.2.2")).status).toBe(200);
    expect((await gateway.call("GET", `${P}/health`, { sign: false })).status).toBe(200);
  });

  test("streams per client are capped and given back", async ({ expect }) => {
    const gateway = await startGateway({ options: { maxStreamsPerClient: 2 } });
    const id = await gateway.createSession();
    const target = `${P}/sessions/${id}/stream`;
    const open = () =>
      new Promise<ReturnType<typeof connect>>((resolve) => {
        const socket = connect(gateway.port, "127.0.0.1", () => {
          socket.write(
            `GET ${target} HTTP/1.1\r\nHost: x\r\nX-Hoody-Edge-Auth: ${edgeAuthField(SECRET, "GET", target, Date.now())}\r\n\r\n`,
          );
          socket.once("data", () => resolve(socket));
        });
      });
    const [first, second] = [await open(), await open()];
    const third = await gateway.call("GET", target);
    expect([third.status, codeOf(third), third.headers["retry-after"]]).toEqual([
      503,
      "service_unavailable",
      "1",
    ]);
    const other = await gateway.call("POST", `${P}/tools/bash/stream`, {
      body: { params: { cmd: "ls" } },
    });
    expect(other.status).toBe(503);
    first.destroy();
    second.destroy();
    let status = 503;
    for (let i = 0; i < 100 && status === 503; i++) {
      status = (
        await gateway.call("POST", `${P}/tools/bash/stream`, { body: { params: { cmd: "ls" } } })
      ).status;
    }
    expect(status).toBe(200);
  });
});
