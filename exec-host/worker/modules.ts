import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, relative } from "node:path";
import { SourceTextModule, type Module, type Script } from "node:vm";
import type { Clock } from "../../policy/kernel/clock.ts";
import { isModulePackage, resolveModule, type ModuleUse } from "../scripts/resolve-module.ts";
import { loadParser, parseSource } from "../scripts/source.ts";
import { readStamp, type Stamp } from "../scripts/stamp.ts";
import { compileScript, neutralHead, ScriptLoadError, withPlace } from "./compile.ts";
import {
  describeModule,
  LoadedModule,
  type CommonModule,
  type ModuleOwner,
  type RequireFunction,
} from "./module-record.ts";
import { evaluated, synthetic } from "./vm-module.ts";

/** The modules of one deployment: their state lives as long as their files stay as they are. */
export interface ModuleCache {
  require(owner: ModuleOwner, specifier: string): unknown;
  resolve(owner: ModuleOwner, specifier: string, use: ModuleUse): string;
  /** The evaluated module, as V8 wants it from a dynamic import. */
  importModule(owner: ModuleOwner, specifier: string): Promise<Module>;
  /** Instantiates a script that is an ES module itself and returns its namespace once evaluated. */
  evaluate(
    owner: ModuleOwner,
    name: string,
    code: string,
    prefix: string,
    host: object,
  ): Promise<object>;
  /** Drops what changed on disk. Cheap when asked often. */
  refresh(): void;
}

const nodeRequire = createRequire(import.meta.url);

/** A changed helper is live within 200 ms (decision 46). */
const HELPER_CHECK_MS = 100;
/** Files of installed packages change with an installation, not with an edit. */
const PACKAGE_CHECK_MS = 1000;
const MAX_MODULE_BYTES = 16 * 1024 * 1024;

