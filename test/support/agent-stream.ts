import { request } from "node:http";
import type { IncomingMessage } from "node:http";
import { onTestFinished } from "vitest";
import { edgeAuthField } from "../../exec-host/agent/edge-auth.ts";
import type { JsonObject } from "../../exec-host/agent/seams.ts";
import { SECRET } from "./agent-gateway.ts";

/** One frame of an event stream. */
export interface TestFrame {
  readonly event: string;
  readonly id: string | null;
  readonly data: JsonObject;
}

/** An open event stream. */
export interface TestStream {
  readonly status: number;
  readonly headers: IncomingMessage["headers"];
  readonly frames: TestFrame[];
  /** Waits for a frame with this event name; rejects when the stream ends first. */
  next(event: string): Promise<TestFrame>;
  /** Resolves when the stream is over. */
  readonly ended: Promise<void>;
  close(): void;
}

/** Opens an event stream and reads it until it or the test ends. */
export function openStream(
  port: number,
  method: string,
  target: string,
  body?: unknown,
  headers: Record<string, string> = {},
): Promise<TestStream> {
  return new Promise((resolve, reject) => {
    const sent = request(
      {
        port,
        host: "127.0.0.1",
        method,
        path: target,
        agent: false,
        headers: {
          "content-type": "application/json",
          "x-hoody-edge-auth": edgeAuthField(SECRET, method, target, Date.now()),
          ...headers,
        },
      },
      (response) => {
        const frames: TestFrame[] = [];
        const waiting: {
          event: string;
          resolve: (frame: TestFrame) => void;
          reject: (error: Error) => void;
        }[] = [];
        let rest = "";
        let over = false;
        const ended = new Promise<void>((done) => {
          response.once("close", () => {
            over = true;
            for (const one of waiting) {
              one.reject(new Error(`the stream ended before ${one.event}`));
            }
            done();
          });
        });
        response.setEncoding("utf8").on("data", (chunk: string) => {
          const parts = (rest + chunk).split("\n\n");
          rest = parts.pop() ?? "";
          for (const part of parts) {
            const frame = toFrame(part);
            if (frame !== null) {
              frames.push(frame);
              const at = waiting.findIndex((one) => one.event === frame.event);
              if (at !== -1) {
                waiting.splice(at, 1)[0]?.resolve(frame);
              }
            }
          }
        });
        response.on("error", () => {});
        onTestFinished(() => void sent.destroy());
        resolve({
          status: response.statusCode ?? 0,
          headers: response.headers,
          frames,
          ended,
          close: () => void sent.destroy(),
          next: (event) => {
            const known = frames.find((frame) => frame.event === event);
            if (known !== undefined) {
              return Promise.resolve(known);
            }
            return over
              ? Promise.reject(new Error(`the stream ended before ${event}`))
              : new Promise((found, failed) =>
                  waiting.push({ event, resolve: found, reject: failed }),
                );
          },
        });
      },
    );
    sent.once("error", reject);
    sent.end(body === undefined ? undefined : JSON.stringify(body));
  });
}

function toFrame(part: string): TestFrame | null {
  const field = (name: string): string | null =>
    new RegExp(`^${name}: (.*)$`, "m").exec(part)?.[1] ?? null;
  const event = field("event");
  const data = field("data");
  return event === null || data === null
    ? null
    : { event, id: field("id"), data: JSON.parse(data) as JsonObject };
}
