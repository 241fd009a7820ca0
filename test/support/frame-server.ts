import net from "node:net";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import { decodeCall, type CallHead } from "../../dispatcher/call-frame.ts";
import type { ExecRequest, OrderTaker } from "../../dispatcher/exec-call.ts";
import type { FrameClient } from "../../dispatcher/frame-client.ts";
import { FRAME, FrameReader, FrameWriter } from "../../dispatcher/frames.ts";
import type { ForwardOrder, OrderReport } from "../../dispatcher/order.ts";
import { systemClock } from "../../policy/kernel/clock.ts";
import type { BodySink, BodySource, ResponseHead } from "../../policy/kernel/exchange.ts";
import type {
  OutgoingCall,
  UpstreamFailure,
  AnswerHandler,
} from "../../policy/kernel/http1/types.ts";
import { tempDir } from "./exec-pool.ts";

/** A frame as the server got it. */
export interface SeenFrame {
  readonly type: number;
  readonly call: number;
  readonly text: string;
}

/** One connection of the client under test. */
export interface ServerLine {
  readonly socket: net.Socket;
  readonly writer: FrameWriter;
  readonly frames: SeenFrame[];
  readonly isClosed: () => boolean;
}

/** A call that came in, and how to speak to its caller. */
export interface ServerCall {
  readonly line: ServerLine;
  readonly id: number;
  readonly head: CallHead;
  /** Sends a frame of the call at once. */
  say(type: number, text?: string): void;
  want(bytes: number): void;
  /** Frames of the call so far. */
  seen(type: number): SeenFrame[];
  /** Bytes of the body so far. */
  body(): string;
}

export interface FrameServer {
  readonly path: string;
  readonly lines: ServerLine[];
  readonly calls: ServerCall[];
  /** Told of each frame; set by tests that answer as frames come. */
  onFrame: ((frame: SeenFrame, line: ServerLine) => void) | null;
}

export const FRAME_SECRET = "a-secret-of-this-start";

/** What a worker's socket is to a client: takes calls, and says what the test wants said. */
export async function startFrameServer(
  onCall: (call: ServerCall) => void = () => {},
): Promise<FrameServer> {
  const path = join(await tempDir(), "worker.sock");
  const lines: ServerLine[] = [];
  const calls: ServerCall[] = [];
  const result: FrameServer = { path, lines, calls, onFrame: null };
  const server = net.createServer((socket) => {
    let isClosed = false;
    const writer = new FrameWriter(socket, systemClock);
    const line: ServerLine = { socket, writer, frames: [], isClosed: () => isClosed };
    lines.push(line);
    const reader = new FrameReader((type, id, payload) => {
      const frame = { type, call: id, text: payload.toString("latin1") };
      line.frames.push(frame);
      if (type === FRAME.call) {
        const call = toCall(line, id, decodeCall(frame.text)!);
        calls.push(call);
        onCall(call);
      }
      result.onFrame?.(frame, line);
    });
    socket.on("data", (chunk: Buffer) => reader.push(chunk, chunk.length));
    socket.on("error", () => {});
    socket.on("close", () => (isClosed = true));
  });
  await new Promise<void>((resolve) => server.listen(path, resolve));
  onTestFinished(() => {
    lines.forEach(({ socket }) => socket.destroy());
    server.close();
  });
  return result;
}

function toCall(line: ServerLine, id: number, head: CallHead): ServerCall {
  const seen = (type: number): SeenFrame[] =>
    line.frames.filter((frame) => frame.call === id && frame.type === type);
  return {
    line,
    id,
    head,
    seen,
    body: () =>
      seen(FRAME.body)
        .map(({ text }) => text)
        .join(""),
    say(type, text = "") {
      line.writer.text(type, id, text);
      line.writer.flush();
    },
    want(bytes) {
      line.writer.number(FRAME.want, id, bytes);
      line.writer.flush();
    },
  };
}

