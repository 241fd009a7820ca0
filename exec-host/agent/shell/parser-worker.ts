import { parentPort } from "node:worker_threads";
import { parse } from "just-bash";
import { toShellLine } from "./syntax.ts";

// Runs in a worker thread: the parser is a large package, and some inputs (`$(($'`) keep it busy for ever.

parentPort?.on("message", (text: string) => {
  parentPort?.postMessage(toShellLine(parse, text));
});
parentPort?.postMessage("ready");
