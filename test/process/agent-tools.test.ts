import { execFileSync } from "node:child_process";
import { mkdir, readFile, rename, rm, stat, symlink, unlink, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { describe, onTestFinished, test } from "vitest";
import { createFiles } from "../../exec-host/tools/files.ts";
import { rgProgram, search } from "../../exec-host/tools/grep.ts";
import type { GrepRequest } from "../../exec-host/tools/grep.ts";
import { systemClock } from "../../policy/kernel/clock.ts";
import { realSandbox, startGateway, textOf } from "../support/agent-gateway.ts";

describe("file confinement", () => {
  test("fifos, sockets, devices and folders are refused at once", async ({ expect }) => {
    const gateway = await startGateway();
    const at = (name: string): string => join(gateway.project, name);
    execFileSync("mkfifo", [at("fifo")]);
    const server = createServer().listen(at("socket"));
    onTestFinished(() => void server.close());
    await mkdir(at("folder"));
    await symlink("fifo", at("to-fifo"));
    for (const path of ["fifo", "to-fifo", "socket", "folder"]) {
      const read = await gateway.run("read_file", { params: { path } });
      expect(read.json["error_code"], path).toBe("not_regular");
      const written = await gateway.run("write_file", {
        params: { path, content: "x" },
        allow_mutations: true,
      });
      expect(written.json["error_code"], path).toBe("not_regular");
      expect((await gateway.run("grep", { params: { pattern: "x", path } })).status).toBe(200);
    }
    const device = await gateway.run(
      "read_file",
      { params: { path: "/dev/zero" } },
      { "x-hoody-dir-scope": "full" },
    );
    expect(device.json["error_code"]).toBe("not_regular");
    expect(textOf(await gateway.run("grep", { params: { pattern: "x" } }))).toBe("[no line fits]");
  });

  test("a sibling with a common prefix and .. behind a link are outside", async ({ expect }) => {
    const gateway = await startGateway();
    await mkdir(join(gateway.root, "home-evil"));
    await writeFile(join(gateway.root, "home-evil/x"), "secret");
    await mkdir(join(gateway.root, "far/away"), { recursive: true });
    await writeFile(join(gateway.root, "far/x"), "secret");
    await symlink(join(gateway.root, "far/away"), join(gateway.project, "link"));
    for (const path of [join(gateway.root, "home-evil/x"), "link/../x", "../../home-evil/x"]) {
      expect((await gateway.run("read_file", { params: { path } })).json["error_code"], path).toBe(
        "outside_scope",
      );
    }
    const cwdOnly = await gateway.run("write_file", {
      params: { path: "../project-evil/x", content: "" },
      allow_mutations: true,
    });
    expect(cwdOnly.status).toBe(409);
  });

  test("a link swapped in while files are read and written never reaches outside", async ({
    expect,
  }) => {
    const gateway = await startGateway();
    const outside = join(gateway.root, "outside");
    const dir = join(gateway.project, "dir");
    await mkdir(outside);
    await writeFile(join(outside, "f"), "SECRET");
    await mkdir(dir);
    await writeFile(join(dir, "f"), "mine");
    let stop = false;
    const swapper = (async () => {
      while (!stop) {
        try {
          await rename(dir, `${dir}-real`);
          await symlink(outside, dir);
          await wait(0);
          await unlink(dir);
          await rename(`${dir}-real`, dir);
        } catch {
          // a write found no folder between two steps and made one: away with it, and on
          await rm(dir, { recursive: true, force: true });
          await rename(`${dir}-real`, dir).catch(() => {});
        }
        await wait(0);
      }
    })();
    const scope = {
      cwd: gateway.project,
      home: gateway.home,
      dirScope: "home" as const,
      protectedDirs: [],
    };
    const files = createFiles(scope, new Set());
    for (let i = 0; i < 600; i++) {
      const opened = await files.openFile("dir/f");
      if (opened.kind === "file") {
        expect(await opened.handle.readFile("utf8")).not.toBe("SECRET");
        await opened.handle.close();
      }
      await files.writeFile("dir/f", `round ${i}`);
    }
    stop = true;
    await swapper;
    expect(await readFile(join(outside, "f"), "utf8")).toBe("SECRET");
  });

  test("writing keeps the mode, replaces as a whole, and leaves nothing behind", async ({
    expect,
  }) => {
    const gateway = await startGateway();
    const file = join(gateway.project, "run.sh");
    await writeFile(file, "old", { mode: 0o755 });
    await symlink("run.sh", join(gateway.project, "alias"));
    const write = (path: string) =>
      gateway.run("write_file", { params: { path, content: "new" }, allow_mutations: true });
    expect((await write("alias")).json["is_error"]).toBe(false);
    expect([await readFile(file, "utf8"), (await stat(file)).mode & 0o777]).toEqual(["new", 0o755]);
    expect((await write("a/b/c")).json["is_error"]).toBe(false);
    expect(textOf(await gateway.run("list_dir", { params: {} }))).toBe("a/\nalias@\nrun.sh");
    expect((await write("run.sh/x")).json["error_code"]).toBe("not_regular");
  });
});

describe("reading tools", () => {
  test("read_file returns the lines asked for, and says when it cannot", async ({ expect }) => {
    const gateway = await startGateway();
    await writeFile(
      join(gateway.project, "lines"),
      Array.from({ length: 5000 }, (_, i) => `line ${i + 1}\n`).join(""),
    );
    await writeFile(join(gateway.project, "binary"), Buffer.from([1, 0, 2]));
    await writeFile(join(gateway.project, "long"), "x".repeat(1_000_000));
    const read = async (params: Record<string, unknown>) => gateway.run("read_file", { params });
    expect(textOf(await read({ path: "lines", offset: 3, max_lines: 2 }))).toBe("line 3\nline 4\n");
    expect(textOf(await read({ path: "lines" })).split("\n")).toHaveLength(2001);
    expect(textOf(await read({ path: "lines", offset: 9000 }))).toBe("");
    expect((await read({ path: "binary" })).json["error_code"]).toBe("binary");
    expect(textOf(await read({ path: "long" })).length).toBeLessThan(263_000);
    expect((await read({ path: "missing" })).json["error_code"]).toBe("not_found");
    expect((await read({ path: "a\0b" })).json["error_code"]).toBe("outside_scope");
  });

  test("glob finds by name, without links, and within its limit", async ({ expect }) => {
    const gateway = await startGateway();
    for (const path of ["src/a.ts", "src/deep/b.ts", "src/c.js", ".hidden/d.ts", ".ssh/e.ts"]) {
      await mkdir(join(gateway.project, path, ".."), { recursive: true });
      await writeFile(join(gateway.project, path), "");
    }
    await symlink("/etc", join(gateway.project, "etc"));
    const find = async (params: Record<string, unknown>) =>
      textOf(await gateway.run("glob", { params })).split("\n");
    expect(await find({ pattern: "**/*.ts" })).toEqual(["src/a.ts", "src/deep/b.ts"]);
    expect(await find({ pattern: "src/*.{ts,js}" })).toEqual(["src/a.ts", "src/c.js"]);
    expect(await find({ pattern: ".hidden/*" })).toEqual([".hidden/d.ts"]);
    expect(await find({ pattern: ".ssh/*" })).toEqual(["[no file fits]"]);
    expect(await find({ pattern: "*.ts", path: "src" })).toEqual(["a.ts"]);
    expect(await find({ pattern: "**/*", limit: 1 })).toEqual([
      "src/a.ts",
      "[cut: more paths fit]",
    ]);
    expect(await find({ pattern: "etc/*" })).toEqual(["[no file fits]"]);
  });

  test("both search engines find the same", async ({ expect }) => {
    const gateway = await startGateway();
    const put = async (path: string, content: string | Buffer): Promise<void> => {
      await mkdir(join(gateway.project, path, ".."), { recursive: true });
      await writeFile(join(gateway.project, path), content);
    };
    await put("a.txt", "needle one\nhay\nNEEDLE two\n");
    await put("src/b.ts", "hay\n  needle three");
    await put("src/c.js", "needle four\n");
    await put("ignored/d.txt", "needle five\n");
    await put("src/skip.log", "needle six\n");
    await put("src/keep.log", "needle seven\n");
    await put(".hidden", "needle eight\n");
    await put(".npmrc", "needle token\n");
    await put("binary", Buffer.from("needle\0nine\n"));
    await put("protected/x", "needle ten\n");
    await put(".gitignore", "ignored/\n*.log\n!keep.log\n");
    await symlink("/etc", join(gateway.project, "etc"));
    const scope = {
      cwd: gateway.project,
      home: gateway.home,
      dirScope: "home" as const,
      protectedDirs: [join(gateway.project, "protected")],
    };
    const files = createFiles(scope, new Set());
    const ask = async (rg: string | null, change: Partial<GrepRequest>) => {
      const opened = await files.openDir(".");
      if (opened.kind !== "dir") {
        throw new Error("not opened");
      }
      const request: GrepRequest = {
        at: opened.at,
        rootPath: opened.physical,
        isFile: false,
        pattern: "needle",
        glob: null,
        ignoreCase: false,
        maxResults: 100,
        protectedDirs: scope.protectedDirs,
        ...change,
      };
      const answer = await search(
        request,
        { clock: systemClock, signal: new AbortController().signal },
        rg,
      );
      await opened.handle.close();
      return answer;
    };
    const rg = rgProgram({ searchPath: process.env["PATH"] ?? "" });
    expect(await ask(null, {})).toEqual({
      kind: "lines",
      more: false,
      lines: [
        "a.txt:1:needle one",
        "src/b.ts:2:  needle three",
        "src/c.js:1:needle four",
        "src/keep.log:1:needle seven",
      ],
    });
    const questions: Partial<GrepRequest>[] = [
      {},
      { ignoreCase: true },
      { glob: "*.ts" },
      { glob: "src/*.js" },
      { pattern: "need.e (two|four)$", ignoreCase: true },
      { maxResults: 2 },
      { pattern: "(" },
      { pattern: "nothing" },
    ];
    for (const question of questions) {
      const own = await ask(null, question);
      // where ripgrep is not installed there is one engine to ask
      expect(await ask(rg, question), JSON.stringify(question)).toEqual(own);
    }
  });

  test("a pattern that takes for ever takes nobody else's time", async ({ expect }) => {
    const gateway = await startGateway();
    await writeFile(join(gateway.project, "evil"), `${"a".repeat(40)}b\n`);
    const abort = new AbortController();
    const request: GrepRequest = {
      at: "",
      rootPath: "",
      isFile: false,
      pattern: "(a+)+$",
      glob: null,
      ignoreCase: false,
      maxResults: 1,
      protectedDirs: [],
    };
    const files = createFiles(
      { cwd: gateway.project, home: gateway.home, dirScope: "home", protectedDirs: [] },
      new Set(),
    );
    const opened = await files.openDir(".");
    if (opened.kind !== "dir") {
      throw new Error("not opened");
    }
    setTimeout(() => abort.abort(), 500);
    const answer = await search(
      { ...request, at: opened.at, rootPath: opened.physical },
      { clock: systemClock, signal: abort.signal },
      null,
    );
    await opened.handle.close();
    expect(answer).toMatchObject({ kind: "failed", code: "cancelled" });
  });
});

describe("edits and inner calls", () => {
  test("edit_file wants one match unless all are meant", async ({ expect }) => {
    const gateway = await startGateway();
    await writeFile(join(gateway.project, "a"), "x y x");
    const edit = (more: Record<string, unknown>) =>
      gateway.run("edit_file", {
        params: { path: "a", old_string: "x", new_string: "$&z", ...more },
        allow_mutations: true,
      });
    expect((await edit({})).json["error_code"]).toBe("several_matches");
    expect((await edit({ old_string: "q" })).json["error_code"]).toBe("no_match");
    expect((await edit({ replace_all: true })).json["is_error"]).toBe(false);
    expect(await readFile(join(gateway.project, "a"), "utf8")).toBe("$&z y $&z");
  });

  test("the orchestrator's calls pass the same gate one by one", async ({ expect }) => {
    const gateway = await startGateway();
    const calls = [
      { tool: "write_file", params: { path: "a", content: "1" } },
      { tool: "bash", params: { cmd: "git push -f" } },
      { tool: "write_file", params: { path: "b", content: "2" } },
    ];
    const ran = await gateway.run("tool_orchestrator", {
      params: { calls },
      allow_mutations: true,
    });
    expect(ran.json).toMatchObject({ is_error: true, error_code: "inner_call" });
    const report = JSON.parse(textOf(ran)) as {
      tool: string;
      error_code?: string;
      needs_confirmation?: { confirm_token: string };
    }[];
    expect(report.map((one) => one.error_code)).toEqual([undefined, "tool_needs_confirmation"]);
    const passed = await gateway.run("bash", {
      params: { cmd: "git push -f" },
      confirm: true,
      confirm_token: report[1]?.needs_confirmation?.confirm_token ?? "",
    });
    expect(passed.status).toBe(200);
    await expect(readFile(join(gateway.project, "b"))).rejects.toThrow();
    const refused = await gateway.run("tool_orchestrator", { params: { calls: [] } });
    expect(refused.status).toBe(400);
    const nested = {
      calls: [
        {
          tool: "tool_orchestrator",
          params: {
            calls: [
              {
                tool: "tool_orchestrator",
                params: {
                  calls: [
                    {
                      tool: "tool_orchestrator",
                      params: { calls: [{ tool: "read_file", params: { path: "a" } }] },
                    },
                  ],
                },
              },
            ],
          },
        },
      ],
    };
    expect(
      textOf(await gateway.run("tool_orchestrator", { params: nested, allow_mutations: true })),
    ).toContain("too_deep");
  });

  test("a headless session denies inner calls as it denies direct ones", async ({ expect }) => {
    const gateway = await startGateway();
    const id = await gateway.createSession({ headless: true });
    const ran = await gateway.runIn(id, "tool_orchestrator", {
      params: { calls: [{ tool: "bash", params: { cmd: "rm -rf /" } }] },
    });
    expect(JSON.parse(textOf(ran))).toMatchObject([
      { tool: "bash", is_error: true, error_code: "denied" },
    ]);
  });
});

describe("the read-only sandbox", () => {
  test("what the gate lets through still cannot write, nor see credentials", async ({ expect }) => {
    const sandbox = await realSandbox();
    const gateway = await startGateway({ sandbox });
    const ran = await gateway.run("bash", { params: { cmd: "ls -la && pwd" } });
    expect(ran.json["is_error"]).toBe(false);
    expect(textOf(ran)).toContain(gateway.project);
    if (sandbox.kind === "none") {
      expect(sandbox.reason).toMatch(/bubblewrap/);
      return;
    }
    await mkdir(join(gateway.home, ".ssh"));
    await writeFile(join(gateway.home, ".ssh/id"), "key");
    await writeFile(join(gateway.home, ".netrc"), "key");
    const scope = {
      cwd: gateway.project,
      home: gateway.home,
      dirScope: "home" as const,
      protectedDirs: [],
    };
    const [program = "", ...args] = sandbox.launcher(scope, gateway.project);
    const inside = (command: string): string => {
      try {
        return execFileSync(program, [...args, "bash", "-c", `${command} 2>&1`], {
          encoding: "utf8",
        });
      } catch (error) {
        return String((error as { stdout: string }).stdout);
      }
    };
    expect(inside("touch new")).toMatch(/Read-only file system/);
    expect(inside(`ls ${gateway.home}/.ssh | wc -l`)).toMatch(/^0/);
    expect(inside(`cat ${gateway.home}/.netrc`)).not.toContain("key");
    await rm(join(gateway.home, ".ssh"), { recursive: true });
  });
});
