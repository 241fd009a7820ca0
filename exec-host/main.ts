import { parseArgs } from "node:util";
import { runExecHost } from "./run.ts";

/** Entry of the exec host without the rest of the command line: `node exec-host/main.ts --config FILE`. */
const { values } = parseArgs({ options: { config: { type: "string" } }, strict: false });
if (typeof values.config !== "string") {
  process.stderr.write("usage: exec-host --config FILE\n");
  process.exitCode = 2;
} else {
  process.exitCode = await runExecHost(values.config, process.env);
}
