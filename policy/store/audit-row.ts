import { escape } from "../kernel/json-text.ts";

/** One dispatch as stored (decision 40). `outcome` is one of the words of contract.md 5. */
export interface AuditRow {
  readonly audit_id: string;
  /** RFC 3339, when the dispatch began. */
  readonly ts: string;
  readonly project: string;
  readonly container: string;
  readonly service: string;
  readonly hook_id: string;
  readonly method: string;
  /** Without query. */
  readonly path: string;
  readonly client_ip: string;
  readonly matched_groups: readonly string[];
  readonly script: string;
  readonly outcome: string;
  readonly status: number;
  readonly duration_ms: number;
  /** ms that the script waited for heads of its services; null or absent when it asked none, or none answered. */
  readonly upstream_ms?: number | null;
}

/** What all records of a rule have in common, as text: most records have it from the one before. */
let common = {
  project: "",
  container: "",
  service: "",
  hook_id: "",
  text: commonText("", "", "", ""),
};

/** The line that stores a record: the text of `JSON.stringify`, put together by hand, and a line feed. */
export function formatAuditLine(row: AuditRow): string {
  const { project, container, service, hook_id } = row;
  if (
    hook_id !== common.hook_id ||
    service !== common.service ||
    container !== common.container ||
    project !== common.project
  ) {
    const text = commonText(project, container, service, hook_id);
    common = { project, container, service, hook_id, text };
  }
  let groups = "";
  for (const group of row.matched_groups) {
    groups += groups === "" ? `"${escape(group)}"` : `,"${escape(group)}"`;
  }
  const upstream = row.upstream_ms === undefined ? "" : `,"upstream_ms":${number(row.upstream_ms)}`;
  return (
    `{"audit_id":"${escape(row.audit_id)}","ts":"${escape(row.ts)}${common.text}${escape(row.method)}` +
    `","path":"${escape(row.path)}","client_ip":"${escape(row.client_ip)}","matched_groups":[${groups}]` +
    `,"script":"${escape(row.script)}","outcome":"${escape(row.outcome)}","status":${number(row.status)}` +
    `,"duration_ms":${number(row.duration_ms)}${upstream}}\n`
  );
}

function commonText(project: string, container: string, service: string, hookId: string): string {
  return (
    `","project":"${escape(project)}","container":"${escape(container)}"` +
    `,"service":"${escape(service)}","hook_id":"${escape(hookId)}","method":"`
  );
}

function number(value: number | null): string {
  return Number.isFinite(value) ? `${value}` : "null";
}

/** The record of a stored line; null for none, as for a line that a killed process left unfinished. */
export function parseAuditLine(line: string): AuditRow | null {
  if (line === "") {
    return null;
  }
  try {
    return JSON.parse(line) as AuditRow;
  } catch {
    return null;
  }
}
