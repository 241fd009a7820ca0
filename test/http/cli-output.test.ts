import { test } from "vitest";
import { runCli, startCli, words } from "../support/cli-run.ts";
import { startEcho } from "../support/client-echo.ts";
import { CONTAINER, OTHER_CONTAINER, TOKEN } from "../support/policy-api.ts";

test("containers list prints a table, bare JSON and bare YAML", async ({ expect }) => {
  const { cli } = await startCli();
  const table = await cli(["containers", "list"]);
  expect(table).toMatchObject({ code: 0, stderr: "" });
  expect(table.stdout.split("\n")[0]).toMatch(/^ID +PROJECT +SERVER +STATUS$/);
  expect(table.stdout).toContain(OTHER_CONTAINER);
  const json = await cli(["containers", "list", "-o", "json"]);
  expect(JSON.parse(json.stdout)).toMatchObject({ count: 2, containers: [{ id: CONTAINER }, {}] });
  const yaml = await cli(["containers", "get", CONTAINER, "--output", "yaml"]);
  expect(yaml.stdout).toMatch(new RegExp(`^id: ${CONTAINER}\n`));
  const quiet = await cli(["containers", "list", "-q"]);
  expect(quiet.stdout.split("\n")).toHaveLength(3);
});

test("the options of the connection may stand anywhere", async ({ expect }) => {
  const { baseURL } = await startCli();
  const flags = ["--base-url", baseURL, "--token", TOKEN, "-o", "json"];
  for (const line of [
    [...flags, "containers", "list"],
    ["containers", ...flags, "list"],
    ["containers", "list", ...flags],
  ]) {
    const result = await runCli(line);
    expect(result).toMatchObject({ code: 0, stderr: "" });
    expect(JSON.parse(result.stdout)).toMatchObject({ count: 2 });
  }
  const nearest = await runCli(["-o", "yaml", "containers", "list", ...flags]);
  expect(nearest.stdout.startsWith("{")).toBe(true);
});

test("a wrong or missing token is the server's 401, in one sentence", async ({ expect }) => {
  const { baseURL } = await startCli();
  for (const flags of [[], ["-t", "wrong"]]) {
    const result = await runCli(["containers", "list", "--base-url", baseURL, ...flags]);
    expect(result).toMatchObject({ code: 1, stdout: "" });
    expect(result.stderr).toMatch(/^Error \[401\] GET \/api\/v1\/containers: .+\n$/);
  }
});

test("a server that is not there, or is something else, is said in one sentence", async ({
  expect,
}) => {
  const echo = await startEcho((_request, response) =>
    response.writeHead(404).end("<html>no</html>"),
  );
  const wrong = await runCli(["containers", "list", "--base-url", echo.baseURL]);
  expect(wrong.code).toBe(1);
  expect(wrong.stderr).toBe("Error [404] GET /api/v1/containers: Not Found\n");
  echo.server.close();
  echo.server.closeAllConnections();
  const none = await runCli(["containers", "list", "--base-url", echo.baseURL]);
  expect(none.code).toBe(1);
  expect(none.stderr).toBe(
    `Error: GET /api/v1/containers: no answer from ${echo.baseURL}: connection refused\n`,
  );
});

test("what a server sends cannot give orders to the terminal", async ({ expect }) => {
  const { baseURL } = await startEcho((request, response) => {
    const fail = request.url?.includes("/proxy/") === true;
    response.writeHead(fail ? 500 : 200, { "content-type": "application/json" });
    response.end(
      fail
        ? JSON.stringify({ message: "\u001b]0;owned\u0007\nsecond line" })
        : JSON.stringify({
            statusCode: 200,
            message: "",
            data: { containers: [{ id: "\u001b[31m", project_id: "\u009b", server_name: "a\nb" }] },
          }),
    );
  });
  for (const format of ["table", "json", "yaml"]) {
    const { stdout } = await runCli(["containers", "list", "--base-url", baseURL, "-o", format]);
    expect(stdout).not.toMatch(/[\u001b\u009b]/);
  }
  const { stderr } = await runCli(
    words(`containers proxy hooks list -c ${CONTAINER} --base-url ${baseURL}`),
  );
  expect(stderr).toBe(
    `Error [500] GET /api/v1/containers/${CONTAINER}/proxy/hooks: \\x1b]0;owned\\x07\\x0asecond line\n`,
  );
});

test("every command's help has examples that it accepts", async ({ expect }) => {
  const { baseURL } = await startEcho();
  const leaves: string[][] = [];
  const walk = async (path: string[]): Promise<void> => {
    const { stdout, code } = await runCli([...path, "--help"]);
    expect(code).toBe(0);
    const commands = /\nCommands:\n([\s\S]*?)(?:\n\n|$)/.exec(stdout)?.[1];
    if (commands === undefined) {
      leaves.push(path);
      const examples = [...stdout.matchAll(/^ {2}\$ interpose (.+)$/gm)].map(
        (match) => match[1] ?? "",
      );
      if (path[0] !== "completion") {
        expect(examples.length, path.join(" ")).toBeGreaterThan(0);
        for (const example of examples) {
          expect(example.startsWith(path.join(" "))).toBe(true);
          if (!/--[a-z-]*file|tail/.test(example)) {
            const run = await runCli([...words(example), "--base-url", baseURL, "-y"]);
            expect(run.code, `${example}: ${run.stderr}`).not.toBe(2);
          }
        }
      }
      return;
    }
    for (const name of [...commands.matchAll(/^ {2}([a-z-]+)/gm)].map((match) => match[1] ?? "")) {
      if (name !== "help") {
        await walk([...path, name]);
      }
    }
  };
  await walk([]);
  expect(leaves.length).toBeGreaterThan(40);
});
