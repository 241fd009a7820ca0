import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { writeFileAtomic } from "../policy/kernel/atomic-file.ts";
import { newToken } from "../policy/kernel/ids.ts";
import type { Config } from "./config.ts";

/**
 * The control API's token: from the configuration, from `tokenFile`, or made once and kept in
 * `<dataDir>/control-token` (0600).
 *
 * @throws Error in one sentence when the file cannot be read or holds no usable token.
 */
export async function controlToken(config: Pick<Config, "control" | "dataDir">): Promise<string> {
  if (config.control.token !== null) {
    return config.control.token;
  }
  const file = config.control.tokenFile ?? join(config.dataDir, "control-token");
  const stored = read(file);
  if (stored !== null) {
    if (stored.length < 16) {
      throw new Error(`${file}: expected a token of at least 16 characters.`);
    }
    return stored;
  }
  if (config.control.tokenFile !== null) {
    throw new Error(`${file}: the file named by control.tokenFile does not exist.`);
  }
  mkdirSync(config.dataDir, { recursive: true, mode: 0o700 });
  const token = newToken();
  await writeFileAtomic(file, `${token}\n`, 0o600);
  return token;
}

function read(file: string): string | null {
  try {
    return readFileSync(file, "utf8").trim();
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code;
    if (code === "ENOENT") {
      return null;
    }
    throw new Error(`${file}: cannot be read (${code ?? "unknown error"}).`, { cause });
  }
}
