import { test } from "vitest";
import { startCli, words } from "../support/cli-run.ts";
import { CONTAINER } from "../support/policy-api.ts";

test("aliases are created, listed, changed, switched and deleted", async ({ expect }) => {
  const { cli } = await startCli();
  const run = (line: string) => cli(words(`proxy aliases ${line}`));
  const made = await run(
    `create -c ${CONTAINER} --alias my-app --program http --port 8080 --target-path /start --allow-path-override false -o json`,
  );
  expect(made).toMatchObject({ code: 0, stderr: "" });
  const alias = JSON.parse(made.stdout) as { id: string };
  expect(alias).toMatchObject({
    alias: "my-app",
    program: "http",
    port: 8080,
    target_path: "/start",
    allow_path_override: false,
    enabled: true,
  });
  const list = await run(`list -c ${CONTAINER}`);
  expect(list.stdout).toMatch(/^ID +ALIAS +ENABLED +URL\n\S+ +my-app +true +http/);
  const updated = await run(`update ${alias.id} --target-path null --index 2 -o json`);
  expect(JSON.parse(updated.stdout)).toMatchObject({ target_path: null, alias: "my-app" });
  expect((await run(`disable ${alias.id}`)).stdout).toBe("The alias is disabled.\n");
  expect(JSON.parse((await run(`get ${alias.id} -o json`)).stdout)).toMatchObject({
    enabled: false,
  });
  expect((await run("list --enabled true")).stdout).toBe("No aliases.\n");
  expect((await run(`enable ${alias.id}`)).code).toBe(0);
  expect((await run(`delete ${alias.id}`)).code).toBe(0);
  const gone = await run(`get ${alias.id}`);
  expect(gone.code).toBe(1);
  expect(gone.stderr).toMatch(/^Error \[404\] GET /);
});

test("a taken alias, and one the server does not allow, are told", async ({ expect }) => {
  const { cli } = await startCli();
  const create = (rest: string) => cli(words(`proxy aliases create -c ${CONTAINER} ${rest}`));
  expect((await create("--alias shop --program files")).stdout).toMatch(
    /^Created alias shop \(\S+\): http\S+\n$/,
  );
  expect((await create("--alias shop --program notes")).stderr).toMatch(/^Error \[409\]/);
  expect((await create("--alias proxy --program notes")).stderr).toMatch(/^Error \[400\]/);
  expect(await create("--alias x")).toMatchObject({ code: 2 });
  expect(await create("--program http --port many")).toMatchObject({ code: 2 });
  expect(await cli(words("proxy aliases update 01k5x0q8w3zr7v2m9n4p6t1a0b"))).toMatchObject({
    code: 2,
  });
});

test("explain tells the winner, and why each other rule is not", async ({ expect }) => {
  const { cli } = await startCli();
  const create = async (line: string, at: number) => {
    const made = await cli(
      words(
        `containers proxy hooks create -c ${CONTAINER} terminal ${line} --if-match file:v${at} -o json`,
      ),
    );
    return (JSON.parse(made.stdout) as { hook: { id: string } }).hook.id;
  };
  const post = await create("--match-method POST --match-path '/api/*' --script-path /audit", 0);
  const tenant = await create(
    "--match-path '*' --match-headers x-tenant=alice --script-subdomain myapp --script-path /tenant",
    1,
  );
  const explain = (line: string) => cli(words(`explain -c ${CONTAINER} ${line}`));

  const dispatch = await explain("terminal GET /api/x --header X-Tenant=alice");
  expect(dispatch).toMatchObject({ code: 0, stderr: "" });
  const lines = dispatch.stdout.trimEnd().split("\n");
  expect(lines[0]).toBe(`dispatch to myapp:/tenant by rule ${tenant}`);
  expect(lines[2]).toMatch(new RegExp(`^0 +${post} +no +method `));
  expect(lines[3]).toMatch(new RegExp(`^1 +${tenant} +yes +- `));

  expect((await explain("terminal GET /x")).stdout).toMatch(/^forward to the service/);
  expect((await explain("files GET /x")).stdout).toBe(
    "forward to the service: no rule takes it\nNo rules.\n",
  );
  const upgrade = await explain("terminal GET /x --header x-tenant=alice --upgrade");
  expect(upgrade.stdout).toMatch(/^refuse with 403 HOOK_WEBSOCKET_UNSUPPORTED/);
  const json = await explain("terminal POST /api/x -o json");
  expect(JSON.parse(json.stdout)).toMatchObject({ outcome: "dispatch", hook_id: post });
  expect(await explain("terminal GET")).toMatchObject({ code: 2 });
  expect((await explain("terminal GET x")).stdout).toMatch(/^refuse with 400 BAD_TARGET/);
});
