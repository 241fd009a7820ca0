import type { KeyObject } from "node:crypto";
import { z } from "zod";
import type { Clock, Timer } from "../../policy/kernel/clock.ts";
import type { Log } from "../../policy/kernel/log.ts";
import { isKeyId, toPublicKey } from "../claim.ts";

/** The public keys that identity claims are verified with. */
export interface IdentityKeys {
  /** The key of an id, from the configuration or last fetched. */
  get(kid: string): KeyObject | undefined;
  /**
   * Asks the issuer because of an unknown id: resolves when its keys are in. null when nothing would change now, since
   * there is no issuer, or it was asked for this reason within the last minute (edge-proxy.md 3.3).
   */
  refresh(): Promise<void> | null;
  /** All keys in force, for the public-key endpoint; the configured ones first. */
  list(): readonly PublicKeyEntry[];
  /** Whether there is no issuer, or its keys were fetched at least once. */
  readonly ready: boolean;
  close(): void;
}

/** A key by its id. */
export interface PublicKeyEntry {
  readonly kid: string;
  /** 64 lower-case hex characters. */
  readonly publicKeyHex: string;
}

/** What the key store builds on. */
export interface IdentityKeysDeps {
  readonly clock: Clock;
  readonly log: Log;
  /** The global `fetch`, or a stand-in. */
  readonly fetch: typeof fetch;
}

/** Configured keys, the issuer's address, and times. */
export interface IdentityKeysOptions {
  readonly keys: readonly PublicKeyEntry[];
  /** Full URL of the issuer's key endpoint (decision 29). */
  readonly keysUrl: string | null;
  readonly timeoutMs?: number;
  /** Least time between two fetches for unknown ids. */
  readonly minRefreshMs?: number;
  /** Time after which good keys are fetched anew, so that withdrawn ones go. */
  readonly maxAgeMs?: number;
  /** First wait after a failed fetch; doubles up to `minRefreshMs`. */
  readonly retryMs?: number;
}

const DEFAULTS = {
  timeoutMs: 5000,
  minRefreshMs: 60_000,
  maxAgeMs: 24 * 3_600_000,
  retryMs: 1000,
} as const;

const MAX_BODY_BYTES = 262_144;
const MAX_KEYS = 64;

const keysSchema = z.object({
  keys: z
    .array(
      z.object({ kid: z.string(), algorithm: z.string().optional(), public_key_hex: z.string() }),
    )
    .min(1)
    .max(MAX_KEYS),
});
const answerSchema = z.union([
  z.object({ data: keysSchema }).transform(({ data }) => data),
  keysSchema,
]);

/**
 * Keeps the keys of the configuration and of the issuer. The first fetch starts at once, in the background; failures
 * keep the last good keys and are tried again. A configured key always stands before a fetched one of the same id.
 */
export function createIdentityKeys(
  { clock, log, fetch }: IdentityKeysDeps,
  options: IdentityKeysOptions,
): IdentityKeys {
  const { keysUrl } = options;
  const { timeoutMs, minRefreshMs, maxAgeMs, retryMs } = { ...DEFAULTS, ...options };
  const configured = toKeyMap(options.keys);
  let fetched: ReadonlyMap<string, StoredKey> = new Map();
  let ready = keysUrl === null;
  let running: Promise<void> | null = null;
  let askedAt = Number.NEGATIVE_INFINITY;
  let failures = 0;
  let next: Timer | null = null;
  let abort: AbortController | null = null;
  let closed = false;

  const load = async (url: string): Promise<void> => {
    const controller = new AbortController();
    abort = controller;
    const timer = clock.after(timeoutMs, () => controller.abort());
    try {
      fetched = await fetchKeys(fetch, url, controller.signal);
      ready = true;
      failures = 0;
    } catch (cause) {
      failures++;
      if (!closed) {
        const reason = cause instanceof Error ? cause.message : String(cause);
        log.warn(
          { reason, failures },
          "identity keys could not be fetched; the last good ones stay",
        );
      }
    } finally {
      timer.cancel();
    }
  };
  const start = (url: string): Promise<void> => {
    running ??= load(url).then(() => {
      running = null;
      next?.cancel();
      if (!closed) {
        const wait =
          failures === 0 ? maxAgeMs : Math.min(retryMs * 2 ** (failures - 1), minRefreshMs);
        next = clock.after(wait, () => void start(url));
      }
    });
    return running;
  };
  if (keysUrl !== null) {
    void start(keysUrl);
  }

  return {
    get: (kid) => (configured.get(kid) ?? fetched.get(kid))?.key,
    refresh() {
      if (keysUrl === null || closed) {
        return null;
      }
      if (running !== null) {
        return running;
      }
      const now = clock.monotonic();
      if (now - askedAt < minRefreshMs) {
        return null;
      }
      askedAt = now;
      return start(keysUrl);
    },
    list: () =>
      [...new Map([...configured, ...[...fetched].filter(([kid]) => !configured.has(kid))])].map(
        ([kid, { hex }]) => ({ kid, publicKeyHex: hex }),
      ),
    get ready() {
      return ready;
    },
    close() {
      closed = true;
      next?.cancel();
      abort?.abort();
    },
  };
}

interface StoredKey {
  readonly key: KeyObject;
  readonly hex: string;
}

function toKeyMap(entries: readonly PublicKeyEntry[]): Map<string, StoredKey> {
  const keys = new Map<string, StoredKey>();
  for (const { kid, publicKeyHex } of entries) {
    const key = toPublicKey(publicKeyHex);
    if (key !== null && isKeyId(kid) && !keys.has(kid)) {
      keys.set(kid, { key, hex: publicKeyHex.toLowerCase() });
    }
  }
  return keys;
}

async function fetchKeys(
  fetch: IdentityKeysDeps["fetch"],
  url: string,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, StoredKey>> {
  // A redirect could lead to whoever answers there; the address in the configuration is the one that is trusted.
  const response = await fetch(url, {
    signal,
    redirect: "error",
    headers: { accept: "application/json" },
  });
  if (response.status !== 200) {
    await response.body?.cancel();
    throw new Error(`the issuer answered ${response.status}`);
  }
  const parsed = answerSchema.safeParse(JSON.parse(await readBounded(response)));
  if (!parsed.success) {
    throw new Error("the issuer's answer is no list of keys");
  }
  const keys = toKeyMap(
    parsed.data.keys
      .filter(({ algorithm }) => algorithm === undefined || algorithm.toLowerCase() === "ed25519")
      .map(({ kid, public_key_hex }) => ({ kid, publicKeyHex: public_key_hex })),
  );
  if (keys.size === 0) {
    throw new Error("the issuer's answer has no usable key");
  }
  return keys;
}

async function readBounded(response: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of response.body ?? []) {
    size += chunk.length;
    if (size > MAX_BODY_BYTES) {
      throw new Error("the issuer's answer is too large");
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}
