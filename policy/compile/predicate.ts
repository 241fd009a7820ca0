import { compilePathGlob } from "./path-glob.ts";
import type { RuleRequest } from "./compiled-policy.ts";

/** One part of a rule's predicate. */
export type PartTest = (request: RuleRequest) => boolean;

/** What stands for a part that is broken: it fits, so that the rule refuses instead of vanishing. */
export const fitsAlways: PartTest = () => true;

/**
 * Method part (edge-proxy.md 6.6): `*` is every method but OPTIONS, GET covers HEAD. A method in unusual spelling
 * fits what its upper-case form fits, since a lenient service may take it for that.
 */
export function compileMethod(method: string | readonly string[]): PartTest {
  if (method === "*") {
    return (request) => request.method !== "OPTIONS";
  }
  const listed = new Set(typeof method === "string" ? [method] : method);
  if (listed.has("GET")) {
    listed.add("HEAD");
  }
  return (request) => listed.has(request.method) || listed.has(request.method.toUpperCase());
}

/** Path part: fits when any reading of the path does (decision 1). */
export function compilePath(glob: string): PartTest {
  if (glob === "*" || glob === "/*") {
    return fitsAlways;
  }
  const expression = compilePathGlob(glob);
  return ({ paths }) => {
    for (const path of paths) {
      if (expression.test(path)) {
        return true;
      }
    }
    return false;
  };
}

/** Header part: every named header is there and its joined value is exactly the given one. */
export function compileHeaders(headers: Readonly<Record<string, string>>): PartTest {
  const wanted = Object.entries(headers);
  if (wanted.length === 0) {
    return fitsAlways;
  }
  return (request) => {
    for (const [name, value] of wanted) {
      if (request.header(name) !== value) {
        return false;
      }
    }
    return true;
  };
}
