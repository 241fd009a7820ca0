import type { Command } from "commander";
import type { ProxyApi } from "../../client/proxy-api.ts";
import { action, addCommand, containerOption } from "./command-kit.ts";
import { collect, collectList, parseInteger, parsePairs } from "./flags.ts";
import type { CommandIo } from "./io.ts";
import { formatCell, formatTable } from "./output.ts";
import { safeText } from "../../policy/kernel/safe-text.ts";
import { scriptText } from "./script-text.ts";

interface ExplainFlags {
  readonly container: string;
  readonly instance?: number;
  readonly header?: string[];
  readonly group?: string[];
  readonly upgrade?: boolean;
}

type Explanation = Awaited<ReturnType<ProxyApi["explain"]>>["data"];

const ID = "890abcdef12345678901cdef";

/** `explain -c ID SERVICE METHOD PATH`. */
export function registerExplainCommand(program: Command, io: CommandIo): void {
  addCommand(program, {
    usage: "explain <service> <method> <path>",
    summary: "tell which hook rule would take a request, and why each other one would not",
    examples: [
      `explain -c ${ID} terminal POST /api/login`,
      `explain -c ${ID} terminal GET /x --header x-tenant=alice --group staff -o json`,
    ],
  })
    .addOption(containerOption())
    .option("--instance <n>", "instance of the service, by default 1", parseInteger)
    .option("--header <key=value>", "header of the request; may be repeated", collect)
    .option(
      "--group <name>",
      "group that lets the caller in; a comma list or repeated",
      collectList,
    )
    .option("--upgrade", "the request is a WebSocket handshake")
    .action(
      action<ExplainFlags>(io, async ({ client, args, options, show }) => {
        const [service = "", method = "", path = ""] = args;
        const { data } = await client.api.proxy.explain(options.container, {
          service,
          method,
          path,
          ...(options.instance === undefined ? {} : { instance: options.instance }),
          ...(options.header === undefined
            ? {}
            : { headers: parsePairs("--header", options.header) }),
          ...(options.group === undefined ? {} : { groups: options.group }),
          ...(options.upgrade === undefined ? {} : { upgrade: options.upgrade }),
        });
        if (options.output === undefined || options.output === "table") {
          io.stdout.write(explanationText(data, options.quiet === true));
        } else {
          show(data);
        }
      }),
    );
}

function explanationText(data: Explanation, quiet: boolean): string {
  const rules = formatTable(
    {
      columns: ["pos", "rule", "fits", "failed", "detail"],
      rows: data.rules.map((rule) => [
        rule.position,
        rule.hook_id,
        rule.fits ? "yes" : "no",
        rule.failed,
        rule.detail,
      ]),
      empty: "No rules.",
    },
    quiet,
  );
  return `${verdict(data)}\n${rules}`;
}

function verdict(data: Explanation): string {
  const rule = data.hook_id === undefined ? "" : ` by rule ${safeText(data.hook_id)}`;
  switch (data.outcome) {
    case "dispatch":
      return `dispatch to ${safeText(scriptText(data.script))}${rule}`;
    case "refuse":
      return `refuse with ${formatCell(data.status)} ${formatCell(data.code)}${rule}`;
    case "forward":
      return "forward to the service: no rule takes it";
  }
}
