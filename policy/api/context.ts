import type { Context } from "hono";
import { compilePolicy } from "../compile/compile.ts";
import {
  decodeContainerDocument,
  emptyContainerDocument,
  formatContainerDocument,
  type ContainerDocument,
} from "../documents/container-document.ts";
import { emptyProjectDocument } from "../documents/project-document.ts";
import { ApiError } from "../kernel/json-api.ts";
import { isSpecialName } from "../kernel/strict-json.ts";
import { MAX_DOCUMENT_BYTES, type PolicyStore } from "../store/store.ts";
import { formatEtag } from "./if-match.ts";

/** What the API knows of a configured container. */
export interface ContainerInfo {
  readonly id: string;
  readonly project: string;
  readonly status: "running" | "stopped";
}

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

/** Reads a container's document. Throws an ApiError (503) when it cannot be used. */
export async function loadContainer(
  store: PolicyStore,
  container: ContainerInfo,
): Promise<LoadedDocument<ContainerDocument>> {
  const { text } = await store.read(`containers/${container.id}`);
  return { document: decodeContainer(text, container), exists: text !== null };
}

function decodeContainer(text: string | null, { id, project }: ContainerInfo): ContainerDocument {
  if (text === null) {
    return emptyContainerDocument(project, id);
  }
  const decoded = decodeContainerDocument(text, project, id);
  if (!decoded.ok) {
    throw unusable(decoded.reason);
  }
  return decoded.document;
}

/** The answer where a stored document, or the part a call is about, cannot be read. */
export function unusable(reason: string): ApiError {
  return new ApiError("SERVICE_UNAVAILABLE", `The stored document cannot be read: ${reason}`);
}

/**
 * One write to a container's document as one step: compare, change, compile, store. Nothing happens unless all of it
 * works. `change` returns null as document when there is nothing to write.
 *
 * Throws ApiErrors: 412, 503, and whatever `change` throws.
 */
export async function changeContainer<T>(
  store: PolicyStore,
  container: ContainerInfo,
  expected: number,
  change: (
    document: ContainerDocument,
    exists: boolean,
  ) => { readonly document: ContainerDocument | null; readonly value: T },
): Promise<{ readonly value: T; readonly version: number }> {
  const result = await store.update(`containers/${container.id}`, expected, (text) => {
    const before = decodeContainer(text, container);
    const changed = change(before, text !== null);
    if (changed.document === null) {
      return { text: null, value: { value: changed.value, version: before.version } };
    }
    const version = before.version + 1;
    const next = { ...changed.document, version };
    const written = checkedText(formatContainerDocument(next));
    // What is stored is what was compiled, from the very text that readers will get.
    compilePolicy(decodeContainer(written, container), emptyProjectDocument(container.project));
    return { text: written, value: { value: changed.value, version } };
  });
  if (result.kind === "done") {
    return result.value;
  }
  throw result.kind === "stale" ? staleVersion(result.version) : unusable(result.reason);
}

/** The answer to an If-Match that is not current. */
export function staleVersion(version: number): ApiError {
  return new ApiError(
    "PRECONDITION_FAILED",
    `etag_mismatch: the document is at ${formatEtag(version)}`,
  );
}

/** The text, unless it is too large to be read again. */
export function checkedText(text: string): string {
  if (Buffer.byteLength(text) > MAX_DOCUMENT_BYTES) {
    throw new ApiError(
      "VALIDATION_ERROR",
      `A permissions document may have at most ${MAX_DOCUMENT_BYTES} bytes.`,
    );
  }
  return text;
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
