import { readFileSync, statSync } from "node:fs";
import { isBuiltin } from "node:module";
import { dirname, join, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { realPathInside } from "./resolve.ts";

/** Where a specifier leads. */
export type ModuleTarget =
  | { readonly kind: "builtin"; readonly name: string }
  | { readonly kind: "file"; readonly file: string };

/** How a module is asked for; packages may answer differently. */
export type ModuleUse = "require" | "import";

/** A module that is not there, or that scripts may not have. */
export class ModuleNotFound extends Error {
  readonly code = "MODULE_NOT_FOUND";
}

const EXTENSIONS = [".js", ".ts", ".cjs", ".mjs", ".json"] as const;

/**
 * Resolves a `require` or `import` of a script or helper: built-ins, files from the importing file's folder, and
 * packages in the `node_modules` folders from there up to the scripts root (exec-host.md 2.5). Nothing outside
 * the root is ever found, and nothing is fetched.
 *
 * @param root scripts root, free of links.
 * @throws ModuleNotFound with a message for the author.
 */
export function resolveModule(
  root: string,
  from: string,
  specifier: string,
  use: ModuleUse,
): ModuleTarget {
  if (isBuiltin(specifier) || specifier === "bun") {
    return { kind: "builtin", name: specifier };
  }
  let wanted = specifier;
  if (specifier.startsWith("file:")) {
    try {
      wanted = fileURLToPath(specifier);
    } catch {
      throw new ModuleNotFound(`${JSON.stringify(specifier)} is not the address of a file`);
    }
  }
  const file = /^(?:\.{1,2}(?:\/|$)|\/)/.test(wanted)
    ? findFile(root, wanted.startsWith("/") ? wanted : join(dirname(from), wanted))
    : findPackage(root, from, specifier, use);
  if (file === null) {
    const hint =
      wanted === specifier && !/^[./]/.test(specifier)
        ? `package ${JSON.stringify(packageName(specifier))} is not installed below the scripts root`
        : "no such file below the scripts root";
    throw new ModuleNotFound(`Cannot find module ${JSON.stringify(specifier)}: ${hint}`);
  }
  return { kind: "file", file };
}

/** The file itself, with an extension, its TypeScript source, or a folder's main file. */
function findFile(root: string, path: string): string | null {
  const candidates = [path, ...EXTENSIONS.map((extension) => path + extension)];
  if (/\.[cm]?js$/.test(path)) {
    candidates.push(path.replace(/\.([cm]?)js$/, ".$1ts")); // TypeScript authors write the compiled name
  }
  for (const candidate of candidates) {
    if (isFile(candidate)) {
      return realPathInside(root, candidate);
    }
  }
  const main = readPackage(path)?.["main"];
  const inside = [
    ...(typeof main === "string"
      ? [main, ...EXTENSIONS.map((e) => main + e), join(main, "index.js")]
      : []),
    ...EXTENSIONS.map((extension) => `index${extension}`),
  ];
  for (const name of inside) {
    if (isFile(join(path, name))) {
      return realPathInside(root, join(path, name));
    }
  }
  return null;
}

function packageName(specifier: string): string {
  const parts = specifier.split("/");
  return specifier.startsWith("@") ? parts.slice(0, 2).join("/") : (parts[0] ?? specifier);
}

function findPackage(root: string, from: string, specifier: string, use: ModuleUse): string | null {
  if (specifier.startsWith("#")) {
    return findImport(root, from, specifier, use);
  }
  const name = packageName(specifier);
  if (name.slice(1).includes("@")) {
    throw new ModuleNotFound(`${JSON.stringify(specifier)}: a version cannot be part of the name`);
  }
  const subpath = `.${specifier.slice(name.length)}`;
  for (const folder of foldersUp(root, from)) {
    const home = join(folder, "node_modules", name);
    if (isDirectory(home)) {
      return findInPackage(root, home, subpath, use);
    }
  }
  return null;
}

function findInPackage(root: string, home: string, subpath: string, use: ModuleUse): string | null {
  const manifest = readPackage(home);
  const exports = manifest?.["exports"];
  if (exports === undefined || exports === null) {
    return findFile(root, join(home, subpath));
  }
  const table = isConditionsOnly(exports) ? { ".": exports } : (exports as Record<string, unknown>);
  return fromTable(root, home, table, subpath, use);
}

/** A `#name` of the nearest package's own `imports`. */
function findImport(root: string, from: string, specifier: string, use: ModuleUse): string | null {
  for (const folder of foldersUp(root, from)) {
    const imports = readPackage(folder)?.["imports"];
    if (typeof imports === "object" && imports !== null) {
      return fromTable(root, folder, imports as Record<string, unknown>, specifier, use);
    }
  }
  return null;
}

/** Looks a subpath up in an `exports` or `imports` table: its exact key, else the longest pattern that fits. */
function fromTable(
  root: string,
  home: string,
  table: Record<string, unknown>,
  key: string,
  use: ModuleUse,
): string | null {
  if (Object.hasOwn(table, key) && !key.includes("*")) {
    return fromTarget(root, home, table[key], "", use);
  }
  const patterns = Object.keys(table)
    .filter((pattern) => pattern.includes("*"))
    .sort((a, b) => b.indexOf("*") - a.indexOf("*"));
  for (const pattern of patterns) {
    const at = pattern.indexOf("*");
    const head = pattern.slice(0, at);
    const tail = pattern.slice(at + 1);
    if (key.startsWith(head) && key.endsWith(tail) && key.length >= head.length + tail.length) {
      const star = key.slice(head.length, key.length - tail.length);
      return fromTarget(root, home, table[pattern], star, use);
    }
  }
  return null;
}

const MAX_NESTING = 16;

function fromTarget(
  root: string,
  home: string,
  target: unknown,
  star: string,
  use: ModuleUse,
  depth = 0,
): string | null {
  if (depth > MAX_NESTING) {
    return null;
  }
  if (typeof target === "string") {
    const path = join(home, target.replaceAll("*", star));
    const isInside = target.startsWith("./") && path.startsWith(home + sep);
    return isInside && isFile(path) ? realPathInside(root, path) : null;
  }
  if (Array.isArray(target)) {
    for (const one of target as unknown[]) {
      const found = fromTarget(root, home, one, star, use, depth + 1);
      if (found !== null) {
        return found;
      }
    }
    return null;
  }
  if (typeof target !== "object" || target === null) {
    return null;
  }
  for (const [condition, next] of Object.entries(target)) {
    if (
      condition === "default" ||
      condition === "node" ||
      condition === use ||
      condition === "module-sync"
    ) {
      const found = fromTarget(root, home, next, star, use, depth + 1);
      if (found !== null) {
        return found;
      }
    }
  }
  return null;
}

function isConditionsOnly(exports: unknown): boolean {
  return (
    typeof exports !== "object" ||
    exports === null ||
    Array.isArray(exports) ||
    !Object.keys(exports).some((key) => key.startsWith("."))
  );
}

/** Folders from the importing file's own up to the root, the root included. */
function* foldersUp(root: string, from: string): Generator<string> {
  for (let folder = dirname(from); ; folder = dirname(folder)) {
    yield folder;
    if (folder === root || folder === dirname(folder)) {
      return;
    }
  }
}

/** Whether a package's own files are ES modules by declaration. */
export function isModulePackage(root: string, file: string): boolean {
  for (const folder of foldersUp(root, file)) {
    const manifest = readPackage(folder);
    if (manifest !== null) {
      return manifest["type"] === "module";
    }
  }
  return false;
}

function readPackage(folder: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : null;
  } catch {
    return null; // no manifest, or none that can be read
  }
}

function isFile(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false })?.isFile() ?? false;
  } catch {
    return false; // closed to us, or a loop of links
  }
}

function isDirectory(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;
  } catch {
    return false; // as above
  }
}
