import type { FieldLines } from "../policy/kernel/exchange.ts";
import type { Origin } from "../policy/kernel/http1/types.ts";

/**
 * The hand-over contract between the edge and an exec host (edge-proxy.md 6.7, exec-host.md 5.1): which header
 * fields carry a call. They are believed only together with the per-start secret, and removed before a script
 * runs. The names live in the reserved namespace, so no client can send one past the edge.
 */
export const ENVELOPE_FIELDS = {
  auth: "X-Hoody-Hook-Auth",
  kind: "X-Hoody-Hook-Kind",
  auditId: "X-Hoody-Hook-Audit-Id",
  method: "X-Hoody-Hook-Method",
  path: "X-Hoody-Hook-Path",
  service: "X-Hoody-Hook-Service",
  upstreamHost: "X-Hoody-Hook-Upstream-Host",
  upstreamPort: "X-Hoody-Hook-Upstream-Port",
  upstreamToken: "X-Hoody-Hook-Upstream-Token",
  subdomain: "X-Hoody-Hook-Script-Subdomain",
  execId: "X-Hoody-Hook-Script-Exec-Id",
  scriptPath: "X-Hoody-Hook-Script-Path",
  timeoutMs: "X-Hoody-Hook-Timeout-Ms",
  clientAddress: "X-Hoody-Hook-Client-Address",
  manage: "X-Hoody-Hook-Manage",
} as const;

const LOWER_FIELDS = Object.fromEntries(
  Object.entries(ENVELOPE_FIELDS).map(([field, name]) => [field, name.toLowerCase()]),
) as Readonly<Record<keyof typeof ENVELOPE_FIELDS, string>>;

/**
 * How deep a call stands in calls of other hooks (`dispatcher/depth.ts`). Not a part of the envelope: the worker also
 * sends it on.
 */
export const DEPTH_FIELD = "X-Hoody-Hook-Depth";

/** 0 for anything that is no small number. */
export function parseDepth(value: string | undefined): number {
  return value !== undefined && /^\d{1,3}$/.test(value) ? Number(value) : 0;
}

/** The fields with the depth behind them; unchanged at the top. */
export function withDepth(fields: FieldLines, depth: number): FieldLines {
  return depth === 0 ? fields : [...fields, DEPTH_FIELD, String(depth)];
}

/** The fields without the depth; they say it last, if at all. */
export function withoutDepth(fields: FieldLines): FieldLines {
  return fields.at(-2) === DEPTH_FIELD ? fields.slice(0, -2) : fields;
}

/** Lower-case prefix that marks a field of the envelope. */
export const ENVELOPE_PREFIX = "x-hoody-hook-";

/**
 * Answer field by which a host tells how a dispatch ended so far. Only the host sets it (never a script, whose
 * own field of that name is dropped), and the dispatcher always removes it.
 */
export const OUTCOME_FIELD = "X-Hoody-Hook-Outcome";

/** Value of the outcome field: the word, and the ms that the script waited for heads of its services. */
export function formatOutcome(outcome: DispatchOutcomeName, upstreamMs: number | null): string {
  return upstreamMs === null ? outcome : `${outcome} ${upstreamMs.toFixed(1)}`;
}

/** Reads it back; null for a value that no exec host of ours sends. */
export function parseOutcome(
  text: string,
): { readonly outcome: DispatchOutcomeName; readonly upstreamMs: number | null } | null {
  const match = /^([a-z_]+)(?: (\d{1,9}\.\d))?$/.exec(text);
  const outcome = DISPATCH_OUTCOMES.find((name) => name === match?.[1]);
  if (outcome === undefined) {
    return null;
  }
  return { outcome, upstreamMs: match?.[2] === undefined ? null : Number(match[2]) };
}

/** How a hook dispatch can end (contract.md 5): the word in the audit record, the access line and the metric. */
export const DISPATCH_OUTCOMES = [
  "answered",
  "forwarded",
  "denied",
  "timed_out",
  "truncated",
  "script_error",
  "not_found",
  "target_unavailable",
  "bad_path",
  "upstream_failed",
  "client_gone",
  "crashed",
] as const;
/** One of those words. */
export type DispatchOutcomeName = (typeof DISPATCH_OUTCOMES)[number];

/** Where a container's scripts answer at this moment. Plain data, so that it can cross a process border. */
export interface ExecEndpoint {
  readonly origin: Origin;
  /** Goes into the envelope's auth field; new with every start of a worker. */
  readonly secret: string;
  /** Grows with every start; names the process in reports about it. */
  readonly generation: number;
}

/** The side that runs embedded exec hosts: the pool itself, or a stub that asks the process which has it. */
export interface ExecHosts {
  /**
   * Where to send a request for a container now. A promise only while a worker has to be started or replaced;
   * a deadline starts after it. Throws or rejects when no worker can be had.
   */
  endpoint(containerId: string): ExecEndpoint | Promise<ExecEndpoint>;
  /**
   * A request to that worker failed. `connect`: its socket refused, so it is replaced; `reset`: a connection broke,
   * so its process may be gone; `silent`: it did not answer in time.
   */
  reportSuspect(
    containerId: string,
    generation: number,
    kind: "connect" | "reset" | "silent",
  ): void;
  /** Whether that generation's process has ended or is being ended. */
  isGone(containerId: string, generation: number): boolean;
  /** How the worker said a dispatch ended whose answer was cut; forgotten after it was asked. */
  takeEnded(containerId: string, auditId: string): string | undefined;
}

