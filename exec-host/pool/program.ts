import { readdirSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** What a process is for: to run scripts, or to answer the management routes. */
export type ChildRole = "scripts" | "manage";

/** A program to start, and the product's own files it reads. */
export interface Program {
  readonly entry: string;
  readonly readPaths: readonly string[];
}

const isSource = import.meta.url.endsWith(".ts");
/** Folder that holds `exec-host/` as it runs now: the package itself, or its `dist/`. */
const codeRoot = fileURLToPath(new URL("../../", import.meta.url));
const packageRoot = isSource ? codeRoot : join(codeRoot, "..");
const ENTRIES: Readonly<Record<ChildRole, string>> = {
  scripts: "exec-host/worker/main",
  manage: "exec-host/manage/main",
};
/** Where the programs' modules come from; nothing here holds state. */
const PARTS = [
  "exec-host/worker",
  "exec-host/manage",
  "exec-host/scripts",
  "exec-host/protocol.ts",
  "exec-host/execution-records.ts",
  "policy/kernel",
  "dispatcher",
];

/**
 * The program of a role. From sources, the compiled one is taken while no source file is newer: stripping types costs
 * a start 130 of its 205 ms of CPU (measured), and a worker's start is what a request may wait for.
 *
 * @param given another program in its place, for tests; it may use the sources beside this one.
 */
export function findProgram(role: ChildRole, given?: string): Program {
  const dist = join(packageRoot, "dist");
  const useDist = isSource && given === undefined && isFresh(join(dist, `${ENTRIES[role]}.js`));
  const root = useDist ? dist : codeRoot;
  const entry = given ?? join(root, `${ENTRIES[role]}${isSource && !useDist ? ".ts" : ".js"}`);
  return {
    entry,
    readPaths: [
      entry,
      ...["exec-host", "policy/kernel", "dispatcher"].map((part) => `${join(root, part)}/`),
      join(packageRoot, "package.json"),
      `${dirname(createRequire(import.meta.url).resolve("acorn/package.json"))}/`,
    ],
  };
}

/** Whether a compiled file is there and younger than everything it may be made of. */
function isFresh(compiled: string): boolean {
  const builtAt = statSync(compiled, { throwIfNoEntry: false })?.mtimeMs;
  if (builtAt === undefined) {
    return false;
  }
  return PARTS.every((part) => newestMs(join(codeRoot, part)) <= builtAt);
}

/** When a source file, or the youngest below a folder, was changed. */
function newestMs(path: string): number {
  const info = statSync(path, { throwIfNoEntry: false });
  if (!info?.isDirectory()) {
    return path.endsWith(".ts") ? (info?.mtimeMs ?? 0) : 0;
  }
  return Math.max(0, ...readdirSync(path).map((name) => newestMs(join(path, name))));
}
