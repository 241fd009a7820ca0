import { escape, quote } from "../kernel/json-text.ts";

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

/** What records of one rule have in common, as text: most have it from the record before. */
let rule = { project: "", container: "", service: "", hook_id: "", text: ruleText("", "", "", "") };
let groups = { names: [] as readonly string[], text: groupsText([]) };

/** The line that stores a record: what `JSON.stringify` says and a line feed, put together by hand from few pieces. */
export function formatAuditLine(row: AuditRow): string {
  const { project, container, service, hook_id, matched_groups: names } = row;
  if (
    hook_id !== rule.hook_id ||
    service !== rule.service ||
    container !== rule.container ||
    project !== rule.project
  ) {
    const text = ruleText(project, container, service, hook_id);
    rule = { project, container, service, hook_id, text };
  }
  if (!areSame(names, groups.names)) {
    groups = { names: [...names], text: groupsText(names) };
  }
  const upstream = row.upstream_ms === undefined ? "" : `,"upstream_ms":${number(row.upstream_ms)}`;
  return (
    `{"audit_id":"${escape(row.audit_id)}","ts":"${escape(row.ts)}${rule.text}${escape(row.method)}` +
    `","path":"${escape(row.path)}","client_ip":"${escape(row.client_ip)}${groups.text}${escape(row.script)}` +
    `","outcome":"${escape(row.outcome)}","status":${number(row.status)}` +
    `,"duration_ms":${number(row.duration_ms)}${upstream}}\n`
  );
}

function ruleText(project: string, container: string, service: string, hookId: string): string {
  return flat(
    `","project":${quote(project)},"container":${quote(container)}` +
      `,"service":${quote(service)},"hook_id":${quote(hookId)},"method":"`,
  );
}

function groupsText(names: readonly string[]): string {
  return flat(`","matched_groups":[${names.map(quote).join(",")}],"script":"`);
}

/** The same text in one piece: one that was put together stays in pieces inside, to be copied one by one each time. */
function flat(text: string): string {
  return Buffer.from(text).toString();
}

function areSame(some: readonly string[], others: readonly string[]): boolean {
  return some.length === others.length && some.every((name, at) => name === others[at]);
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
