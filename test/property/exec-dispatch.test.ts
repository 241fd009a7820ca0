import fc from "fast-check";
import { expect, test } from "vitest";
import type { Audit } from "../../dispatcher/audit.ts";
import { createDispatcher } from "../../dispatcher/dispatch.ts";
import { DISPATCH_OUTCOMES, type ExecEndpoint } from "../../dispatcher/envelope.ts";
import type { ExecHostClient } from "../../dispatcher/exec-call.ts";
import type { Exchange } from "../../policy/kernel/exchange.ts";
import {
  UpstreamFailure,
  type AnswerHandler,
  type UpstreamFailureKind,
} from "../../policy/kernel/http1/types.ts";
import { silentLog } from "../../policy/kernel/log.ts";
import { createMetrics } from "../../policy/kernel/metrics.ts";
import { fakeClock } from "../support/auth-clock.ts";
import { hookRule } from "../support/exec-edge.ts";

/** One thing a host, the client or the clock does. */
type Step =
  | { readonly kind: "head"; readonly status: number; readonly outcome: string | null }
  | { readonly kind: "data" }
  | { readonly kind: "end" }
  | { readonly kind: "fail"; readonly failure: UpstreamFailureKind }
  | { readonly kind: "leave" }
  | { readonly kind: "wait"; readonly ms: number };

const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({
    kind: fc.constant("head" as const),
    status: fc.constantFrom(200, 204, 304, 403, 404, 500, 502, 504),
    outcome: fc.option(
      fc.oneof(fc.constantFrom(...DISPATCH_OUTCOMES), fc.string({ maxLength: 10 })),
    ),
  }),
  fc.record({ kind: fc.constant("data" as const) }),
  fc.record({ kind: fc.constant("end" as const) }),
  fc.record({
    kind: fc.constant("fail" as const),
    failure: fc.constantFrom("connect", "reset", "timeout", "protocol", "body" as const),
  }),
  fc.record({ kind: fc.constant("leave" as const) }),
  fc.record({ kind: fc.constant("wait" as const), ms: fc.integer({ min: 1, max: 400 }) }),
);

/** What the client of the edge has seen; throws on a second head or bytes after the end. */
function fakeExchange() {
  const seen = { heads: [] as number[], ended: false, aborted: false, codes: [] as string[] };
  const listeners: (() => void)[] = [];
  let isGone = false;
  const exchange = {
    head: { method: "GET", target: "/x", version: "1.1", fields: [] },
    peer: { address: "192.0.2.1", port: 1, encrypted: false },
    body: null,
    handshake: false,
    get answered() {
      return seen.heads.length > 0;
    },
    onGone: (listener) => (isGone ? listener() : void listeners.push(listener)),
    sendContinue() {},
    sendInterim() {},
    answer(head, body) {
      seen.heads.push(head.status);
      seen.codes.push((JSON.parse(body.toString()) as { code: string }).code);
      seen.ended = true;
    },
    startAnswer(head) {
      seen.heads.push(head.status);
      expect(head.fields.join().toLowerCase()).not.toContain("x-hoody-hook-outcome");
      return {
        data() {
          expect(seen.ended || seen.aborted).toBe(false);
          return true;
        },
        end: () => void (seen.ended = true),
        fail: () => void (seen.aborted = true),
        onDrain() {},
      };
    },
    tunnel() {
      throw new TypeError("no tunnel");
    },
    abort: () => void (seen.aborted = true),
  } satisfies Exchange;
  return {
    exchange,
    seen,
    leave: (): void => {
      isGone = true;
      for (const listener of listeners.splice(0)) {
        listener();
      }
    },
  };
}

const ENDPOINT: ExecEndpoint = {
  origin: { kind: "unix", path: "/nowhere" },
  secret: "s",
  generation: 1,
};

