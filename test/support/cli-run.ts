import { Readable } from "node:stream";
import { Command, CommanderError } from "commander";
import { onTestFinished } from "vitest";
import { listenControl, type ControlApiDeps } from "../../policy/api/server.ts";
import { foregroundClock, type Clock } from "../../policy/kernel/clock.ts";
import type { CommandIo } from "../../proxy/cli/io.ts";
import { registerApiCommands } from "../../proxy/cli/register.ts";
import { policyApi, TOKEN } from "./policy-api.ts";

export interface CliOptions {
  readonly env?: Readonly<Record<string, string>>;
  /** What standard input holds. */
  readonly stdin?: string;
  /** Standard input is a terminal. */
  readonly terminal?: boolean;
  readonly signal?: AbortSignal;
  readonly fetch?: typeof fetch;
  readonly clock?: Clock;
  /** Called with each piece of stdout as it is written. */
  readonly onOutput?: (text: string) => void;
}

export interface CliResult {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs one command line in this process, through the registration that the binary uses, and its exit rules. */
export async function runCli(
  args: readonly string[],
  options: CliOptions = {},
): Promise<CliResult> {
  let stdout = "";
  let stderr = "";
  let code = 0;
  const stdin = Object.assign(Readable.from(options.stdin === undefined ? [] : [options.stdin]), {
    isTTY: options.terminal === true,
  });
  const io: CommandIo = {
    stdout: {
      write: (text) => {
        stdout += text;
        options.onOutput?.(text);
      },
    },
    stderr: { write: (text) => (stderr += text) },
    stdin,
    env: options.env ?? {},
    ...(options.fetch === undefined ? {} : { fetch: options.fetch }),
    clock: options.clock ?? foregroundClock,
    ...(options.signal === undefined ? {} : { signal: options.signal }),
    setExitCode: (value) => (code = value),
  };
  const program = new Command("interpose").exitOverride();
  registerApiCommands(program, io);
  try {
    await program.parseAsync([...args], { from: "user" });
  } catch (cause) {
    if (!(cause instanceof CommanderError)) {
      throw cause;
    }
    code = cause.exitCode === 0 ? 0 : 2;
  }
  return { code, stdout, stderr };
}

/** A control API on a socket, and the command line pointed at it. */
export async function startCli(overrides: Partial<ControlApiDeps> = {}) {
  const api = policyApi(overrides);
  const listener = await listenControl(api.app, { host: "127.0.0.1", port: 0 });
  onTestFinished(async () => {
    api.cache.close();
    await listener.close();
  });
  const baseURL = `http://127.0.0.1:${listener.port}`;
  const env = { INTERPOSE_BASE_URL: baseURL, INTERPOSE_TOKEN: TOKEN };
  const cli = (args: readonly string[], options: CliOptions = {}) =>
    runCli(args, { ...options, env: { ...env, ...options.env } });
  return { ...api, baseURL, env, cli };
}

/** Splits a command line at spaces, keeping what is in single quotes together. */
export function words(line: string): string[] {
  return [...line.matchAll(/'([^']*)'|(\S+)/g)].map((match) => match[1] ?? match[2] ?? "");
}
