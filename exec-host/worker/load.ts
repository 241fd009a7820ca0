import { readFileSync } from "node:fs";
import { relative } from "node:path";
import { parseDirectives, type Directives, type DirectiveWarning } from "../scripts/directives.ts";
import {
  IMPORT_META,
  parseSource,
  type ImportBinding,
  type ParsedSource,
} from "../scripts/source.ts";
import { readStamp, type Stamp } from "../scripts/stamp.ts";
import { HookUpstreamError } from "./hook-upstream-error.ts";
import { compileScript, neutralHead, ScriptLoadError, withPlace } from "./compile.ts";
import { describeModule, type ModuleOwner, type ModuleRecord } from "./module-record.ts";
import type { ModuleCache } from "./modules.ts";

/** What a script gets for one request. */
export interface ScriptArguments {
  readonly req: unknown;
  readonly res: unknown;
  readonly metadata: unknown;
  readonly shared: unknown;
  /** Only `post` files have one. */
  readonly mainResult?: unknown;
}

/** What a run gave: a value or a promise of one, which is not awaited yet. */
export interface ScriptResult {
  readonly value: unknown;
}

/** The names a script finds besides Node's own globals. */
export interface ScriptScope {
  readonly fetch: unknown;
  readonly Bun: object;
}

/** One version of one script file in one deployment. */
export interface LoadedScript extends ModuleOwner {
  /** Path below the root. */
  readonly name: string;
  readonly stamp: Stamp;
  readonly text: string;
  /** What `process.env` is for it. */
  readonly env: Record<string, string>;
  readonly directives: Directives;
  readonly warnings: readonly DirectiveWarning[];
  /** False once a module it uses has changed. */
  isCurrent(): boolean;
  /**
   * Whether the stamp is proof enough. A file that was read within a tick of its last change may have been changed
   * again under the same stamp, so its text is compared once more after that tick.
   */
  isSettled(now: number): boolean;
  /**
   * Runs it once; what a module shape evaluates at load time is evaluated at its first run, and only that is waited for.
   * May throw what the script throws.
   */
  run(args: ScriptArguments): ScriptResult | Promise<ScriptResult>;
}

/** More than a tick of any file system's clock. */
const SETTLE_MS = 50;
const MAX_SCRIPT_BYTES = 8 * 1024 * 1024;

type Handler = (req: unknown, res: unknown, metadata: unknown, shared: unknown) => unknown;
type BodyFunction = (...args: unknown[]) => Promise<unknown>;

/**
 * Loads one version of a script. Nothing of it runs yet, so that a broken file fails here with its place and not
 * half-way through.
 *
 * @throws ScriptLoadError when it cannot be read, parsed or compiled.
 */
export function loadScript(
  root: string,
  file: string,
  modules: ModuleCache,
  scope: ScriptScope,
  env: Record<string, string>,
): LoadedScript {
  const name = relative(root, file);
  const stamp = readStamp(file);
  if (stamp === null || stamp.size > MAX_SCRIPT_BYTES) {
    throw new ScriptLoadError(
      stamp === null ? `${name}: cannot be read` : `${name}: larger than ${MAX_SCRIPT_BYTES} bytes`,
    );
  }
  const text = readFileSync(file, "utf8");
  const { directives, warnings } = parseDirectives(text);
  const uses = new Set<ModuleRecord>();
  const owner: ModuleOwner = { file, uses };
  const parsed = withPlace(name, () => parseSource(text, file.endsWith(".ts")));
  if (parsed.shape === "esm" && !parsed.hasDefaultExport) {
    throw new ScriptLoadError(`${name}: a module script needs a default export`);
  }
  const run = makeRunner(parsed, owner, name, modules, scope, directives.mode === "serverless");
  let isSettled = false;
  return {
    file,
    uses,
    name,
    stamp,
    text,
    env,
    directives,
    warnings,
    isCurrent() {
      for (const record of uses) {
        if (record.isStale) {
          return false;
        }
      }
      return true;
    },
    isSettled(now) {
      if (isSettled) {
        return true;
      }
      if (now - stamp.ctimeMs < SETTLE_MS) {
        return readText(file) === text;
      }
      isSettled = readText(file) === text;
      return isSettled;
    },
    run,
  };
}

function readText(file: string): string | null {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return null; // vanished: not the same text
  }
}