/** @param root scripts root, free of links. */
export function createModuleCache(clock: Clock, root: string): ModuleCache {
  const records = new Map<string, LoadedModule>();
  const builtins = new Map<string, Module>();
  let helpersChecked = clock.monotonic();
  let packagesChecked = helpersChecked;

  const nameOf = (file: string): string => relative(root, file);

  function drop(record: LoadedModule): void {
    record.isStale = true;
    if (records.get(record.file) === record) {
      records.delete(record.file);
    }
  }

  /** After a failure every module of the graph that did not get to its end is loaded anew the next time. */
  function dropBroken(record: LoadedModule): void {
    drop(record);
    for (const other of records.values()) {
      if (other.esm?.status === "errored" || other.esm?.status === "unlinked") {
        drop(other);
      }
    }
  }

  /** A record is stale when its file changed or anything it uses is. */
  function refresh(): void {
    const now = clock.monotonic();
    if (now - helpersChecked < HELPER_CHECK_MS || records.size === 0) {
      return;
    }
    helpersChecked = now;
    const withPackages = now - packagesChecked >= PACKAGE_CHECK_MS;
    if (withPackages) {
      packagesChecked = now;
    }
    let isChanged = false;
    for (const record of records.values()) {
      const isDue = withPackages || !record.file.includes("/node_modules/");
      if (isDue && !record.isCurrent(clock.now())) {
        drop(record);
        isChanged = true;
      }
    }
    while (isChanged) {
      isChanged = false;
      for (const record of records.values()) {
        if ([...record.uses].some((used) => used.isStale)) {
          drop(record);
          isChanged = true;
        }
      }
    }
  }

  function locate(owner: ModuleOwner, specifier: string, use: ModuleUse) {
    if (typeof specifier !== "string" || specifier === "") {
      throw new TypeError("a module specifier must be a text that is not empty");
    }
    return resolveModule(root, owner.file, specifier, use);
  }

  function readSource(file: string): { text: string; stamp: Stamp | null } {
    const stamp = readStamp(file);
    if (stamp !== null && stamp.size > MAX_MODULE_BYTES) {
      throw new ScriptLoadError(`${nameOf(file)}: larger than ${MAX_MODULE_BYTES} bytes`);
    }
    return { text: readFileSync(file, "utf8"), stamp };
  }

  /** The record of a file, with its code loaded but not necessarily evaluated. */
  function obtain(owner: ModuleOwner, file: string): LoadedModule {
    const known = records.get(file);
    if (known !== undefined) {
      owner.uses.add(known);
      return known;
    }
    const { text, stamp } = readSource(file);
    const record = new LoadedModule(file, stamp, text);
    records.set(file, record);
    owner.uses.add(record);
    try {
      load(record, text);
    } catch (error) {
      drop(record);
      throw error;
    }
    return record;
  }

  function load(record: LoadedModule, text: string): void {
    const { file } = record;
    if (file.endsWith(".json")) {
      const exports = parseJson(file, text);
      record.common = { exports, filename: file, id: file, loaded: true, paths: [], children: [] };
      return;
    }
    const isTypeScript = /\.[cm]?ts$/.test(file);
    const parsed = withPlace(nameOf(file), () => parseSource(text, isTypeScript));
    const isEsm =
      /\.m[jt]s$/.test(file) ||
      parsed.shape === "esm" ||
      parsed.imports.length > 0 ||
      (parsed.shape === "body" && !/\.c[jt]s$/.test(file) && isModulePackage(root, file));
    if (isEsm) {
      record.esm = createEsm(record, nameOf(file), parsed.javascript, "", null);
      return;
    }
    evaluateCommon(record, parsed.code);
  }

  function parseJson(file: string, text: string): unknown {
    try {
      return JSON.parse(text.replace(/^\uFEFF/, "")) as unknown;
    } catch (error) {
      throw new ScriptLoadError(`${nameOf(file)}: ${(error as Error).message}`, { cause: error });
    }
  }

  function evaluateCommon(record: LoadedModule, code: string): void {
    const { file } = record;
    const require_ = requireOf(record);
    const module: CommonModule = {
      exports: {},
      filename: file,
      id: file,
      loaded: false,
      require: require_,
      paths: [],
      children: [],
    };
    record.common = module;
    const prefix = "(function (exports, require, module, __filename, __dirname, importMeta_) {";
    const script = compile(
      `${prefix}${neutralHead(code)}\n})`,
      nameOf(file),
      prefix.length,
      record,
    );
    const run = script.runInThisContext() as (...scope: unknown[]) => void;
    run.call(module.exports, module.exports, require_, module, file, dirname(file), metaOf(record));
    module.loaded = true;
  }

  function compile(code: string, name: string, shift: number, owner: ModuleOwner): Script {
    return compileScript(code, name, shift, (specifier) => importModule(owner, specifier));
  }

  function requireOf(owner: ModuleOwner): RequireFunction {
    const require_ = (specifier: string): unknown => requireModule(owner, specifier);
    return Object.assign(require_, {
      resolve: (specifier: string) => resolveFor(owner, specifier, "require"),
    });
  }

  function metaOf(owner: ModuleOwner): object {
    return describeModule(owner, (specifier) => resolveFor(owner, specifier, "import"));
  }

  function resolveFor(owner: ModuleOwner, specifier: string, use: ModuleUse): string {
    const target = locate(owner, specifier, use);
    return target.kind === "builtin" ? target.name : target.file;
  }

  function requireModule(owner: ModuleOwner, specifier: string): unknown {
    const target = locate(owner, specifier, "require");
    if (target.kind === "builtin") {
      return requireBuiltin(target.name);
    }
    const record = obtain(owner, target.file);
    if (record.common !== null) {
      return record.common.exports;
    }
    return requireEsm(record);
  }

  /** A synchronous look at an ES module, possible unless it awaits at its top level. */
  function requireEsm(record: LoadedModule): unknown {
    const module = record.esm as SourceTextModule;
    try {
      link(record);
      if (module.status === "linked") {
        if (module.hasAsyncGraph()) {
          throw new ScriptLoadError(`${nameOf(record.file)} awaits at its top level: use import()`);
        }
        module.evaluate().catch(() => {}); // the status tells, at once
      }
      if (module.status === "errored") {
        throw module.error;
      }
    } catch (error) {
      dropBroken(record);
      throw error;
    }
    const namespace = module.namespace as Record<string, unknown>;
    return Object.hasOwn(namespace, "module.exports") ? namespace["module.exports"] : namespace;
  }

  async function importModule(owner: ModuleOwner, specifier: string): Promise<Module> {
    const target = locate(owner, specifier, "import");
    if (target.kind === "builtin") {
      return evaluated(builtin(target.name));
    }
    const record = obtain(owner, target.file);
    try {
      return await evaluated(link(record));
    } catch (error) {
      dropBroken(record);
      throw error;
    }
  }

  /** The record's module with its whole graph linked. */
  function link(record: LoadedModule): Module {
    const module = (record.esm ??= wrapCommon(record));
    if (module.status === "unlinked") {
      linkGraph(record, module as SourceTextModule, new Set());
      (module as SourceTextModule).instantiate();
    }
    return module;
  }

  function linkGraph(owner: ModuleOwner, module: SourceTextModule, seen: Set<Module>): void {
    if (seen.has(module) || module.status !== "unlinked" || !("moduleRequests" in module)) {
      return;
    }
    seen.add(module);
    const targets = module.moduleRequests.map((request): Module => {
      const target = locate(owner, request.specifier, "import");
      if (target.kind === "builtin") {
        return builtin(target.name);
      }
      const record = obtain(owner, target.file);
      const inner = (record.esm ??= wrapCommon(record));
      linkGraph(record, inner as SourceTextModule, seen);
      return inner;
    });
    module.linkRequests(targets);
  }

  /** A CommonJS or JSON module as ES modules see it: its exports as default, and by name where it has names. */
  function wrapCommon(record: LoadedModule): Module {
    return synthetic(nameOf(record.file), record.common?.exports);
  }

  function builtin(name: string): Module {
    const known = builtins.get(name);
    if (known !== undefined) {
      return known;
    }
    const module = synthetic(name, requireBuiltin(name));
    builtins.set(name, module);
    return module;
  }

  function createEsm(
    owner: ModuleOwner,
    name: string,
    code: string,
    prefix: string,
    host: object | null,
  ): SourceTextModule {
    return withPlace(
      name,
      () =>
        new SourceTextModule(prefix + neutralHead(code), {
          identifier: name,
          columnOffset: -prefix.length,
          initializeImportMeta(meta) {
            Object.assign(meta, metaOf(owner), host === null ? {} : { host });
          },
          importModuleDynamically: (specifier) => importModule(owner, specifier),
        }),
    );
  }

  return {
    require: requireModule,
    resolve: resolveFor,
    importModule,
    refresh,
    async evaluate(owner, name, code, prefix, host) {
      const module = createEsm(owner, name, code, prefix, host);
      try {
        linkGraph(owner, module, new Set());
        module.instantiate();
        await module.evaluate();
      } catch (error) {
        dropBroken(new LoadedModule(owner.file, null, null));
        throw error;
      }
      return module.namespace;
    },
  };
}

/** Scripts that were written for Bun find its `fetch` by this name; it is the one of helper modules. */
const BUN = { fetch: (...args: Parameters<typeof fetch>) => globalThis.fetch(...args) };

function requireBuiltin(name: string): unknown {
  return name === "bun" ? BUN : nodeRequire(name);
}

/** Loads the parser ahead of the first script. */
export function warmUp(): void {
  loadParser();
}
