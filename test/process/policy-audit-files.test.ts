import { createHook } from "node:async_hooks";
import { spawn } from "node:child_process";
import {
  appendFileSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
} from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { silentLog } from "../../policy/kernel/log.ts";
import { type AuditRow, formatAuditLine } from "../../policy/store/audit-row.ts";
import { createAuditStore, type AuditStoreOptions } from "../../policy/store/audit-store.ts";
import { appendRows, auditRow } from "../support/audit-rows.ts";
import { fakeClock } from "../support/auth-clock.ts";
import { CONTAINER, OTHER_CONTAINER, policyTempDir } from "../support/policy-api.ts";

const WRITER = new URL("../support/audit-writer.ts", import.meta.url).pathname;
const DAY_MS = 86_400_000;

function start(options: Partial<AuditStoreOptions> = {}, clock = fakeClock()) {
  const dataDir = options.dataDir ?? policyTempDir();
  const audit = createAuditStore({ clock, log: silentLog() }, { ...options, dataDir });
  onTestFinished(() => audit.close());
  const folder = (container: string): string => join(dataDir, "audit", container);
  return {
    audit,
    clock,
    dataDir,
    folder: folder(CONTAINER),
    files: () => readdirSync(folder(CONTAINER)).toSorted(),
    /** Stores one more record. */
    async add(container = CONTAINER): Promise<AuditRow> {
      const row = auditRow({ container });
      await appendRows(audit, [row]);
      return row;
    },
    /** Oldest first. */
    async records(container = CONTAINER): Promise<readonly AuditRow[]> {
      const { records } = await audit.query({ container, limit: 10_000, after: null });
      return records.toReversed();
    },
  };
}

/** Files of audit records that this process has open. */
function openFiles(dataDir: string): string[] {
  return readdirSync("/proc/self/fd").flatMap((fd) => {
    try {
      const path = readlinkSync(`/proc/self/fd/${fd}`);
      return path.startsWith(join(dataDir, "audit")) ? [path] : [];
    } catch {
      return []; // that of the folder itself
    }
  });
}

test("append() costs two file operations while nothing changes", async () => {
  const { add, records } = start();
  const rows = [await add()];
  let operations = 0;
  const hook = createHook({
    init: (_, type) => void (operations += type.startsWith("FSREQ") ? 1 : 0),
  }).enable();
  for (let n = 0; n < 50; n++) {
    rows.push(await add());
  }
  hook.disable();
  expect(operations).toBeGreaterThanOrEqual(100);
  expect(operations).toBeLessThan(110); // whatever else this process may be up to
  expect(await records()).toEqual(rows);
});

test("files and folders are the owner's alone", async () => {
  const { add, files, folder } = start();
  await add();
  expect(statSync(folder).mode & 0o777).toBe(0o700);
  expect(statSync(join(folder, files()[0] ?? "")).mode & 0o777).toBe(0o600);
});

test("a file or folder that was removed is begun anew with the next record", async () => {
  const { add, files, folder, records } = start();
  await add();
  rmSync(join(folder, files()[0] ?? ""));
  const second = await add();
  expect(await records()).toEqual([second]);
  rmSync(folder, { recursive: true });
  const third = await add();
  expect(await records()).toEqual([third]);
});

test("a file or folder that was moved away is begun anew within a second", async () => {
  const { add, clock, dataDir, files, folder, records } = start();
  await add();
  renameSync(join(folder, files()[0] ?? ""), join(folder, "kept-aside"));
  await add();
  clock.advance(1000);
  const third = await add();
  expect(await records()).toEqual([third]);
  renameSync(folder, join(dataDir, "audit", "aside"));
  clock.advance(1000);
  const fourth = await add();
  expect(await records()).toEqual([fourth]);
});

test("records follow another process to its next file, for size and for a new day", async () => {
  const dataDir = policyTempDir();
  const clock = fakeClock();
  const one = start({ dataDir, maxFileBytes: 1000, maxFiles: 100 }, clock);
  const two = start({ dataDir, maxFileBytes: 1000, maxFiles: 100 }, clock);
  const rows = [];
  for (let n = 0; n < 20; n++) {
    rows.push(await one.add(), await two.add());
  }
  expect(one.files().length).toBeGreaterThan(8);
  for (const name of one.files()) {
    expect(statSync(join(one.folder, name)).size).toBeLessThan(1500); // nobody wrote on into a full one
  }
  clock.advance(DAY_MS);
  const before = one.files().length;
  rows.push(await two.add(), await one.add());
  expect(one.files().slice(before)).toEqual(["2026-06-02.000000.jsonl"]);
  expect(await one.records()).toEqual(rows);
});

test("a day begins a file at once; a clock that goes back reorders no records", async () => {
  let offset = 0;
  const clock = fakeClock();
  const { add, files, folder, records } = start(
    { maxFileBytes: 700 },
    { ...clock, now: () => clock.now() + offset },
  );
  const rows = [await add()];
  offset = DAY_MS;
  rows.push(await add());
  offset = 0;
  rows.push(await add());
  clock.advance(1000);
  rows.push(await add(), await add());
  const [first = "", ...others] = files();
  expect(first).toBe("2026-06-01.000000.jsonl");
  expect(others).toEqual(["2026-06-02.000000.jsonl", "2026-06-02.000001.jsonl"]);
  expect(readFileSync(join(folder, first), "utf8")).toBe(formatAuditLine(rows[0] ?? auditRow()));
  expect(await records()).toEqual(rows);
});

