import { DEFAULT_AUDIT_OPTIONS } from "../dispatcher/audit.ts";
import { MAX_HOOKED_PATH_BYTES } from "../dispatcher/select.ts";
import type { LimitInfo } from "../policy/api/server.ts";
import {
  MAX_RULES_PER_DOCUMENT,
  MAX_RULES_PER_SERVICE,
  MAX_TIMEOUT_MS,
} from "../policy/documents/hook.ts";
import type { Config } from "./config.ts";

/** Limits that no configuration changes. */
const FIXED: readonly LimitInfo[] = [
  { name: "hookedPathBytes", value: MAX_HOOKED_PATH_BYTES, unit: "bytes" },
  { name: "hooksPerService", value: MAX_RULES_PER_SERVICE, unit: "rules" },
  { name: "hooksPerDocument", value: MAX_RULES_PER_DOCUMENT, unit: "rules" },
  { name: "hookTimeoutMs", value: MAX_TIMEOUT_MS, unit: "ms" },
  { name: "auditQueue", value: DEFAULT_AUDIT_OPTIONS.maxQueue, unit: "records" },
];

/** Every limit with its unit, which is the end of its name. */
export function limitsInfo(config: Config): LimitInfo[] {
  const configured = Object.entries(config.limits).map(([name, value]) => ({
    name,
    value,
    unit: unitOf(name),
  }));
  return [...configured, ...FIXED];
}

function unitOf(name: string): string {
  if (name.endsWith("Ms")) {
    return "ms";
  }
  if (name.endsWith("Bytes")) {
    return "bytes";
  }
  return name === "maxHeaderLines" ? "lines" : "connections";
}
