import { systemClock } from "../../policy/kernel/clock.ts";
import { silentLog } from "../../policy/kernel/log.ts";
import { createAuditStore } from "../../policy/store/audit-store.ts";
import { appendRows, auditRow } from "./audit-rows.ts";

/*
 * A process that writes audit records, for tests with several of them or with little disk. Arguments: data folder, size
 * of a file, a name, then how many records go to which container, as often as there are pairs. Each line of output is
 * the id of a record that was stored, or the code of what went wrong.
 */
const [dataDir = "", maxFileBytes = "", name = "", ...orders] = process.argv.slice(2);
const audit = createAuditStore(
  { clock: systemClock, log: silentLog() },
  { dataDir, maxFileBytes: Number(maxFileBytes), maxFiles: 1000 },
);
for (let i = 0; i < orders.length; i += 2) {
  for (let n = 0; n < Number(orders[i]); n++) {
    const row = auditRow({ container: orders[i + 1] ?? "", audit_id: `${name}-${i}-${n}` });
    const said = await appendRows(audit, [row]).then(
      () => row.audit_id,
      (cause: NodeJS.ErrnoException) => cause.code,
    );
    process.stdout.write(`${said}\n`);
  }
}
await audit.close();
