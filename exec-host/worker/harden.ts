import { createRequire, syncBuiltinESMExports } from "node:module";
import { currentCall } from "./call.ts";

/**
 * Takes away what reaches other processes and no permission flag covers. This is no border, a process of its own
 * user or namespace is; it keeps an ordinary script's slip from hurting anybody outside.
 *
 * @param env environment of scripts before their own files.
 */
export function harden(env: Readonly<Record<string, string>>): void {
  const own = process.pid;
  const kill = process.kill.bind(process);
  replace(process, "kill", (pid: number, signal?: string | number) => {
    if (pid !== own) {
      throw denied("process.kill");
    }
    return kill(pid, signal);
  });
  for (const name of ["_kill", "_debugProcess", "_debugEnd", "_startProfilerIdleNotifier"]) {
    if (name in process) {
      replace(process, name, () => {
        throw denied(`process.${name}`);
      });
    }
  }
  const os = createRequire(import.meta.url)("node:os") as object;
  replace(os, "setPriority", () => {
    throw denied("os.setPriority");
  });
  // Flags of the engine name files it then writes to, past the permission model.
  const v8 = createRequire(import.meta.url)("node:v8") as object;
  for (const name of ["setFlagsFromString", "setHeapSnapshotNearHeapLimit"]) {
    replace(v8, name, () => {
      throw denied(`v8.${name}`);
    });
  }
  syncBuiltinESMExports();
  const base = { ...env };
  Object.defineProperty(process, "env", {
    configurable: true,
    enumerable: true,
    get: () => currentCall.getStore()?.env ?? base,
  });
}

function replace(target: object, name: string, value: unknown): void {
  Object.defineProperty(target, name, { value, writable: true, configurable: true });
}

function denied(what: string): Error {
  return Object.assign(
    new Error(`${what} reaches other processes and is not available to scripts`),
    {
      code: "ERR_ACCESS_DENIED",
    },
  );
}