/** A hook dispatch: the rule's script runs, whatever Host and path say. */
export interface HookEnvelope {
  readonly kind: "hook";
  readonly auditId: string;
  readonly method: string;
  /** Client's path as received, without query, latin1 text. */
  readonly path: string;
  readonly service: string;
  readonly upstreamHost: string;
  readonly upstreamPort: number;
  /** What the helpers show at that address, where it is the edge's own way to a host that has none (`proxy/inner-service.ts`). */
  readonly upstreamToken?: string;
  readonly subdomain: string | null;
  readonly execId: string | null;
  readonly scriptPath: string;
  readonly timeoutMs: number;
  readonly clientAddress: string;
}

/** An ordinary call of the exec service: the request's own path names the script. */
export interface OrdinaryEnvelope {
  readonly kind: "ordinary";
  readonly subdomain: string | null;
  readonly execId: string | null;
  readonly clientAddress: string;
  /** Whether the caller may use the management routes (decision 43). */
  readonly manage: boolean;
}

/** What travels to an exec host beside the request itself. */
export type Envelope = HookEnvelope | OrdinaryEnvelope;

/** The envelope as header lines, to be appended to the swept fields of a request. */
export function toEnvelopeFields(envelope: Envelope, secret: string): string[] {
  const f = ENVELOPE_FIELDS;
  const lines = [f.auth, secret, f.kind, envelope.kind, f.clientAddress, envelope.clientAddress];
  if (envelope.subdomain !== null) {
    lines.push(f.subdomain, envelope.subdomain);
  }
  if (envelope.execId !== null) {
    lines.push(f.execId, envelope.execId);
  }
  if (envelope.kind === "ordinary") {
    lines.push(f.manage, envelope.manage ? "1" : "0");
    return lines;
  }
  lines.push(
    f.auditId,
    envelope.auditId,
    f.method,
    envelope.method,
    f.path,
    encodeBytes(envelope.path),
    f.service,
    envelope.service,
    f.upstreamHost,
    envelope.upstreamHost,
    f.upstreamPort,
    String(envelope.upstreamPort),
    f.scriptPath,
    encodeBytes(envelope.scriptPath),
    f.timeoutMs,
    String(envelope.timeoutMs),
  );
  if (envelope.upstreamToken !== undefined) {
    lines.push(f.upstreamToken, envelope.upstreamToken);
  }
  return lines;
}

/**
 * Reads the envelope of a request whose secret was already checked. `field` gives the value of a field by its
 * lower-case name, or undefined. Half an envelope, or one with impossible values, is null: the caller refuses.
 */
export function decodeEnvelope(field: (name: string) => string | undefined): Envelope | null {
  const get = field;
  const f = LOWER_FIELDS;
  const kind = get(f.kind);
  const clientAddress = get(f.clientAddress);
  const subdomain = get(f.subdomain) ?? null;
  const execId = get(f.execId) ?? null;
  if (clientAddress === undefined) {
    return null;
  }
  if (kind === "ordinary") {
    return { kind, subdomain, execId, clientAddress, manage: get(f.manage) === "1" };
  }
  if (kind !== "hook") {
    return null;
  }
  const upstreamToken = get(f.upstreamToken);
  return checkedHook({
    kind,
    auditId: get(f.auditId) ?? "",
    method: get(f.method) ?? "",
    path: decodeBytes(get(f.path) ?? ""),
    service: get(f.service) ?? "",
    upstreamHost: get(f.upstreamHost) ?? "",
    upstreamPort: Number(get(f.upstreamPort)),
    subdomain,
    execId,
    scriptPath: decodeBytes(get(f.scriptPath) ?? ""),
    timeoutMs: Number(get(f.timeoutMs)),
    clientAddress,
    ...(upstreamToken === undefined ? {} : { upstreamToken }),
  });
}

/** The envelope as it is, or null when a part is missing or impossible. */
export function checkedHook(envelope: HookEnvelope): HookEnvelope | null {
  const { auditId, method, path, service, scriptPath } = envelope;
  const { upstreamHost, upstreamPort, timeoutMs } = envelope;
  const isWhole =
    auditId !== "" &&
    method !== "" &&
    path !== "" &&
    service !== "" &&
    upstreamHost !== "" &&
    scriptPath !== "" &&
    Number.isInteger(upstreamPort) &&
    upstreamPort >= 1 &&
    upstreamPort <= 65535 &&
    Number.isInteger(timeoutMs) &&
    timeoutMs >= 1 &&
    timeoutMs <= 30_000;
  return isWhole ? envelope : null;
}

const PLAIN_BYTES = /^[\x21-\x24\x26-\x7e]*$/;

/** Bytes that a field value could not carry, and `%` itself, as `%XX`; one character per byte in and out. */
export function encodeBytes(text: string): string {
  return PLAIN_BYTES.test(text)
    ? text
    : text.replace(
        /[^\x21-\x24\x26-\x7e]/g,
        (char) => `%${(char.charCodeAt(0) & 0xff).toString(16).toUpperCase().padStart(2, "0")}`,
      );
}

/** Reads them back. */
export function decodeBytes(text: string): string {
  return !text.includes("%")
    ? text
    : text.replace(/%([0-9A-F]{2})/g, (_, hex: string) =>
        String.fromCharCode(Number.parseInt(hex, 16)),
      );
}