/** What the caller hears, in words. */
export interface CallRecord {
  readonly sent: OutgoingCall;
  /** `head 200`, `data`, `end`, `fail reset`… in order; neighbouring pieces of data count once. */
  readonly events: string[];
  readonly heads: ResponseHead[];
  readonly body: () => Buffer;
  readonly failures: UpstreamFailure[];
  readonly orders: { readonly order: ForwardOrder; readonly report: OrderReport }[];
  /** What became of an ordered request's own call. */
  readonly ordered: string[];
  /** Resolves at the first `end` or `fail`. */
  readonly over: Promise<void>;
}

/** Sends a call and writes down what its sender hears. */
export function sendCall(
  client: FrameClient,
  path: string,
  { takesOrders = false, ...changes }: Partial<ExecRequest> & { takesOrders?: boolean } = {},
  onData: (chunk: Buffer, sent: () => OutgoingCall) => boolean = () => true,
): CallRecord {
  const chunks: Buffer[] = [];
  const events: string[] = [];
  const over = Promise.withResolvers<void>();
  const record = {
    events,
    heads: [] as ResponseHead[],
    body: () => Buffer.concat(chunks),
    failures: [] as UpstreamFailure[],
    orders: [] as { order: ForwardOrder; report: OrderReport }[],
    ordered: [] as string[],
    over: over.promise,
  };
  let sent: OutgoingCall | null = null;
  const handler: AnswerHandler & OrderTaker = {
    interim: ({ status }) => void events.push(`interim ${status}`),
    head(head) {
      record.heads.push(head);
      events.push(`head ${head.status}`);
    },
    data(chunk) {
      chunks.push(Buffer.from(chunk));
      if (events.at(-1) !== "data") {
        events.push("data");
      }
      return onData(chunk, () => sent!);
    },
    end(trailers) {
      events.push(`end${trailers.length > 0 ? ` ${trailers.join(" ")}` : ""}`);
      over.resolve();
    },
    tunnel: () => void events.push("tunnel"),
    forward(order, report) {
      events.push("forward");
      record.orders.push({ order, report });
      return {
        resume: () => void record.ordered.push("resume"),
        stage: (fields) => void record.ordered.push(`stage ${fields.join(" ")}`),
        leave: () => void record.ordered.push("leave"),
        abort: () => void record.ordered.push("abort"),
      };
    },
    fail(failure) {
      record.failures.push(failure);
      events.push(`fail ${failure.kind}`);
      over.resolve();
    },
  };
  sent = client.send(
    {
      endpoint: { origin: { kind: "unix", path }, secret: FRAME_SECRET, generation: 1 },
      envelope: {
        kind: "ordinary",
        subdomain: null,
        execId: null,
        clientAddress: "192.0.2.7",
        manage: false,
      },
      method: "GET",
      target: "/",
      fields: ["Host", "a.example"],
      body: null,
      awaitContinue: false,
      idleMs: 60_000,
      orders: takesOrders ? handler : null,
      ...changes,
    },
    handler,
  );
  return { ...record, sent };
}

/** A body of `size` bytes in pieces, that notes what is done to it. */
export function pieceBody(size: number, pieceBytes = 16_384) {
  const done: string[] = [];
  let sink: BodySink | null = null;
  let given = 0;
  let isCancelled = false;
  const flow = (): void => {
    while (sink !== null && given < size && !isCancelled) {
      const piece = Buffer.alloc(
        Math.min(pieceBytes, size - given),
        97 + ((given / pieceBytes) & 15),
      );
      given += piece.length;
      if (!sink.data(piece)) {
        return;
      }
    }
    if (sink !== null && given >= size && !isCancelled && !done.includes("end")) {
      done.push("end");
      sink.end([]);
    }
  };
  const source: BodySource = {
    length: size,
    start(given) {
      done.push("start");
      sink = given;
      flow();
    },
    resume: flow,
    cancel() {
      isCancelled = true;
      done.push("cancel");
    },
  };
  return { source, done, given: () => given, fail: (cause: Error) => sink?.fail(cause) };
}