test("dispatch() always ends, with one head at most, and never without a trace", async () => {
  const cell = fc.array(step, { maxLength: 8 });
  await fc.assert(
    fc.asyncProperty(cell, fc.boolean(), async (steps, startsLate) => {
      const clock = fakeClock();
      const finished: unknown[][] = [];
      const audit: Audit = {
        begin: (start) => ({ id: "11111111-1111-4111-8111-111111111111", start, at: 0 }),
        finish: (...args) => void finished.push(args),
        flush: () => Promise.resolve(),
      };
      let handler: AnswerHandler | null = null;
      let isOver = false;
      const client: ExecHostClient = {
        send(_, given) {
          handler = given;
          isOver = false;
          return { resume() {}, abort: () => void (isOver = true) };
        },
        close() {},
      };
      const { exchange, seen, leave } = fakeExchange();
      const dispatcher = createDispatcher({
        targets: {
          endpoint: () => (startsLate ? Promise.resolve(ENDPOINT) : ENDPOINT),
          reportSuspect() {},
          isGone: () => false,
          takeEnded: () => undefined,
        },
        client,
        orders: null,
        audit,
        clock,
        metrics: createMetrics(),
        log: silentLog(),
      });
      const ended = dispatcher.dispatch({
        exchange,
        fields: [],
        target: "/x",
        path: "/x",
        clientAddress: "192.0.2.1",
        project: "p",
        container: "c",
        service: "files",
        upstreamHost: "127.0.0.1",
        upstreamPort: 1,
        rule: hookRule({}, 500),
        matchedGroups: [],
      });
      let hasHead = false;
      let isBodyless = false;
      for (const action of steps) {
        for (let i = 0; i < 8; i++) {
          await Promise.resolve(); // lets a retry happen
        }
        const on = handler as AnswerHandler | null;
        if (action.kind === "leave") {
          leave();
        } else if (action.kind === "wait") {
          clock.advance(action.ms);
        } else if (on !== null && !isOver) {
          // A client keeps to its contract: one head, data after it, one end.
          if (action.kind === "head" && !hasHead) {
            hasHead = true;
            isBodyless = action.status === 204 || action.status === 304;
            const fields = action.outcome === null ? [] : ["X-Hoody-Hook-Outcome", action.outcome];
            on.head({ status: action.status, reason: "", fields }, null, isBodyless);
          } else if (action.kind === "data" && hasHead && !isBodyless) {
            on.data(Buffer.from("x"));
          } else if (action.kind === "end" && hasHead) {
            isOver = true;
            on.end([]);
          } else if (action.kind === "fail") {
            isOver = true;
            hasHead = false;
            on.fail(new UpstreamFailure(action.failure, "made up"));
          }
        }
      }
      let outcome: Awaited<typeof ended> | null = null;
      void ended.then((value) => (outcome = value));
      for (let i = 0; i < 40 && outcome === null; i++) {
        clock.advance(50); // the deadline comes for whatever is left open
        await new Promise((resolve) => setImmediate(resolve));
      }
      const result = await ended;
      expect(DISPATCH_OUTCOMES).toContain(result.outcome);
      expect(seen.heads.length).toBeLessThanOrEqual(1);
      expect(finished).toHaveLength(1);
      const { outcome: word, status } = result;
      expect(finished[0]).toMatchObject([{ id: result.auditId }, { outcome: word, status }]);
      const isClientGone = result.outcome === "client_gone";
      expect(seen.ended || seen.aborted || isClientGone).toBe(true);
      if (result.code !== null) {
        expect(seen.heads).toEqual([result.status]);
        expect(seen.codes).toEqual([result.code]);
      }
    }),
    { numRuns: 300 },
  );
});

test("dispatch() answers 504 at the rule's deadline and its margin, by the clock", async () => {
  const clock = fakeClock();
  const { exchange, seen } = fakeExchange();
  const dispatcher = createDispatcher({
    targets: {
      endpoint: () => ENDPOINT,
      reportSuspect() {},
      isGone: () => false,
      takeEnded: () => undefined,
    },
    client: { send: () => ({ resume() {}, abort() {} }), close() {} },
    orders: null,
    audit: { begin: () => null, finish() {}, flush: () => Promise.resolve() },
    clock,
    metrics: createMetrics(),
    log: silentLog(),
  });
  const ended = dispatcher.dispatch({
    exchange,
    fields: [],
    target: "/",
    path: "/",
    clientAddress: "192.0.2.1",
    project: "p",
    container: "c",
    service: "files",
    upstreamHost: "127.0.0.1",
    upstreamPort: 1,
    rule: hookRule({}, 500),
    matchedGroups: [],
  });
  clock.advance(500);
  expect(seen.heads).toEqual([]); // the host's own deadline comes first
  clock.advance(50);
  expect(await ended).toMatchObject({ outcome: "timed_out", status: 504, code: "HOOK_TIMEOUT" });
  expect(seen.heads).toEqual([504]);
});
