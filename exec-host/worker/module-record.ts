import { readFileSync } from "node:fs";
import { dirname } from "node:path";
import { pathToFileURL } from "node:url";
import type { Module } from "node:vm";
import { isSameStamp, readStamp, type Stamp } from "../scripts/stamp.ts";

/** One loaded helper or package file. */
export interface ModuleRecord {
  readonly file: string;
  /** Set when the file, or one it depends on, changed: the record is out of the cache and is not used again. */
  isStale: boolean;
}

/** Whoever loads modules and has to be loaded again when they change: a script, or another module. */
export interface ModuleOwner {
  /** Absolute; relative specifiers start here. */
  readonly file: string;
  readonly uses: Set<ModuleRecord>;
}

/** More than a tick of any file system's clock. */
const SETTLE_MS = 50;

/** `require` as helpers and packages see it. */
export type RequireFunction = ((specifier: string) => unknown) & {
  resolve: (specifier: string) => string;
};

/** `module` as helpers and packages see it. */
export interface CommonModule {
  exports: unknown;
  readonly filename: string;
  readonly id: string;
  loaded: boolean;
  readonly require?: RequireFunction;
  readonly paths: readonly string[];
  readonly children: readonly unknown[];
}

/** A loaded file: its exports or its module, and what it uses in its turn. */
export class LoadedModule implements ModuleRecord, ModuleOwner {
  readonly file: string;
  readonly stamp: Stamp | null;
  readonly uses = new Set<ModuleRecord>();
  isStale = false;
  common: CommonModule | null = null;
  esm: Module | null = null;
  /** What was loaded, kept until its stamp is proof enough. */
  #text: string | null;
  constructor(file: string, stamp: Stamp | null, text: string | null) {
    this.file = file;
    this.stamp = stamp;
    this.#text = text;
  }

  /**
   * Whether the file is still the one that was loaded. A file that was read within a tick of its last change may
   * have changed again under the same stamp, so its text is compared once after that tick.
   */
  isCurrent(now: number): boolean {
    const stamp = readStamp(this.file);
    if (stamp === null || !isSameStamp(this.stamp, stamp)) {
      return false;
    }
    if (this.#text === null || now - stamp.ctimeMs < SETTLE_MS) {
      return true;
    }
    const isSame = readText(this.file) === this.#text;
    this.#text = null;
    return isSame;
  }
}

function readText(file: string): string | null {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return null; // vanished: not the same text
  }
}

/** `import.meta` of a file. */
export function describeModule(owner: ModuleOwner, resolve: (specifier: string) => string): object {
  return {
    dirname: dirname(owner.file),
    filename: owner.file,
    url: pathToFileURL(owner.file).href,
    resolve: (specifier: string): string => {
      const found = resolve(specifier);
      return found.startsWith("/") ? pathToFileURL(found).href : found;
    },
  };
}
