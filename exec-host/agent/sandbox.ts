import { accessSync, constants, realpathSync } from "node:fs";
import type { Clock } from "../../policy/kernel/clock.ts";
import { coverKernelSettings } from "../pool/confinement.ts";
import type { FileScope } from "../tools/confinement.ts";
import { runCommand } from "./process.ts";

/** The second enforcement of read-only command lines (decision 57). */
export interface Sandbox {
  /** `bubblewrap`, or `none` with the reason. */
  readonly kind: "bubblewrap" | "none";
  readonly reason: string | null;
  /** Words to put before a command that may only read; empty without a sandbox. */
  launcher(scope: FileScope, cwd: string): readonly string[];
}

const PROBE_MS = 10_000;
const HIDDEN_DIRS = [".hoody", ".ssh", ".gnupg", ".aws", ".config/gcloud"];
const HIDDEN_FILES = [
  ".kube/config",
  ".docker/config.json",
  ".netrc",
  ".npmrc",
  ".pypirc",
  ".git-credentials",
];

/**
 * Finds out whether bubblewrap works here by running something harmless in it: present is not enough, because name
 * spaces are often switched off.
 *
 * @param searchPath where to look for `bwrap`.
 */
export async function detectSandbox(clock: Clock, searchPath: string): Promise<Sandbox> {
  const program = searchPath
    .split(":")
    .map((dir) => `${dir}/bwrap`)
    .find((path) => path.startsWith("/") && isExecutable(path));
  if (program === undefined) {
    return { kind: "none", reason: "bubblewrap is not installed", launcher: () => [] };
  }
  const probe = await runCommand(
    {
      command: "true",
      cwd: "/",
      env: { PATH: searchPath },
      stdin: null,
      timeoutMs: PROBE_MS,
      killGraceMs: 0,
      maxOutputBytes: 4096,
      keep: "head",
      mergeOutput: true,
      launcher: [program, ...BASE, "--"],
    },
    clock,
    new AbortController().signal,
  );
  if (probe.kind !== "exited" || probe.exitCode !== 0) {
    return { kind: "none", reason: "bubblewrap does not work here", launcher: () => [] };
  }
  return {
    kind: "bubblewrap",
    reason: null,
    launcher: (scope, cwd) => [program, ...BASE, ...hide(scope), "--chdir", cwd, "--"],
  };
}

const isRoot = process.getuid?.() === 0;
/** Root could make its mounts writable again; it keeps what it needs to read other users' files. */
const ONLY_READING = ["--cap-drop", "ALL", "--cap-add", "CAP_DAC_READ_SEARCH"];

/** Everything readable, nothing writable, no process outlives the command. */
const BASE = [
  "--ro-bind",
  "/",
  "/",
  "--dev",
  "/dev",
  "--proc",
  "/proc",
  ...(isRoot ? [...coverKernelSettings(true), ...ONLY_READING] : []),
  "--unshare-pid",
  "--unshare-ipc",
  "--die-with-parent",
];

function hide(scope: FileScope): string[] {
  const roots = [...new Set([scope.home, scope.cwd])];
  const dirs = [
    ...roots.flatMap((root) => HIDDEN_DIRS.map((dir) => `${root}/${dir}`)),
    ...scope.protectedDirs,
  ];
  const files = roots.flatMap((root) => HIDDEN_FILES.map((file) => `${root}/${file}`));
  return [
    ...dirs.flatMap(existing).flatMap((dir) => ["--tmpfs", dir]),
    ...files.flatMap(existing).flatMap((file) => ["--ro-bind", "/dev/null", file]),
  ];
}

/** The physical path of what exists; mounts do not go over links. */
function existing(path: string): string[] {
  try {
    return [realpathSync(path)];
  } catch {
    return [];
  }
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
