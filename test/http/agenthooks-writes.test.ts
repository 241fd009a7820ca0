import { spawnSync } from "node:child_process";
import { mkdir, readFile, stat, symlink } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { createSettingsWriter } from "../../exec-host/agent/settings/write.ts";
import { findPlaces } from "../../exec-host/agent/settings/places.ts";
import { loadSettings } from "../../exec-host/agent/settings/load.ts";
import { oneHook, put, readJson, startHooksGateway } from "../support/agenthooks-gateway.ts";
import type { HooksGateway, TestSession } from "../support/agenthooks-gateway.ts";

const HOOK = { event: "PreToolUse", matcher: "Bash", command: "exit 0" };
const NAMED = { name: "Nothing", description: "Does nothing." };

async function upsert(gateway: HooksGateway, session: TestSession, fields: object = {}) {
  return gateway.call("PUT", "/hooks", {
    session_id: session.id,
    nonce: await gateway.nonce(session, "upsert", "project"),
    ...HOOK,
    ...fields,
  });
}

test("PUT /hooks creates a hook, and updates it without losing what the call does not carry", async () => {
  const gateway = await startHooksGateway();
  const session = await gateway.open();
  const created = await upsert(gateway, session, { ...NAMED, timeout: 90_000 });
  expect(created.status).toBe(200);
  expect(created.body).toEqual({ ok: true, ...HOOK, scope: "project", created: true });
  const updated = await upsert(gateway, session, { description: "Still nothing." });
  expect(updated.body).toMatchObject({ created: false });
  expect(await readJson(gateway.projectFile)).toEqual({
    version: 1,
    hooks: {
      PreToolUse: [
        {
          matcher: "Bash",
          hooks: [
            {
              type: "command",
              command: "exit 0",
              timeout: 86_400,
              name: "Nothing",
              description: "Still nothing.",
            },
          ],
        },
      ],
    },
  });
  expect((await stat(gateway.projectFile)).mode & 0o777).toBe(0o600);
});

test("PUT /hooks refuses a new hook without name or description and leaves no file behind", async () => {
  const gateway = await startHooksGateway();
  const session = await gateway.open();
  expect(await upsert(gateway, session)).toMatchObject({
    status: 400,
    body: { code: "bad_request", details: { field: "name" } },
  });
  expect(await upsert(gateway, session, { name: "x" })).toMatchObject({
    status: 400,
    body: { details: { field: "description" } },
  });
  await expect(stat(gateway.projectFile)).rejects.toThrow("ENOENT");
});

test.for([
  [{ event: "Later" }, "event"],
  [{ event: "constructor" }, "event"],
  [{ command: "  " }, "command"],
  [{ command: "a\0b" }, "command"],
  [{ command: 7 }, "command"],
  [{ timeout: 1.5 }, "timeout"],
  [{ timeout: -1 }, "timeout"],
  [{ timeout: "60" }, "timeout"],
  [{ matcher: "([" }, "matcher"],
  [{ matcher: "(a)\\1" }, "matcher"],
  [{ matcher: "a".repeat(300) + "." }, "matcher"],
  [{ scope: "global" }, "scope"],
  [{ nonce: undefined }, "nonce"],
] as const)(
  "PUT /hooks refuses %j and does not touch the file",
  async ([fields, field], { expect }) => {
    const gateway = await startHooksGateway();
    const session = await gateway.open();
    const answer = await upsert(gateway, session, { ...NAMED, ...fields });
    expect(answer).toMatchObject({
      status: 400,
      body: { code: "bad_request", details: { field } },
    });
    await expect(stat(gateway.projectFile)).rejects.toThrow("ENOENT");
  },
);

test("wildcard matchers in three spellings mean one hook", async () => {
  const gateway = await startHooksGateway();
  const session = await gateway.open();
  await upsert(gateway, session, { ...NAMED, matcher: undefined });
  await upsert(gateway, session, { matcher: "", timeout: 5 });
  await upsert(gateway, session, { matcher: "*", timeout: 6 });
  const { hooks } = await readJson(gateway.projectFile);
  expect(hooks).toEqual({
    PreToolUse: [{ hooks: [{ type: "command", command: "exit 0", timeout: 6, ...NAMED }] }],
  });
});

