import { chmod, mkdir } from "node:fs/promises";
import { systemClock } from "../../policy/kernel/clock.ts";
import { createLog } from "../../policy/kernel/log.ts";
import { createGuards } from "./hooks/guards.ts";
import { decodeStart, PROTOCOL_VERSION } from "./protocol.ts";
import type { GatewayMessage, StartMessage } from "./protocol.ts";
import { detectSandbox } from "./sandbox.ts";
import { createAgentServer } from "./server.ts";

// Entry of a gateway process: one per container, started by the supervisor, told its configuration by the first message,
// listening on a socket that only its owner can open. It ends when its parent does.

process.once("message", (message) => {
  const start = decodeStart(message);
  if (start === null) {
    tell({ type: "failed", reason: "the first message is not a configuration" });
    process.disconnect();
    return;
  }
  serve(start).catch((error: unknown) => {
    tell({
      type: "failed",
      reason: error instanceof Error ? error.message.slice(0, 400) : "unknown",
    });
    process.exitCode = 1;
    process.disconnect();
  });
});

async function serve(start: StartMessage): Promise<void> {
  const log = createLog({ level: start.logLevel, pretty: false }).child({
    component: "agent",
    container: start.containerId,
  });
  const clock = systemClock;
  await mkdir(start.home, { recursive: true, mode: 0o700 });
  await mkdir(start.dataDir, { recursive: true, mode: 0o700 });
  const sandbox = await detectSandbox(clock, start.env["PATH"] ?? "");
  if (sandbox.kind === "none") {
    log.warn({ reason: sandbox.reason }, "read-only command lines are held by the gate alone");
  }
  const server = createAgentServer(
    {
      clock,
      log,
      sandbox,
      createGuards,
      metrics: {
        toolRun: (tool, outcome) => tell({ type: "tool_run", tool, outcome }),
        hookRun: (event, outcome) => tell({ type: "hook_run", event, outcome }),
      },
    },
    start,
  );
  await new Promise<void>((resolve, reject) => {
    server.http.once("error", reject);
    server.http.listen(start.socketPath, resolve);
  });
  await chmod(start.socketPath, 0o600);

  let ending = false;
  const end = (): void => {
    if (ending) {
      return;
    }
    ending = true;
    server
      .close()
      .catch((error: unknown) => log.error({ err: error }, "agent close failed"))
      .finally(() => process.exit(0));
  };
  process.on("disconnect", end);
  process.on("SIGTERM", end);
  process.on("SIGINT", () => {}); // a terminal sends it to the whole group; the parent decides
  tell({
    type: "ready",
    version: PROTOCOL_VERSION,
    sandbox: sandbox.kind,
    sandboxReason: sandbox.reason,
  });
}

function tell(message: GatewayMessage): void {
  if (process.connected) {
    process.send?.(message, undefined, {}, () => {}); // a parent that is gone needs no news
  }
}
