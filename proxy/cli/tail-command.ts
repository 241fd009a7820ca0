import type { Command } from "commander";
import type { AuditRecord } from "../../client/client.ts";
import { followAudit, latestRecords, MAX_RECORDS } from "./audit-follow.ts";
import { action, addCommand, containerOption, type Invocation } from "./command-kit.ts";
import { parseInteger } from "./flags.ts";
import { UsageError, type CommandIo } from "./io.ts";
import { formatCell, formatJsonLine, formatYaml, type OutputFormat } from "./output.ts";
import { safeText } from "../../policy/kernel/safe-text.ts";

interface TailFlags {
  readonly container: string;
  readonly lines: number;
  readonly follow: boolean;
}

const ID = "890abcdef12345678901cdef";

/** `tail -c ID`: the dispatch audit of a container, live. */
export function registerTailCommand(program: Command, io: CommandIo): void {
  addCommand(program, {
    usage: "tail",
    summary: "follow the hook dispatches of a container, one line each",
    examples: [`tail -c ${ID}`, `tail -c ${ID} --lines 100 --no-follow -o json`],
  })
    .addOption(containerOption())
    .option("-n, --lines <n>", "show this many earlier records first", parseInteger, 10)
    .option("--no-follow", "end after the earlier records")
    .action(action<TailFlags>(io, tail));
}

async function tail({ io, client, options }: Invocation<TailFlags>): Promise<void> {
  const { container, lines, output = "table" } = options;
  if (lines < 0 || lines > MAX_RECORDS) {
    throw new UsageError(`--lines takes a number from 0 to ${MAX_RECORDS}`);
  }
  const source = { client, container, clock: io.clock, signal: io.signal };
  const record = (one: AuditRecord) => io.stdout.write(formatRecord(one, output));
  if (!options.follow) {
    (await latestRecords(source, lines)).records.forEach(record);
    return;
  }
  const note = (text: string) => {
    if (options.quiet !== true) {
      io.stderr.write(`(${safeText(text)})\n`);
    }
  };
  await followAudit(source, lines, { record, note });
}

/** One record: a line for people, a line of JSON, or a YAML document. */
function formatRecord(record: AuditRecord, format: OutputFormat): string {
  switch (format) {
    case "json":
      return formatJsonLine(record);
    case "yaml":
      return `---\n${formatYaml(record)}`;
    case "table": {
      const parts = [
        record.ts,
        record.outcome,
        record.status,
        formatMs(record.duration_ms),
        ...formatShares(record),
        `${record.method} ${record.path}`,
        record.service,
        `rule=${formatCell(record.hook_id)}`,
        `script=${formatCell(record.script)}`,
        `from=${formatCell(record.client_ip)}`,
        `audit=${formatCell(record.audit_id)}`,
      ];
      return `${parts.map(formatCell).join("  ")}\n`;
    }
  }
}

/** The script's own share of the time and the service's; nothing where no service was asked. */
function formatShares({ duration_ms: whole, upstream_ms: upstream }: AuditRecord): string[] {
  return typeof upstream === "number"
    ? [
        `script-time=${formatMs(Math.max(0, whole - upstream))}`,
        `upstream-time=${formatMs(upstream)}`,
      ]
    : [];
}

function formatMs(value: unknown): string {
  return typeof value === "number" && Number.isFinite(value)
    ? `${Math.round(value * 10) / 10}ms`
    : "-";
}
