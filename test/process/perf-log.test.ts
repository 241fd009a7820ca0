import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { describe, expect, test } from "vitest";

const KERNEL = join(import.meta.dirname, "../../policy/kernel");

/** Runs `code` with a log on standard output; `onChunk` hears what comes as it comes. */
async function run(code: string, onChunk?: (text: string) => void): Promise<string[]> {
  const script = `
    import { createLog, lineWriter } from ${JSON.stringify(join(KERNEL, "log.ts"))};
    const log = createLog({ level: "info", pretty: false });
    ${code}`;
  const child = spawn(process.execPath, ["--input-type=module-typescript", "--eval", script], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  let output = "";
  child.stdout.setEncoding("utf8");
  child.stdout.on("data", (text: string) => {
    output += text;
    onChunk?.(text);
  });
  await once(child, "close");
  return output.split("\n").slice(0, -1);
}

describe("log sink", () => {
  test("loses no line when the process exits right away", async () => {
    const lines = await run(`
      const write = lineWriter(log);
      for (let n = 0; n < 3000; n++) write('"n":' + n, "request");
      log.info("last");
      process.exit(0);`);
    expect(lines).toHaveLength(3001);
    expect(lines.map((line) => (JSON.parse(line) as { n?: number }).n).slice(0, -1)).toEqual(
      Array.from({ length: 3000 }, (_, n) => n),
    );
  });

  test("loses no line when an exception ends the process", async () => {
    const lines = await run(`
      lineWriter(log)('"n":1', "request");
      process.on("uncaughtException", () => process.exit(3));
      setTimeout(() => { throw new Error("end"); }, 5);`);
    expect(lines.map((line) => (JSON.parse(line) as { n: number }).n)).toEqual([1]);
  });

  test("writes an ordinary line at once, while the process goes on without a pause", async () => {
    const seen: string[] = [];
    await run(
      `log.info("ready");
       const until = Date.now() + 600;
       const spin = () => Date.now() < until ? setImmediate(spin) : log.info("over");
       setImmediate(spin);`,
      (text) => seen.push(text),
    );
    expect(seen[0]).toContain('"msg":"ready"');
    expect(seen[0]).not.toContain('"msg":"over"');
  });

  test("writes gathered lines without further ones, in the order of all lines", async () => {
    const lines = await run(`
      const write = lineWriter(log);
      write('"n":1', "request");
      await new Promise((done) => setTimeout(done, 300));
      write('"n":2', "request");
      log.info({ n: 3 }, "plain");
      write('"n":4', "request");
      await new Promise((done) => setTimeout(done, 300));`);
    expect(lines.map((line) => (JSON.parse(line) as { n: number }).n)).toEqual([1, 2, 3, 4]);
  });

  test("writes the same members as the logger itself", async () => {
    const lines = await run(`
      const child = log.child({ component: "x" });
      lineWriter(child)('"reqId":"a"', "request");
      child.info({ reqId: "a" }, "request");`);
    const [one, other] = lines.map((line) => JSON.parse(line) as Record<string, unknown>);
    expect({ ...one, time: 0 }).toEqual({ ...other, time: 0 });
    expect(Object.keys(one ?? {})).toEqual(Object.keys(other ?? {}));
  });

  test("keeps the process alive and its memory bounded when nobody reads the log", async () => {
    const script = `
      import { createLogSink } from ${JSON.stringify(join(KERNEL, "log-sink.ts"))};
      const sink = createLogSink(1, 1_000_000);
      const line = "x".repeat(999) + "\\n";
      for (let n = 0; n < 50_000; n++) sink.gather(line);
      const heap = process.memoryUsage().heapUsed / 1e6;
      setTimeout(() => { process.stderr.write(String(heap < 60)); process.kill(process.pid, "SIGKILL"); }, 200);`;
    const child = spawn(process.execPath, ["--input-type=module-typescript", "--eval", script], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    let told = "";
    child.stderr.setEncoding("utf8");
    child.stderr.on("data", (text: string) => (told += text));
    await once(child, "exit");
    expect(told).toBe("true");
  });
});
