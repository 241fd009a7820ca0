import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";
import { observeBoth, type Answerer, type Observed, type ParityCase } from "./order-parity.ts";
import type { TestWorker } from "./start-worker.ts";

/**
 * A name, whether the edge forwards the request itself when it may (null: nothing reaches the service; undefined: it may do
 * either), and what happens.
 */
export type Row = readonly [name: string, isOrdered: boolean | null | undefined, given: ParityCase];

/** Runs a row both ways; nothing that could be noticed may differ. */
export async function compareBoth(
  worker: TestWorker,
  [, isOrdered, given]: Row,
  shown = (seen: Observed): Observed => seen,
): Promise<void> {
  const { withOrders, without, ordered } = await observeBoth(worker, given);
  if (isOrdered !== undefined) {
    expect(new Set(ordered)).toEqual(new Set(isOrdered === null ? [] : [isOrdered]));
  }
  expect(shown(withOrders)).toEqual(shown(without));
}

/** Without the order of log lines. */
export function inAnyOrder(seen: Observed): Observed {
  return { ...seen, logged: seen.logged.toSorted() };
}

/** Pieces of scripts. */
export const FORWARD = "await tell(hook.forward(req, res));";
export const BESIDE = "tell(hook.forward(req, res));";
export const LOOK = `look("before"); ${FORWARD} look("after"); await sleep(20); look("later");`;

/** Services. */
export const late =
  (ms: number): Answerer =>
  (_req, res) =>
    void setTimeout(() => {
      res.writeHead(200, { "x-up": "1", "content-length": 4 });
      res.end("late");
    }, ms);
export const pieces =
  (count: number, ms: number): Answerer =>
  async (_req, res) => {
    res.writeHead(200);
    for (let at = 0; at < count && !res.destroyed; at++) {
      res.write(`piece ${at}\n`);
      await sleep(ms);
    }
    res.end();
  };
export const head =
  (status: number, fields: Record<string, string | number> | string[], body = ""): Answerer =>
  (_req, res) => {
    res.writeHead(status, fields);
    res.end(body);
  };
export const raw =
  (text: string): Answerer =>
  (req) =>
    void req.socket.end(Buffer.from(text, "latin1"));
export const afterUpload: Answerer = (req, res) => void req.on("end", () => res.end("done"));
export const big = Buffer.alloc(5 * 1024 * 1024, "0123456789");
/** Requests. */
export const upload = { method: "POST", headers: ["Content-Length", "9"], body: "123456789" };
export const rawUpload = { ...upload, directives: "// @rawBody", answer: afterUpload };
export const fields = ["X-A", "1", "Cookie", "c=1", "X-B", "2", "x-a", "3", "X-Empty", ""];
