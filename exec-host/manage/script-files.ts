import { constants, realpathSync } from "node:fs";
import { lstat, mkdir, open, readdir, realpath, unlink } from "node:fs/promises";
import { dirname, join, relative, sep } from "node:path";
import { writeFileAtomic } from "../../policy/kernel/atomic-file.ts";
import { isExecId, isReservedName, isSubdomain } from "../scripts/coordinates.ts";

/** A management request that is refused, with what the caller is told. */
export class ManageError extends Error {
  override readonly name = "ManageError";
  readonly status: number;
  readonly code: string;
  readonly details: Readonly<Record<string, unknown>>;
  constructor(
    status: number,
    code: string,
    message: string,
    details: Record<string, unknown> = {},
  ) {
    super(message);
    this.status = status;
    this.code = code;
    this.details = details;
  }
}

/** Longest file that is read or written through the API. */
export const MAX_SCRIPT_BYTES = 4_194_304;
const MAX_PATH = 512;
const MAX_SEGMENT = 255;
const MAX_DECODINGS = 8;
const MAX_LISTED = 10_000;
const MAX_DEPTH = 16;

/**
 * Decodes a script path of a caller and puts it below its deployment: relative, no `\`, NUL or dot segments even
 * after repeated decoding, no reserved names (exec-host.md 7 and 1.2).
 *
 * @returns path below the scripts root with `/`.
 * @throws ManageError 400, or 403 for excluded names.
 */
export function decodeScriptPath(given: unknown, subdomain: string, execId: string): string {
  if (typeof given !== "string" || given === "") {
    throw new ManageError(400, "VALIDATION_ERROR", "path must be a non-empty string");
  }
  checkSpelling(given);
  let seen = given;
  for (let round = 0; round < MAX_DECODINGS && seen.includes("%"); round++) {
    let next: string;
    try {
      next = decodeURIComponent(seen);
    } catch {
      break; // not an escape: the name simply has a percent sign
    }
    if (next === seen) {
      break;
    }
    checkSpelling(next);
    seen = next;
    if (round === MAX_DECODINGS - 1 && seen.includes("%")) {
      throw new ManageError(400, "VALIDATION_ERROR", "path is encoded too many times");
    }
  }
  if (!isSubdomain(subdomain) || isReservedName(subdomain) || !isExecId(execId)) {
    throw new ManageError(400, "VALIDATION_ERROR", "subdomain or execId is not valid");
  }
  const prefix = `${subdomain}/${execId}/`;
  return given.startsWith(prefix) ? given : prefix + given;
}

function checkSpelling(path: string): void {
  const segments = path.split("/");
  if (
    path.length > MAX_PATH ||
    path.startsWith("/") ||
    /[\\\0-\x1f\x7f]/.test(path) ||
    segments.some(
      (part) => part === "" || part === "." || part === ".." || part.length > MAX_SEGMENT,
    )
  ) {
    throw new ManageError(
      400,
      "VALIDATION_ERROR",
      "path must be relative, without empty, . or .. segments, backslashes and control characters",
    );
  }
  if (segments.some((part) => isReservedName(part) || part.startsWith("."))) {
    throw new ManageError(403, "FORBIDDEN", "Path is excluded from access");
  }
}

/** A script's content, and what the file system says of it. */
export interface ScriptFile {
  readonly content: string;
  readonly size: number;
  readonly modified: string;
  readonly created: string;
}

/** Script files below one root. Links that lead out of it are as if absent; nothing is written through a link. */
export interface ScriptFiles {
  readonly root: string;
  /** @throws ManageError 404, 413. */
  read(path: string): Promise<ScriptFile>;
  /** Whole file or nothing. @throws ManageError 400 when the folder is missing, 409 when a folder has the name. */
  write(
    path: string,
    content: string,
    options: { readonly createDirs: boolean; readonly ifNotExists: boolean },
  ): Promise<{ readonly created: boolean }>;
  /** @throws ManageError 404. */
  remove(path: string): Promise<void>;
  /** Paths of regular files below a folder, sorted; at most 10,000. */
  list(folder: string, recursive: boolean): Promise<string[]>;
}

