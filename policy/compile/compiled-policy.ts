import type { GroupConfig } from "../documents/access.ts";

/** A script target of a rule, as stored. */
export interface ScriptTarget {
  readonly subdomain: string | null;
  readonly execId: string | null;
  readonly path: string;
}

/** What a rule is asked about a request. Nothing here is decoded more than once. */
export interface RuleRequest {
  readonly method: string;
  /** Path as received (no query) and its canonical forms, decision 1; the received form first. */
  readonly paths: readonly string[];
  /** Joined value of a client header by lower-case name, after sweeping; undefined when absent. */
  header(name: string): string | undefined;
}

/** One stored rule, compiled. `fits` never throws. */
export interface CompiledRule {
  readonly id: string;
  readonly position: number;
  /** First predicate that fails, in the order method, path, headers; null when all fit. A broken part counts as fitting. */
  failedPart(request: RuleRequest): "method" | "path" | "headers" | null;
  /** Groups of `applies_to`; null = every caller. */
  readonly groups: ReadonlySet<string> | null;
  /** Why the rule is no longer valid; null when it is. An invalid rule that fits answers 503. */
  readonly invalid: string | null;
  readonly script: ScriptTarget;
  readonly timeoutMs: number;
}

/** The hooks of one service: rules in order, or data that cannot be read (every request to the service: 503). */
export type ServiceHooks =
  | { readonly kind: "rules"; readonly rules: readonly CompiledRule[] }
  | { readonly kind: "unreadable"; readonly reason: string };

/** Whether an access cell grants an instance (or port). */
export type AccessTest = (instance: number) => boolean;

/** The merged permission side of a project and a container document (edge-proxy.md 2.4). */
export interface CompiledAccess {
  readonly enableProxy: boolean;
  readonly defaultAllow: boolean;
  readonly groups: ReadonlyMap<string, readonly GroupConfig[]>;
  /** group → program (canonical service name or protocol) → test. */
  readonly permissions: ReadonlyMap<string, ReadonlyMap<string, AccessTest>>;
  /** Programs whose default admits nobody, because a group with a rule for them cannot be evaluated. */
  readonly closedPrograms?: ReadonlySet<string>;
}

/** Frozen form of one revision; the unit that is swapped. */
export interface CompiledPolicy {
  readonly project: string;
  readonly container: string;
  /** `file_version` of the container document; 0 without one. */
  readonly revision: number;
  /**
   * Why the stored documents cannot be used at all; null when they can. When set, every request to the container
   * is refused with POLICY_UNAVAILABLE: the other members say nothing then.
   */
  readonly unavailable: string | null;
  readonly access: CompiledAccess;
  /** Hooks by canonical service name; a service without hooks is absent. */
  readonly hooks: ReadonlyMap<string, ServiceHooks>;
}
