import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { expect, test } from "vitest";

const LOG = join(import.meta.dirname, "../../policy/kernel/log.ts");

test("readable log lines obey nothing that a script, a client or a service wrote", async () => {
  const hostile = "a\u001b[2J\u001b]0;title\u0007\u009b31m\nlevel: forged\r\u202eb";
  const script = `
    import { createLog } from ${JSON.stringify(LOG)};
    const log = createLog({ level: "debug", pretty: true });
    const text = ${JSON.stringify(hostile)};
    log.info(text);
    log.child({ component: "script" }).warn({ container: "c", detail: text, list: [text] }, text);
    log.error({ err: new Error(text) }, "call failed: %s", text);
    setTimeout(() => process.exit(0), 1500);`;
  const child = spawn(process.execPath, ["--input-type=module-typescript", "--eval", script], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const chunks: Buffer[] = [];
  child.stdout.on("data", (chunk: Buffer) => chunks.push(chunk));
  await once(child, "close");
  const output = Buffer.concat(chunks).toString("utf8");
  expect(output.match(/forged/g)?.length).toBeGreaterThanOrEqual(4);
  // The colours of the lines themselves are no more than `ESC [ digits m`.
  const plain = output.replaceAll(/\u001b\[\d{1,2}m/g, "");
  expect(plain).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e]/);
  // Nothing of it begins a line of its own; stacks have several, each indented.
  expect(plain).not.toMatch(/^ {0,3}level: forged/m);
});
