import { timingSafeEqual } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { Socket } from "node:net";
import { decodeEnvelope, ENVELOPE_FIELDS } from "../../dispatcher/envelope.ts";
import { systemClock } from "../../policy/kernel/clock.ts";
import {
  CHANNEL_FD,
  createLineReader,
  decodeParentMessage,
  encodeMessage,
  PROTOCOL_VERSION,
  type StartMessage,
} from "../protocol.ts";
import { createTail } from "./log-files.ts";
import { handleManage, type ManageDeps, type ManageRequest } from "./routes.ts";
import { createScriptFiles, ManageError, MAX_SCRIPT_BYTES } from "./script-files.ts";

/**
 * The process that answers a container's management routes. It runs beside the worker under the same limits: it
 * reads what tenants wrote (code to parse, patterns to search with), so a text that never comes to an end must cost
 * nobody but that tenant. It runs no script.
 */
const BASE = "/api/v1/exec";
/** A script as a JSON string: every byte may take six characters. */
const MAX_BODY = MAX_SCRIPT_BYTES * 2;
const POLL_MS = 250;
const KEEP_ALIVE_MS = 15_000;
const MAX_STREAMS = 32;

let active = 0;
let streams = 0;
const clock = systemClock;
const channel = new Socket({ fd: CHANNEL_FD });

async function start(message: StartMessage): Promise<void> {
  const startedAt = clock.monotonic();
  const deps: ManageDeps = {
    files: await createScriptFiles(message.scriptsRoot),
    logs: message.logsDir ?? message.dataDir,
    uptimeMs: () => clock.monotonic() - startedAt,
  };
  const secret = Buffer.from(message.secret);
  const server = createServer((req, res) => {
    active++;
    res.on("close", () => active--);
    answer(req, res, deps, secret).catch((cause: unknown) => refuse(res, cause));
  });
  server.keepAliveTimeout = 0; // the edge closes idle connections itself
  server.listen(message.socketPath, () => {
    channel.write(encodeMessage({ type: "ready", version: PROTOCOL_VERSION }));
  });
}

async function answer(
  req: IncomingMessage,
  res: ServerResponse,
  deps: ManageDeps,
  secret: Buffer,
): Promise<void> {
  const field = (name: string): string | undefined => {
    const value = req.headers[name];
    return Array.isArray(value) ? undefined : value;
  };
  const given = Buffer.from(field(ENVELOPE_FIELDS.auth.toLowerCase()) ?? "");
  if (given.length !== secret.length || !timingSafeEqual(given, secret)) {
    throw new ManageError(403, "FORBIDDEN", "Access is not allowed.");
  }
  const envelope = decodeEnvelope(field);
  if (envelope?.kind !== "ordinary" || !envelope.manage) {
    throw new ManageError(403, "FORBIDDEN", "Access is not allowed.");
  }
  const target = req.url ?? "/";
  const mark = target.indexOf("?");
  const path = mark === -1 ? target : target.slice(0, mark);
  const request: ManageRequest = {
    method: req.method ?? "GET",
    path: path.startsWith(`${BASE}/`) ? path.slice(BASE.length) : "",
    query: new URLSearchParams(mark === -1 ? "" : target.slice(mark + 1)),
    body: await readBody(req),
    subdomain: envelope.subdomain,
    execId: envelope.execId,
  };
  const reply = await handleManage(request, deps);
  if (reply.kind === "json") {
    send(res, reply.status, reply.body);
  } else {
    await stream(res, deps.logs, reply.file, reply.follow);
  }
}

async function readBody(req: IncomingMessage): Promise<Record<string, unknown>> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of req as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > MAX_BODY) {
      throw new ManageError(413, "BODY_TOO_LARGE", "The request body is too large.");
    }
    chunks.push(chunk);
  }
  if (size === 0) {
    return {};
  }
  let value: unknown;
  try {
    value = JSON.parse(Buffer.concat(chunks).toString("utf8"));
  } catch {
    throw new ManageError(400, "VALIDATION_ERROR", "The body is not JSON");
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new ManageError(400, "VALIDATION_ERROR", "The body must be a JSON object");
  }
  return value as Record<string, unknown>;
}

/** Server-sent events, one line of the log each; a slow reader is waited for. */
async function stream(
  res: ServerResponse,
  logs: string,
  file: string,
  follow: boolean,
): Promise<void> {
  if (res.destroyed) {
    return; // left while the file was looked for: no `close` will come any more to give the place back
  }
  if (streams >= MAX_STREAMS) {
    throw new ManageError(503, "OVERLOADED", "Too many log streams are open");
  }
  streams++;
  res.on("close", () => streams--);
  res.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store" });
  const tail = createTail(logs, file, follow ? "end" : "start");
  if (follow) {
    await tail.next(); // finds the end
  }
  res.write(": open\n\n");
  let quietMs = 0;
  while (!res.destroyed) {
    const lines = await tail.next();
    if (lines.length > 0) {
      quietMs = 0;
      if (!res.write(lines.map((line) => `data: ${line}\n\n`).join(""))) {
        await new Promise<void>((resolve) => {
          res.once("drain", resolve);
          res.once("close", resolve);
        });
      }
      continue;
    }
    if (!follow) {
      break;
    }
    await new Promise<void>((resolve) => clock.after(POLL_MS, resolve));
    quietMs += POLL_MS;
    if (quietMs >= KEEP_ALIVE_MS) {
      quietMs = 0;
      res.write(": still here\n\n");
    }
  }
  res.end();
}

function send(res: ServerResponse, status: number, body: unknown): void {
  const text = JSON.stringify(body);
  res.writeHead(status, {
    "Content-Type": "application/json",
    "Cache-Control": "no-store",
    "Content-Length": Buffer.byteLength(text),
  });
  res.end(text);
}

function refuse(res: ServerResponse, cause: unknown): void {
  if (res.headersSent) {
    res.destroy();
    return;
  }
  const known = cause instanceof ManageError;
  const status = known ? cause.status : 500;
  const { allow, ...details } = known ? cause.details : {};
  if (Array.isArray(allow)) {
    res.setHeader("Allow", allow.join(", "));
  }
  if (!known) {
    process.stderr.write(
      `management request failed: ${String((cause as Error)?.stack ?? cause)}\n`,
    );
  }
  const code = known ? cause.code : "INTERNAL_ERROR";
  send(res, status, {
    statusCode: status,
    error: code,
    code,
    message: known ? cause.message : "The exec host failed on this request.",
    timestamp: new Date(clock.now()).toISOString(),
    ...details,
  });
}

const lines = createLineReader((line) => {
  const message = decodeParentMessage(line);
  if (message?.type === "start") {
    start(message).catch((cause: unknown) => {
      channel.write(encodeMessage({ type: "failed", message: String(cause) }), () =>
        process.exit(1),
      );
    });
  } else if (message?.type === "ping") {
    channel.write(
      encodeMessage({
        type: "pong",
        seq: message.seq,
        active,
        heapUsedBytes: process.memoryUsage().heapUsed,
      }),
    );
  }
});
channel.on("data", (chunk: Buffer) => void lines.push(chunk));
channel.on("error", () => {}); // `close` follows
channel.on("close", () => process.exit(0));
