import { test } from "vitest";
import { parse } from "yaml";
import { runCli, startCli, words } from "../support/cli-run.ts";
import { CONTAINER } from "../support/policy-api.ts";

const CREATE = `containers proxy hooks create -c ${CONTAINER} terminal --match-method POST --match-path '/api/login*' --script-path /login-audit --timeout 500`;

/** Two rules of one service; their ids, and the version after them. */
async function twoHooks(cli: Awaited<ReturnType<typeof startCli>>["cli"]) {
  const ids: string[] = [];
  for (const [at, path] of ["/first", "/second"].entries()) {
    const made = await cli(
      words(
        `containers proxy hooks create -c ${CONTAINER} terminal --match-path '*' --script-path ${path} --if-match file:v${at} -o json`,
      ),
    );
    ids.push((JSON.parse(made.stdout) as { hook: { id: string } }).hook.id);
  }
  return ids as [string, string];
}

test("hooks create sends the flags as a rule and tells the new version", async ({ expect }) => {
  const { cli, call } = await startCli();
  const made = await cli(words(`${CREATE} --if-match file:v0`));
  expect(made).toMatchObject({ code: 0, stderr: "" });
  expect(made.stdout).toMatch(
    /^Created hook [0-9a-z]{26} of terminal at position 0; the version is now file:v1\.\n$/,
  );
  const stored = await call("GET", `/api/v1/containers/${CONTAINER}/proxy/hooks/terminal`);
  expect(stored.body.data.hooks).toMatchObject([
    {
      match: { method: ["POST"], path: "/api/login*" },
      script: { path: "/login-audit" },
      timeout: 500,
    },
  ]);
});

test("hooks create takes lists, headers, coordinates, groups and a position", async ({
  expect,
}) => {
  const { cli, call } = await startCli();
  await twoHooks(cli);
  const made = await cli(
    words(
      `containers proxy hooks create -c ${CONTAINER} terminal --match-method post,PUT --match-method DELETE --match-headers X-Tenant=alice=1 --match-headers X-B=2 --script-subdomain myapp --script-exec-id obs --script-path /s --position 0 --if-match file:v2 -o json`,
    ),
  );
  expect(made.code).toBe(0);
  const { hook } = JSON.parse(made.stdout) as { hook: Record<string, unknown> };
  expect(hook).toMatchObject({
    position: 0,
    match: { method: ["POST", "PUT", "DELETE"], headers: { "x-tenant": "alice=1", "x-b": "2" } },
    script: { subdomain: "myapp", execId: "obs", path: "/s" },
  });
  const list = await call("GET", `/api/v1/containers/${CONTAINER}/proxy/hooks/terminal`);
  expect(list.body.data.hooks[0].id).toBe(hook["id"]);
});

test("a write without, and with an outdated version, shows what the server says", async ({
  expect,
}) => {
  const { cli } = await startCli();
  const path = `/api/v1/containers/${CONTAINER}/proxy/hooks/terminal`;
  for (const flags of ["", " --if-match ''"]) {
    const missing = await cli(words(`${CREATE}${flags}`));
    expect(missing).toMatchObject({ code: 1, stdout: "" });
    expect(missing.stderr).toMatch(new RegExp(`^Error \\[428\\] POST ${path}: .+\\n$`));
  }
  await cli(words(`${CREATE} --if-match file:v0`));
  const stale = await cli(words(`${CREATE} --if-match file:v0`));
  expect(stale.code).toBe(1);
  expect(stale.stderr).toMatch(new RegExp(`^Error \\[412\\] POST ${path}: .+\\n$`));
});

test("a star among the methods and a rule without match are the server's to refuse", async ({
  expect,
}) => {
  const { cli } = await startCli();
  const star = await cli(
    words(
      `containers proxy hooks create -c ${CONTAINER} terminal --match-method '*' --match-path '*' --script-path /a --if-match file:v0`,
    ),
  );
  expect(star).toMatchObject({ code: 1, stdout: "" });
  expect(star.stderr).toContain("[422]");
  const bare = await cli(
    words(
      `containers proxy hooks create -c ${CONTAINER} terminal --script-path /a --if-match file:v0`,
    ),
  );
  expect(bare.code).toBe(1);
  expect(bare.stderr).toContain("[422]");
});

