import type { ServerResponse } from "node:http";
import { onTestFinished, test } from "vitest";
import type { Clock } from "../../policy/kernel/clock.ts";
import { foregroundClock } from "../../policy/kernel/clock.ts";
import { appendRows } from "../support/audit-rows.ts";
import { runCli, startCli } from "../support/cli-run.ts";
import { startEcho } from "../support/client-echo.ts";
import { CONTAINER, PROJECT, TOKEN } from "../support/policy-api.ts";

/** A server that has an audit (contract.md 3, decision 40) whose streams the test can cut. */
async function startAudit() {
  const records: Record<string, unknown>[] = []; // oldest first
  const streams = new Set<ServerResponse>();
  const state = { broken: false };
  let connected = Promise.withResolvers<void>();
  const echo = await startEcho((request, response) => {
    const url = new URL(request.url ?? "", "http://x");
    if (state.broken) {
      response.writeHead(503, { "content-type": "application/json" }).end('{"message":"not now"}');
      return;
    }
    if (url.pathname.endsWith("/stream")) {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(": connected\n\n");
      streams.add(response);
      response.on("close", () => streams.delete(response));
      connected.resolve();
      return;
    }
    const limit = Number(url.searchParams.get("limit"));
    const after = url.searchParams.get("after");
    const newest = records.toReversed();
    const from = after === null ? 0 : newest.findIndex((one) => one["audit_id"] === after) + 1;
    const page = newest.slice(from, from + limit);
    const next = from + limit < newest.length ? page.at(-1)?.["audit_id"] : null;
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify({ statusCode: 200, message: "ok", data: { records: page, next } }));
  });
  return {
    ...echo,
    state,
    add(id: string, members: Record<string, unknown> = {}) {
      const record = {
        audit_id: id,
        ts: "2026-11-30T10:00:00.000Z",
        project: "p",
        container: CONTAINER,
        service: "terminal",
        hook_id: "01k5x0q8w3zr7v2m9n4p6t1a0b",
        method: "POST",
        path: `/${id}`,
        client_ip: "203.0.113.7",
        matched_groups: [],
        script: "myapp/obs:/login-audit",
        outcome: "answered",
        status: 200,
        duration_ms: 12.345,
        ...members,
      };
      records.push(record);
      return record;
    },
    send(record: Record<string, unknown>) {
      for (const stream of streams) {
        stream.write(`id: ${String(record["audit_id"])}\ndata: ${JSON.stringify(record)}\n\n`);
      }
    },
    cut() {
      connected = Promise.withResolvers();
      for (const stream of streams) {
        stream.destroy();
      }
    },
    connected: () => connected.promise,
  };
}

/** Starts a tail and collects its lines; `until` waits for one that contains the text. */
function startTail(baseURL: string, args: readonly string[] = [], clock: Clock = foregroundClock) {
  const controller = new AbortController();
  let text = "";
  const waiting: { text: string; resolve: () => void }[] = [];
  const done = runCli(["tail", "-c", CONTAINER, "--base-url", baseURL, ...args], {
    signal: controller.signal,
    clock,
    onOutput: (piece) => {
      text += piece;
      for (const wait of waiting) {
        if (text.includes(wait.text)) {
          wait.resolve();
        }
      }
    },
  });
  onTestFinished(async () => {
    controller.abort();
    await done;
  });
  return {
    done,
    output: () => text,
    until: (wanted: string) =>
      text.includes(wanted)
        ? Promise.resolve()
        : new Promise<void>((resolve) => waiting.push({ text: wanted, resolve })),
    stop: async () => {
      controller.abort();
      return done;
    },
  };
}

/** Real time, but waits are short. */
const hasty: Clock = {
  ...foregroundClock,
  after: (ms, task) => foregroundClock.after(ms > 20_000 ? ms : Math.min(ms, 20), task),
};

test("tail shows the last records, then live ones, one line each", async ({ expect }) => {
  const audit = await startAudit();
  for (const id of ["a1", "a2"]) {
    audit.add(id);
  }
  audit.add("a3", { upstream_ms: 10 });
  const tail = startTail(audit.baseURL, ["-n", "2"]);
  await tail.until("/a3");
  audit.send(audit.add("a4", { outcome: "timed_out", status: 504, path: "/x\u001b[2J" }));
  await tail.until("a4");
  const result = await tail.stop();
  expect(result.code).toBe(0);
  expect(result.stdout.trimEnd().split("\n")).toEqual([
    "2026-11-30T10:00:00.000Z  answered  200  12.3ms  POST /a2  terminal  rule=01k5x0q8w3zr7v2m9n4p6t1a0b  script=myapp/obs:/login-audit  from=203.0.113.7  audit=a2",
    "2026-11-30T10:00:00.000Z  answered  200  12.3ms  script-time=2.3ms  upstream-time=10ms  POST /a3  terminal  rule=01k5x0q8w3zr7v2m9n4p6t1a0b  script=myapp/obs:/login-audit  from=203.0.113.7  audit=a3",
    "2026-11-30T10:00:00.000Z  timed_out  504  12.3ms  POST /x\\x1b[2J  terminal  rule=01k5x0q8w3zr7v2m9n4p6t1a0b  script=myapp/obs:/login-audit  from=203.0.113.7  audit=a4",
  ]);
});

