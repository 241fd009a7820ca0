import { Option, type Command } from "commander";
import type { InterposeClient } from "../../client/client.ts";
import { ApiError, ConnectionError, ValidationError } from "../../client/errors.ts";
import { connect, type ConnectionFlags } from "./connection.ts";
import { UsageError, type CommandIo } from "./io.ts";
import {
  formatJson,
  formatMembers,
  formatTable,
  formatYaml,
  OUTPUT_FORMATS,
  type OutputFormat,
  type TableView,
} from "./output.ts";
import { safeText } from "../../policy/kernel/safe-text.ts";

/** Options that every client command takes, before or after its name. */
export interface GlobalFlags extends ConnectionFlags {
  readonly output?: OutputFormat;
  readonly yes?: boolean;
  readonly quiet?: boolean;
}

/** A command that is being carried out. */
export interface Invocation<Options> {
  readonly io: CommandIo;
  readonly client: InterposeClient;
  readonly args: readonly string[];
  readonly options: Options & GlobalFlags;
  /** Prints `data` in the chosen format; in `table` format as `view` makes it, or member by member. */
  readonly show: (data: unknown, view?: () => TableView) => void;
  /** Ends a write: `data` for programs, `sentence` for people, nothing of it for `--quiet`. */
  readonly done: (data: unknown, sentence: string) => void;
}

/** What is fixed about a command. */
export interface CommandSpec {
  /** With its arguments, as commander reads it: `move <service> <hookId>`. */
  readonly usage: string;
  readonly summary: string;
  /** Complete command lines without the program's name; the help shows them. */
  readonly examples: readonly string[];
}

/** A command that only groups others. */
export function addGroup(parent: Command, name: string, summary: string): Command {
  return parent.command(name).description(summary).showHelpAfterError(false);
}

/** A command that does something; its options and action are added by the caller. */
export function addCommand(parent: Command, spec: CommandSpec): Command {
  const lines = spec.examples.map((line) => `  $ interpose ${line}`).join("\n");
  return parent
    .command(spec.usage)
    .description(spec.summary)
    .showHelpAfterError(false)
    .addHelpText("after", `\nExamples:\n${lines}`);
}

const GLOBAL_OPTIONS: readonly (() => Option)[] = [
  () => new Option("--base-url <url>", "control API, by default http://127.0.0.1:8081"),
  () =>
    new Option(
      "-t, --token <token>",
      "control token; INTERPOSE_TOKEN keeps it off the process list",
    ),
  () => new Option("--token-file <file>", "file that holds the control token"),
  () => new Option("--profile <name>", "take INTERPOSE_<NAME>_BASE_URL and INTERPOSE_<NAME>_TOKEN"),
  () => new Option("-o, --output <format>", "how results are printed").choices(OUTPUT_FORMATS),
  () => new Option("-y, --yes", "answer yes to every question"),
  () => new Option("-q, --quiet", "print results only: no headings, no confirmations"),
];

/**
 * Adds the options of {@link GlobalFlags} to a command and all below it, behind their own. Groups take them too,
 * so that they can stand before a command's name, but only the commands' help lists them.
 */
export function addGlobalOptions(command: Command): void {
  addOptions(command, command.commands.length > 0);
  command.commands.forEach(addGlobalOptions);
}

/** Lets the options of {@link GlobalFlags} stand right behind the program's name; other commands keep their own. */
export function addLeadingOptions(program: Command): void {
  addOptions(program, true);
}

function addOptions(command: Command, hidden: boolean): void {
  for (const make of GLOBAL_OPTIONS) {
    const option = make();
    if (!command.options.some((known) => known.long === option.long)) {
      command.addOption(option.hideHelp(hidden).helpGroup("Connection and output:"));
    }
  }
}

/** The container that a command is about. */
export const containerOption = () =>
  new Option("-c, --container <id>", "container id").makeOptionMandatory();

/** The precondition of a write. Not demanded here: the server's 428 explains what is missing. */
export const ifMatchOption = () =>
  new Option("--if-match <version>", "version the change is based on, file:v<N>");

/** The client's form of `--if-match`: nothing and the empty text both mean "without". */
export function ifMatchOf(options: { readonly ifMatch?: string }): { ifMatch: string | null } {
  return {
    ifMatch: options.ifMatch === undefined || options.ifMatch === "" ? null : options.ifMatch,
  };
}

/**
 * An action for `Command.action`: connects, runs `body`, and turns whatever goes wrong into one sentence on stderr
 * and an exit code.
 */
export function action<Options>(
  io: CommandIo,
  body: (call: Invocation<Options>) => Promise<void>,
): (this: Command) => Promise<void> {
  return async function run(this: Command) {
    try {
      const options = mergedOptions(this) as Options & GlobalFlags;
      const client = await connect(options, io);
      await body({ io, client, args: this.args, options, ...printers(io, options) });
    } catch (cause) {
      if (io.signal?.aborted === true && cause === io.signal.reason) {
        return;
      }
      const { message, exitCode } = explainFailure(cause, this);
      io.stderr.write(`${message}\n`);
      io.setExitCode(exitCode);
    }
  };
}

function printers(io: CommandIo, options: GlobalFlags) {
  const format = options.output ?? "table";
  const quiet = options.quiet === true;
  const structured = (data: unknown) =>
    io.stdout.write(format === "json" ? formatJson(data) : formatYaml(data));
  return {
    show(data: unknown, view?: () => TableView) {
      if (format !== "table") {
        structured(data);
      } else {
        io.stdout.write(view === undefined ? formatMembers(data) : formatTable(view(), quiet));
      }
    },
    done(data: unknown, sentence: string) {
      if (format !== "table") {
        structured(data);
      } else if (!quiet) {
        io.stdout.write(`${safeText(sentence)}\n`);
      }
    },
  };
}

/** Options of the command and of the groups before it; the one nearest to the end of the line wins. */
function mergedOptions(command: Command): Record<string, unknown> {
  const chain: Command[] = [];
  for (let at: Command | null = command; at !== null; at = at.parent) {
    chain.unshift(at);
  }
  return Object.assign({}, ...chain.map((part) => part.opts())) as Record<string, unknown>;
}

function explainFailure(cause: unknown, command: Command): { message: string; exitCode: number } {
  if (cause instanceof ApiError) {
    const path = safeText(cause.path);
    return {
      message: `Error [${cause.status}] ${cause.method} ${path}: ${safeText(cause.message)}`,
      exitCode: 1,
    };
  }
  if (cause instanceof ConnectionError) {
    return {
      message: `Error: ${cause.method} ${safeText(cause.path)}: ${safeText(cause.message)}`,
      exitCode: 1,
    };
  }
  if (cause instanceof UsageError || cause instanceof ValidationError) {
    const name = commandPath(command).join(" ");
    return { message: `Error: ${safeText(cause.message)} (see ${name} --help)`, exitCode: 2 };
  }
  if (cause instanceof TypeError) {
    // The only values of unknown form that a command touches are in answers.
    return { message: "Error: the server's answer does not have the expected form", exitCode: 1 };
  }
  const text = cause instanceof Error ? cause.message : String(cause);
  return { message: `Error: ${safeText(text)}`, exitCode: 1 };
}

/** The words that lead to a command, the program's name first. */
export function commandPath(command: Command): string[] {
  return command.parent === null
    ? [command.name()]
    : [...commandPath(command.parent), command.name()];
}
