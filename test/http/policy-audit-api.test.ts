import { appendFileSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { systemClock } from "../../policy/kernel/clock.ts";
import { newUuid } from "../../policy/kernel/ids.ts";
import { silentLog } from "../../policy/kernel/log.ts";
import type { AuditRow } from "../../policy/store/audit-row.ts";
import { createAuditStore } from "../../policy/store/audit-store.ts";
import { appendRows, auditRow as row } from "../support/audit-rows.ts";
import {
  CONTAINER,
  OTHER_CONTAINER,
  policyApi,
  policyTempDir,
  TOKEN,
} from "../support/policy-api.ts";

const AUDIT = `/api/v1/containers/${CONTAINER}/proxy/audit`;

test("records are listed newest first, page by page, container by container", async () => {
  const { call, audit } = policyApi();
  const rows = Array.from({ length: 5 }, () => row());
  await appendRows(audit, [...rows, row({ container: OTHER_CONTAINER })]);
  const first = (await call("GET", `${AUDIT}?limit=2`)).body.data;
  expect(first).toEqual({ records: [rows[4], rows[3]], next: rows[3]?.audit_id });
  const second = (await call("GET", `${AUDIT}?limit=2&after=${first.next}`)).body.data;
  expect(second.records).toEqual([rows[2], rows[1]]);
  expect((await call("GET", `${AUDIT}?after=${second.next}`)).body.data).toEqual({
    records: [rows[0]],
    next: null,
  });
  expect((await call("GET", `${AUDIT}?after=${newUuid()}`)).body.data).toEqual({
    records: [],
    next: null,
  });
  for (const query of ["limit=0", "limit=1001", "limit=x", "after=x"]) {
    expect((await call("GET", `${AUDIT}?${query}`)).status).toBe(400);
  }
});

test("the stream sends each record once, with its id, and takes up where a reader left", async () => {
  const { app, audit } = policyApi();
  const early = row();
  const missed = row();
  await appendRows(audit, [early, missed]);
  const response = await app.request(`${AUDIT}/stream`, {
    headers: { authorization: `Bearer ${TOKEN}`, "last-event-id": early.audit_id },
  });
  expect(response.status).toBe(200);
  expect(response.headers.get("content-type")).toContain("text/event-stream");
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  const until = async (end: string): Promise<void> => {
    while (!text.includes(end)) {
      const { value, done } = await reader.read();
      expect(done).toBe(false);
      text += value ?? "";
    }
  };
  await until(`id: ${missed.audit_id}\n\n`);
  const live = row();
  await appendRows(audit, [live, row({ container: OTHER_CONTAINER })]);
  await until(`id: ${live.audit_id}\n\n`);
  await reader.cancel();
  expect([...text.matchAll(/^id: (.*)$/gm)].map((match) => match[1])).toEqual([
    missed.audit_id,
    live.audit_id,
  ]);
  expect(text).toContain(`data: ${JSON.stringify(live)}`);
});

test("subscribers hear of records that another process wrote", async () => {
  const { audit, dataDir } = policyApi();
  await appendRows(audit, [row()]);
  const heard: AuditRow[] = [];
  const stop = audit.subscribe(CONTAINER, (record) => heard.push(record));
  const other = createAuditStore({ clock: systemClock, log: silentLog() }, { dataDir });
  const record = row();
  await expect
    .poll(
      async () => {
        await appendRows(other, [record]);
        return heard.at(-1);
      },
      { timeout: 10_000 },
    )
    .toEqual(record);
  stop();
  await other.close();
});

function store(now: () => number, options: { maxFileBytes?: number; maxFiles?: number } = {}) {
  const dataDir = policyTempDir();
  const clock = { ...systemClock, now };
  return { dataDir, audit: createAuditStore({ clock, log: silentLog() }, { dataDir, ...options }) };
}

test("files are rotated by size and day, the oldest go, and pages go across files", async () => {
  let now = Date.parse("2026-01-01T12:00:00Z");
  const { dataDir, audit } = store(() => now, { maxFileBytes: 600, maxFiles: 4 });
  const rows = Array.from({ length: 12 }, () => row());
  for (const each of rows) {
    await appendRows(audit, [each]);
  }
  now += 86_400_000;
  const last = row();
  await appendRows(audit, [last]);
  const files = readdirSync(join(dataDir, "audit", CONTAINER)).toSorted();
  expect(files).toHaveLength(4);
  expect(files.at(-1)).toBe("2026-01-02.000000.jsonl");
  const { records } = await audit.query({ container: CONTAINER, limit: 100, after: null });
  expect(records[0]).toEqual(last);
  expect(records.slice(1)).toEqual(rows.toReversed().slice(0, records.length - 1));
  await audit.close();
});

test("records older than thirty days are removed at start", async () => {
  const { dataDir, audit } = store(() => Date.parse("2026-01-01T12:00:00Z"));
  await appendRows(audit, [row()]);
  await audit.close();
  const kept = createAuditStore(
    { clock: { ...systemClock, now: () => Date.parse("2026-01-31T12:00:00Z") }, log: silentLog() },
    { dataDir },
  );
  await kept.close();
  expect(readdirSync(join(dataDir, "audit", CONTAINER))).toHaveLength(1);
  const later = createAuditStore(
    { clock: { ...systemClock, now: () => Date.parse("2026-02-02T12:00:00Z") }, log: silentLog() },
    { dataDir },
  );
  await later.close();
  expect(readdirSync(join(dataDir, "audit", CONTAINER))).toHaveLength(0);
});

test("a line that a killed process left unfinished costs no other record", async () => {
  const { dataDir, audit } = store(() => Date.parse("2026-01-01T12:00:00Z"));
  const [one, two] = [row(), row()];
  await appendRows(audit, [one]);
  const [file] = readdirSync(join(dataDir, "audit", CONTAINER));
  const path = join(dataDir, "audit", CONTAINER, file ?? "");
  appendFileSync(path, '{"audit_id":"half');
  await appendRows(audit, [two]);
  expect((await audit.query({ container: CONTAINER, limit: 10, after: null })).records).toEqual([
    two,
    one,
  ]);
  expect(readFileSync(path, "utf8")).toContain("half\n");
  await audit.close();
});

test("append() rejects when records cannot be written, and works again afterwards", async () => {
  const { dataDir, audit } = store(() => Date.parse("2026-01-01T12:00:00Z"));
  writeFileSync(join(dataDir, "audit", OTHER_CONTAINER), "in the way");
  await expect(appendRows(audit, [row({ container: OTHER_CONTAINER })])).rejects.toThrow();
  await appendRows(audit, [row()]);
  expect(
    (await audit.query({ container: CONTAINER, limit: 10, after: null })).records,
  ).toHaveLength(1);
  await audit.close();
});
