import type { z } from "zod";

/** One problem in a document: where (JSON pointer), what was found, what is allowed. */
export interface Issue {
  /** JSON pointer (RFC 6901); "" is the whole document. */
  readonly path: string;
  readonly message: string;
}

/** A JSON pointer from path segments. */
export function toPointer(path: readonly PropertyKey[]): string {
  return path
    .map((part) => `/${String(part).replaceAll("~", "~0").replaceAll("/", "~1")}`)
    .join("");
}

/** All problems of a zod error, unknown keys one by one with the pointer of the key itself. */
export function toIssues(error: Pick<z.ZodError, "issues">): Issue[] {
  const issues: Issue[] = [];
  for (const issue of error.issues) {
    if (issue.code === "unrecognized_keys") {
      for (const key of issue.keys) {
        issues.push({ path: toPointer([...issue.path, key]), message: "unknown key" });
      }
    } else if (issue.code === "invalid_key") {
      issues.push({
        path: toPointer(issue.path),
        message: issue.issues[0]?.message ?? "invalid key",
      });
    } else {
      issues.push({ path: toPointer(issue.path), message: issue.message });
    }
  }
  return issues;
}

/** `pointer: message; pointer: message`, for answers that show one line only. */
export function formatIssues(issues: readonly Issue[]): string {
  return issues
    .map((issue) => (issue.path === "" ? issue.message : `${issue.path}: ${issue.message}`))
    .join("; ");
}
