import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { compileAccess } from "../compile/access.ts";
import { decodeAliasDocument } from "../documents/alias.ts";
import { decodeContainerDocument } from "../documents/container-document.ts";
import { decodeProjectDocument } from "../documents/project-document.ts";
import type { Issue } from "../kernel/issues.ts";
import { isJsonObject } from "../kernel/strict-json.ts";
import type { DocumentKey } from "./store.ts";

/** A problem of a stored document. */
export interface DocumentProblem extends Issue {
  readonly file: string;
}

const ID = /^[0-9a-f]{24}$/;

/**
 * Everything that is wrong in the stored documents below a data folder, with file and JSON pointer. A folder that
 * does not exist has no problems.
 */
export async function checkStoredDocuments(dataDir: string): Promise<DocumentProblem[]> {
  const root = join(dataDir, "policy");
  const problems: DocumentProblem[] = [];
  const read = (key: DocumentKey) => readText(join(root, `${key}.json`));
  for (const kind of ["projects", "containers"] as const) {
    const names: string[] = await readdir(join(root, kind)).catch(() => []);
    for (const name of names.toSorted()) {
      const [, id = "", extension] = /^(.*?)(\.json)?$/.exec(name) ?? [];
      const file = join(root, kind, name);
      if (extension === undefined || name.startsWith(".")) {
        continue; // temp and lock files of a write that is going on
      }
      if (!ID.test(id)) {
        problems.push({
          file,
          path: "",
          message: "the file name is not that of a document: 24 hex characters and .json",
        });
        continue;
      }
      const key: DocumentKey = `${kind}/${id}`;
      const found = await documentIssues(key, read);
      problems.push(...found.map((issue) => ({ file, ...issue })));
    }
  }
  const found = await documentIssues("aliases", read);
  problems.push(...found.map((issue) => ({ file: join(root, "aliases.json"), ...issue })));
  return problems;
}

/** What is wrong in one stored document. `read` gives the text of any document, null for none. */
export async function documentIssues(
  key: DocumentKey,
  read: (key: DocumentKey) => Promise<string | null>,
): Promise<readonly Issue[]> {
  let text: string | null;
  try {
    text = await read(key);
  } catch (cause) {
    return [{ path: "", message: cause instanceof Error ? cause.message : "cannot be read" }];
  }
  if (text === null) {
    return [];
  }
  if (key === "aliases") {
    const decoded = decodeAliasDocument(text);
    return decoded.ok ? decoded.document.issues : [{ path: "", message: decoded.reason }];
  }
  const [kind, id = ""] = key.split("/");
  if (kind === "projects") {
    const decoded = decodeProjectDocument(text, id);
    return decoded.ok
      ? [...decoded.document.issues, ...accessIssues(null, decoded.document.access)]
      : [{ path: "", message: decoded.reason }];
  }
  const project = projectOf(text);
  const decoded = decodeContainerDocument(text, project ?? "", id);
  if (!decoded.ok) {
    return [{ path: "", message: decoded.reason }];
  }
  const shared = project === null ? null : await read(`projects/${project}`).catch(() => null);
  const sharedDocument = shared === null ? null : decodeProjectDocument(shared, project ?? "");
  const access = sharedDocument?.ok === true ? sharedDocument.document.access : null;
  return [...decoded.document.issues, ...accessIssues(decoded.document.access, access)];
}

/** Problems of one document's permission side, with pointers into that document. */
function accessIssues(
  container: Parameters<typeof compileAccess>[0],
  project: Parameters<typeof compileAccess>[1],
): Issue[] {
  const own = container === null ? /^\/(?:project|container)(?=\/)/ : /^\/container(?=\/)/;
  return compileAccess(container, project)
    .problems.filter(({ path }) => own.test(path))
    .map(({ path, message }) => ({ path: path.replace(own, ""), message }));
}

/** The project that a container's document names; null when it does not say. */
function projectOf(text: string): string | null {
  try {
    const value: unknown = JSON.parse(text);
    const project = isJsonObject(value) ? value["project"] : undefined;
    return typeof project === "string" && ID.test(project) ? project : null;
  } catch {
    return null; // decoding says what is wrong
  }
}

async function readText(path: string): Promise<string | null> {
  try {
    return await readFile(path, "utf8");
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === "ENOENT") {
      return null;
    }
    throw new Error(`cannot be read (${code ?? "unknown error"})`, { cause });
  }
}