test("another command text makes a second hook; deleting without a command empties the group", async () => {
  const gateway = await startHooksGateway();
  const session = await gateway.open();
  await upsert(gateway, session, NAMED);
  await upsert(gateway, session, { ...NAMED, command: "exit 0 " });
  const body = { session_id: session.id, event: "PreToolUse", matcher: "Bash" };
  const missing = await gateway.call("DELETE", "/hooks", {
    ...body,
    nonce: await gateway.nonce(session, "delete", "project"),
    command: "exit 1",
  });
  expect(missing).toMatchObject({
    status: 404,
    body: { code: "not_found", message: "no hook found" },
  });
  const all = await gateway.call("DELETE", "/hooks", {
    ...body,
    nonce: await gateway.nonce(session, "delete", "project"),
  });
  expect(all.body).toEqual({
    ok: true,
    event: "PreToolUse",
    matcher: "Bash",
    scope: "project",
    removed: 2,
  });
  expect(await readJson(gateway.projectFile)).toEqual({ version: 1 });
});

test("POST /hooks/toggle changes one entry, keeps the rest, and never makes a hook", async () => {
  const gateway = await startHooksGateway();
  await put(gateway.projectFile, {
    version: 1,
    hooks: {
      PreToolUse: [
        {
          matcher: "Bash",
          note: "kept",
          hooks: [{ type: "command", command: "exit 0", extra: [1] }],
        },
      ],
    },
  });
  const session = await gateway.open();
  const toggle = async (fields: object) =>
    gateway.call("POST", "/hooks/toggle", {
      session_id: session.id,
      nonce: await gateway.nonce(session, "toggle", "project"),
      ...HOOK,
      ...fields,
    });
  expect((await toggle({ disabled: true, enabled: true })).body).toEqual({
    ok: true,
    ...HOOK,
    scope: "project",
    disabled: true,
  });
  expect(await readJson(gateway.projectFile)).toMatchObject({
    hooks: {
      PreToolUse: [{ note: "kept", hooks: [{ command: "exit 0", extra: [1], disabled: true }] }],
    },
  });
  expect((await toggle({})).body).toMatchObject({ disabled: false });
  expect(JSON.stringify(await readJson(gateway.projectFile))).not.toContain("disabled");
  const before = await readFile(gateway.projectFile, "utf8");
  expect(await toggle({ command: "exit 3" })).toMatchObject({ status: 404 });
  expect(await readFile(gateway.projectFile, "utf8")).toBe(before);
});

test("POST /hooks/toggle records a shipped hook in the first layer only", async () => {
  const gateway = await startHooksGateway();
  const session = await gateway.open();
  const toggle = async (scope: string, fields: object) =>
    gateway.call("POST", "/hooks/toggle", {
      session_id: session.id,
      nonce: await gateway.nonce(session, "toggle", scope),
      shipped_id: "bash-usage-error",
      ...fields,
    });
  expect(await toggle("project", { enabled: true })).toMatchObject({
    status: 400,
    body: { details: { field: "scope" } },
  });
  expect((await toggle("user", { enabled: true })).body).toEqual({
    ok: true,
    shipped_id: "bash-usage-error",
    enabled: true,
    scope: "user",
  });
  expect(await readJson(gateway.userFile)).toEqual({
    version: 1,
    shipped_hooks: { "bash-usage-error": true },
  });
  expect(await toggle("user", { enabled: false })).toMatchObject({ status: 200 });
  expect(await readJson(gateway.userFile)).toEqual({ version: 1 });
  expect(await toggle("user", {})).toMatchObject({ status: 400 });
  expect(await toggle("user", { enabled: true, event: "PostToolUse" })).toMatchObject({
    status: 400,
  });
  expect(await toggle("user", { enabled: true, shipped_id: "constructor" })).toMatchObject({
    status: 404,
  });
});

