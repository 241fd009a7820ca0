// Builds `dist/` after an install. An install without the compiler (`--omit=dev`) or without its platform binary
// (`--omit=optional`) is fine as it is: `npm start` runs the sources.
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";

const tsc = new URL("../node_modules/typescript/bin/tsc", import.meta.url).pathname;
if (existsSync(tsc)) {
  const run = spawnSync(process.execPath, [tsc, "-p", "tsconfig.build.json"], {
    encoding: "utf8",
    cwd: new URL("..", import.meta.url).pathname,
  });
  const output = `${run.stdout}${run.stderr}`;
  if (run.status !== 0 && !output.includes("@typescript/typescript-")) {
    process.stderr.write(output);
    process.exitCode = 1;
  }
}
