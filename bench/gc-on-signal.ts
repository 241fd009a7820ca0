import { renameSync, writeFileSync } from "node:fs";

// Preloaded into the edge by memory.ts: SIGUSR2 collects everything that is garbage and tells what is left, so that
// what is measured is what is held. Needs --expose-gc and, in the environment, the file to tell it in.
const file = process.env["BENCH_MEMORY_FILE"];
process.on("SIGUSR2", () => {
  (globalThis as { gc?: () => void }).gc?.();
  if (file !== undefined) {
    writeFileSync(`${file}.new`, JSON.stringify(process.memoryUsage()));
    renameSync(`${file}.new`, file);
  }
});