test("POST /hooks/disable-all needs a boolean and leaves no key behind", async () => {
  const gateway = await startHooksGateway();
  await put(gateway.projectFile, { version: 1, disable_all_hooks: true, other: 1 });
  const session = await gateway.open();
  const send = async (fields: object) =>
    gateway.call("POST", "/hooks/disable-all", {
      session_id: session.id,
      nonce: await gateway.nonce(session, "set_disabled", "project"),
      ...fields,
    });
  for (const fields of [{}, { value: null }, { value: "false" }]) {
    expect(await send(fields)).toMatchObject({
      status: 400,
      body: { details: { field: "value" } },
    });
  }
  expect((await send({ value: true })).body).toEqual({
    ok: true,
    scope: "project",
    value: true,
    disableAllHooks: true,
  });
  expect(await readJson(gateway.projectFile)).toEqual({
    version: 1,
    other: 1,
    disableAllHooks: true,
  });
  await send({ value: false });
  expect(await readJson(gateway.projectFile)).toEqual({ version: 1, other: 1 });
});

test("a write keeps what it does not own byte for byte", async () => {
  const gateway = await startHooksGateway();
  const before = `{
    "zeta": 12345678901234567890.10,
    "version": 1,
    "hooks":   { "Stop": [ ] },
    "10": {"b":1,  "a":[1,2]},
    "2": "\\u00e9"
}
`;
  await put(gateway.projectFile, before);
  const session = await gateway.open();
  await upsert(gateway, session, NAMED);
  const after = await readFile(gateway.projectFile, "utf8");
  expect(after.replace(/"hooks":[\s\S]*?\n {4}\},\n/, "")).toBe(
    before.replace('    "hooks":   { "Stop": [ ] },\n', "    "),
  );
  expect(JSON.parse(after)).toMatchObject({
    hooks: { Stop: [], PreToolUse: [{ matcher: "Bash" }] },
  });
});

test.for([
  ["a wrong version", '{"version": 2}', "version"],
  ["ours without a version", '{"hooks": {}}', "version"],
  ["no JSON", "{", "unparsable"],
  ["hooks of another shape", '{"version": 1, "hooks": [{"event": "Stop"}]}', "shape"],
  ["groups of another shape", '{"version": 1, "hooks": {"PreToolUse": {"command": "x"}}}', "shape"],
] as const)("a file with %s is not written", async ([, text, reason], { expect }) => {
  const gateway = await startHooksGateway();
  await put(gateway.projectFile, text);
  const session = await gateway.open();
  expect(await upsert(gateway, session, NAMED)).toMatchObject({
    status: 400,
    body: { code: "bad_request", details: { reason } },
  });
  expect(await readFile(gateway.projectFile, "utf8")).toBe(text);
});

test("a file without anything of ours gets a version with its first write", async () => {
  const gateway = await startHooksGateway();
  await put(gateway.projectFile, '{"theme":"dark"}');
  const session = await gateway.open();
  expect(await upsert(gateway, session, NAMED)).toMatchObject({ status: 200 });
  expect(Object.keys(await readJson(gateway.projectFile))).toEqual(["theme", "version", "hooks"]);
});

test("links, folders and fifos in place of a settings file are refused without hanging", async () => {
  const gateway = await startHooksGateway();
  const elsewhere = await put(join(gateway.folder, "elsewhere.json"), '{"version":1}');
  await mkdir(join(gateway.project, ".hoody"));
  await symlink(elsewhere, gateway.projectFile);
  spawnSync("mkfifo", [gateway.localFile]);
  await mkdir(gateway.userFile, { recursive: true });
  const session = await gateway.open();
  for (const [scope, reason] of [
    ["project", "symlink"],
    ["local", "not_a_regular_file"],
    ["user", "not_a_regular_file"],
  ]) {
    const answer = await gateway.call("PUT", "/hooks", {
      session_id: session.id,
      nonce: await gateway.nonce(session, "upsert", scope ?? ""),
      ...HOOK,
      ...NAMED,
    });
    expect(answer).toMatchObject({ status: 400, body: { details: { reason } } });
  }
  expect(await readFile(elsewhere, "utf8")).toBe('{"version":1}');
  const { body } = await gateway.call("GET", "/hooks/rules", undefined, {
    "X-Hoody-Cwd": gateway.project,
  });
  expect(body["rules"]).toMatchObject({ scopes: [], rules_complete: false });
});

