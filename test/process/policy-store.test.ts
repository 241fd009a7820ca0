import { spawn } from "node:child_process";
import { chmodSync, chownSync, existsSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { expect, test } from "vitest";
import { decodeContainerDocument, rulesOf } from "../../policy/documents/container-document.ts";
import { CONTAINER, policyTempDir, PROJECT } from "../support/policy-api.ts";

const WRITER = new URL("../support/policy-writer.ts", import.meta.url).pathname;

interface Run {
  readonly lines: readonly string[];
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** Runs the writer; `onLine` may kill it. `shell` is put before the command line. */
function run(
  dataDir: string,
  args: readonly string[],
  options: {
    readonly onLine?: (count: number, kill: () => void) => void;
    readonly shell?: string;
    readonly uid?: number;
  } = {},
): Promise<Run> {
  const command = [process.execPath, WRITER, dataDir, PROJECT, CONTAINER, ...args];
  const child = spawn("/bin/sh", ["-c", `${options.shell ?? ""} exec "$@"`, "sh", ...command], {
    stdio: ["ignore", "pipe", "inherit"],
    ...(options.uid === undefined ? {} : { uid: options.uid, gid: options.uid }),
  });
  const lines: string[] = [];
  createInterface({ input: child.stdout }).on("line", (line) => {
    lines.push(line);
    options.onLine?.(lines.length, () => child.kill("SIGKILL"));
  });
  return new Promise((resolve) =>
    child.on("close", (code, signal) => resolve({ lines, code, signal })),
  );
}

function stored(dataDir: string) {
  const text = readFileSync(join(dataDir, "policy/containers", `${CONTAINER}.json`), "utf8");
  const decoded = decodeContainerDocument(text, PROJECT, CONTAINER);
  if (!decoded.ok) {
    throw new Error(decoded.reason);
  }
  return decoded.document;
}

test(
  "a process killed in the middle of its writes loses none that it acknowledged",
  { timeout: 120_000 },
  async () => {
    const dataDir = policyTempDir();
    let acknowledged = 0;
    for (let round = 0; round < 8; round++) {
      const killAt = 5 + round * 3;
      const { lines, signal } = await run(dataDir, ["forever"], {
        // Not at the line itself but some time behind it, wherever in a write that is.
        onLine: (count, kill) => void (count === killAt && setTimeout(kill, round)),
      });
      expect(signal).toBe("SIGKILL");
      expect(Number(lines[0])).toBeGreaterThan(acknowledged);
      acknowledged = Number(lines.at(-1));
      const document = stored(dataDir);
      // One write may have come through without its process living to say so.
      expect(document.version).toBeGreaterThanOrEqual(acknowledged);
      expect(document.version).toBeLessThanOrEqual(acknowledged + 1);
      expect(document.issues).toEqual([]);
      expect(rulesOf(document, "terminal").at(-1)).toMatchObject({
        rule: { script: { path: `/v${document.version}` } },
      });
    }
    expect(acknowledged).toBeGreaterThan(100);
  },
);

test("of processes that write the same version one wins", { timeout: 60_000 }, async () => {
  const dataDir = policyTempDir();
  const runs = await Promise.all(Array.from({ length: 6 }, () => run(dataDir, ["race", "0"])));
  const said = runs.map(({ lines }) => lines[0]);
  expect(said.filter((line) => line === "1")).toHaveLength(1);
  expect(said.filter((line) => line?.startsWith("ApiError: etag_mismatch"))).toHaveLength(5);
  expect(stored(dataDir).version).toBe(1);
});

test(
  "a disk that takes no more refuses the write in words and keeps the document",
  { timeout: 60_000 },
  async () => {
    const dataDir = policyTempDir();
    expect((await run(dataDir, ["once"])).lines).toEqual(["1"]);
    // No file of this process may grow beyond zero bytes: every write fails as on a full disk.
    const { lines, code } = await run(dataDir, ["once"], { shell: 'trap "" XFSZ; ulimit -f 0;' });
    expect(lines).toEqual(["StoreError: no space is left for policy documents"]);
    expect(code).toBe(0);
    expect(stored(dataDir).version).toBe(1);
    expect(readdirSync(join(dataDir, "policy/containers"))).toEqual([`${CONTAINER}.json`]);
    expect((await run(dataDir, ["once"])).lines).toEqual(["2"]);
  },
);

test(
  "a data folder that may not be written refuses the write in words; reads go on",
  { timeout: 60_000 },
  async () => {
    const dataDir = policyTempDir();
    const folder = join(dataDir, "policy/containers");
    // Nothing keeps root from writing, so the writer runs as somebody else then.
    const uid = process.getuid?.() === 0 ? 65_534 : undefined;
    mkdirSync(folder, { recursive: true });
    mkdirSync(join(dataDir, "policy/projects"));
    if (uid !== undefined) {
      for (const each of [
        dataDir,
        join(dataDir, "policy"),
        folder,
        join(dataDir, "policy/projects"),
      ]) {
        chownSync(each, uid, uid);
      }
    }
    const as = uid === undefined ? {} : { uid };
    expect((await run(dataDir, ["once"], as)).lines).toEqual(["1"]);
    chmodSync(folder, 0o500);
    const { lines } = await run(dataDir, ["once"], as);
    chmodSync(folder, 0o700);
    expect(lines).toEqual(["StoreError: the data folder may not be used"]);
    expect(stored(dataDir).version).toBe(1);
    expect(existsSync(join(folder, `${CONTAINER}.json.lock`))).toBe(false);
  },
);