test("tail connects again and shows what it missed, each record once", async ({ expect }) => {
  const audit = await startAudit();
  audit.add("a1");
  const tail = startTail(audit.baseURL, ["-o", "json"], hasty);
  await tail.until("/a1");
  audit.send(audit.add("a2"));
  await tail.until("/a2");

  audit.state.broken = true;
  audit.cut();
  for (let id = 3; id <= 250; id++) {
    audit.add(`a${id}`);
  }
  await new Promise((later) => setTimeout(later, 100)); // some tries fail meanwhile
  audit.state.broken = false;
  await audit.connected();
  await tail.until('"/a250"');
  audit.send(audit.add("a251"));
  await tail.until('"/a251"');
  const result = await tail.stop();
  const ids = result.stdout
    .trimEnd()
    .split("\n")
    .map((line) => (JSON.parse(line) as { audit_id: string }).audit_id);
  expect(ids).toEqual(Array.from({ length: 251 }, (_, at) => `a${at + 1}`));
  expect(result.stderr).toContain("connected again");
});

test("tail --no-follow shows the last records and ends", async ({ expect }) => {
  const audit = await startAudit();
  for (let id = 1; id <= 130; id++) {
    audit.add(`a${id}`);
  }
  const args = ["tail", "-c", CONTAINER, "--base-url", audit.baseURL, "--no-follow"];
  const ten = await runCli(args);
  expect(ten).toMatchObject({ code: 0, stderr: "" });
  expect(ten.stdout.trimEnd().split("\n")).toHaveLength(10);
  const many = await runCli([...args, "--lines", "120", "-o", "json"]);
  expect(many.stdout.trimEnd().split("\n")).toHaveLength(120);
  expect(await runCli([...args, "-n", "0"])).toMatchObject({ code: 0, stdout: "" });
  for (const n of ["-1", "1001", "x"]) {
    expect(await runCli([...args, `--lines=${n}`])).toMatchObject({ code: 2, stdout: "" });
  }
});

test("tail gives up at once on what waiting does not mend", async ({ expect }) => {
  const { baseURL } = await startEcho((_request, response) =>
    response
      .writeHead(401, { "content-type": "application/json" })
      .end('{"message":"a token is needed"}'),
  );
  const result = await runCli(["tail", "-c", CONTAINER, "--base-url", baseURL]);
  expect(result.code).toBe(1);
  expect(result.stderr).toMatch(/^Error \[401\] GET .*: a token is needed\n$/);
});

test("tail takes a stream that stops its heartbeats for dead", async ({ expect }) => {
  const audit = await startAudit();
  const silences: (() => void)[] = [];
  const clock: Clock = {
    ...foregroundClock,
    after: (ms, task) => {
      if (ms < 20_000) {
        return foregroundClock.after(1, task);
      }
      silences.push(task);
      return { cancel: () => {} };
    },
  };
  audit.add("a1");
  const tail = startTail(audit.baseURL, [], clock);
  await tail.until("/a1");
  audit.add("a2"); // never sent on the stream
  await expect.poll(() => silences.length, { timeout: 10_000 }).toBeGreaterThan(0);
  silences.at(-1)?.();
  await tail.until("/a2");
  const { stderr } = await tail.stop();
  expect(stderr).toContain("the stream fell silent");
});

test("tail follows the control API's own audit", async ({ expect }) => {
  const { audit, baseURL } = await startCli();
  const record = (at: number) => ({
    audit_id: `00000000-0000-4000-8000-${String(at).padStart(12, "0")}`,
    ts: new Date(1_800_000_000_000 + at).toISOString(),
    project: PROJECT,
    container: CONTAINER,
    service: "terminal",
    hook_id: "01k5x0q8w3zr7v2m9n4p6t1a0b",
    method: "POST",
    path: `/n${at}`,
    client_ip: "127.0.0.1",
    matched_groups: [],
    script: "/gate",
    outcome: "forwarded",
    status: 200,
    duration_ms: 3,
  });
  await appendRows(audit, [record(1), record(2)]);
  const tail = startTail(baseURL, ["--token", TOKEN, "-o", "json"]);
  await tail.until("/n2");
  await appendRows(audit, [record(3)]);
  await tail.until("/n3");
  const { stdout, code } = await tail.stop();
  expect(code).toBe(0);
  expect(
    stdout
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line) as unknown),
  ).toEqual([record(1), record(2), record(3)]);
});