test("a write that would make the file too large to be read is refused", async () => {
  const gateway = await startHooksGateway();
  await put(
    gateway.projectFile,
    JSON.stringify({ version: 1, big: "x".repeat(4 * 1024 * 1024 - 100) }),
  );
  const session = await gateway.open();
  expect(await upsert(gateway, session, NAMED)).toMatchObject({
    status: 400,
    body: { details: { reason: "too_large" } },
  });
});

const WRITES: readonly [
  op: string,
  send: (
    gateway: HooksGateway,
    session: TestSession,
    nonce: string,
    i: number,
  ) => Promise<{ status: number }>,
][] = [
  [
    "upsert",
    (gateway, session, nonce, i) =>
      gateway.call("PUT", "/hooks", {
        session_id: session.id,
        nonce,
        event: "Stop",
        command: `echo ${i}`,
        ...NAMED,
      }),
  ],
  [
    "delete",
    (gateway, session, nonce, i) =>
      gateway.call("DELETE", "/hooks", {
        session_id: session.id,
        nonce,
        event: "PreToolUse",
        command: `echo ${i}`,
      }),
  ],
  [
    "toggle",
    (gateway, session, nonce, i) =>
      gateway.call("POST", "/hooks/toggle", {
        session_id: session.id,
        nonce,
        event: "PreToolUse",
        command: `echo ${i}`,
        disabled: true,
      }),
  ],
];

test.for(WRITES)("twenty parallel writers (%s) lose nothing", async ([op, send], { expect }) => {
  const gateway = await startHooksGateway();
  const numbers = Array.from({ length: 20 }, (_, i) => i);
  const entries = numbers.map((i) => ({ type: "command", command: `echo ${i}` }));
  await put(gateway.projectFile, {
    version: 1,
    unknown: { kept: true },
    hooks: { PreToolUse: [{ hooks: [...entries, { type: "command", command: "stays" }] }] },
  });
  const sessions = await Promise.all(numbers.map(() => gateway.open()));
  const answers = await Promise.all(
    sessions.map(async (session, i) =>
      send(gateway, session, await gateway.nonce(session, op, "project"), i),
    ),
  );
  expect(answers.map(({ status }) => status)).toEqual(numbers.map(() => 200));
  const { hooks, unknown } = (await readJson(gateway.projectFile)) as {
    hooks: Record<string, { hooks: { command: string; disabled?: boolean }[] }[]>;
    unknown: unknown;
  };
  expect(unknown).toEqual({ kept: true });
  const all = Object.values(hooks)
    .flat()
    .flatMap((group) => group.hooks);
  const counts = { upsert: 41, delete: 1, toggle: 21 };
  expect(all.length).toBe(counts[op as keyof typeof counts]);
  expect(all.filter((entry) => entry.disabled === true).length).toBe(op === "toggle" ? 20 : 0);
  expect(all.some((entry) => entry.command === "stays")).toBe(true);
});

test("twenty parallel disable-all writes end in one of the wanted states, the file whole", async () => {
  const gateway = await startHooksGateway();
  await put(gateway.projectFile, oneHook("Stop", "exit 0"));
  const session = await gateway.open();
  const answers = await Promise.all(
    Array.from({ length: 20 }, async (_, i) =>
      gateway.call("POST", "/hooks/disable-all", {
        session_id: session.id,
        nonce: await gateway.nonce(session, "set_disabled", "project"),
        value: i % 2 === 0,
      }),
    ),
  );
  expect(answers.every(({ status }) => status === 200)).toBe(true);
  const file = await readJson(gateway.projectFile);
  expect([true, undefined]).toContain(file["disableAllHooks"]);
  expect(file).toMatchObject(oneHook("Stop", "exit 0"));
  const { body } = await gateway.call("GET", `/hooks?session_id=${session.id}`);
  expect(body).toMatchObject({ stale: [], disabled_all: file["disableAllHooks"] === true });
});