test("hooks get, list, set, move and delete work on a rule by its id", async ({ expect }) => {
  const { cli, call } = await startCli();
  const [first, second] = await twoHooks(cli);

  const one = await cli(
    words(`containers proxy hooks get -c ${CONTAINER} terminal ${first} -o yaml`),
  );
  expect(parse(one.stdout)).toMatchObject({ hook: { id: first }, etag: "file:v2" });

  const list = await cli(words(`containers proxy hooks list -c ${CONTAINER}`));
  const lines = list.stdout.trimEnd().split("\n");
  expect(lines).toHaveLength(4);
  expect(lines[0]).toMatch(/^SERVICE +POS +ID +METHOD +PATH/);
  expect(lines[1]).toContain(first);
  expect(lines[3]).toBe("Version file:v2");

  const set = await cli(
    words(
      `containers proxy hooks set -c ${CONTAINER} terminal ${first} --match-method POST,PUT --match-path '/api/login*' --script-path /login-audit --timeout 1000 --if-match file:v2`,
    ),
  );
  expect(set.code).toBe(0);

  const move = await cli(
    words(
      `containers proxy hooks move -c ${CONTAINER} terminal ${second} --position 0 --if-match file:v3`,
    ),
  );
  expect(move.stdout).toContain("to position 0; the version is now file:v4");
  const stored = await call("GET", `/api/v1/containers/${CONTAINER}/proxy/hooks/terminal`);
  expect(stored.body.data.hooks).toMatchObject([
    { id: second },
    { id: first, timeout: 1000, match: { method: ["POST", "PUT"] } },
  ]);

  const gone = await cli(
    words(
      `containers proxy hooks delete -c ${CONTAINER} terminal ${first} --if-match file:v4 -y -o json`,
    ),
  );
  expect(JSON.parse(gone.stdout)).toEqual({ file_version: 5, etag: "file:v5" });
});

test("services hooks list and clear work on one service", async ({ expect }) => {
  const { cli } = await startCli();
  await twoHooks(cli);
  const list = await cli(
    words(`containers proxy services hooks list -c ${CONTAINER} terminal -o json`),
  );
  expect((JSON.parse(list.stdout) as { hooks: unknown[] }).hooks).toHaveLength(2);
  const clear = await cli(
    words(`containers proxy services hooks clear -c ${CONTAINER} terminal --if-match file:v2`),
  );
  expect(clear.stdout).toBe("Removed 2 hooks of terminal; the version is now file:v3.\n");
  const empty = await cli(words(`containers proxy hooks list -c ${CONTAINER}`));
  expect(empty.stdout).toBe("No hooks.\nVersion file:v3\n");
});

test.for([
  ["y\n", 0, 1],
  ["YES\r\n", 0, 1],
  ["n\n", 1, 2],
  ["\n", 1, 2],
  ["yesterday\n", 1, 2],
  [undefined, 1, 2],
] as const)("hooks delete asks on a terminal: %j", async ([answer, code, left], { expect }) => {
  const { cli, call } = await startCli();
  const [first] = await twoHooks(cli);
  const result = await cli(
    words(`containers proxy hooks delete -c ${CONTAINER} terminal ${first} --if-match file:v2`),
    { terminal: true, ...(answer === undefined ? {} : { stdin: answer }) },
  );
  expect(result.code).toBe(code);
  expect(result.stderr).toContain(`Delete hook ${first} of terminal? [y/N]`);
  const stored = await call("GET", `/api/v1/containers/${CONTAINER}/proxy/hooks/terminal`);
  expect(stored.body.data.hooks).toHaveLength(left);
});

test("hooks delete sends nothing without a terminal unless -y is given", async ({ expect }) => {
  const { cli, env } = await startCli();
  const [first] = await twoHooks(cli);
  const sent: string[] = [];
  const watching: typeof fetch = (input, init) => {
    sent.push(String(init?.method));
    return fetch(input, init);
  };
  const line = words(
    `containers proxy hooks delete -c ${CONTAINER} terminal ${first} --if-match file:v2`,
  );
  const refused = await runCli(line, { env, fetch: watching, stdin: "y\n" });
  expect(refused).toMatchObject({ code: 1, stdout: "" });
  expect(refused.stderr).toMatch(/^Error: .*-y confirms\n$/);
  expect(sent).toEqual([]);
  const done = await runCli(["-y", ...line], { env, fetch: watching });
  expect(done.code).toBe(0);
  expect(sent).toEqual(["DELETE"]);
});

test.for([
  ["containers proxy hooks create -c ID terminal", "--script-path"],
  ["containers proxy hooks create terminal --script-path /a", "--container"],
  ["containers proxy hooks create -c ID --script-path /a", "service"],
  ["containers proxy hooks move -c ID terminal x --position one", "--position"],
  ["containers proxy hooks create -c ID terminal --script-path /a --match-headers x", "KEY=VALUE"],
  [
    "containers proxy hooks create -c ID terminal --script-path /a --match-headers x=1 --match-headers x=2",
    "twice",
  ],
  ["containers proxy hooks get -c ID terminal ..", "cannot be part"],
  ["containers proxy hooks list -c ID extra", "arguments"],
  ["containers proxy hooks list -c ID -o xml", "table, json, yaml"],
  ["containers proxy hooks list -c ID --unknown", "--unknown"],
  ["containers proxy hooks lst -c ID", "lst"],
  ["containers proxy", ""],
  ["containers proxy hooks list -c ID --base-url ftp://x", "http or https"],
  ["containers proxy hooks list -c ID --token a --token-file b", "together"],
  ["containers proxy hooks list -c ID --profile none", "INTERPOSE_NONE_BASE_URL"],
] as const)("wrong usage ends with 2: %s", async ([line, hint], { expect }) => {
  const { cli } = await startCli();
  const result = await cli(words(line.replace("ID", CONTAINER)));
  expect(result).toMatchObject({ code: 2, stdout: "" });
  expect(result.stderr).toContain(hint);
  if (hint !== "") {
    expect(result.stderr.trimEnd().split("\n")).toHaveLength(1);
  }
});
