import { Document, visit } from "yaml";
import { isSafe, safeLines, safeText } from "../../policy/kernel/safe-text.ts";

/** Formats of `--output`. */
export const OUTPUT_FORMATS = ["table", "json", "yaml"] as const;
/** One of those formats. */
export type OutputFormat = (typeof OUTPUT_FORMATS)[number];

/** A cell: text, or something JSON can show. */
export type Cell = unknown;

/** What a command prints in `table` format. */
export interface TableView {
  readonly columns: readonly string[];
  readonly rows: readonly (readonly Cell[])[];
  /** Said instead of a table without rows. */
  readonly empty: string;
  /** A line below: the version that the next write is based on. */
  readonly footer?: string | undefined;
}

/** `data` as JSON text with two spaces; control characters escaped, so that it is safe on a terminal too. */
export function formatJson(data: unknown): string {
  return `${safeLines(JSON.stringify(data ?? null, null, 2))}\n`;
}

/** `data` on one line of JSON. */
export function formatJsonLine(data: unknown): string {
  return `${safeLines(JSON.stringify(data ?? null))}\n`;
}

/** `data` as YAML (1.2, core). Text with control characters is in double quotes, where escapes are possible. */
export function formatYaml(data: unknown): string {
  const document = new Document(data ?? null, { aliasDuplicateObjects: false });
  visit(document, {
    Scalar(_key, node) {
      if (typeof node.value === "string" && !isSafe(node.value)) {
        node.type = "QUOTE_DOUBLE";
      }
    },
  });
  return safeLines(document.toString({ lineWidth: 0 }));
}

/** Left-aligned columns, two spaces between them. */
export function formatTable(view: TableView, quiet: boolean): string {
  const rows = view.rows.map((row) => row.map(formatCell));
  const lines: string[] = [];
  if (rows.length === 0) {
    if (!quiet) {
      lines.push(view.empty);
    }
  } else {
    const all = quiet ? rows : [view.columns.map((column) => column.toUpperCase()), ...rows];
    const widths = view.columns.map((_, at) =>
      all.reduce((widest, row) => Math.max(widest, (row[at] ?? "").length), 0),
    );
    for (const row of all) {
      lines.push(
        row
          .map((cell, at) => cell.padEnd(widths[at] ?? 0))
          .join("  ")
          .trimEnd(),
      );
    }
  }
  if (view.footer !== undefined && !quiet) {
    lines.push(view.footer);
  }
  return lines.length === 0 ? "" : `${lines.join("\n")}\n`;
}

/** One member per line, for a single object. */
export function formatMembers(data: unknown): string {
  if (typeof data !== "object" || data === null || Array.isArray(data)) {
    return `${formatCell(data)}\n`;
  }
  const entries = Object.entries(data);
  const width = entries.reduce((widest, [name]) => Math.max(widest, safeText(name).length), 0);
  return entries
    .map(([name, value]) => `${safeText(name).padEnd(width)}  ${formatCell(value)}`.trimEnd())
    .map((line) => `${line}\n`)
    .join("");
}

/** A cell's text: lists of plain values with commas, other structures as JSON, nothing as `-`. */
export function formatCell(value: Cell): string {
  if (value === undefined || value === null || value === "") {
    return "-";
  }
  if (typeof value === "string") {
    return safeText(value);
  }
  if (Array.isArray(value) && value.every((item) => typeof item !== "object" || item === null)) {
    return value.length === 0 ? "-" : safeText(value.map(String).join(","));
  }
  return safeText(JSON.stringify(value) ?? "-");
}
