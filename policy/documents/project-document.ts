import type { Issue } from "../kernel/issues.ts";
import {
  accessMembers,
  decodeHead,
  formatMembers,
  type AccessPart,
  type DecodedDocument,
} from "./container-document.ts";

/** A project's permissions document (edge-proxy.md 2.1 and 2.4): like a container's, but without hooks. */
export interface ProjectDocument {
  readonly project: string;
  /** `file_version`; 0 when nothing is stored. */
  readonly version: number;
  readonly access: AccessPart;
  /** Members that we do not know, by name, as source text. */
  readonly rest: ReadonlyMap<string, string>;
  readonly issues: readonly Issue[];
}

/** Nothing is stored for this project. */
export function emptyProjectDocument(project: string): ProjectDocument {
  return {
    project,
    version: 0,
    access: {},
    rest: new Map(),
    issues: [],
  };
}

/** Decodes the stored document of a project. Hooks in it are a problem to report; they never run. */
export function decodeProjectDocument(
  text: string,
  project: string,
): DecodedDocument<ProjectDocument> {
  const decoded = decodeHead(text, { project });
  if (!decoded.ok) {
    return decoded;
  }
  const { members, version, access, issues } = decoded.document;
  const rest = new Map(decoded.document.rest);
  for (const name of ["hooks", "container"]) {
    if (members[name] !== undefined) {
      rest.set(name, decoded.document.source([name]));
      issues.push({ path: `/${name}`, message: `a project document has no ${name}` });
    }
  }
  return { ok: true, document: { project, version, access, rest, issues } };
}

/** The text that is stored; unknown members keep their bytes. */
export function formatProjectDocument(document: ProjectDocument): string {
  return formatMembers([
    ["project", JSON.stringify(document.project)],
    ["schema_version", "2"],
    ["file_version", String(document.version)],
    ...accessMembers(document.access),
    ...document.rest,
  ]);
}
