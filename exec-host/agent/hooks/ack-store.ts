import { mkdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { writeFileAtomic } from "../../../policy/kernel/atomic-file.ts";
import type { Clock } from "../../../policy/kernel/clock.ts";
import { AgentError } from "../errors.ts";
import { isObject } from "../settings/canonical-json.ts";
import { openLocation } from "../settings/places.ts";
import { readWholeFile } from "../settings/read-file.ts";
import type { TrustSnapshot } from "./trust.ts";

interface Ack {
  readonly hash: string;
  readonly high_risk: boolean;
  readonly folder: string | null;
  readonly ack_at: string;
}

const MAX_ACKS = 1000;

/** Acknowledged trust hashes of a realm, kept in its profile, outside every repository. They outlive sessions. */
export interface AckStore {
  /** False also when the file cannot be read: what cannot be shown to be trusted is not. */
  has(profile: string, snapshot: TrustSnapshot): Promise<boolean>;
  /** Records an acknowledgement and returns when it was given (RFC 3339). */
  add(profile: string, snapshot: TrustSnapshot): Promise<string>;
}

/** A store on `hook-trust.json` (0600) in each profile. */
export function createAckStore(deps: { readonly clock: Clock }): AckStore {
  let tail: Promise<unknown> = Promise.resolve();

  async function record(profile: string, snapshot: TrustSnapshot): Promise<string> {
    const path = await openLocation(fileOf(profile));
    const read = await readWholeFile(path);
    if (read.kind === "failed") {
      throw new AgentError("bad_request", "The record of acknowledgements cannot be written.", {
        reason: read.reason,
      });
    }
    const ack: Ack = {
      hash: snapshot.hash,
      high_risk: snapshot.highRisk,
      folder: snapshot.folder,
      ack_at: new Date(deps.clock.now()).toISOString(),
    };
    const others = parseAcks(read.kind === "read" ? read.text : "").filter(
      (old) => !isSame(old, snapshot),
    );
    const acks = [...others, ack].slice(-MAX_ACKS);
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    await writeFileAtomic(path, `${JSON.stringify({ version: 1, acks }, null, 2)}\n`, 0o600);
    return ack.ack_at;
  }

  return {
    async has(profile, snapshot) {
      const read = await readWholeFile(await openLocation(fileOf(profile)));
      return read.kind === "read" && parseAcks(read.text).some((ack) => isSame(ack, snapshot));
    },
    add(profile, snapshot) {
      const run = tail.then(() => record(profile, snapshot));
      tail = run.catch(() => {}); // the failure is the caller's; the next one only waits its turn
      return run;
    },
  };
}

function fileOf(profile: string): string {
  return join(profile, "hook-trust.json");
}

function isSame(ack: Ack, snapshot: TrustSnapshot): boolean {
  return (
    ack.hash === snapshot.hash &&
    ack.high_risk === snapshot.highRisk &&
    ack.folder === snapshot.folder
  );
}

/** An unreadable record counts as empty: nothing is trusted then. */
function parseAcks(text: string): Ack[] {
  try {
    const value: unknown = JSON.parse(text);
    const acks =
      isObject(value) && Array.isArray(value["acks"]) ? (value["acks"] as unknown[]) : [];
    return acks.filter(isAck);
  } catch {
    return [];
  }
}

function isAck(value: unknown): value is Ack {
  return (
    isObject(value) &&
    typeof value["hash"] === "string" &&
    typeof value["high_risk"] === "boolean" &&
    (value["folder"] === null || typeof value["folder"] === "string") &&
    typeof value["ack_at"] === "string"
  );
}
