import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { HookEnvelope } from "../../dispatcher/envelope.ts";
import { rawAnswer } from "../support/frame-call.ts";
import { startUpstream, type TestUpstream } from "../support/start-upstream.ts";
import { startWorker, WORKER_SECRET, type TestWorker } from "../support/start-worker.ts";

let worker: TestWorker;

beforeAll(async () => {
  worker = await startWorker();
});
afterAll(async () => {
  await worker.stop();
});

const SIZE = 100 * 1024 * 1024;

async function run(text: string, call = {}, envelope = {}) {
  await worker.write("default/1/fault.js", text);
  return worker.hook("/fault", call, envelope);
}

function residentMiB(): number {
  const pages = Number(readFileSync(`/proc/${worker.pid}/statm`, "latin1").split(" ")[1]);
  return (pages * 4096) / 1_048_576;
}

/** Bytes of a fixed pattern, made as they are read. */
function* pattern(size: number): Generator<Buffer> {
  const block = Buffer.alloc(65_536);
  for (let i = 0; i < block.length; i++) {
    block[i] = (i * 31) & 0xff;
  }
  for (let left = size, round = 0; left > 0; left -= block.length, round++) {
    block.writeUInt32LE(round);
    yield Buffer.from(block.subarray(0, Math.min(left, block.length)));
  }
}

function patternHash(size: number): string {
  const hash = createHash("sha256");
  for (const chunk of pattern(size)) {
    hash.update(chunk);
  }
  return hash.digest("hex");
}

describe("an answer that cannot be sent", () => {
  test.each([
    ["a name that is no token", "res.setHeader('bad name', 'x'); res.end('x');"],
    ["a value with a line break", "res.writeHead(200, { 'x-a': 'b\\r\\nc: d' }); res.end('x');"],
    ["a value above one byte", "res.setHeader('x-a', '\\u20ac'); res.end('x');"],
    ["a status below 200", "res.writeHead(99); res.end('x');"],
    ["an interim status", "res.writeHead(101); res.end('x');"],
    ["an interim statusCode", "res.statusCode = 100; res.end('x');"],
    ["a status above 999", "res.statusCode = 1000; res.end('x');"],
    ["a status that is no number", "res.writeHead('abc'); res.end('x');"],
    ["a reason with a line break", "res.writeHead(200, 'a\\r\\nb'); res.end('x');"],
    ["a length that is too small", "res.writeHead(200, { 'content-length': 2 }); res.end('four');"],
    ["a length that is too large", "res.setHeader('content-length', 9); res.end('four');"],
    ["a status of a Response that is none", "return Response.error();"],
    [
      "a head and then an error",
      "res.writeHead(200, { 'x-a': 'b' }); throw new Error('after the head');",
    ],
  ])("for %s is a 500 for that request alone", async (_name, body) => {
    const answer = await run(`module.exports = async (req, res) => { ${body} };`);
    expect(answer.status).toBe(500);
    expect(JSON.parse(answer.text)).toMatchObject({ code: "HOOK_SCRIPT_ERROR" });
    expect(answer.headers["x-a"]).toBeUndefined();
    expect((await run("return 'fine';")).text).toBe("fine");
  });

  test("leaves a kept-alive connection in step", async () => {
    await worker.write(
      "default/1/mixed.js",
      `const ways = [
  (res) => { res.writeHead(200, { 'content-length': 2 }); res.write('four'); res.end(); },
  (res) => { res.writeHead(200, { 'Transfer-Encoding': 'identity', 'x-w': '1' }); res.end('HTTP/1.1 200 OK\\r\\n\\r\\nsmuggled'); },
  (res) => { res.writeHead(204, { 'content-length': 5 }); res.end('abcde'); },
  (res) => { res.writeHead(304, { 'content-length': 5 }); res.end('abcde'); },
  (res) => { res.setHeader('Connection', 'upgrade'); res.setHeader('Upgrade', 'x'); res.end('plain'); },
];
module.exports = (req, res, metadata) => ways[Number(metadata.hook.origPath.slice(1))](res);`,
    );
    const envelope: HookEnvelope = {
      kind: "hook",
      auditId: "none",
      method: "GET",
      path: "/",
      service: "terminal",
      upstreamHost: "127.0.0.1",
      upstreamPort: 9,
      subdomain: null,
      execId: null,
      scriptPath: "/mixed",
      timeoutMs: 3000,
      clientAddress: "203.0.113.7",
    };
    const at = { path: worker.socketPath, secret: WORKER_SECRET };
    for (let way = 0; way < 5; way++) {
      const text = await rawAnswer(at, { ...envelope, path: `/${way}` }, "/");
      const [headText = "", ...rest] = text.split("\r\n\r\n");
      const body = rest.join("\r\n\r\n");
      const length = /^content-length: (\d+)$/im.exec(headText)?.[1];
      const status = Number(headText.split(" ")[1]);
      expect(headText.match(/^transfer-encoding:/gim) ?? []).toHaveLength(
        length === undefined && status === 200 ? 1 : 0,
      );
      expect(headText).not.toMatch(/^upgrade:/im);
      if (status === 204 || status === 304) {
        expect(body).toBe("");
      } else if (length !== undefined) {
        expect(body.length).toBe(Number(length));
      }
    }
  });
});