test("of twenty parallel rule writes on one revision exactly one wins, the others are told", async () => {
  const gateway = await startHooksGateway();
  const session = await gateway.open();
  const { body } = await gateway.call("GET", `/hooks?session_id=${session.id}`);
  const scopes = (body["rules"] as { scopes: { scope: string; revision: string }[] }).scopes;
  const revision = scopes.find(({ scope }) => scope === "project")?.revision;
  const answers = await Promise.all(
    Array.from({ length: 20 }, async (_, i) =>
      gateway.call("POST", "/hooks/rules", {
        session_id: session.id,
        nonce: await gateway.nonce(session, "rules_set", "project"),
        rules: [{ id: `rule-${i}`, text: "Text.", kind: "limit" }],
        expected_revision: revision,
      }),
    ),
  );
  const won = answers.filter(({ status }) => status === 200);
  expect(won.length).toBe(1);
  const lost = answers.filter(({ status }) => status === 409);
  expect(lost.length).toBe(19);
  for (const { body } of lost) {
    expect(body).toMatchObject({
      code: "revision_conflict",
      details: { current_revision: won[0]?.body["revision"] },
    });
  }
  const file = (await readJson(gateway.projectFile)) as { rules: unknown[] };
  expect(file.rules.length).toBe(1);
});

test("500 writes with four concurrent readers: every read is a whole file", async () => {
  const gateway = await startHooksGateway();
  const scope = { realm: "global", home: gateway.home, cwd: gateway.project, configDir: null };
  const place = (await findPlaces(scope)).places[1];
  if (place === undefined) {
    throw new Error("no project layer");
  }
  await put(gateway.projectFile, { version: 1, rules: [], filler: "x".repeat(50_000) });
  const writer = createSettingsWriter();
  let writing = true;
  let reads = 0;
  const broken: unknown[] = [];
  const readers = Array.from({ length: 4 }, async (_, reader) => {
    while (writing) {
      const loaded = await loadSettings(scope);
      reads += 1;
      if (loaded.warnings.length > 0 || loaded.files[1]?.state !== "read") {
        broken.push(loaded.warnings);
      }
      if (reader === 0) {
        JSON.parse(await readFile(gateway.projectFile, "utf8"));
      }
    }
  });
  for (let i = 0; i < 500; i++) {
    await writer.update(place, () => ({
      members: [["rules", [{ id: `r${i}`, text: `Text ${i}.`, kind: "limit" }]]],
      result: undefined,
    }));
  }
  writing = false;
  await Promise.all(readers);
  expect(broken).toEqual([]);
  expect(reads).toBeGreaterThan(100);
  expect(await readJson(gateway.projectFile)).toMatchObject({ rules: [{ id: "r499" }] });
}, 60_000);

test("a file that an editor saves during a write is not overwritten blindly", async () => {
  const gateway = await startHooksGateway();
  const scope = { realm: "global", home: gateway.home, cwd: gateway.project, configDir: null };
  const place = (await findPlaces(scope)).places[1];
  await put(gateway.projectFile, { version: 1, hand: 0 });
  if (place === undefined) {
    throw new Error("no project layer");
  }
  let attempts = 0;
  await createSettingsWriter().update(place, () => {
    attempts += 1;
    if (attempts === 1) {
      // what an editor does between our read and our write
      spawnSync("bash", ["-c", `printf '{"version":1,"hand":1}' > "$1"`, "x", gateway.projectFile]);
    }
    return { members: [["rules_timeout_ms", 500]], result: undefined };
  });
  expect(attempts).toBe(2);
  expect(await readJson(gateway.projectFile)).toEqual({
    version: 1,
    hand: 1,
    rules_timeout_ms: 500,
  });
});
