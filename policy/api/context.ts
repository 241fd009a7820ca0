import type { Context } from "hono";
import { compilePolicy } from "../compile/compile.ts";
import {
  decodeContainerDocument,
  emptyContainerDocument,
  formatContainerDocument,
  type ContainerDocument,
  type DecodedDocument,
} from "../documents/container-document.ts";
import {
  decodeProjectDocument,
  emptyProjectDocument,
  formatProjectDocument,
  type ProjectDocument,
} from "../documents/project-document.ts";
import { ApiError } from "../kernel/json-api.ts";
import { isSpecialName } from "../kernel/strict-json.ts";
import { checkedSize, type DocumentKey, type PolicyStore } from "../store/store.ts";
import { formatEtag } from "./if-match.ts";

/** What the API knows of a configured container. */
export interface ContainerInfo {
  readonly id: string;
  readonly project: string;
  readonly status: "running" | "stopped";
}

/** The form of project and container ids. */
export const OBJECT_ID = /^[0-9a-f]{24}$/;

/** A path parameter of a given form; another one throws an ApiError (400). */
export function pathParameter(context: Context, name: string, form: RegExp): string {
  const value = context.req.param(name) ?? "";
  if (!form.test(value) || isSpecialName(value)) {
    throw new ApiError("BAD_REQUEST", `The path has no valid ${name}.`);
  }
  return value;
}

/** A document and its stored text's existence. */
export interface LoadedDocument<D> {
  readonly document: D;
  readonly exists: boolean;
}

/** How one kind of document is kept: the same steps for containers and projects. */
export interface DocumentKind<D, T> {
  key(target: T): DocumentKey;
  empty(target: T): D;
  decode(text: string, target: T): DecodedDocument<D>;
  format(document: D): string;
  /** Compiles the document; what is thrown keeps it from being stored. */
  compile(document: D, target: T): void;
}

/** Documents of containers. */
export const CONTAINERS: DocumentKind<ContainerDocument, ContainerInfo> = {
  key: ({ id }) => `containers/${id}`,
  empty: ({ id, project }) => emptyContainerDocument(project, id),
  decode: (text, { id, project }) => decodeContainerDocument(text, project, id),
  format: formatContainerDocument,
  compile: (document) => void compilePolicy(document, emptyProjectDocument(document.project)),
};

/** Documents of projects, by project id. */
export const PROJECTS: DocumentKind<ProjectDocument, string> = {
  key: (id) => `projects/${id}`,
  empty: emptyProjectDocument,
  decode: decodeProjectDocument,
  format: formatProjectDocument,
  compile: (document, id) => void compilePolicy(emptyContainerDocument(id, id), document),
};

/** Reads a document. Throws an ApiError (503) when it cannot be used. */
export async function loadDocument<D, T>(
  store: PolicyStore,
  kind: DocumentKind<D, T>,
  target: T,
): Promise<LoadedDocument<D>> {
  const { text } = await store.read(kind.key(target));
  return { document: decodeText(kind, text, target), exists: text !== null };
}

function decodeText<D, T>(kind: DocumentKind<D, T>, text: string | null, target: T): D {
  if (text === null) {
    return kind.empty(target);
  }
  const decoded = kind.decode(text, target);
  if (!decoded.ok) {
    throw unusable(decoded.reason);
  }
  return decoded.document;
}

/** The answer where a stored document, or the part a call is about, cannot be read. */
export function unusable(reason: string): ApiError {
  return new ApiError("SERVICE_UNAVAILABLE", `The stored document cannot be read: ${reason}`);
}

/** What a change makes of a document; `document: null` writes nothing. */
export interface Edit<D, V> {
  readonly document: D | null;
  readonly value: V;
}

/** A document after a change, and what the change had to say. */
export interface Changed<D, V> {
  readonly document: D;
  readonly version: number;
  readonly value: V;
}

/**
 * One write to a document as one step: compare, change, compile, store. Nothing happens unless all of it works.
 *
 * Throws ApiErrors: 412, 503, and whatever `change` throws.
 */
export async function changeDocument<D extends { readonly version: number }, T, V>(
  store: PolicyStore,
  kind: DocumentKind<D, T>,
  target: T,
  expected: number,
  change: (document: D, exists: boolean) => Edit<D, V>,
): Promise<Changed<D, V>> {
  const result = await store.update(kind.key(target), expected, (text) => {
    const before = decodeText(kind, text, target);
    const { document, value } = change(before, text !== null);
    if (document === null) {
      return { text: null, value: { document: before, version: before.version, value } };
    }
    const version = before.version + 1;
    const written = checkedSize(kind.format({ ...document, version }));
    // What gets compiled is the very text that every reader will get.
    const stored = decodeText(kind, written, target);
    kind.compile(stored, target);
    return { text: written, value: { document: stored, version, value } };
  });
  if (result.kind === "done") {
    return result.value;
  }
  throw result.kind === "stale" ? staleVersion(result.version) : unusable(result.reason);
}

/** The answer to an If-Match that is not current. */
function staleVersion(version: number): ApiError {
  return new ApiError(
    "PRECONDITION_FAILED",
    `etag_mismatch: the document is at ${formatEtag(version)}`,
  );
}

/** `file_version` and `etag` for `data`; sets the ETag field, too. */
export function versionMembers(
  context: Context,
  version: number,
): { file_version: number; etag: string } {
  const etag = formatEtag(version);
  context.header("ETag", etag);
  return { file_version: version, etag };
}
