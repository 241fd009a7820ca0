import { LRUCache } from "lru-cache";
import { compilePolicy, unavailablePolicy } from "../compile/compile.ts";
import type { CompiledPolicy } from "../compile/compiled-policy.ts";
import {
  decodeContainerDocument,
  emptyContainerDocument,
} from "../documents/container-document.ts";
import { decodeProjectDocument, emptyProjectDocument } from "../documents/project-document.ts";
import type { Clock } from "../kernel/clock.ts";
import type { Log } from "../kernel/log.ts";
import type { Metrics } from "../kernel/metrics.ts";
import { StoreError, type PolicyStore } from "./store.ts";

/** What the cache builds on. */
export interface PolicyCacheDeps {
  readonly store: PolicyStore;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
}

/** Size and times of the cache. */
export interface PolicyCacheOptions {
  /** Most containers kept compiled. */
  readonly maxEntries?: number;
  /** How long a compiled policy is used without asking the store for a newer one, in ms. */
  readonly checkMs?: number;
}

/** Compiled policies by container, current within `checkMs`; writes of this process count for the next request. */
export interface PolicyCache {
  /**
   * The policy of a container: at once when it is compiled and current, a promise otherwise. Never fails: where
   * nothing can be known the policy says `unavailable`.
   */
  get(project: string, container: string): CompiledPolicy | Promise<CompiledPolicy>;
  /** Why the store is out of reach; null when it is not. What was compiled before is still served. */
  storeProblem(): string | null;
  /** Seconds since a document was last compiled. */
  ageSeconds(): number;
  close(): void;
}

interface Entry {
  readonly policy: CompiledPolicy;
  /** null: the store could not be read, so the next check loads again. */
  readonly stamps: { readonly container: string; readonly project: string } | null;
  checkedAt: number;
  /** Writes of this process when the texts were read. */
  epoch: number;
}

/**
 * Creates the cache. A look-up asks the store for the documents' stamps at most every `checkMs` per container, so
 * that writes of other processes and of editors count soon, and once more after every write of this process.
 */
export function createPolicyCache(
  deps: PolicyCacheDeps,
  options: PolicyCacheOptions = {},
): PolicyCache {
  const { store, clock, log, metrics } = deps;
  const checkMs = options.checkMs ?? 25;
  const entries = new LRUCache<string, Entry>({ max: options.maxEntries ?? 10_000 });
  const loading = new Map<
    string,
    { readonly epoch: number; readonly result: Promise<CompiledPolicy> }
  >();
  const results = {
    hit: metrics.policyCache.labels("hit"),
    miss: metrics.policyCache.labels("miss"),
    stale: metrics.policyCache.labels("stale"),
    error: metrics.policyCache.labels("error"),
  };
  let epoch = 0;
  let problem: string | null = null;
  let compiledAt = clock.monotonic();
  const unwatch = store.watch(() => {
    epoch++;
  });

  const failed = (cause: unknown): string => {
    results.error.inc();
    const reason = cause instanceof StoreError ? cause.message : "the stored policy cannot be read";
    if (problem !== reason) {
      log.error({ err: cause, reason }, "policy store out of reach");
    }
    problem = reason;
    return reason;
  };
  const recovered = (): void => {
    if (problem !== null) {
      log.info("policy store in reach again");
      problem = null;
    }
  };

  const isCurrent = (entry: Entry, now: number): boolean => {
    try {
      const { project, container } = entry.policy;
      const current =
        entry.stamps !== null &&
        store.stamp(`containers/${container}`) === entry.stamps.container &&
        store.stamp(`projects/${project}`) === entry.stamps.project;
      if (current) {
        recovered();
        entry.checkedAt = now;
        entry.epoch = epoch;
      }
      return current;
    } catch (cause) {
      failed(cause);
      entry.checkedAt = now;
      return entry.stamps !== null; // what was compiled before goes on, decision 10
    }
  };

  const load = async (project: string, container: string, at: number): Promise<CompiledPolicy> => {
    let entry: Entry;
    try {
      const [own, shared] = await Promise.all([
        store.read(`containers/${container}`),
        store.read(`projects/${project}`),
      ]);
      recovered();
      const policy = compileTexts(project, container, own.text, shared.text);
      if (policy.unavailable !== null) {
        log.error({ container, reason: policy.unavailable }, "stored policy cannot be used");
      }
      entry = {
        policy,
        stamps: { container: own.stamp, project: shared.stamp },
        checkedAt: clock.monotonic(),
        epoch: at,
      };
      compiledAt = clock.monotonic();
    } catch (cause) {
      const reason = failed(cause);
      const last = entries.peek(container);
      if (last !== undefined && last.policy.project === project && last.stamps !== null) {
        last.checkedAt = clock.monotonic();
        return last.policy;
      }
      entry = {
        policy: unavailablePolicy(project, container, reason),
        stamps: null,
        checkedAt: clock.monotonic(),
        epoch: at,
      };
    }
    entries.set(container, entry);
    return entry.policy;
  };

  return {
    get(project, container) {
      const entry = entries.get(container);
      const known = entry !== undefined && entry.policy.project === project;
      if (known) {
        const now = clock.monotonic();
        if (entry.epoch === epoch && now - entry.checkedAt < checkMs) {
          results.hit.inc();
          return entry.policy;
        }
        if (isCurrent(entry, now)) {
          results.hit.inc();
          return entry.policy;
        }
      }
      // A load that began before a write of this process may have read the older text: it is not joined.
      const running = loading.get(container);
      if (running?.epoch === epoch) {
        return running.result;
      }
      (known ? results.stale : results.miss).inc();
      const at = epoch;
      const result = load(project, container, at).finally(() => {
        if (loading.get(container)?.result === result) {
          loading.delete(container);
        }
      });
      loading.set(container, { epoch: at, result });
      return result;
    },
    storeProblem: () => problem,
    ageSeconds: () => (clock.monotonic() - compiledAt) / 1000,
    close: unwatch,
  };
}

/** Decodes and compiles what is stored for a container; whatever cannot be used as a whole refuses every request. */
export function compileTexts(
  project: string,
  container: string,
  containerText: string | null,
  projectText: string | null,
): CompiledPolicy {
  const own =
    containerText === null
      ? { ok: true as const, document: emptyContainerDocument(project, container) }
      : decodeContainerDocument(containerText, project, container);
  const shared =
    projectText === null
      ? { ok: true as const, document: emptyProjectDocument(project) }
      : decodeProjectDocument(projectText, project);
  if (!own.ok) {
    return unavailablePolicy(project, container, `container document: ${own.reason}`);
  }
  if (!shared.ok) {
    return unavailablePolicy(project, container, `project document: ${shared.reason}`);
  }
  return compilePolicy(own.document, shared.document);
}
