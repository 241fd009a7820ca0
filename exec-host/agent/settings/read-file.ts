import { createHash } from "node:crypto";
import { constants } from "node:fs";
import { open, readlink } from "node:fs/promises";
import type { FileHandle } from "node:fs/promises";

/** Largest settings file that is read or written. */
export const MAX_SETTINGS_BYTES = 4 * 1024 * 1024;

/** Why a settings file could not be read. */
export type ReadFailure =
  | "symlink"
  | "not_a_regular_file"
  | "too_large"
  | "not_utf8"
  | "moved"
  | "unreadable";

/** One read of one file. `digest` is over the bytes, for drift; `stamp` tells one state of the file from another. */
export type FileRead =
  | { readonly kind: "missing" }
  | { readonly kind: "failed"; readonly reason: ReadFailure }
  | {
      readonly kind: "read";
      readonly text: string;
      readonly digest: string;
      readonly stamp: string;
    };

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/**
 * Reads a small text file once and as a whole: regular files only, no link followed at the end of the path, a fifo or
 * device never waited for, and the opened object is the one at `realPath`.
 *
 * @param realPath a path whose folders have been resolved (`openLocation`); it is the caller's to decide that it may be read.
 */
export async function readWholeFile(
  realPath: string,
  maxBytes = MAX_SETTINGS_BYTES,
): Promise<FileRead> {
  let file: FileHandle;
  try {
    // O_NONBLOCK: opening a fifo for reading returns at once instead of waiting for a writer
    file = await open(realPath, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (cause) {
    return openFailure(cause);
  }
  try {
    const info = await file.stat({ bigint: true });
    if (!info.isFile()) {
      return { kind: "failed", reason: "not_a_regular_file" };
    }
    if (info.size > BigInt(maxBytes)) {
      return { kind: "failed", reason: "too_large" };
    }
    if (!(await isStillAt(file, realPath))) {
      return { kind: "failed", reason: "moved" };
    }
    const bytes = await readUpTo(file, maxBytes + 1);
    if (bytes.length > maxBytes) {
      return { kind: "failed", reason: "too_large" };
    }
    const digest = createHash("sha256").update(bytes).digest("hex");
    const stamp = `${info.dev}:${info.ino}:${info.size}:${info.mtimeNs}:${info.ctimeNs}`;
    try {
      return { kind: "read", text: utf8.decode(bytes), digest, stamp };
    } catch {
      return { kind: "failed", reason: "not_utf8" };
    }
  } catch {
    return { kind: "failed", reason: "unreadable" };
  } finally {
    await file.close();
  }
}

function openFailure(cause: unknown): FileRead {
  const code = (cause as NodeJS.ErrnoException).code;
  if (code === "ENOENT") {
    return { kind: "missing" };
  }
  if (code === "ELOOP" || code === "EMLINK") {
    return { kind: "failed", reason: "symlink" };
  }
  if (code === "ENXIO" || code === "ENODEV") {
    return { kind: "failed", reason: "not_a_regular_file" };
  }
  return { kind: "failed", reason: "unreadable" };
}

/**
 * A folder of the path may have been swapped for a link after it was resolved; the kernel knows where the opened file
 * is. A file that a writer just replaced is named `… (deleted)` there and is still the whole old file.
 */
async function isStillAt(file: FileHandle, realPath: string): Promise<boolean> {
  const actual = await readlink(`/proc/self/fd/${file.fd}`).catch(() => null);
  return actual === null || actual === realPath || actual === `${realPath} (deleted)`;
}

async function readUpTo(file: FileHandle, maxBytes: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  while (size < maxBytes) {
    const { bytesRead, buffer } = await file.read(
      Buffer.alloc(Math.min(65_536, maxBytes - size)),
      0,
    );
    if (bytesRead === 0) {
      break;
    }
    chunks.push(buffer.subarray(0, bytesRead));
    size += bytesRead;
  }
  return Buffer.concat(chunks, size);
}
