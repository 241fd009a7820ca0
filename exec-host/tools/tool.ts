import type { Clock } from "../../policy/kernel/clock.ts";
import type { CommandOutcome } from "../agent/process.ts";
import type { JsonObject, Session, ToolResult } from "../agent/seams.ts";
import type { Files } from "./files.ts";

/** How an inner call of the orchestrator ended. */
export interface InnerOutcome {
  readonly tool: string;
  readonly result: ToolResult;
  /** Details of a parked confirmation, as the 409 of a direct run carries them. */
  readonly needsConfirmation?: JsonObject;
}

/** What one run of a tool may use. Everything dies with `signal`. */
export interface ToolContext {
  readonly session: Session;
  readonly clock: Clock;
  /** Aborts at cancel, close, disconnect and shutdown. */
  readonly signal: AbortSignal;
  readonly files: Files;
  /** The PATH of the session's commands. */
  readonly searchPath: string;
  /** True when the gate judged this call to be read-only; a command then runs in the read-only sandbox where there is one. */
  readonly judgedReadOnly: boolean;
  /** Runs a command in the session's environment; see process.ts. */
  runCommand(
    command: string,
    cwd: string,
    timeoutMs: number,
    maxOutputBytes: number,
  ): Promise<CommandOutcome>;
  /** Parks a question gate and waits; null when nobody can be asked or the wait was ended. */
  ask(question: JsonObject): Promise<string | null>;
  /** Runs an inner call through the same gate. */
  runInner(tool: string, params: JsonObject): Promise<InnerOutcome>;
  /** Files this session has read or written, with what they looked like. */
  readonly reads: ReadRecord;
}

/** What a session knows of the files it has seen: the base of read-before-edit. */
export interface ReadRecord {
  note(
    physical: string,
    seen: { readonly mtimeMs: number; readonly size: number; readonly ino: number },
  ): void;
  /** `unread`: never seen; `changed`: overwritten since. */
  check(
    physical: string,
    now: { readonly mtimeMs: number; readonly size: number; readonly ino: number },
  ): "current" | "unread" | "changed";
}

/** A path that a call is about to use, for the gate. */
export interface PathUse {
  readonly path: string;
  readonly use: "read" | "write";
}

/** One tool: its catalogue entry and how it runs. */
export interface Tool {
  readonly name: string;
  readonly description: string;
  readonly readOnly: boolean;
  /** JSON Schema, draft 2020-12, with `additionalProperties: false`. */
  readonly inputSchema: JsonObject;
  /** Program that must be on the PATH for the tool to be offered. */
  readonly program?: string;
  /** Paths the gate places before the call; the run itself places them again. */
  paths?(params: JsonObject): readonly PathUse[];
  /** Reject only on bugs: an expected failure is a result with `isError`. `params` fit the schema. */
  run(params: JsonObject, context: ToolContext): Promise<ToolResult>;
}

/** Longest text a tool hands back, bytes. */
export const MAX_RESULT_BYTES = 262_144;

/** A successful result. */
export function ok(text: string): ToolResult {
  return { isError: false, text };
}

/** A failed result. */
export function failed(errorCode: string, text: string): ToolResult {
  return { isError: true, text, errorCode };
}

/** A string parameter that the schema has checked; "" when absent. */
export function text(params: JsonObject, name: string): string {
  const value = params[name];
  return typeof value === "string" ? value : "";
}

/** An integer parameter that the schema has checked, or `fallback`. */
export function integer(params: JsonObject, name: string, fallback: number): number {
  const value = params[name];
  return typeof value === "number" ? value : fallback;
}