test("an unfinished line of another process costs its own record only, however often", async () => {
  const { add, files, folder, records } = start();
  const rows = [await add()];
  const path = join(folder, files()[0] ?? "");
  for (let n = 0; n < 3; n++) {
    appendFileSync(path, '{"audit_id":"half');
    rows.push(await add(), await add());
  }
  const whole = auditRow();
  appendFileSync(path, `${JSON.stringify(whole)}\n`);
  rows.push(whole, await add());
  expect(await records()).toEqual(rows);
  expect(readFileSync(path, "utf8")).not.toContain("\n\n");
});

test("few files stay open: the ones last used, for some seconds, none when closed", async () => {
  const { add, audit, clock, dataDir, records } = start();
  const containers = Array.from({ length: 70 }, (_, n) => n.toString(16).padStart(24, "0"));
  const rows = new Map<string, AuditRow[]>();
  for (let round = 0; round < 2; round++) {
    for (const container of containers) {
      rows.set(container, [...(rows.get(container) ?? []), await add(container)]);
    }
  }
  expect(openFiles(dataDir)).toHaveLength(64);
  expect(openFiles(dataDir).join()).toContain(containers.at(-1));
  for (const container of containers) {
    expect(await records(container)).toEqual(rows.get(container));
  }
  clock.advance(4000);
  await add(containers[69]);
  clock.advance(1000);
  await expect.poll(() => openFiles(dataDir).length).toBe(1);
  clock.advance(5000);
  await expect.poll(() => openFiles(dataDir).length).toBe(0);
  await add();
  expect(openFiles(dataDir)).toHaveLength(1);
  await audit.close();
  expect(openFiles(dataDir)).toEqual([]);
  await add(); // from a dispatch that ended late
  expect(openFiles(dataDir)).toEqual([]);
});

test("records that cannot be written reject, leave no file open, and are tried anew", async () => {
  const { add, dataDir, folder, records } = start();
  await add();
  rmSync(folder, { recursive: true });
  appendFileSync(folder, "in the way");
  await expect(add()).rejects.toThrow("ENOTDIR");
  await expect(add()).rejects.toThrow("ENOTDIR");
  expect(openFiles(dataDir)).toEqual([]);
  rmSync(folder);
  const last = await add();
  expect(await records()).toEqual([last]);
});

test("old days go while a file of today is open", async () => {
  const { add, clock, files, records } = start({ retentionDays: 1 });
  await add();
  clock.advance(3 * DAY_MS - 1000);
  const rows = [await add()];
  clock.advance(3_600_000);
  await expect.poll(files).toEqual(["2026-06-03.000000.jsonl"]);
  rows.push(await add());
  expect(await records()).toEqual(rows);
});

/** Runs the writer; tells its lines. `shell` is put before the command line. */
function write(args: readonly string[], shell = ""): Promise<string[]> {
  const child = spawn(
    "/bin/sh",
    ["-c", `${shell} exec "$@"`, "sh", process.execPath, WRITER, ...args],
    {
      stdio: ["ignore", "pipe", "inherit"],
    },
  );
  let text = "";
  child.stdout.setEncoding("utf8").on("data", (piece: string) => (text += piece));
  return new Promise((resolve, reject) =>
    child.on("close", (code) =>
      code === 0 ? resolve(text.trimEnd().split("\n")) : reject(new Error(`writer: ${code}`)),
    ),
  );
}

test("processes share files and lose nothing, each in its order", { timeout: 60_000 }, async () => {
  const { dataDir, files, folder, records } = start();
  const said = await Promise.all(
    ["a", "b", "c"].map((name) => write([dataDir, "20000", name, "400", CONTAINER])),
  );
  const stored = (await records()).map((row) => row.audit_id);
  for (const [at, name] of ["a", "b", "c"].entries()) {
    expect(said[at]).toHaveLength(400);
    expect(stored.filter((id) => id.startsWith(name))).toEqual(said[at]);
  }
  expect(stored).toHaveLength(1200);
  for (const name of files()) {
    expect(statSync(join(folder, name)).size).toBeLessThan(22_000);
  }
});

test("a disk that takes no more rejects, loses no more than that, and is tried anew", async () => {
  const { dataDir, add, folder, files, records } = start();
  // No file of this process may grow beyond two kilobytes: the write that meets the border is cut there.
  const said = await write(
    [dataDir, "8000000", "x", "9", CONTAINER, "2", OTHER_CONTAINER],
    'trap "" XFSZ; ulimit -f 4;',
  );
  const stored = said.filter((line) => line.startsWith("x-0"));
  expect(stored.length).toBeGreaterThan(2);
  expect(said).toEqual([
    ...stored,
    ...Array.from({ length: 9 - stored.length }, () => "EFBIG"),
    "x-2-0",
    "x-2-1",
  ]);
  expect(readFileSync(join(folder, files()[0] ?? ""), "utf8")).not.toMatch(/\n$/);
  const last = await add();
  expect((await records()).map((row) => row.audit_id)).toEqual([...stored, last.audit_id]);
  expect(await records(OTHER_CONTAINER)).toHaveLength(2);
});
