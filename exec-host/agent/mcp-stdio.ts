import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import type { JSONRPCMessage, Transport } from "@modelcontextprotocol/client";
import type { Clock } from "../../policy/kernel/clock.ts";
import { killGroup } from "./process.ts";

/** Longest message a server may send. */
const MAX_MESSAGE_CHARS = 16 * 1024 * 1024;
const KILL_GRACE_MS = 500;

/**
 * Line-delimited JSON over the standard streams of a child. The official client's own transport starts the server in
 * our process group; this one gives it a group of its own, so that what the server starts ends with it.
 */
export function createStdioTransport(
  server: {
    readonly command: string;
    readonly args: readonly string[];
    readonly env: Readonly<Record<string, string>>;
    readonly cwd: string;
  },
  clock: Clock,
): Transport {
  let child: ChildProcess | null = null;
  let rest = "";

  const take = (chunk: string): void => {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop() ?? "";
    if (rest.length > MAX_MESSAGE_CHARS) {
      rest = "";
      transport.onerror?.(new Error("message too long"));
      void transport.close();
      return;
    }
    for (const line of lines) {
      if (line.trim() === "") {
        continue;
      }
      try {
        transport.onmessage?.(JSON.parse(line) as JSONRPCMessage);
      } catch (error) {
        transport.onerror?.(error instanceof Error ? error : new Error("unreadable message"));
      }
    }
  };

  const transport: Transport = {
    start() {
      return new Promise((resolve, reject) => {
        const started = spawn(server.command, server.args, {
          cwd: server.cwd,
          env: { ...server.env },
          detached: true,
          stdio: ["pipe", "pipe", "ignore"],
        });
        child = started;
        started.once("spawn", resolve);
        started.once("error", (error) => {
          reject(error);
          transport.onerror?.(error);
        });
        started.once("exit", () => {
          killGroup(started, "SIGKILL");
          started.stdout.destroy();
          transport.onclose?.();
        });
        started.stdin.on("error", () => {}); // a dead server shows by its exit
        started.stdout.setEncoding("utf8").on("data", take);
      });
    },
    send(message) {
      const stdin = child?.stdin;
      if (stdin == null || !stdin.writable) {
        return Promise.reject(new Error("the server is gone"));
      }
      return new Promise((resolve, reject) => {
        stdin.write(`${JSON.stringify(message)}\n`, (error) =>
          error == null ? resolve() : reject(error),
        );
      });
    },
    close() {
      const running = child;
      if (running === null || running.exitCode !== null || running.signalCode !== null) {
        return Promise.resolve();
      }
      return new Promise((resolve) => {
        running.once("exit", () => resolve());
        running.stdin?.end();
        killGroup(running, "SIGTERM");
        clock.after(KILL_GRACE_MS, () => killGroup(running, "SIGKILL"));
      });
    },
  };
  return transport;
}