describe("a script that never comes to an end", () => {
  test("is a 504 when it never settles", async () => {
    expect(
      (await run("module.exports = () => new Promise(() => {});", {}, { timeoutMs: 100 })).status,
    ).toBe(504);
    expect(
      (
        await run(
          "module.exports = (req, res) => { res.writeHead(200); return new Promise(() => {}); };",
          {},
          { timeoutMs: 100 },
        )
      ).status,
    ).toBe(504);
  });

  test("is cut at the deadline when its body never ends", async () => {
    const answer = await run(
      "module.exports = async (req, res) => { for (;;) { res.write('x'.repeat(1000)); await new Promise((r) => setTimeout(r, 5)); } };",
      {},
      { timeoutMs: 200 },
    );
    expect(answer).toMatchObject({ status: 200, isCut: true });
    expect((await run("return 'fine';")).text).toBe("fine");
  });

  test("is a 504 when the client's body never ends", async () => {
    const endless = new Readable({ read() {} });
    endless.push("begin");
    const answer = await run(
      "return 'never run';",
      { method: "POST", body: endless },
      { timeoutMs: 200 },
    );
    expect(answer.status).toBe(504);
    endless.destroy();
  });
});

describe("a version that is replaced", () => {
  test("in mid-request is finished by the code it started with", async () => {
    await worker.write(
      "default/1/swap.js",
      "const version = 'old'; module.exports = async (req, res) => { await new Promise((r) => setTimeout(r, 300)); return version; };",
    );
    const running = worker.hook("/swap");
    await sleep(100);
    await worker.write("default/1/swap.js", "module.exports = () => 'new';");
    expect((await worker.hook("/swap")).text).toBe("new");
    expect((await running).text).toBe("old");
  });
});

describe("hostile code", () => {
  test.each([
    ["null", "throw null;"],
    [
      "an error whose stack throws",
      "throw Object.defineProperty(new Error('x'), 'stack', { get() { throw 1; } });",
    ],
    ["a proxy", "throw new Proxy({}, { get() { throw 1; }, getPrototypeOf() { throw 1; } });"],
    ["an endless chain of causes", "const e = new Error('loop'); e.cause = e; throw e;"],
    ["from a thenable", "return { then(ok, fail) { fail(new Error('thenable')); } };"],
    ["a stack overflow", "const f = () => f(); f();"],
  ])("may throw %s", async (_name, text) => {
    expect((await run(text)).status).toBe(500);
  });

  test("cannot silence the host by taking its listeners away", async () => {
    await run(
      "process.removeAllListeners(); setTimeout(() => { throw new Error('t'); }, 5); Promise.reject(new Error('r')); return 'x';",
    );
    await sleep(100);
    expect(worker.isRunning()).toBe(true);
    expect((await run("return 'fine';")).text).toBe("fine");
  });

  test("cannot signal other processes, read outside its folders, or start programs", async () => {
    const answer = await run(`
const tries = {
  kill: () => process.kill(process.ppid, 0),
  debug: () => process._debugProcess(process.ppid),
  read: () => require('fs').readFileSync('/etc/hostname'),
  write: () => require('fs').writeFileSync(${JSON.stringify(`${"../scripts"}/default/1/x.js`)}, 'x'),
  spawn: () => require('child_process').execSync('true'),
  thread: () => new (require('worker_threads').Worker)('1', { eval: true }),
  binding: () => process.binding('spawn_sync'),
  channel: () => { require('fs').writeSync(3, 'x'); return 'written'; },
};
const out = {};
for (const [name, attempt] of Object.entries(tries)) { try { attempt(); out[name] = 'open'; } catch (e) { out[name] = e.code; } }
return out;`);
    const got = JSON.parse(answer.text) as Record<string, string>;
    for (const name of ["kill", "debug", "read", "write", "spawn", "thread", "binding"]) {
      expect([name, got[name]]).toEqual([name, "ERR_ACCESS_DENIED"]);
    }
  });

  test("that floods the log loses lines and is told how many", async () => {
    const before = worker.logs.length;
    const answer = await run(
      "for (let i = 0; i < 20000; i++) console.log('line ' + i + ' ' + 'x'.repeat(50)); return 'done';",
    );
    expect(answer.text).toBe("done");
    await sleep(300);
    expect(worker.logs.length - before).toBeLessThanOrEqual(4100);
    expect(worker.droppedLines()).toBeGreaterThan(10_000);
  });

  test("that replaces methods of its response harms only its own answer", async () => {
    const answer = await run(
      "module.exports = (req, res) => { res.end = res.write = res.writeHead = res.setHeader = () => { throw new Error('mine'); }; throw new Error('x'); };",
    );
    expect(answer.status).toBe(500);
    expect(answer.text).toContain("HOOK_SCRIPT_ERROR");
  });
});

