import { mkdir, readFile, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "vitest";
import { codeOf, detailsOf, startGateway, textOf } from "../support/agent-gateway.ts";

describe("posture of runs without a session", () => {
  test.for([
    [{ params: { cmd: "ls -la" } }, {}, 200],
    [
      { params: { cmd: "find . -name '*.ts' -newer /tmp/marker" }, allow_mutations: false },
      { "x-hoody-tool-mode": "read_only" },
      200,
    ],
    [{ params: { cmd: "touch a" } }, {}, 400],
    [{ params: { cmd: "find . -delete" } }, {}, 400],
    [{ params: { cmd: "ls > f" } }, {}, 400],
    [{ params: { cmd: "echo $(id)" } }, {}, 400],
    [{ params: { cmd: "touch a" }, allow_mutations: true }, {}, 200],
    [
      { params: { cmd: "touch a" }, allow_mutations: true },
      { "x-hoody-tool-mode": "read_only" },
      400,
    ],
    [{ params: { cmd: "touch a" } }, { "x-hoody-tool-mode": "full" }, 400],
    [{ params: { cmd: "touch a" }, allow_mutations: true }, { "x-hoody-tool-mode": "full" }, 200],
    [{ params: { cmd: "touch a" }, confirm: true }, {}, 409],
  ] as const)("bash %j with %j answers %d", async ([body, headers, status], { expect }) => {
    const gateway = await startGateway();
    const answer = await gateway.run("bash", body, { ...headers });
    expect(answer.status, answer.text).toBe(status);
    if (status === 400) {
      expect(codeOf(answer)).toBe("tool_mutation_refused");
    }
  });

  test("a file is not written without an opt-in", async ({ expect }) => {
    const gateway = await startGateway();
    const refused = await gateway.run("write_file", { params: { path: "a", content: "x" } });
    expect(codeOf(refused)).toBe("tool_mutation_refused");
    const written = await gateway.run("write_file", {
      params: { path: "b/c", content: "x" },
      allow_mutations: true,
    });
    expect(written.json["is_error"]).toBe(false);
    expect(await readFile(join(gateway.project, "b/c"), "utf8")).toBe("x");
  });
});

describe("confirm tokens", () => {
  const push = { params: { cmd: "git push --force" } };

  test("a token passes once, for the same call only", async ({ expect }) => {
    const gateway = await startGateway();
    const parked = await gateway.run("bash", { ...push, allow_mutations: true });
    expect(codeOf(parked)).toBe("tool_needs_confirmation");
    const details = detailsOf(parked);
    expect(details).toMatchObject({
      tool: "bash",
      params: push.params,
      gate_cause: "high_risk",
      risk: "destructive",
    });
    const confirm = { confirm: true, confirm_token: details["confirm_token"] };

    const other = await gateway.run("bash", { params: { cmd: "git push -f" }, ...confirm });
    expect(other.status).toBe(409);
    const elsewhere = await gateway.run(
      "bash",
      { ...push, ...confirm },
      { "x-hoody-cwd": gateway.home },
    );
    expect(elsewhere.status).toBe(409);
    const session = await gateway.createSession();
    expect((await gateway.runIn(session, "bash", { ...push, ...confirm })).status).toBe(409);

    const passed = await gateway.run("bash", { ...push, ...confirm });
    expect(passed.status).toBe(200);
    const again = await gateway.run("bash", { ...push, ...confirm });
    expect(again.status).toBe(409);
    expect(detailsOf(again)["confirm_token"]).not.toBe(details["confirm_token"]);
  });

  test("a token in the query works, the body wins", async ({ expect }) => {
    const gateway = await startGateway();
    const parked = await gateway.run("bash", { ...push, allow_mutations: true });
    const token = String(detailsOf(parked)["confirm_token"]);
    const target = `/api/v1/agent/tools/bash/run?confirm=true&confirm_token=${token}`;
    const headers = { "x-hoody-cwd": gateway.project };
    const wrong = await gateway.call("POST", target, {
      body: { ...push, confirm_token: "x" },
      headers,
    });
    expect(wrong.status).toBe(409);
    expect((await gateway.call("POST", target, { body: push, headers })).status).toBe(200);
  });

  test("two that present one token at once: exactly one passes", async ({ expect }) => {
    const gateway = await startGateway();
    for (let round = 0; round < 200; round++) {
      const body = { params: { cmd: "true; git push --force >/dev/null 2>&1 || true" } };
      const parked = await gateway.run("bash", { ...body, allow_mutations: true });
      const confirm = { ...body, confirm: true, confirm_token: detailsOf(parked)["confirm_token"] };
      const answers = await Promise.all([
        gateway.run("bash", confirm),
        gateway.run("bash", confirm),
      ]);
      expect(new Set(answers.map((answer) => answer.status))).toEqual(new Set([200, 409]));
    }
  }, 120_000);
});

describe("directory scope", () => {
  test("outside files answer alike whether they exist or not", async ({ expect }) => {
    const gateway = await startGateway();
    await mkdir(join(gateway.root, "outside"));
    await writeFile(join(gateway.root, "outside/secret"), "s");
    await symlink(join(gateway.root, "outside/secret"), join(gateway.project, "there"));
    await symlink(join(gateway.root, "outside/missing"), join(gateway.project, "gone"));
    const texts = [];
    for (const path of [
      "there",
      "gone",
      join(gateway.root, "outside/secret"),
      join(gateway.root, "outside/missing"),
      "../../outside/secret",
    ]) {
      const answer = await gateway.run("read_file", { params: { path } });
      expect(answer.status).toBe(200);
      expect(answer.json["is_error"]).toBe(true);
      texts.push(textOf(answer));
    }
    expect(new Set(texts).size).toBe(1);
  });

  test("writing outside the working directory parks, and the token writes just there", async ({
    expect,
  }) => {
    const gateway = await startGateway();
    const target = join(gateway.home, "note");
    const body = { params: { path: target, content: "x" } };
    const parked = await gateway.run("write_file", { ...body, allow_mutations: true });
    expect(detailsOf(parked)["gate_cause"]).toBe("outside_cwd");
    const confirmed = await gateway.run("write_file", {
      ...body,
      confirm: true,
      confirm_token: detailsOf(parked)["confirm_token"],
    });
    expect(confirmed.json["is_error"]).toBe(false);
    expect(await readFile(target, "utf8")).toBe("x");
  });

  test.for([
    ".ssh/id",
    ".hoody/settings.json",
    "project/.hoody/settings.json",
    ".npmrc",
    ".docker/config.json",
  ])("%s is closed in every mode", async (path, { expect }) => {
    const gateway = await startGateway();
    const read = await gateway.run(
      "read_file",
      { params: { path: join(gateway.home, path) } },
      { "x-hoody-dir-scope": "full" },
    );
    expect(read.json["error_code"]).toBe("credential");
    const body = {
      params: { path: join(gateway.home, path), content: "x" },
      allow_mutations: true,
    };
    expect((await gateway.run("write_file", body)).json["error_code"]).toBe("credential");
    const shell = await gateway.run("bash", {
      params: { cmd: `cp ~/${path} x` },
      allow_mutations: true,
    });
    expect(shell.json["error_code"]).toBe("credential");
  });
});

test("a line that only reads is held to the scope where nothing else is allowed", async ({
  expect,
}) => {
  const gateway = await startGateway();
  const read = { params: { cmd: "ls /etc" } };
  expect((await gateway.run("bash", read)).json["error_code"]).toBe("outside_scope");
  expect((await gateway.run("bash", read, { "x-hoody-dir-scope": "full" })).json["is_error"]).toBe(
    false,
  );
  expect((await gateway.run("bash", { ...read, allow_mutations: true })).json["is_error"]).toBe(
    false,
  );
  const mode = { "x-hoody-tool-mode": "read_only" };
  expect(
    (await gateway.run("bash", { ...read, allow_mutations: true }, mode)).json["is_error"],
  ).toBe(true);
  expect((await gateway.runIn(await gateway.createSession(), "bash", read)).json["is_error"]).toBe(
    false,
  );
  const reading = await gateway.createSession({ tool_mode: "read_only" });
  expect((await gateway.runIn(reading, "bash", read)).json["error_code"]).toBe("outside_scope");
});

describe("headless sessions", () => {
  test.for([
    ["bash", { cmd: "rm -rf /" }],
    ["bash", { cmd: "curl http://localhost/x | sh" }],
    ["bash", { cmd: "git push --force" }],
    ["write_file", { path: "../elsewhere", content: "x" }],
  ] as const)("%s %j is denied without a round", async ([tool, params], { expect }) => {
    const gateway = await startGateway();
    const headless = await gateway.createSession({ headless: true });
    const denied = await gateway.runIn(headless, tool, { params });
    expect(denied.status).toBe(200);
    expect(denied.json["is_error"]).toBe(true);
    const ordinary = await gateway.createSession();
    expect((await gateway.runIn(ordinary, tool, { params })).status).toBe(409);
  });
});

test("a read_only session keeps bash and denies what it would change", async ({ expect }) => {
  const gateway = await startGateway();
  const id = await gateway.createSession({ tool_mode: "read_only" });
  const offered = await gateway.call("GET", `/api/v1/agent/sessions/${id}/tools`);
  expect((offered.json["items"] as { name: string }[]).map((tool) => tool.name)).toEqual([
    "read_file",
    "list_dir",
    "bash",
    "glob",
    "grep",
  ]);
  expect((await gateway.runIn(id, "bash", { params: { cmd: "ls" } })).json["is_error"]).toBe(false);
  expect((await gateway.runIn(id, "bash", { params: { cmd: "touch x" } })).json["is_error"]).toBe(
    true,
  );
  expect(
    codeOf(await gateway.runIn(id, "write_file", { params: { path: "a", content: "" } })),
  ).toBe("tool_not_found");
});

test("edit_file wants a current read", async ({ expect }) => {
  const gateway = await startGateway();
  const file = join(gateway.project, "a.txt");
  await writeFile(file, "one two");
  const id = await gateway.createSession();
  const edit = { params: { path: "a.txt", old_string: "one", new_string: "1" } };
  expect((await gateway.runIn(id, "edit_file", edit)).json["error_code"]).toBe("read_before_edit");
  await gateway.runIn(id, "read_file", { params: { path: "a.txt" } });
  await writeFile(file, "one two three");
  expect((await gateway.runIn(id, "edit_file", edit)).json["error_code"]).toBe("read_before_edit");
  await gateway.runIn(id, "read_file", { params: { path: "a.txt" } });
  expect((await gateway.runIn(id, "edit_file", edit)).json["is_error"]).toBe(false);
  expect(await readFile(file, "utf8")).toBe("1 two three");
});

test("the decision log says why", async ({ expect }) => {
  const gateway = await startGateway({ settings: { denyList: ["*forbidden*"] } });
  const id = await gateway.createSession();
  await gateway.runIn(id, "bash", { params: { cmd: "ls" } });
  await gateway.runIn(id, "bash", { params: { cmd: "git push -f" } });
  await gateway.runIn(id, "bash", { params: { cmd: "echo forbidden" } });
  const log = await gateway.call("GET", `/api/v1/agent/sessions/${id}/decisions`);
  const items = log.json["items"] as {
    verdict: string;
    steps: { step: string; outcome: string }[];
  }[];
  expect(items.map((item) => item.verdict)).toEqual(["allowed", "needs_confirmation", "denied"]);
  expect(items[1]?.steps).toMatchObject([{ step: "high_risk", outcome: "asked" }]);
  expect(items[2]?.steps).toMatchObject([{ step: "deny_list", outcome: "denied" }]);
});
