import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { loadExecHostConfig } from "../../exec-host/config.ts";
import { tempDir } from "../support/exec-pool.ts";

async function load(text: string, env: Record<string, string> = {}) {
  const folder = await tempDir();
  const file = join(folder, "exec.yaml");
  await writeFile(file, text);
  return { folder, result: loadExecHostConfig(file, env) };
}

test("loadExecHostConfig() fills defaults, resolves paths and takes the environment", async () => {
  const text = 'listen: "[::1]:0"\nsecret: ${EXEC_SECRET}\nallow: { read: [./shared] }\n';
  const { folder, result } = await load(text, { EXEC_SECRET: "0123456789abcdef" });
  expect(result).toMatchObject({
    ok: true,
    config: {
      listen: { host: "::1", port: 0 },
      secret: "0123456789abcdef",
      dataDir: join(folder, "data"),
      scripts: join(folder, "data/containers/local/scripts"),
      memoryMb: 256,
      allow: { childProcess: false, read: [join(folder, "shared")], write: [] },
    },
  });
});

test("loadExecHostConfig() reports every problem with its pointer", async () => {
  const { result } = await load(
    "secret: short\nlisten: nowhere\nmemoryMb: 1\nnope: 1\nuser: root\n",
  );
  const paths = result.ok ? [] : result.issues.map((issue) => issue.path);
  expect(paths.sort()).toEqual(["/listen", "/memoryMb", "/nope", "/secret", "/user"]);
});

test("loadExecHostConfig() refuses a missing variable, a missing file and text that is no YAML", async () => {
  const unset = await load("secret: ${NOT_THERE}\n");
  expect(unset.result).toEqual({
    ok: false,
    issues: [{ path: "/secret", message: "the environment variable NOT_THERE is not set" }],
  });
  expect((await load("a: [")).result.ok).toBe(false);
  expect(loadExecHostConfig("/nowhere/exec.yaml", {}).ok).toBe(false);
  expect((await load("secret: 0123456789abcdef\nlisten: 'h:99999'\n")).result.ok).toBe(false);
});
