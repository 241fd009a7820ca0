import { newUuid } from "../../policy/kernel/ids.ts";
import { type AuditRow, formatAuditLine } from "../../policy/store/audit-row.ts";
import type { AuditStore } from "../../policy/store/audit-store.ts";

/** A record like those of the edge. */
export function auditRow(overrides: Partial<AuditRow> = {}): AuditRow {
  return {
    audit_id: newUuid(),
    ts: "2026-11-30T12:00:00.000Z",
    project: "67e89abc123def456789abcd",
    container: "890abcdef12345678901cdef",
    service: "terminal",
    hook_id: "0".repeat(26),
    method: "POST",
    path: "/api/login",
    client_ip: "203.0.113.9",
    matched_groups: ["staff"],
    script: "/login-audit",
    outcome: "forwarded",
    status: 200,
    duration_ms: 12,
    ...overrides,
  };
}

/** Stores records, of each container in their order. */
export async function appendRows(
  audit: Pick<AuditStore, "append">,
  rows: readonly AuditRow[],
): Promise<void> {
  for (const [container, own] of Map.groupBy(rows, (row) => row.container)) {
    await audit.append(container, Buffer.from(own.map(formatAuditLine).join("")));
  }
}
