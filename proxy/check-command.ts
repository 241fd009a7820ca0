import { relative } from "node:path";
import { checkStoredDocuments } from "../policy/store/check.ts";
import { loadConfig } from "./config.ts";

/**
 * `interpose check`: the configuration, then every stored document; one line per problem with file and JSON
 * pointer (decision 42).
 *
 * @returns the exit code: 0 when all is well, 1 otherwise.
 */
export async function runCheck(
  file: string,
  env: Readonly<Record<string, string | undefined>>,
  print: (line: string) => void,
): Promise<number> {
  const result = loadConfig(file, env);
  if (!result.ok) {
    for (const issue of result.issues) {
      print(`${file}: ${issue.path === "" ? "" : `${issue.path}: `}${issue.message}`);
    }
    return 1;
  }
  const problems = await checkStoredDocuments(result.config.dataDir);
  for (const problem of problems) {
    print(
      `${relative(".", problem.file)}: ${problem.path === "" ? "" : `${problem.path}: `}${problem.message}`,
    );
  }
  if (problems.length === 0) {
    print(
      `${file}: fine; every stored document below ${relative(".", result.config.dataDir) || "."} is fine`,
    );
  }
  return problems.length === 0 ? 0 : 1;
}
