import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { Agent, createServer, request, type IncomingMessage, type ServerResponse } from "node:http";
import { connect, type AddressInfo, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { onTestFinished } from "vitest";
import type { AuditRecord } from "../../dispatcher/audit.ts";
import type { ExecHosts } from "../../dispatcher/envelope.ts";
import { startSmallEdge, type SmallEdge, type SmallEdgeOptions } from "./exec-edge.ts";
import { eventually } from "./exec-pool.ts";
import { WORKER_SECRET, type TestWorker } from "./start-worker.ts";

/** A request as the service got it. */
export interface ServedRequest {
  readonly method: string;
  readonly target: string;
  readonly lines: readonly string[];
  /** Its size and its beginning, once it is whole. */
  body: string;
  /** Whoever asked went away before the answer was whole. */
  isLeft: boolean;
  /** The edge sent it, not the worker. */
  readonly isOrdered: boolean;
}

export type Answerer = (req: IncomingMessage, res: ServerResponse) => void;

/** One script, run once by an edge that takes orders and once by one that does not. */
export interface ParityCase {
  /** Body of the script; `hook`, `log`, `look`, `sleep` and `tell` are there. */
  readonly script: string;
  /** Lines in front of it. */
  readonly directives?: string;
  /** Files beside it. */
  readonly files?: Readonly<Record<string, string>>;
  /** null: nobody listens. */
  readonly answer?: Answerer | null;
  readonly method?: string;
  readonly path?: string;
  readonly headers?: readonly string[];
  readonly body?: string | Buffer;
  readonly timeoutMs?: number;
  /** Instead of one plain request. */
  readonly client?: (port: number) => Promise<unknown>;
  /** ms that the script's last words may take. */
  readonly settleMs?: number;
}

/** All that a client, a service, a script and a log could tell. */
export interface Observed {
  readonly answer: unknown;
  readonly served: readonly Omit<ServedRequest, "isOrdered">[];
  readonly outcomes: readonly unknown[];
  readonly records: readonly unknown[];
  readonly executed: readonly unknown[];
  /** Level and text in order; with a mark where the line is not counted as the call's own. */
  readonly logged: readonly string[];
}

/** What every script has around it. */
const AROUND = `
  const hook = metadata.hook;
  const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  const log = (...words) => console.log(words.join(" "));
  const look = (when) => log(when, "sent=" + res.headersSent, "status=" + res.statusCode,
    "reason=" + res.statusMessage, "ended=" + res.writableEnded, "finished=" + res.writableFinished,
    "destroyed=" + res.destroyed, "complete=" + req.complete);
  const tell = (promise) => promise.then(
    () => log("resolved"),
    (error) => log("rejected", error.name, error.kind ?? error.code ?? error.message));
  for (const event of ["finish", "close"]) { res.on(event, () => log("res", event)); }
`;

let count = 0;

/** An edge in front of a worker that somebody else looks after. */
export function edgeOf(
  worker: TestWorker,
  takesOrders: boolean,
  options: SmallEdgeOptions,
): Promise<SmallEdge> {
  const hosts: ExecHosts = {
    endpoint: () => ({
      origin: { kind: "unix", path: worker.socketPath },
      secret: WORKER_SECRET,
      generation: 1,
    }),
    reportSuspect() {},
    isGone: () => !worker.isRunning(),
    takeEnded: (_container, id) => worker.ended.find(({ auditId }) => auditId === id)?.outcome,
  };
  return startSmallEdge(hosts, {
    ...options,
    request: (dispatch) => ({ ...(options.request?.(dispatch) ?? dispatch), takesOrders }),
  });
}

/** Runs the case with orders and without; `ordered` tells which requests the edge sent itself when it could. */
export async function observeBoth(
  worker: TestWorker,
  given: ParityCase,
): Promise<{ withOrders: Observed; without: Observed; ordered: boolean[] }> {
  const first = await observe(worker, given, true);
  const second = await observe(worker, given, false);
  if (second.served.some(({ isOrdered }) => isOrdered)) {
    throw new Error("the edge forwarded what it was not to");
  }
  const plain = (seen: Awaited<ReturnType<typeof observe>>): Observed => ({
    ...seen,
    served: seen.served.map(({ isOrdered: _isOrdered, ...request }) => request),
  });
  return {
    withOrders: plain(first),
    without: plain(second),
    ordered: first.served.map(({ isOrdered }) => isOrdered),
  };
}

async function observe(worker: TestWorker, given: ParityCase, takesOrders: boolean) {
  const name = `parity${count++}`;
  const source = `${given.directives ?? ""}
module.exports = async (req, res, metadata) => {${AROUND}
  try { ${given.script} } finally { log("script over"); }
};`;
  for (const [file, text] of Object.entries({ ...given.files, "hook.js": source })) {
    await worker.write(`default/1/${name}/${file}`, text);
  }
  const service = await startService(given.answer ?? plainAnswer);
  const edge = await edgeOf(worker, takesOrders, {
    timeoutMs: given.timeoutMs ?? 5000,
    script: { path: `/${name}/hook.js` },
    upstreamPort: given.answer === null ? 1 : service.port,
  });
  const linesBefore = worker.logs.length;
  const executedBefore = worker.executions.length;
  const answer = await (given.client ?? ((port) => askOnce(port, given)))(edge.port);
  await eventually(() => edge.outcomes.length > 0 && edge.records.length > 0);
  await sleep(given.settleMs ?? 100); // for the last words of the script, and for their way here
  const executed = worker.executions.slice(executedBefore);
  const own = executed[0]?.executionId ?? "none";
  // A line without a call is one that lost its call; late words of an earlier case are not meant.
  const lines = worker.logs
    .slice(linesBefore)
    .filter(({ executionId }) => executionId === own || executionId === "");
  const scrub = (text: string): string =>
    text
      .replaceAll(name, "NAME")
      .replaceAll(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}/g, "UUID")
      .replaceAll(/:\d+:\d+\)/g, ":0:0)");
  const result = {
    answer,
    served: service.served.map((request) => ({ ...request })),
    outcomes: edge.outcomes.map(({ outcome, status, code }) => ({ outcome, status, code })),
    records: edge.records.map(plainRecord),
    executed: executed.map(
      ({ executionId: _id, startedAt: _at, durationMs: _ms, ...rest }) => rest,
    ),
    logged: lines.map(
      ({ level, msg, executionId }) =>
        `${executionId === own ? "" : "OF NO CALL: "}${level} ${msg}`,
    ),
  };
  await service.stop();
  const scrubbed = JSON.parse(scrub(JSON.stringify(result))) as typeof result;
  return scrubbed;
}

