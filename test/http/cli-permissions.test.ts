import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished, test } from "vitest";
import { startCli, words } from "../support/cli-run.ts";
import { CONTAINER, PROJECT } from "../support/policy-api.ts";

const OWNERS = [
  ["containers", `-c ${CONTAINER}`, `/api/v1/containers/${CONTAINER}/proxy/permissions`],
  ["projects", `--project ${PROJECT}`, `/api/v1/projects/${PROJECT}/proxy/permissions`],
] as const;

function file(name: string, text: string): string {
  const folder = mkdtempSync(join(tmpdir(), "interpose-cli-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const path = join(folder, name);
  writeFileSync(path, text, { mode: 0o600 });
  return path;
}

test.for(OWNERS)(
  "%s proxy permissions: every write lands in the document",
  async ([owner, at, path], { expect }) => {
    const { cli, call } = await startCli();
    let version = 0;
    /** Runs a write on the version at hand and gives the document after it. */
    const write = async (line: string, extra: string[] = []) => {
      const result = await cli([
        ...words(
          `${owner} proxy permissions ${line.replace("AT", at)} --if-match file:v${version}`,
        ),
        ...extra,
      ]);
      expect(result, `${line}: ${result.stderr}`).toMatchObject({ code: 0, stderr: "" });
      version++;
      expect(result.stdout.trimEnd()).toMatch(
        new RegExp(`; the version is now file:v${version}\\.$`),
      );
      return (await call("GET", path)).body.data;
    };

    const yaml = file(
      "permissions.yaml",
      "groups:\n  office: { type: ip, range: 203.0.113.0/24 }\npermissions:\n  office: { terminal: true }\ndefault: deny\n",
    );
    expect(await write(`set AT --file ${yaml}`)).toMatchObject({
      groups: { office: { type: "ip", range: "203.0.113.0/24" } },
      permissions: { office: { terminal: true } },
      default: "deny",
      enable_proxy: true,
    });
    expect(await write("disable AT")).toMatchObject({ enable_proxy: false });
    expect(await write("enable AT")).toMatchObject({ enable_proxy: true });
    expect(await write("default AT allow")).toMatchObject({ default: "allow" });
    expect(await write("group ip set AT lab --range 10.0.0.0/8")).toMatchObject({
      groups: { lab: { type: "ip", range: "10.0.0.0/8" } },
    });
    const secret = file("secret", "s3cret\n");
    const withPassword = await write(
      `group password set AT web --username u --password-file ${secret} --salt s1`,
    );
    expect(withPassword.groups.web).toMatchObject({ type: "password", username: "u", salt: "s1" });
    expect(withPassword.groups.web.password).toMatch(/^[0-9a-f]{64}$/);
    expect(await write("group token set AT ci --header X-Api-Key --value abc")).toMatchObject({
      groups: { ci: { type: "token", header: "X-Api-Key", value: "abc" } },
    });
    expect(
      await write(
        `group jwt set AT app --algorithm HS256 --secret-file ${secret} --source header:Authorization --source cookie:__Host-j --claim role=admin --claim n=5 --claim ok=true`,
        ["--claim", 'text="5"'],
      ),
    ).toMatchObject({
      groups: {
        app: {
          type: "jwt",
          secret: "s3cret",
          sources: ["header:Authorization", "cookie:__Host-j"],
          claims: { role: "admin", n: 5, ok: true, text: "5" },
        },
      },
    });
    expect(await write("cell set AT lab http --access '\"8000-8100\"'")).toMatchObject({
      permissions: { lab: { http: "8000-8100" } },
    });
    expect(await write("cell set AT lab terminal --access [1,2]")).toMatchObject({
      permissions: { lab: { terminal: [1, 2] } },
    });
    expect((await write("cell delete AT lab http")).permissions.lab).toEqual({ terminal: [1, 2] });
    expect((await write("cell delete AT lab")).permissions.lab ?? {}).toEqual({});
    expect((await write("group delete AT lab")).groups).not.toHaveProperty("lab");
    const got = await cli(words(`${owner} proxy permissions get ${at} -o json`));
    expect(JSON.parse(got.stdout)).toMatchObject({ default: "allow", file_version: version });
    expect(await write("delete AT")).toMatchObject({ groups: {}, permissions: {} });
  },
);

test("permissions set reads JSON from a flag and from standard input", async ({ expect }) => {
  const { cli } = await startCli();
  const document = JSON.stringify({ groups: {}, permissions: {}, default: "deny" });
  const at = words(`containers proxy permissions set -c ${CONTAINER}`);
  const flag = await cli([...at, "--json", document, "--if-match", "file:v0"]);
  expect(flag.code).toBe(0);
  const piped = await cli([...at, "--file", "-", "--if-match", "file:v1", "-o", "json"], {
    stdin: document,
  });
  expect(JSON.parse(piped.stdout)).toMatchObject({ etag: "file:v2", default: "deny" });
});

test("what the server refuses is told with its reason", async ({ expect }) => {
  const { cli } = await startCli();
  const bad = await cli(
    words(
      `containers proxy permissions group ip set -c ${CONTAINER} x --range 999.0.0.0/8 --if-match file:v0`,
    ),
  );
  expect(bad).toMatchObject({ code: 1, stdout: "" });
  expect(bad.stderr).toMatch(/^Error \[400\] PUT \/api\/v1\/containers\/[^:]+: .*range.*\n$/i);
  const proto = await cli(
    words(
      `containers proxy permissions group ip set -c ${CONTAINER} __proto__ --range 10.0.0.0/8 --if-match file:v0`,
    ),
  );
  expect(proto.stderr).toMatch(/^Error \[400\]/);
});

test.for([
  ["permissions set -c ID", "exactly one of --file and --json"],
  ["permissions set -c ID --file a --json {}", "exactly one of --file and --json"],
  ["permissions set -c ID --json {", "--json is no JSON"],
  ["permissions set -c ID --json [1]", "must be an object"],
  ["permissions default -c ID perhaps", "allow, deny"],
  ["permissions cell set -c ID g terminal --access *", "--access takes JSON"],
  ["permissions cell set -c ID g terminal --access 8000-8100", "--access takes JSON"],
  ["permissions group token set -c ID g --value v", "exactly one of --header"],
  [
    "permissions group token set -c ID g --value v --header a --cookie b",
    "exactly one of --header",
  ],
  ["permissions group token set -c ID g --header a", "exactly one of --value and --value-file"],
  ["permissions group jwt set -c ID g --algorithm none --secret s --source header:A", "HS256"],
  ["settings update -c ID", "--enable-proxy, --default or both"],
  ["settings update -c ID --enable-proxy maybe", "true or false"],
] as const)("wrong usage ends with 2 and sends nothing: %s", async ([line, hint], { expect }) => {
  const { cli, call } = await startCli();
  const result = await cli([
    ...words(`containers proxy ${line.replace("ID", CONTAINER)}`),
    "--if-match",
    "file:v0",
  ]);
  expect(result).toMatchObject({ code: 2, stdout: "" });
  expect(result.stderr).toContain(hint);
  expect((await call("GET", OWNERS[0][2])).body.data.file_version).toBe(0);
});

test("an unreadable or broken file ends with 1", async ({ expect }) => {
  const { cli } = await startCli();
  const at = words(`containers proxy permissions set -c ${CONTAINER} --if-match file:v0 --file`);
  const none = await cli([...at, "/nonexistent/permissions.json"]);
  expect(none).toMatchObject({
    code: 1,
    stderr: "Error: cannot read /nonexistent/permissions.json: no such file\n",
  });
  const broken = await cli([...at, file("x.yaml", "a: [1\nb: }")]);
  expect(broken.code).toBe(1);
  expect(broken.stderr).toMatch(/^Error: .*neither JSON nor YAML.*\n$/);
});

test("settings, groups and services are shown and changed", async ({ expect }) => {
  const { cli } = await startCli();
  const on = (line: string) => cli(words(`containers proxy ${line} -c ${CONTAINER}`));
  expect(
    (await on("settings update --default deny --enable-proxy true --if-match file:v0")).stdout,
  ).toBe("Updated the settings; the version is now file:v1.\n");
  expect((await on("settings get")).stdout).toMatch(
    /^enable_proxy {2}true\ndefault +deny\nfile_version +1\netag +file:v1\n$/,
  );
  await on("permissions group ip set lab --range 10.0.0.0/8 --if-match file:v1");
  await on("permissions cell set lab files --access true --if-match file:v2");
  expect((await on("groups list")).stdout).toBe("GROUP  RULES\nlab    1\nVersion file:v3\n");
  expect((await on("services list")).stdout).toBe("SERVICE\nfiles\nVersion file:v3\n");
  const one = await on("services get files -o json");
  expect(JSON.parse(one.stdout)).toMatchObject({
    service: "files",
    is_reject_listed: false,
    permissions_raw: { lab: true },
    effective_default: "deny",
  });
});
