import type { FieldLines } from "../policy/kernel/exchange.ts";

/** What the edge knows about a request and tells the service. */
export interface OutgoingFacts {
  /** The client, behind the proxies that the configuration trusts. */
  readonly clientAddress: string;
  /** The client's connection was TLS. */
  readonly encrypted: boolean;
  /** Replaces the client's Host: built-in services reached through an alias or a custom domain (decision 23). */
  readonly host?: string;
  /** Lines of ours besides the forwarding ones: identity fields, an envelope. */
  readonly extra?: FieldLines;
}

/**
 * The fields sent to a service: the client's swept ones (`sweepRequest`) with ours behind them, so that nothing the
 * client sent can take ours away or stand in for them (decision 24).
 */
export function toOutgoingFields(swept: FieldLines, facts: OutgoingFacts): string[] {
  const fields = facts.host === undefined ? [...swept] : withHost(swept, facts.host);
  fields.push(
    "X-Real-IP",
    facts.clientAddress,
    "X-Forwarded-For",
    facts.clientAddress,
    "X-Forwarded-Proto",
    facts.encrypted ? "https" : "http",
  );
  if (facts.extra !== undefined) {
    fields.push(...facts.extra);
  }
  return fields;
}

/** `host` in the place of the received Host line, or first when there was none. */
function withHost(swept: FieldLines, host: string): string[] {
  const fields: string[] = [];
  let placed = false;
  for (let i = 0; i + 1 < swept.length; i += 2) {
    const name = swept[i]!;
    if (name.length !== 4 || name.toLowerCase() !== "host") {
      fields.push(name, swept[i + 1]!);
    } else if (!placed) {
      placed = true;
      fields.push(name, host);
    }
  }
  return placed ? fields : ["Host", host, ...fields];
}
