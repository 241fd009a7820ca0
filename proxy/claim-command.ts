import { readFile } from "node:fs/promises";
import { InvalidArgumentError } from "commander";
import type { Command } from "commander";
import { z } from "zod";
import type { Clock } from "../policy/kernel/clock.ts";
import {
  generateSigningKey,
  isKeyId,
  isUsername,
  isVisibleText,
  mintClaim,
  subjectOf,
} from "./claim.ts";

/** `interpose claim keygen` and `claim mint`: identity claims for development and tests (contract.md 1, decision 42). */

/** What the commands touch. */
export interface ClaimCommandIo {
  readonly clock: Pick<Clock, "now">;
  readonly stdout: { write(text: string): unknown };
}

/** Flags of `interpose claim mint`. */
export interface MintOptions {
  readonly username: string;
  readonly type: string;
  readonly audience?: string;
  /** Seconds. */
  readonly expiresIn: number;
  /** Default: derived from the name. */
  readonly sub?: string;
}

const DEFAULT_LIFETIME_SECONDS = 3600;
const MAX_LIFETIME_SECONDS = 30 * 86_400;

/** Edge-proxy.md 3.1: visible ASCII without the quotation mark. */
const isAudience = (text: string): boolean => isVisibleText(text) && !text.includes('"');

const keyFileSchema = z.object({
  kid: z.string().refine(isKeyId),
  publicKeyHex: z.string().regex(/^[0-9a-f]{64}$/),
  privateKeyPem: z.string(),
});

/** A new key file, as JSON text. */
export function keygenText(kid?: string): string {
  return JSON.stringify(generateSigningKey(kid), null, 2);
}

/**
 * A signed claim. Throws an error with one sentence when the key file is none.
 *
 * @param keyFile what `claim keygen` printed
 * @param now ms since the epoch
 */
export function mintText(options: MintOptions, keyFile: string, now: number): string {
  const key = readKeyFile(keyFile);
  return mintClaim(key, {
    sub: options.sub ?? subjectOf(options.username),
    username: options.username,
    type: options.type,
    ...(options.audience === undefined ? {} : { audience: options.audience }),
    issuedAt: Math.floor(now / 1000),
    expiresIn: options.expiresIn,
  });
}

function readKeyFile(text: string): z.infer<typeof keyFileSchema> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    value = undefined; // told below, without quoting what may be a key
  }
  const parsed = keyFileSchema.safeParse(value);
  if (!parsed.success) {
    throw new Error("The key file is not one that `interpose claim keygen` prints.");
  }
  return parsed.data;
}

/** Adds `claim keygen` and `claim mint` to the command line. */
export function registerClaimCommands(program: Command, io: ClaimCommandIo): void {
  const claim = program
    .command("claim")
    .description("Ed25519 identity claims for development and tests");

  claim
    .command("keygen")
    .description("print a new key as JSON: the file for --key, its public half for identity.keys")
    .option("--kid <kid>", "id of the key", checked(isKeyId, "expected letters, digits, - and _"))
    .action((options: { kid?: string }) => {
      io.stdout.write(`${keygenText(options.kid)}\n`);
    });

  claim
    .command("mint")
    .description("print a signed claim")
    .requiredOption("--username <name>", "user name", checked(isUsername, "not a user name"))
    .option("--type <type>", "account type", checked(isVisibleText, "not an account type"), "user")
    .option("--audience <audience>", "who it is for", checked(isAudience, "not an audience"))
    .option(
      "--sub <id>",
      "user id (default: derived from the name)",
      checked(isVisibleText, "not an id"),
    )
    .option("--expires-in <seconds>", "lifetime", toLifetime, DEFAULT_LIFETIME_SECONDS)
    .requiredOption("--key <file>", "file that `claim keygen` printed")
    .action(async ({ key, ...options }: MintOptions & { key: string }) => {
      io.stdout.write(`${mintText(options, await readKey(key), io.clock.now())}\n`);
    });
}

async function readKey(path: string): Promise<string> {
  try {
    return await readFile(path, "utf8");
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code ?? "unknown error";
    throw new Error(`The key file cannot be read (${code}).`, { cause });
  }
}

function checked(test: (value: string) => boolean, problem: string) {
  return (value: string): string => {
    if (!test(value)) {
      throw new InvalidArgumentError(problem);
    }
    return value;
  };
}

function toLifetime(value: string): number {
  const seconds = /^[0-9]{1,9}$/.test(value) ? Number(value) : 0;
  if (seconds < 1 || seconds > MAX_LIFETIME_SECONDS) {
    throw new InvalidArgumentError(`expected 1 to ${MAX_LIFETIME_SECONDS} seconds`);
  }
  return seconds;
}