function makeRunner(
  parsed: ParsedSource,
  owner: ModuleOwner,
  name: string,
  modules: ModuleCache,
  scope: ScriptScope,
  isFresh: boolean,
): LoadedScript["run"] {
  if (parsed.shape === "esm") {
    return oncePerVersion(isFresh, () => evaluateEsm(parsed, owner, name, modules, scope));
  }
  const isBody = parsed.shape === "body";
  const instantiate = compileFunction(parsed, owner, name, modules, scope, isBody);
  if (isBody) {
    return ({ req, res, metadata, shared, mainResult }) => ({
      value: instantiate({ exports: {} })(req, res, metadata, shared, mainResult),
    });
  }
  return oncePerVersion(isFresh, async () => {
    const module = { exports: {} as unknown };
    await instantiate(module)();
    return toHandler(name, module.exports);
  });
}

/** Evaluates at the first run and calls the function each time; a failed evaluation is tried again. */
function oncePerVersion(isFresh: boolean, evaluate: () => Promise<Handler>): LoadedScript["run"] {
  let evaluation: Promise<Handler> | null = null;
  let handler: Handler | null = null;
  // A post file in module form finds the main result as `metadata.mainResult`.
  const call = (found: Handler, { req, res, metadata, shared }: ScriptArguments): ScriptResult => ({
    value: found(req, res, metadata, shared),
  });
  const first = async (args: ScriptArguments): Promise<ScriptResult> => {
    evaluation ??= evaluate();
    try {
      handler = await evaluation;
    } catch (error) {
      evaluation = null;
      throw error;
    }
    return call(handler, args);
  };
  return (args) => {
    if (isFresh) {
      return evaluate().then((found) => call(found, args));
    }
    return handler === null ? first(args) : call(handler, args);
  };
}

function toHandler(name: string, exports: unknown): Handler {
  const inner =
    typeof exports === "object" && exports !== null
      ? (exports as Record<string, unknown>)["default"]
      : undefined;
  const found = typeof exports === "function" ? exports : inner;
  if (typeof found !== "function") {
    throw new ScriptLoadError(`${name}: does not export a function`);
  }
  return found as Handler;
}

const OUTER = ["module", "exports", "require", "fetch", "Bun", "HookUpstreamError", IMPORT_META];
const INNER = ["req", "res", "metadata", "shared", "mainResult"];

/**
 * The file as a function inside a function: the outer one has the host's names, the inner one the request's, so
 * that an author may declare names of either without a clash.
 */
function compileFunction(
  parsed: ParsedSource,
  owner: ModuleOwner,
  name: string,
  modules: ModuleCache,
  scope: ScriptScope,
  isBody: boolean,
): (module: { exports: unknown }) => BodyFunction {
  const prefix =
    `(function (${OUTER.join(", ")}) { return async function (${isBody ? INNER.join(", ") : ""}) {` +
    importStatements(parsed.imports);
  const script = compileScript(
    `${prefix}${neutralHead(parsed.code)}\n} })`,
    name,
    prefix.length,
    (specifier) => modules.importModule(owner, specifier),
  );
  const outer = script.runInThisContext() as (...scope: unknown[]) => BodyFunction;
  const require_ = createRequireFor(owner, modules);
  const meta = describeModule(owner, (specifier) => modules.resolve(owner, specifier, "import"));
  return (module) =>
    outer(module, module.exports, require_, scope.fetch, scope.Bun, HookUpstreamError, meta);
}

function createRequireFor(owner: ModuleOwner, modules: ModuleCache): unknown {
  return Object.assign((specifier: string) => modules.require(owner, specifier), {
    resolve: (specifier: string) => modules.resolve(owner, specifier, "require"),
  });
}

/** `import` declarations of a file that runs per request, as the dynamic imports they then are. */
function importStatements(imports: readonly ImportBinding[]): string {
  return imports
    .map(({ specifier, imported, local }) => {
      const loaded = `await import(${JSON.stringify(specifier)})`;
      if (local === null) {
        return `${loaded};`;
      }
      return imported === "*"
        ? `const ${local} = ${loaded};`
        : `const { ${JSON.stringify(imported)}: ${local} } = ${loaded};`;
    })
    .join(" ");
}

async function evaluateEsm(
  parsed: ParsedSource,
  owner: ModuleOwner,
  name: string,
  modules: ModuleCache,
  scope: ScriptScope,
): Promise<Handler> {
  const host = {
    fetch: scope.fetch,
    Bun: scope.Bun,
    HookUpstreamError,
    require: createRequireFor(owner, modules),
  };
  const injected = Object.keys(host).filter((key) => !parsed.declared.has(key));
  const prefix =
    injected.length === 0 ? "" : `const { ${injected.join(", ")} } = import.meta.host; `;
  const namespace = (await modules.evaluate(owner, name, parsed.code, prefix, host)) as {
    default?: unknown;
  };
  return toHandler(name, { default: namespace.default });
}