describe("a script that ends or blocks its process", () => {
  test("has its last lines in the log, with what ended it", async () => {
    const own = await startWorker();
    try {
      await own.write("default/1/exit.js", "console.log('about to go'); process.exit(3);");
      await own.hook("/exit").catch(() => {});
      await own.untilLogged((line) => line.msg === "about to go");
      const line = await own.untilLogged((entry) => entry.msg.startsWith("process.exit()"));
      expect(line).toMatchObject({ script: "default/1/exit.js", level: "error" });
      await expect.poll(() => own.isRunning(), { timeout: 5000 }).toBe(false);
    } finally {
      await own.stop();
    }
  });

  test("has said its first line before it blocks", async () => {
    const own = await startWorker();
    try {
      await own.write("default/1/block.js", "console.log('blocking now'); for (;;) {}");
      const answer = own.hook("/block").catch(() => {});
      await own.untilLogged((line) => line.msg === "blocking now");
      await own.stop();
      await answer;
    } finally {
      await own.stop();
    }
  });
});

describe("100 MiB", () => {
  let service: TestUpstream;
  let expected = "";
  beforeAll(async () => {
    expected = patternHash(SIZE);
    service = await startUpstream(
      (req, res) => {
        if (req.method === "GET") {
          res.writeHead(200, { "content-length": SIZE });
          Readable.from(pattern(SIZE)).pipe(res);
          return;
        }
        const hash = createHash("sha256");
        req.on("data", (chunk: Buffer) => hash.update(chunk));
        req.on("end", () => {
          res.end(hash.digest("hex"));
        });
      },
      { streamed: true },
    );
  });
  afterAll(async () => {
    await service.stop();
  });

  test.each([
    ["forward()", "await metadata.hook.forward(req, res);"],
    [
      "fetchUpstream() and pipeResponse()",
      "await metadata.hook.pipeResponse(await metadata.hook.fetchUpstream(req), res);",
    ],
  ])(
    "go up through @rawBody and %s in constant memory",
    async (_name, body) => {
      const before = residentMiB();
      let peak = before;
      const watch = setInterval(() => (peak = Math.max(peak, residentMiB())), 20);
      const answer = await run(
        `// @rawBody\n${body}`,
        {
          method: "POST",
          headers: ["Content-Length", String(SIZE)],
          body: Readable.from(pattern(SIZE)),
        },
        { upstreamPort: service.port, timeoutMs: 30_000 },
      );
      clearInterval(watch);
      expect(answer.text).toBe(expected);
      expect(peak - before).toBeLessThan(70);
    },
    60_000,
  );

  test.each([
    ["forward()", "await metadata.hook.forward(req, res);"],
    [
      "pipeResponse()",
      "await metadata.hook.pipeResponse(await metadata.hook.fetchUpstream(req), res);",
    ],
    ["a returned Response", "return await metadata.hook.fetchUpstream(req);"],
    [
      "the script's fetch",
      "return await fetch(`http://127.0.0.1:${metadata.hook.upstream.port}/`);",
    ],
  ])(
    "come down through %s to a slow reader in constant memory",
    async (_name, body) => {
      const before = residentMiB();
      let peak = before;
      const watch = setInterval(() => (peak = Math.max(peak, residentMiB())), 20);
      const hash = createHash("sha256");
      const answer = await run(
        body,
        {
          onResponse: (response: Readable) => {
            response.on("data", (chunk: Buffer) => hash.update(chunk));
            response.pause();
            setTimeout(() => response.resume(), 500);
          },
        },
        { upstreamPort: service.port, timeoutMs: 30_000 },
      );
      clearInterval(watch);
      expect(answer.body.length).toBe(SIZE);
      expect(hash.digest("hex")).toBe(expected);
      expect(peak - before).toBeLessThan(70);
    },
    60_000,
  );

  test("is not kept when the service answers before the upload is over", async () => {
    const early = await startUpstream(
      (req, res) => {
        res.writeHead(413);
        res.end("no");
        req.resume();
      },
      { streamed: true },
    );
    try {
      const answer = await run(
        "// @rawBody\nawait metadata.hook.forward(req, res);",
        {
          method: "POST",
          headers: ["Content-Length", String(SIZE)],
          body: Readable.from(pattern(SIZE)),
        },
        { upstreamPort: early.port, timeoutMs: 30_000 },
      );
      expect([answer.status, answer.text]).toEqual([413, "no"]);
    } finally {
      await early.stop();
    }
  }, 60_000);
});
