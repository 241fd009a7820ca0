import type { FieldLines } from "../policy/kernel/exchange.ts";
import { fieldValues } from "../policy/kernel/fields.ts";
import { DEPTH_FIELD, parseDepth } from "./envelope.ts";

/**
 * Hooks within each other's calls; beyond it a request is taken for a loop. A script that asks the public address of
 * its own service starts itself again, and nothing else ends that: a deadline answers the client but does not stop the
 * code. So the edge hands each call its depth, the worker writes it into what the script sends to other addresses than
 * the service's, and the edge refuses a hook that stands too deep.
 */
export const MAX_HOOK_DEPTH = 8;

const LOWER = DEPTH_FIELD.toLowerCase();

/**
 * The greatest depth that a request says of itself, 0 when it says none. A client that writes the field only brings
 * itself nearer to the refusal; it is swept like the whole namespace.
 */
export function readDepth(fields: FieldLines): number {
  let depth = 0;
  for (const value of fieldValues(fields, LOWER)) {
    depth = Math.max(depth, parseDepth(value));
  }
  return depth;
}
