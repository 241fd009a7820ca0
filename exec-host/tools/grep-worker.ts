import { closeSync, fstatSync, readFileSync } from "node:fs";
import { basename } from "node:path";
import { parentPort, workerData } from "node:worker_threads";
import { compileGlob, matchesGlob } from "./glob-match.ts";
import type { Glob } from "./glob-match.ts";
import { formatHit } from "./grep.ts";
import type { GrepAnswer, GrepRequest } from "./grep.ts";
import { walkTree } from "./walk.ts";

// Runs in a worker thread of its own, so that a regular expression that takes for ever takes nobody else's time.

const MAX_FILE_BYTES = 16 * 1024 * 1024;
const MAX_ENTRIES = 200_000;
const MAX_TOTAL_CHARS = 262_144;

parentPort?.postMessage(grep(workerData as GrepRequest));

function grep(request: GrepRequest): GrepAnswer {
  let pattern: RegExp;
  try {
    pattern = new RegExp(request.pattern, request.ignoreCase ? "iu" : "u");
  } catch {
    return {
      kind: "failed",
      code: "bad_pattern",
      text: "The pattern is not a valid regular expression.",
    };
  }
  const glob = request.glob === null ? null : compileGlob(request.glob.replace(/^\//, ""));
  const lines: string[] = [];
  let total = 0;
  const take = (path: string, content: string): boolean => {
    let number = 0;
    for (const line of (content.endsWith("\n") ? content.slice(0, -1) : content).split("\n")) {
      number += 1;
      if (content === "" || !pattern.test(line)) {
        continue;
      }
      if (lines.length === request.maxResults || total > MAX_TOTAL_CHARS) {
        return false;
      }
      const hit = formatHit(path, `${number}:${line}`);
      lines.push(hit);
      total += hit.length + 1;
    }
    return true;
  };

  if (request.isFile) {
    const content = readText(Number(request.at.slice(request.at.lastIndexOf("/") + 1)));
    const complete = content === null || take(basename(request.rootPath), content);
    return { kind: "lines", lines, more: !complete };
  }
  const walk = walkTree(request.at, {
    hidden: false,
    ignoreFiles: true,
    rootPath: request.rootPath,
    protectedDirs: request.protectedDirs,
    maxEntries: MAX_ENTRIES,
  });
  for (const entry of walk) {
    if (!entry.isFile || (glob !== null && !fitsGlob(glob, request.glob ?? "", entry.path))) {
      continue;
    }
    const fd = entry.open();
    if (fd === null) {
      continue;
    }
    let content: string | null;
    try {
      content = readText(fd);
    } finally {
      closeSync(fd);
    }
    if (content !== null && !take(entry.path, content)) {
      return { kind: "lines", lines, more: true };
    }
  }
  return { kind: "lines", lines, more: false };
}

/** A glob without a slash is about base names (decision 65). */
function fitsGlob(glob: Glob, text: string, path: string): boolean {
  return matchesGlob(glob, text.includes("/") ? path : basename(path));
}

/** The text of a file; null for one that is too large or binary. */
function readText(fd: number): string | null {
  if (fstatSync(fd).size > MAX_FILE_BYTES) {
    return null;
  }
  const bytes = readFileSync(fd);
  return bytes.includes(0) ? null : bytes.toString("utf8");
}
