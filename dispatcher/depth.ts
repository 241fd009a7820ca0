import type { FieldLines } from "../policy/kernel/exchange.ts";
import { fieldValues } from "../policy/kernel/fields.ts";

/**
 * How deep a call stands in calls of hook scripts. A script that asks the public address of its own service starts
 * itself again, and nobody upstream of it ends that: its deadline answers the client but does not stop its code. So the
 * edge hands each call its depth, the worker writes it into what the script sends to other addresses than the service's, and the
 * edge refuses a hook that stands too deep. A client that writes the field itself only brings itself nearer to the
 * refusal; it is swept like the whole namespace.
 */
export const DEPTH_FIELD = "X-Hoody-Hook-Depth";

/** Hooks within each other's calls; beyond it a request is taken for a loop. */
export const MAX_HOOK_DEPTH = 8;

const LOWER = DEPTH_FIELD.toLowerCase();

/** The greatest depth that a request says of itself, 0 when it says none. */
export function readDepth(fields: FieldLines): number {
  let depth = 0;
  for (const value of fieldValues(fields, LOWER)) {
    depth = Math.max(depth, parseDepth(value));
  }
  return depth;
}

/** 0 for anything that is no small number. */
export function parseDepth(value: string | undefined): number {
  return value !== undefined && /^\d{1,3}$/.test(value) ? Number(value) : 0;
}

/** The fields with the depth behind them; unchanged at the top. */
export function withDepth(fields: FieldLines, depth: number): FieldLines {
  return depth === 0 ? fields : [...fields, DEPTH_FIELD, String(depth)];
}
