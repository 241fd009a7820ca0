import type { IncomingHttpHeaders } from "node:http";
import { connect } from "node:net";
import { PassThrough, Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { encodeCall } from "../../dispatcher/call-frame.ts";
import type { Envelope } from "../../dispatcher/envelope.ts";
import type { ExecRequest } from "../../dispatcher/exec-call.ts";
import { createFrameClient } from "../../dispatcher/frame-client.ts";
import { FRAME, FrameReader, FrameWriter } from "../../dispatcher/frames.ts";
import { systemClock } from "../../policy/kernel/clock.ts";
import type { BodySink, BodySource } from "../../policy/kernel/exchange.ts";
import type { UpstreamFailure } from "../../policy/kernel/http1/types.ts";

export interface WorkerAnswer {
  readonly status: number;
  readonly reason: string;
  readonly headers: IncomingHttpHeaders;
  readonly rawHeaders: readonly string[];
  readonly body: Buffer;
  readonly text: string;
  /** The answer broke off behind its head. */
  readonly isCut: boolean;
  readonly outcome: string | undefined;
}

export interface FrameCall {
  readonly method?: string;
  readonly url?: string;
  readonly fields?: readonly string[];
  readonly body?: string | Buffer | Readable;
  readonly signal?: AbortSignal;
  /** Given the answer's body as a stream, beside the whole answer at the end. */
  readonly onResponse?: (response: Readable) => void;
}

/** One call of a worker the way the edge makes it. Rejects when no answer began. */
export function callWorker(
  at: { readonly path: string; readonly secret: string },
  envelope: Envelope,
  call: FrameCall = {},
): Promise<WorkerAnswer> {
  const client = createFrameClient(systemClock);
  const answer = new Promise<WorkerAnswer>((resolve, reject) => {
    let head: { status: number; reason: string; fields: readonly string[] } | null = null;
    const chunks: Buffer[] = [];
    const stream = new PassThrough({ highWaterMark: 1 });
    stream.on("error", () => {});
    const finish = (isCut: boolean): void => {
      const received = head?.fields ?? [];
      const body = Buffer.concat(chunks);
      const headers = toHeaders(received);
      resolve({
        status: head?.status ?? 0,
        reason: head?.reason ?? "",
        headers,
        rawHeaders: received,
        body,
        text: body.toString("utf8"),
        isCut,
        // The word; the time the services took may follow it.
        outcome: String(headers["x-hoody-hook-outcome"] ?? "").split(" ", 1)[0] || undefined,
      });
    };
    const fields = call.fields ?? [];
    const chunked = fields.findIndex((name) => name.toLowerCase() === "transfer-encoding");
    const isChunked = chunked >= 0;
    const request: ExecRequest = {
      endpoint: {
        origin: { kind: "unix", path: at.path },
        secret: at.secret,
        generation: 1,
      },
      envelope,
      method: call.method ?? "GET",
      target: call.url ?? "/",
      fields: fields.filter((_, at) => !isChunked || (at !== chunked && at !== chunked + 1)),
      body: toBody(call.body, isChunked),
      awaitContinue: false,
      orders: null,
      idleMs: 3_600_000,
    };
    const sent = client.send(request, {
      interim() {},
      head(received) {
        head = received;
        call.onResponse?.(stream);
      },
      data(chunk) {
        chunks.push(chunk);
        if (call.onResponse === undefined || stream.write(chunk)) {
          return true;
        }
        stream.once("drain", () => sent.resume());
        return false;
      },
      end() {
        stream.end();
        finish(false);
      },
      tunnel() {
        reject(new Error("unexpected switch"));
      },
      fail(failure: UpstreamFailure) {
        stream.destroy(failure);
        if (head === null) {
          reject(failure);
        } else {
          finish(true);
        }
      },
    });
    call.signal?.addEventListener("abort", () => {
      sent.abort();
      stream.destroy();
      if (head === null) {
        reject(new Error("aborted"));
      } else {
        finish(true);
      }
    });
  });
  return answer.finally(() => client.close());
}

function toBody(body: FrameCall["body"], isChunked: boolean): BodySource | null {
  if (body === undefined) {
    return null;
  }
  const isStream = body instanceof Readable;
  const source = isStream ? body : Readable.from([Buffer.from(body)]);
  const length = isStream || isChunked ? null : Buffer.byteLength(body);
  if (length === 0) {
    return null;
  }
  return {
    length,
    start(sink: BodySink) {
      source.on("data", (chunk: Buffer | string) => {
        if (!sink.data(Buffer.from(chunk as string))) {
          source.pause();
        }
      });
      source.on("end", () => sink.end([]));
      source.on("error", (error) => sink.fail(error));
    },
    resume: () => void source.resume(),
    cancel: () => void source.destroy(),
  };
}

/** As Node shows them: repeats joined, cookies as a list. */
function toHeaders(fields: readonly string[]): IncomingHttpHeaders {
  const headers: Record<string, string | string[]> = {};
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const name = fields[i]!.toLowerCase();
    const value = fields[i + 1]!;
    const before = headers[name];
    if (name === "set-cookie") {
      headers[name] = [...((before ?? []) as string[]), value];
    } else {
      headers[name] = before === undefined ? value : `${String(before)}, ${value}`;
    }
  }
  return headers as IncomingHttpHeaders;
}

/** The bytes of a worker's answer as it wrote them, latin1; what came within `ms`. */
export async function rawAnswer(
  at: { readonly path: string; readonly secret: string },
  envelope: Envelope,
  url: string,
  ms = 300,
): Promise<string> {
  const socket = connect(at.path);
  let received = "";
  const reader = new FrameReader((type, _call, payload) => {
    received += type === FRAME.answer ? payload.toString("latin1") : "";
  });
  socket.on("data", (chunk: Buffer) => reader.push(chunk, chunk.length));
  const writer = new FrameWriter(socket, systemClock);
  writer.text(FRAME.hello, 0, at.secret);
  writer.text(FRAME.call, 1, encodeCall(envelope, "GET", url, ["Host", "x"], undefined, false));
  await sleep(ms);
  socket.destroy();
  return received;
}
