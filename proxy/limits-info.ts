import { MAX_HOOKED_PATH_BYTES } from "../dispatcher/select.ts";
import type { LimitInfo } from "../policy/api/server.ts";
import type { Config } from "./config.ts";

/** Limits that no configuration changes. */
const FIXED: readonly LimitInfo[] = [
  { name: "hookedPathBytes", value: MAX_HOOKED_PATH_BYTES, unit: "bytes" },
  { name: "hooksPerService", value: 8, unit: "rules" },
  { name: "hooksPerDocument", value: 32, unit: "rules" },
  { name: "hookTimeoutMs", value: 30_000, unit: "ms" },
  { name: "auditQueue", value: 1024, unit: "records" },
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