/** Without ids and times; only whether a service was waited for. */
function plainRecord(record: AuditRecord): unknown {
  const { audit_id: _id, ts: _ts, duration_ms: _ms, upstream_ms, ...rest } = record;
  return { ...rest, waited: upstream_ms !== null };
}

function plainAnswer(_req: IncomingMessage, res: ServerResponse): void {
  res.writeHead(200, { "content-length": 2, "x-up": "up" });
  res.end("ok");
}

/** A service that writes down what it got, and from whom. */
export async function startService(answer: Answerer) {
  const served: ServedRequest[] = [];
  const sockets = new Set<Socket>();
  const ofEdge = new Set<number>();
  let port = 0;
  const onSocket = (message: unknown): void => {
    const { socket } = message as { socket: Socket };
    socket.once("connect", () => {
      if (socket.remotePort === port) {
        ofEdge.add(socket.localPort ?? 0); // this process is the edge, the worker is another
      }
    });
  };
  subscribe("net.client.socket", onSocket);
  const take: Answerer = (req, res) => {
    const request: ServedRequest = {
      method: req.method ?? "",
      target: req.url ?? "",
      lines: req.rawHeaders.map((text) => text.replace(/^127\.0\.0\.1:\d+$/, "SERVICE")),
      body: "",
      isLeft: false,
      isOrdered: ofEdge.has(req.socket.remotePort ?? 0),
    };
    served.push(request);
    let size = 0;
    let start = "";
    req.on("data", (chunk: Buffer) => {
      size += chunk.length;
      start += start.length < 50 ? chunk.toString("latin1", 0, 50) : "";
    });
    req.on("end", () => (request.body = `${size} bytes: ${start.slice(0, 50)}`));
    req.on("error", () => {});
    res.on("error", () => {});
    res.on("close", () => (request.isLeft = !res.writableFinished));
    answer(req, res);
  };
  const server = createServer({ keepAliveTimeout: 60_000 }, take);
  server.on("connection", (socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  port = (server.address() as AddressInfo).port;
  const stop = async (): Promise<void> => {
    unsubscribe("net.client.socket", onSocket);
    sockets.forEach((socket) => socket.destroy());
    server.close();
  };
  onTestFinished(stop);
  return { port, served, stop };
}

/** What a client sees of one request on a connection that it would keep. */
export interface SeenAnswer {
  readonly interim: readonly string[];
  readonly status: number;
  readonly reason: string;
  /** Without Date. */
  readonly lines: readonly string[];
  readonly trailers: readonly string[];
  readonly size: number;
  readonly body: string;
  readonly isCut: boolean;
}

type Question = Pick<ParityCase, "method" | "path" | "headers" | "body">;

/** Asks once. `pauseMs` after each piece of the answer: a slow reader. */
export function askOnce(port: number, question: Question, pauseMs = 0): Promise<SeenAnswer> {
  const agent = new Agent({ keepAlive: true });
  return new Promise((resolve) => {
    const interim: string[] = [];
    const done = (answer: Partial<SeenAnswer>): void => {
      agent.destroy();
      resolve({
        interim,
        status: 0,
        reason: "",
        lines: [],
        trailers: [],
        size: 0,
        body: "",
        isCut: true,
        ...answer,
      });
    };
    const call = request(
      {
        agent,
        host: "127.0.0.1",
        port,
        method: question.method ?? "GET",
        path: question.path ?? "/x",
        headers: ["Host", "service.example", ...(question.headers ?? [])],
      },
      (response) => {
        const chunks: Buffer[] = [];
        const { rawHeaders } = response;
        const finish = (isCut: boolean): void => {
          const body = Buffer.concat(chunks);
          done({
            status: response.statusCode ?? 0,
            reason: response.statusMessage ?? "",
            lines: rawHeaders.filter(
              (_, at) => rawHeaders[at - (at % 2)]?.toLowerCase() !== "date",
            ),
            trailers: response.rawTrailers,
            size: body.length,
            body: body.toString("latin1", 0, 300),
            isCut,
          });
        };
        response.on("data", (chunk: Buffer) => {
          chunks.push(chunk);
          if (pauseMs > 0) {
            response.pause();
            setTimeout(() => response.resume(), pauseMs);
          }
        });
        response.on("end", () => finish(false));
        response.on("error", () => finish(true));
      },
    );
    call.on("information", ({ statusCode }) => interim.push(String(statusCode)));
    call.on("continue", () => interim.push("continue"));
    call.on("error", () => done({}));
    call.end(question.body);
  });
}

/** A client that resets its connection `ms` after it asked. */
export async function leaveAfter(port: number, ms: number): Promise<{ sawHead: boolean }> {
  const socket = connect(port, "127.0.0.1");
  let text = "";
  socket.on("data", (chunk: Buffer) => (text += chunk.toString("latin1")));
  socket.on("error", () => {});
  socket.write("GET /x HTTP/1.1\r\nHost: a.example\r\n\r\n");
  await sleep(ms);
  socket.resetAndDestroy();
  return { sawHead: text.startsWith("HTTP/1.1 200") };
}
