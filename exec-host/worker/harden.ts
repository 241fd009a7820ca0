import { createRequire, syncBuiltinESMExports } from "node:module";
import { constants } from "node:os";
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

interface PipePrototype {
  bind(path: unknown, ...rest: unknown[]): number;
  connect(request: unknown, path: unknown, ...rest: unknown[]): number;
}

/**
 * Unix sockets are files, but the permission model does not look at them: without a mount namespace a script could
 * make one wherever the edge may write (in the place of a neighbour's policy document, say) and reach every socket of
 * the same user. From here on both need the right to write that file; names that are no files are refused.
 *
 * @param server listens on a unix socket; all others share the class of its handle.
 * @throws TypeError when the runtime has no such class any more: scripts must not run then.
 */
export function confineSockets(server: object): void {
  // Taken now: what scripts put in their place later counts for nothing.
  const permission = process.permission as typeof process.permission | undefined;
  if (permission === undefined) {
    return; // started by hand, without any of the pool's borders
  }
  const may = permission.has.bind(permission);
  const includes = Function.prototype.call.bind(String.prototype.includes) as unknown as (
    text: string,
    part: string,
  ) => boolean;
  const refused = -constants.errno.EACCES;
  const isOpen = (path: unknown): boolean =>
    typeof path === "string" && !includes(path, "\0") && may("fs.write", path);
  const { _handle: handle } = server as { _handle?: { constructor?: { prototype?: unknown } } };
  const pipe = handle?.constructor?.prototype as PipePrototype | undefined;
  const { bind, connect } = pipe ?? {};
  if (pipe === undefined || bind === undefined || connect === undefined) {
    throw new TypeError("unix sockets cannot be confined in this runtime");
  }
  const { apply } = Reflect;
  replace(pipe, "bind", function (this: unknown, path: unknown, ...rest: unknown[]) {
    return isOpen(path) ? apply(bind, this, [path, ...rest]) : refused;
  });
  replace(
    pipe,
    "connect",
    function (this: unknown, request: unknown, path: unknown, ...rest: unknown[]) {
      return isOpen(path) ? apply(connect, this, [request, path, ...rest]) : refused;
    },
  );
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
