import { constants } from "node:fs";
import { mkdir, open, readlink, rename, unlink } from "node:fs/promises";
import type { FileHandle } from "node:fs/promises";
import type { Stats } from "node:fs";
import { basename, dirname, relative } from "node:path";
import { newHex } from "../../policy/kernel/ids.ts";
import { placeCallerPath, placePath } from "./confinement.ts";
import type { FileScope } from "./confinement.ts";

/** Linux `O_PATH`: names an object without opening it, so that neither a fifo nor a device can hang or react. */
const O_PATH = 0o10000000;
const REOPEN = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY;

/** Why a file could not be used; `text` is for the caller and the same whether an outside file exists or not. */
export interface FileRefusal {
  readonly kind: "refused";
  readonly code: "outside_scope" | "credential" | "not_found" | "not_regular" | "too_large" | "io";
  readonly text: string;
}

/** A regular file that was checked and opened as one object. The taker closes the handle. */
export interface OpenedFile {
  readonly kind: "file";
  readonly handle: FileHandle;
  readonly physical: string;
  readonly stat: Stats;
}

/** A folder that was checked; `at` reaches into it by descriptor, whatever happens to its name. The taker closes the handle. */
export interface OpenedDir {
  readonly kind: "dir";
  readonly handle: FileHandle;
  readonly physical: string;
  /** `/proc/self/fd/N`: append `/name`. */
  readonly at: string;
}

/** File access of one tool call, confined to its session's scope. */
export interface Files {
  readonly scope: FileScope;
  openFile(path: string): Promise<OpenedFile | FileRefusal>;
  openDir(path: string): Promise<OpenedDir | FileRefusal>;
  /** Replaces or creates a file as a whole; missing folders are made. */
  writeFile(
    path: string,
    content: string | Buffer,
  ): Promise<
    { readonly kind: "written"; readonly physical: string; readonly created: boolean } | FileRefusal
  >;
}

/**
 * File access for one call.
 *
 * @param approvedWrites physical paths outside the cwd that the gate has passed for this very call.
 */
export function createFiles(scope: FileScope, approvedWrites: ReadonlySet<string>): Files {
  return {
    scope,
    async openFile(path) {
      const opened = await openChecked(scope, path);
      if (opened.kind === "refused") {
        return opened;
      }
      try {
        if (!opened.stat.isFile()) {
          return refuse(
            "not_regular",
            opened.stat.isDirectory() ? "This is a folder." : "This is not a regular file.",
          );
        }
        const handle = await open(`/proc/self/fd/${opened.handle.fd}`, REOPEN);
        return { kind: "file", handle, physical: opened.physical, stat: opened.stat };
      } catch (error) {
        return toRefusal(error);
      } finally {
        await opened.handle.close();
      }
    },
    async openDir(path) {
      const opened = await openChecked(scope, path);
      if (opened.kind === "refused") {
        return opened;
      }
      if (!opened.stat.isDirectory()) {
        await opened.handle.close();
        return refuse("not_regular", "This is not a folder.");
      }
      return {
        kind: "dir",
        handle: opened.handle,
        physical: opened.physical,
        at: `/proc/self/fd/${opened.handle.fd}`,
      };
    },
    writeFile: (path, content) => writeChecked(scope, approvedWrites, path, content),
  };
}

/** Resolves, opens without side effects, and checks that the opened object is where the scope allows. */
async function openChecked(scope: FileScope, path: string) {
  const placed = await placeCallerPath(scope, path, "read");
  const refusal = placementRefusal(placed.placement);
  if (refusal !== null) {
    return refusal;
  }
  let handle: FileHandle;
  try {
    handle = await open(placed.physical, O_PATH | constants.O_NOFOLLOW);
  } catch (error) {
    return toRefusal(error);
  }
  try {
    const physical = await readlink(`/proc/self/fd/${handle.fd}`);
    // the name may have been swapped since it was resolved: judge what was opened
    const swapped = placementRefusal(placePath(scope, physical, placed.lexical, "read"));
    if (swapped !== null) {
      await handle.close();
      return swapped;
    }
    return { kind: "opened" as const, handle, physical, stat: await handle.stat() };
  } catch (error) {
    await handle.close();
    return toRefusal(error);
  }
}

