import { SyntheticModule, type Module } from "node:vm";

/** A linked module, evaluated. @throws what its code throws. */
export async function evaluated(module: Module): Promise<Module> {
  if (module.status === "unlinked" && !("moduleRequests" in module)) {
    await module.link(() => {
      throw new Error("a built-in imports nothing");
    });
  }
  if (module.status === "linked" || module.status === "evaluating") {
    await module.evaluate();
  }
  if (module.status === "errored") {
    throw module.error;
  }
  return module;
}

/** What `require` gives, as ES modules see it: its exports as default, and by name where it has names. */
export function synthetic(name: string, exports: unknown): Module {
  const source =
    (typeof exports === "object" || typeof exports === "function") && exports !== null
      ? (exports as Record<string, unknown>)
      : {};
  const names = new Set(Object.keys(source).filter((key) => key !== "default"));
  const isTranspiled = source["__esModule"] === true && Object.hasOwn(source, "default");
  const module = new SyntheticModule(
    ["default", "module.exports", ...names].filter(unique),
    function set() {
      module.setExport("default", isTranspiled ? source["default"] : exports);
      module.setExport("module.exports", exports);
      for (const key of names) {
        if (key !== "module.exports") {
          module.setExport(key, source[key]);
        }
      }
    },
    { identifier: name },
  );
  return module;
}

function unique(value: string, index: number, list: readonly string[]): boolean {
  return list.indexOf(value) === index;
}
