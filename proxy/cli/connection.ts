import { readFile } from "node:fs/promises";
import { InterposeClient } from "../../client/client.ts";
import { CommandFailure, UsageError, type CommandIo } from "./io.ts";

/** Where the demo and a default configuration serve the control API. */
const DEFAULT_BASE_URL = "http://127.0.0.1:8081";

/** Flags that say which server a command talks to and as whom. */
export interface ConnectionFlags {
  readonly baseUrl?: string;
  readonly token?: string;
  readonly tokenFile?: string;
  readonly profile?: string;
}

/** A server and what admits to it. */
export interface Connection {
  readonly baseURL: string;
  readonly token: string | undefined;
}

/** A token file is one line. */
const MAX_TOKEN_FILE_BYTES = 8192;

/**
 * Flags win over the profile (`--profile`, `INTERPOSE_PROFILE`), the profile over `INTERPOSE_BASE_URL` and
 * `INTERPOSE_TOKEN`. A profile stands alone: its server never gets the token that belongs to the plain variables.
 * A token file is only read when it is named.
 *
 * @throws UsageError for an unknown profile or flags that exclude each other; CommandFailure for an unreadable
 *   token file.
 */
export async function resolveConnection(
  flags: ConnectionFlags,
  env: CommandIo["env"],
): Promise<Connection> {
  const profile = flags.profile ?? nonEmpty(env["INTERPOSE_PROFILE"]);
  const prefix = profile === undefined ? "INTERPOSE" : `INTERPOSE_${profileKey(profile)}`;
  const baseURL = nonEmpty(env[`${prefix}_BASE_URL`]);
  const token = nonEmpty(env[`${prefix}_TOKEN`]);
  if (profile !== undefined && baseURL === undefined && token === undefined) {
    throw new UsageError(
      `the profile ${JSON.stringify(profile)} needs ${prefix}_BASE_URL or ${prefix}_TOKEN in the environment`,
    );
  }
  if (flags.token !== undefined && flags.tokenFile !== undefined) {
    throw new UsageError("--token and --token-file cannot be used together");
  }
  return {
    baseURL: flags.baseUrl ?? baseURL ?? DEFAULT_BASE_URL,
    token:
      flags.token ?? (flags.tokenFile === undefined ? token : await readTokenFile(flags.tokenFile)),
  };
}

/** A client for the connection that flags and environment name. Throws like {@link resolveConnection}. */
export async function connect(flags: ConnectionFlags, io: CommandIo): Promise<InterposeClient> {
  return new InterposeClient({
    ...(await resolveConnection(flags, io.env)),
    ...(io.fetch === undefined ? {} : { fetch: io.fetch }),
  });
}

function profileKey(profile: string): string {
  if (!/^[A-Za-z][A-Za-z0-9_-]{0,63}$/.test(profile)) {
    throw new UsageError(
      `a profile's name is a letter and up to 63 letters, digits, - and _, not ${JSON.stringify(profile)}`,
    );
  }
  return profile.toUpperCase().replaceAll("-", "_");
}

async function readTokenFile(path: string): Promise<string> {
  const token = (await readSmallFile(path, MAX_TOKEN_FILE_BYTES)).trim();
  if (token === "") {
    throw new CommandFailure(`the token file ${path} is empty`);
  }
  return token;
}

/**
 * A file's text.
 *
 * @throws CommandFailure when it cannot be read or is longer than `maxBytes`.
 */
export async function readSmallFile(path: string, maxBytes: number): Promise<string> {
  let bytes: Buffer;
  try {
    bytes = await readFile(path);
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code ?? "unreadable";
    throw new CommandFailure(`cannot read ${path}: ${FILE_REASONS[code] ?? code}`);
  }
  if (bytes.length > maxBytes) {
    throw new CommandFailure(`${path} is longer than ${maxBytes} bytes`);
  }
  return bytes.toString("utf8");
}

const FILE_REASONS: Readonly<Record<string, string>> = {
  ENOENT: "no such file",
  EACCES: "permission denied",
  EISDIR: "it is a folder",
};

function nonEmpty(text: string | undefined): string | undefined {
  return text === "" ? undefined : text;
}
