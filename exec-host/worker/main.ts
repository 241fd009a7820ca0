import { timingSafeEqual } from "node:crypto";
import { realpathSync } from "node:fs";
import { systemClock } from "../../policy/kernel/clock.ts";
import { createHttp1Client } from "../../policy/kernel/http1/client.ts";
import { PROTOCOL_VERSION, type StartMessage } from "../protocol.ts";
import { currentCall } from "./call.ts";
import { createCallServer } from "./call-server.ts";
import { openChannel } from "./channel.ts";
import { createDeployments } from "./deployments.ts";
import { createExecutor } from "./execute.ts";
import { publishGlobals } from "./globals.ts";
import { confineSockets, harden } from "./harden.ts";
import { createJournal } from "./journal.ts";
import { createScriptLocator } from "./locate.ts";
import { markRequests } from "./mark-requests.ts";
import { warmUp } from "./modules.ts";
import { createForeignFetch, createScriptFetch } from "./script-fetch.ts";
import { describeError, installConsole } from "./script-console.ts";
import { createScriptEnvironments } from "./script-env.ts";
import { createServer, type Server } from "./serve.ts";

/**
 * Entry of the worker process: it runs one container's scripts. Configuration and secret come over the channel,
 * calls over its own unix socket (`dispatcher/frames.ts`). It ends when the channel closes.
 */
const clock = systemClock;
let server: Server | null = null;

const channel = openChannel({
  message(message) {
    if (message.type === "start") {
      if (server === null) {
        start(message);
      }
    } else {
      channel.send({
        type: "pong",
        seq: message.seq,
        active: server?.active ?? 0,
        heapUsedBytes: process.memoryUsage().heapUsed,
      });
    }
  },
  closed: () => process.exit(0),
});
const journal = createJournal(clock, channel);

function start(message: StartMessage): void {
  try {
    if (message.version !== PROTOCOL_VERSION) {
      throw new Error(`protocol version ${message.version} is not ${PROTOCOL_VERSION}`);
    }
    const root = realRoot(message.scriptsRoot);
    const secret = Buffer.from(message.secret, "latin1");
    const { limits } = message;
    const execute = createExecutor(
      {
        clock,
        journal,
        deployments: createDeployments(
          clock,
          root,
          createScriptFetch(clock),
          createScriptEnvironments(clock, root, message.env),
          limits.maxDeployments,
        ),
        locate: createScriptLocator(clock, root),
        upstream: {
          client: createHttp1Client({ clock }),
          limits: {
            connectMs: limits.upstreamConnectMs,
            idleMs: limits.upstreamIdleMs,
            maxHeaderBytes: limits.maxHeaderBytes,
          },
        },
      },
      { root, limits },
    );
    server = createServer({ clock, journal, execute });
    watchStrayFailures();
    watchExit();
    installConsole(journal);
    markRequests();
    publishGlobals({ fetch: createForeignFetch(clock) });
    harden(message.env);
    listen(message.socketPath, secret, server);
  } catch (error) {
    failStart(error);
  }
}

/** A folder that is not there has no scripts; it may come back while the worker runs. */
function realRoot(folder: string): string {
  try {
    return realpathSync(folder);
  } catch {
    return folder;
  }
}

function listen(path: string, secret: Buffer, running: Server): void {
  const server = createCallServer(
    {
      isSecret: (presented) => isEqual(presented, secret),
      call: (call) => running.serve(call),
    },
    clock,
  );
  server.on("error", failStart);
  server.listen(path, () => {
    try {
      confineSockets(server);
    } catch (error) {
      failStart(error);
      return;
    }
    channel.send({ type: "ready", version: PROTOCOL_VERSION });
    // What the first calls need is loaded before they come, but after the parent knows that they may.
    setImmediate(warmUp);
    clock.after(WARM_FETCH_MS, () => void globalThis.Response);
  });
}

/** In a time that says nothing about where two secrets differ; their length is no secret. */
function isEqual(presented: Buffer, secret: Buffer): boolean {
  return presented.length === secret.length && timingSafeEqual(presented, secret);
}

/** The runtime's fetch classes take some 30 ms to load, which a hook's deadline should not have to pay for. */
const WARM_FETCH_MS = 100;

/**
 * Failures that no call awaits are logged with the call that started them, where that is known, and never end
 * the process: other calls run in it.
 */
function watchStrayFailures(): void {
  process.on("unhandledRejection", (error) => {
    reportStray("unhandled rejection", error);
  });
  process.setUncaughtExceptionCaptureCallback((error) => {
    const call = reportStray("uncaught", error);
    if (call !== undefined && !call.isAnswered) {
      call.refuse(call.envelope.kind === "hook" ? "HOOK_SCRIPT_ERROR" : "SCRIPT_ERROR");
    }
  });
}

/** A script that ends the process takes every call with it; the log says which one it was. */
function watchExit(): void {
  process.on("exit", () => {
    const call = currentCall.getStore();
    if (call !== undefined) {
      journal.log(call, "error", "process.exit() ended the worker");
    }
    journal.flush();
  });
}

function reportStray(what: string, error: unknown) {
  const call = currentCall.getStore();
  const text = `${what}: ${describeError(error)}`;
  if (call === undefined) {
    journal.logHost("error", "", text);
  } else {
    journal.log(call, call.isAnswered ? "debug" : "error", text);
  }
  return call;
}

function failStart(error: unknown): void {
  channel.send({ type: "failed", message: describeError(error) });
  channel.flush(() => process.exit(1));
}