/** @param root scripts root; made when missing. */
export async function createScriptFiles(root: string): Promise<ScriptFiles> {
  await mkdir(root, { recursive: true });
  const real = realpathSync(root);

  /** The real folder of a file when it is inside, made when asked for; null when it does not exist. */
  const findFolder = async (path: string, create: boolean): Promise<string | null> => {
    const parts = dirname(path) === "." ? [] : dirname(path).split("/");
    let folder = real;
    for (const part of parts) {
      const next = join(folder, part);
      let found = await realpath(next).catch(() => null);
      if (found === null) {
        if (!create) {
          return null;
        }
        await mkdir(next, { mode: 0o755 }).catch((cause: unknown) => {
          if ((cause as NodeJS.ErrnoException).code !== "EEXIST") {
            throw toManageError(cause);
          }
        });
        found = await realpath(next).catch(() => null);
      }
      if (found === null || !isInside(real, found)) {
        return null;
      }
      folder = found;
    }
    return folder;
  };

  return {
    root: real,
    async read(path) {
      const folder = await findFolder(path, false);
      const file = folder === null ? null : await openRegular(join(folder, nameOf(path)));
      if (file === null) {
        throw new ManageError(404, "NOT_FOUND", "There is no such script");
      }
      try {
        const info = await file.stat();
        if (info.size > MAX_SCRIPT_BYTES) {
          throw new ManageError(413, "BODY_TOO_LARGE", "The file is too large to be read here");
        }
        const content = await file.readFile("utf8");
        return {
          content,
          size: info.size,
          modified: info.mtime.toISOString(),
          created: info.birthtime.toISOString(),
        };
      } finally {
        await file.close();
      }
    },
    async write(path, content, options) {
      const folder = await findFolder(path, options.createDirs);
      if (folder === null) {
        throw new ManageError(
          400,
          "VALIDATION_ERROR",
          "The folder does not exist or leaves the scripts root",
        );
      }
      const target = join(folder, nameOf(path));
      const present = await lstat(target).catch(() => null);
      if (present !== null && !present.isFile() && !present.isSymbolicLink()) {
        throw new ManageError(409, "CONFLICT", "Something else than a file has this name");
      }
      if (present !== null && options.ifNotExists) {
        throw new ManageError(409, "CONFLICT", "The script exists already");
      }
      await writeFileAtomic(target, content, 0o644).catch((cause: unknown) => {
        throw toManageError(cause);
      });
      return { created: present === null };
    },
    async remove(path) {
      const folder = await findFolder(path, false);
      const target = folder === null ? null : join(folder, nameOf(path));
      const present = target === null ? null : await lstat(target).catch(() => null);
      if (target === null || present === null || present.isDirectory()) {
        throw new ManageError(404, "NOT_FOUND", "There is no such script");
      }
      await unlink(target).catch((cause: unknown) => {
        throw toManageError(cause);
      });
    },
    async list(folder, recursive) {
      const found: string[] = [];
      const walk = async (below: string, depth: number): Promise<void> => {
        const at = await realpath(join(real, below)).catch(() => null);
        if (at === null || (at !== real && !isInside(real, at))) {
          return;
        }
        const entries = await readdir(at, { withFileTypes: true }).catch(() => []);
        for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
          if (
            found.length >= MAX_LISTED ||
            isReservedName(entry.name) ||
            entry.name.startsWith(".")
          ) {
            continue;
          }
          const path = below === "" ? entry.name : `${below}/${entry.name}`;
          if (entry.isFile()) {
            found.push(path);
          } else if (entry.isDirectory() && recursive && depth < MAX_DEPTH) {
            await walk(path, depth + 1);
          }
        }
      };
      await walk(folder, 0);
      return found;
    },
  };
}

function nameOf(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

function isInside(root: string, path: string): boolean {
  const below = relative(root, path);
  return below !== "" && below !== ".." && !below.startsWith(`..${sep}`);
}

/** Opens without following a link and without waiting on a pipe; null unless it is a regular file. */
async function openRegular(path: string) {
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  const file = await open(path, flags).catch(() => null);
  if (file !== null && !(await file.stat()).isFile()) {
    await file.close();
    return null;
  }
  return file;
}

/** A failure of the file system in words that name no path of this machine. */
function toManageError(cause: unknown): ManageError {
  const code = (cause as NodeJS.ErrnoException).code ?? "";
  if (code === "EACCES" || code === "EROFS" || code === "EPERM" || code === "ERR_ACCESS_DENIED") {
    return new ManageError(403, "FORBIDDEN", "The scripts folder cannot be written");
  }
  if (code === "ENOTDIR" || code === "EISDIR" || code === "ENOENT") {
    return new ManageError(409, "CONFLICT", "A file and a folder are in each other's way");
  }
  if (code === "ENOSPC" || code === "EDQUOT") {
    return new ManageError(507, "INSUFFICIENT_STORAGE", "There is no room left for the script");
  }
  return new ManageError(500, "INTERNAL_ERROR", "The file could not be written");
}
