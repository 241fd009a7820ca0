import { readFile } from "node:fs/promises";
import { InvalidArgumentError, type Command } from "commander";
import type { Clock } from "../policy/kernel/clock.ts";
import type { OfflineExchange } from "./offline-run.ts";

/** What the command touches. */
export interface HookRunIo {
  readonly clock: Clock;
  readonly stdout: { write(text: string): unknown };
  /** Called with 1 when the script did not come to a proper end. */
  readonly setExitCode: (code: number) => void;
}

interface HookRunOptions {
  readonly method: string;
  readonly path: string;
  readonly header: readonly (readonly [string, string])[];
  readonly body?: string;
  readonly upstream: string;
  readonly root?: string;
  readonly service: string;
  readonly timeout: number;
  readonly env: readonly (readonly [string, string])[];
  readonly ordinary?: boolean;
}

const FAILED: ReadonlySet<string> = new Set([
  "script_error",
  "timed_out",
  "truncated",
  "not_found",
  "target_unavailable",
  "upstream_failed",
  "crashed",
]);

/** Adds `interpose hook run SCRIPT …`: one run of a script without an edge, the exchange printed. */
export function registerHookRunCommand(program: Command, io: HookRunIo): void {
  const hook =
    program.commands.find((command) => command.name() === "hook") ??
    program.command("hook").description("try hook scripts");
  hook
    .command("run")
    .description("run a hook script once, without an edge, and print the exchange")
    .argument("<script>", "the script's file, .js or .ts")
    .option("--method <method>", "method of the client's request", readMethod, "GET")
    .option("--path <path>", "path and query of the client's request", readPath, "/")
    .option("--header <name=value>", "a header of the client's request; repeatable", readPair, [])
    .option("--body <file>", "file with the body of the client's request")
    .option("--upstream <address>", "http://host:port of a service, or mock", "mock")
    .option("--root <folder>", "scripts root; default: the folder of the script")
    .option("--service <name>", "service the client asked for", "terminal")
    .option("--timeout <ms>", "deadline, 1 to 30000 ms", readTimeout, 30_000)
    .option("--env <name=value>", "environment variable of the script; repeatable", readPair, [])
    .option("--ordinary", "call the script by its own address, not as a hook")
    .action(async (script: string, options: HookRunOptions) => {
      const { runScriptOffline } = await import("./offline-run.ts"); // other commands need none of it
      const exchange = await runScriptOffline(io.clock, {
        script,
        method: options.method,
        path: options.path,
        headers: options.header,
        body: options.body === undefined ? null : await readBody(options.body),
        upstream: options.upstream,
        kind: options.ordinary === true ? "ordinary" : "hook",
        service: options.service,
        timeoutMs: options.timeout,
        env: Object.fromEntries(options.env),
        ...(options.root === undefined ? {} : { root: options.root }),
      });
      io.stdout.write(formatExchange(exchange));
      if (isFailure(exchange)) {
        io.setExitCode(1);
      }
    });
}

function isFailure(exchange: OfflineExchange): boolean {
  return (
    exchange.isCut ||
    exchange.status === 0 ||
    (exchange.outcome === null ? exchange.status >= 500 : FAILED.has(exchange.outcome))
  );
}

/** The exchange as text: the request, what the service got, the log, the answer. */
function formatExchange(exchange: OfflineExchange): string {
  const { request } = exchange;
  const lines = [
    `> ${request.method} ${request.path}`,
    ...request.headers.map(([name, value]) => `> ${name}: ${value}`),
    ...prefixed("> ", request.body ?? Buffer.alloc(0)),
    "",
  ];
  for (const one of exchange.received ?? []) {
    lines.push("the service received:", `  ${one.method} ${one.target}`);
    for (let i = 0; i + 1 < one.fields.length; i += 2) {
      lines.push(`  ${one.fields[i]}: ${one.fields[i + 1]}`);
    }
    lines.push(...prefixed("  ", one.body), "");
  }
  if (exchange.received?.length === 0) {
    lines.push("the service received nothing", "");
  }
  if (exchange.log.length > 0) {
    lines.push("log:", ...exchange.log.map(({ level, msg }) => `  ${level.padEnd(5)} ${msg}`), "");
  }
  const notes = [
    exchange.outcome,
    `${Math.round(exchange.durationMs)} ms`,
    exchange.isCut && "cut off",
  ];
  const note = notes.filter((part) => typeof part === "string").join(", ");
  lines.push(
    exchange.status === 0
      ? `< no answer (${note})`
      : `< ${`${exchange.status} ${exchange.reason}`.trim()} (${note})`,
  );
  for (let i = 0; i + 1 < exchange.fields.length; i += 2) {
    lines.push(`< ${exchange.fields[i]}: ${exchange.fields[i + 1]}`);
  }
  lines.push(...prefixed("< ", exchange.body));
  return `${lines.join("\n")}\n`;
}

const SHOWN_BYTES = 65_536;

/** A body behind an empty line, as text when it is text, otherwise as its size. */
function prefixed(prefix: string, body: Buffer): string[] {
  if (body.length === 0) {
    return [];
  }
  const text = body.subarray(0, SHOWN_BYTES).toString("utf8");
  const isText = !/[\0-\x08\x0e-\x1f\uFFFD]/.test(text.slice(0, 2000));
  const rest = body.length > SHOWN_BYTES ? [`(${body.length} bytes in all)`] : [];
  const shown = isText
    ? [...text.replace(/\n$/, "").split("\n"), ...rest]
    : [`(${body.length} bytes)`];
  return ["", ...shown].map((line) => `${prefix}${line}`.trimEnd());
}

async function readBody(file: string): Promise<Buffer> {
  try {
    return await readFile(file);
  } catch {
    throw new Error(`The body file ${file} cannot be read.`);
  }
}

function readMethod(text: string): string {
  if (!/^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/.test(text)) {
    throw new InvalidArgumentError("A method is one word.");
  }
  return text.toUpperCase();
}

function readPath(text: string): string {
  if (!/^\/[\x21-\x7e]*$/.test(text)) {
    throw new InvalidArgumentError(
      "A path starts with / and has no blanks; use %XX for other bytes.",
    );
  }
  return text;
}

function readTimeout(text: string): number {
  const ms = /^[0-9]{1,5}$/.test(text) ? Number(text) : 0;
  if (ms < 1 || ms > 30_000) {
    throw new InvalidArgumentError("The deadline is 1 to 30000 ms.");
  }
  return ms;
}

function readPair(
  text: string,
  earlier: readonly (readonly [string, string])[],
): readonly (readonly [string, string])[] {
  const at = text.indexOf("=");
  if (at < 1 || /[\r\n\0]/.test(text)) {
    throw new InvalidArgumentError("Write NAME=VALUE.");
  }
  return [...earlier, [text.slice(0, at), text.slice(at + 1)]];
}