async function writeChecked(
  scope: FileScope,
  approvedWrites: ReadonlySet<string>,
  path: string,
  content: string | Buffer,
) {
  const placed = await placeCallerPath(scope, path, "write");
  const mayWrite = (physical: string): FileRefusal | null => {
    const placement = placePath(scope, physical, placed.lexical, "write");
    return placement === "needs_confirmation" && approvedWrites.has(physical)
      ? null
      : placementRefusal(placement);
  };
  const refusal =
    placed.placement === "outside" ? refuse("outside_scope", OUTSIDE) : mayWrite(placed.physical);
  if (refusal !== null) {
    return refusal;
  }
  const name = basename(placed.physical);
  if (name === "" || placed.lexical.endsWith("/")) {
    return refuse("not_regular", "This is a folder.");
  }
  let folder: FileHandle | null = null;
  try {
    folder = await openOrMakeDir(dirname(placed.physical));
    const at = `/proc/self/fd/${folder.fd}`;
    const parent = await readlink(at);
    const swapped = mayWrite(`${parent === "/" ? "" : parent}/${name}`);
    if (swapped !== null) {
      return swapped;
    }
    return await replaceIn(at, name, placed.physical, content);
  } catch (error) {
    return toRefusal(error);
  } finally {
    await folder?.close();
  }
}

async function replaceIn(at: string, name: string, physical: string, content: string | Buffer) {
  const target = `${at}/${name}`;
  const known = await kindOf(target);
  if (known !== null && !known.isFile()) {
    return refuse(
      "not_regular",
      known.isDirectory() ? "This is a folder." : "This is not a regular file.",
    );
  }
  const temp = `${at}/.${newHex(8)}.tmp`;
  const file = await open(
    temp,
    constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW,
    0o644,
  );
  try {
    await file.writeFile(content);
    if (known !== null) {
      await file.chmod(known.mode & 0o777);
    }
    await file.close();
    await rename(temp, target);
  } catch (error) {
    await file.close().catch(() => {}); // may be closed already; the first error is the one to report
    await unlink(temp).catch(() => {});
    throw error;
  }
  return { kind: "written" as const, physical, created: known === null };
}

/** The kind of what a name stands for, links not followed; null when nothing is there. */
async function kindOf(path: string): Promise<Stats | null> {
  let handle: FileHandle;
  try {
    handle = await open(path, O_PATH | constants.O_NOFOLLOW);
  } catch (error) {
    if (codeOf(error) === "ENOENT") {
      return null;
    }
    throw error;
  }
  try {
    return await handle.stat();
  } finally {
    await handle.close();
  }
}

/** Opens a physical folder step by step from the nearest existing one, making what is missing; links are never followed. */
async function openOrMakeDir(physical: string): Promise<FileHandle> {
  const flags = O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW;
  let existing = physical;
  let handle: FileHandle | null = null;
  while (handle === null) {
    try {
      handle = await open(existing, flags);
    } catch (error) {
      if (codeOf(error) !== "ENOENT" || existing === "/") {
        throw error;
      }
      existing = dirname(existing);
    }
  }
  for (const segment of relative(existing, physical).split("/")) {
    if (segment === "") {
      continue;
    }
    try {
      const next = `/proc/self/fd/${handle.fd}/${segment}`;
      await mkdir(next).catch((error: unknown) => {
        if (codeOf(error) !== "EEXIST") {
          throw error;
        }
      });
      const opened: FileHandle = await open(next, flags);
      await handle.close();
      handle = opened;
    } catch (error) {
      await handle.close();
      throw error;
    }
  }
  return handle;
}

const OUTSIDE = "The path is outside the directory scope.";

function placementRefusal(
  placement: "allowed" | "needs_confirmation" | "outside" | "credential",
): FileRefusal | null {
  switch (placement) {
    case "allowed":
      return null;
    case "credential":
      return refuse("credential", "Credential files are not open to tools.");
    case "outside":
      return refuse("outside_scope", OUTSIDE);
    case "needs_confirmation":
      return refuse("outside_scope", "The path is outside the working directory.");
  }
}

function refuse(code: FileRefusal["code"], text: string): FileRefusal {
  return { kind: "refused", code, text };
}

function toRefusal(error: unknown): FileRefusal {
  switch (codeOf(error)) {
    case "ENOENT":
      return refuse("not_found", "There is no such file or folder.");
    case "ENOTDIR":
    case "ELOOP":
    case "ENXIO":
      return refuse("not_regular", "This is not a regular file.");
    case "EACCES":
    case "EPERM":
      return refuse("io", "The file may not be accessed.");
    case undefined:
      throw error;
    default:
      return refuse("io", `The file could not be used (${codeOf(error)}).`);
  }
}

function codeOf(error: unknown): string | undefined {
  return error instanceof Error && "code" in error && typeof error.code === "string"
    ? error.code
    : undefined;
}
