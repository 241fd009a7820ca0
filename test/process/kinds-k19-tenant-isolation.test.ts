import { expect, test } from "vitest";
import { ask } from "../support/ask.ts";
import { CONTAINER, OTHER, type TestEdge, TOKEN, startTestEdge } from "../support/edge.ts";
import { recordingUpstream } from "../support/recording-upstream.ts";

/** K19: a tenant's script harms its own requests, is stopped from outside its thread, and finds nothing of others. */

async function twoTenants(): Promise<{
  edge: TestEdge;
  run: (code: string, timeout?: number) => ReturnType<typeof ask>;
}> {
  const upstream = await recordingUpstream();
  const edge = await startTestEdge({ upstream: upstream.port, otherUpstream: upstream.port });
  const ping =
    "module.exports = (req, res) => res.json({ id: 'other', polluted: ({}).polluted ?? null, n: [].concat(1).length });";
  edge.script("ping.js", ping, OTHER);
  edge.script("ping.js", ping.replace("'other'", "'own'"));
  await edge.hook(
    "terminal",
    { match: { path: "/ping" }, script: { path: "/ping" }, timeout: 15_000 },
    OTHER,
  );
  await edge.hook("terminal", {
    match: { path: "/ping" },
    script: { path: "/ping" },
    timeout: 15_000,
  });
  let number = 0;
  await Promise.all(
    [undefined, OTHER].map((id) =>
      ask(edge.port, { host: edge.host("terminal-1", id), path: "/ping" }),
    ),
  );
  return {
    edge,
    run: async (code, timeout = 15_000) => {
      const name = `case${number++}`;
      edge.script(`${name}.js`, code);
      // One rule at a time: a service has eight at most.
      const list = `/api/v1/containers/${CONTAINER}/proxy/hooks/terminal`;
      const id = await edge.hook("terminal", {
        match: { path: `/${name}` },
        script: { path: `/${name}` },
        timeout,
      });
      const answer = await ask(edge.port, { host: edge.host("terminal-1"), path: `/${name}` });
      const etag = (await edge.api("GET", list)).etag ?? "";
      await edge.api("DELETE", `${list}/${id}`, undefined, etag);
      return answer;
    },
  };
}

/** Ways to keep a thread busy that no limit inside it could end. */
const BUSY: Record<string, string> = {
  "a loop behind an await": "module.exports = async () => { await null; for (;;); };",
  "endless microtasks": "module.exports = async () => { for (;;) await null; };",
  "a loop in a getter of the answer": "module.exports = () => ({ get x() { for (;;); } });",
  "a loop in an override's getter":
    "module.exports = (req, res, { hook }) => hook.forward(req, res, { get host() { for (;;); } });",
  "a loop while loading": "for (;;); module.exports = () => {};",
  "a slow expression": "module.exports = () => /^(a+)+$/.test('a'.repeat(60) + 'b');",
  "a wait on shared memory":
    "module.exports = () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);",
};

test("whatever keeps the thread busy, the client gets 504 on time and the other tenant notices nothing", async () => {
  const { edge, run } = await twoTenants();
  for (const [name, code] of Object.entries(BUSY)) {
    let slowest = 0;
    let done = false;
    const pings = (async () => {
      while (!done) {
        const ping = await ask(edge.port, { host: edge.host("terminal-1", OTHER), path: "/ping" });
        expect([name, ping.status, ping.json["id"]]).toEqual([name, 200, "other"]);
        slowest = Math.max(slowest, ping.ms);
        await new Promise((wait) => setTimeout(wait, 25));
      }
    })();
    const answer = await run(code, 400);
    done = true;
    await pings;
    expect([name, answer.status, answer.json["error"]]).toEqual([name, 504, "hook timeout"]);
    expect([name, answer.ms < 400 + 1500, slowest < 2000]).toEqual([name, true, true]);
    // Its own requests are served again at once; on a machine without time to spare a moment later.
    let own = 0;
    for (let tries = 0; own !== 200 && tries < 20; tries++) {
      own = (await ask(edge.port, { host: edge.host("terminal-1"), path: "/ping" })).status;
    }
    expect([name, own]).toEqual([name, 200]);
  }
}, 60_000);

/** Ways to take the process down, or to leave something broken behind. */
const DEADLY: Record<string, string> = {
  abort: "module.exports = () => process.abort();",
  "no stack left": "module.exports = () => { const f = () => f() + 1; return f(); };",
  "a rejection nobody awaits":
    "module.exports = () => { Promise.reject(new Error('stray')); return new Promise(() => {}); };",
  "a throw in a timer":
    "module.exports = () => { setTimeout(() => { throw new Error('stray'); }, 1); return new Promise(() => {}); };",
  "a proxy thrown":
    "module.exports = async () => { throw new Proxy({}, { get() { throw new Error('trap'); } }); };",
  "listeners taken away":
    "module.exports = async () => { process.removeAllListeners(); await null; Promise.reject(1); throw new Error('x'); };",
  "built-ins replaced":
    "module.exports = () => { Object.prototype.polluted = 1; Array.prototype.concat = () => []; JSON.stringify = () => '{}'; Promise.prototype.then = function () { return this; }; throw new Error('x'); };",
  memory: "module.exports = () => { const all = []; for (;;) all.push(Buffer.alloc(8e6, 1)); };",
  "headers frozen":
    "module.exports = (req, res) => { Object.freeze(res); Object.defineProperty(res, 'end', { value() { throw 1; } }); throw new Error('x'); };",
};

test("a script that ends its process or breaks its realm costs its own tenant an error, and nobody else anything", async () => {
  const { edge, run } = await twoTenants();
  for (const [name, code] of Object.entries(DEADLY)) {
    const [answer, other] = await Promise.all([
      run(code, 3000),
      ask(edge.port, { host: edge.host("terminal-1", OTHER), path: "/ping" }),
    ]);
    expect([name, [500, 504].includes(answer.status)]).toEqual([name, true]);
    expect([name, other.status, other.json["polluted"], other.json["n"]]).toEqual([
      name,
      200,
      null,
      1,
    ]);
    const again = await ask(edge.port, { host: edge.host("terminal-1", OTHER), path: "/ping" });
    expect([name, again.status, again.json["polluted"]]).toEqual([name, 200, null]);
  }
  // A realm that was broken without its process ending is its tenant's own affair; a crash brings a fresh one.
  await run("module.exports = () => process.exit(1);");
  const own = await ask(edge.port, { host: edge.host("terminal-1"), path: "/ping" });
  expect([own.status, own.json["polluted"], own.json["n"]]).toEqual([200, null, 1]);
}, 60_000);

test("a script that reaches for the process, the disk or the edge finds nothing of others", async () => {
  const { edge, run } = await twoTenants();
  const answer = await run(
    `module.exports = async (req, res, metadata, shared) => {
      const found = {};
      const tried = async (name, f) => { try { found[name] = await f(); } catch (error) { found[name] = "refused"; } };
      const real = ({}).constructor.constructor("return process")();
      const fs = require("node:fs");
      const folder = ${JSON.stringify(edge.folder)};
      await tried("env", () => Object.keys(real.env).filter((key) => /TOKEN|SECRET|INTERPOSE|HOODY/i.test(key)).join());
      await tried("argv", () => JSON.stringify([real.argv, real.execArgv]).includes(${JSON.stringify(TOKEN)}));
      await tried("token", () => fs.readFileSync(folder + "/data/control-token", "utf8"));
      await tried("policy", () => fs.readdirSync(folder + "/data/policy/containers").join());
      await tried("other scripts", () => fs.readFileSync(folder + "/data/containers/${OTHER}/scripts/default/1/ping.js", "utf8"));
      await tried("other data", () => fs.readdirSync(folder + "/data/containers/${OTHER}").join());
      await tried("above", () => fs.readdirSync(folder).join());
      await tried("passwd", () => fs.readFileSync("/etc/passwd", "utf8").slice(0, 4));
      await tried("own environ", () => /TOKEN|SECRET/.test(fs.readFileSync("/proc/self/environ", "utf8")));
      await tried("parent's environ", () => fs.readFileSync("/proc/" + real.ppid + "/environ", "utf8").length > 0);
      await tried("parent's memory", () => typeof fs.openSync("/proc/" + real.ppid + "/mem", "r"));
      await tried("link out", () => { fs.symlinkSync("/etc/passwd", "link"); return fs.readFileSync("link", "utf8").slice(0, 4); });
      await tried("child", () => require("node:child_process").execSync("id").toString());
      await tried("thread", () => { new (require("node:worker_threads").Worker)("0", { eval: true }); return "started"; });
      await tried("addon", () => { real.dlopen({ exports: {} }, "/x.node"); return "loaded"; });
      await tried("binding", () => typeof real.binding("spawn_sync").spawn);
      await tried("inspector", () => { require("node:inspector").open(0); return "open"; });
      await tried("kill parent", () => real.kill(real.ppid, "SIGTERM"));
      await tried("control", async () => (await fetch(${JSON.stringify(edge.control)} + "/api/v1/containers")).status);
      await tried("main", () => Object.keys(require.main ?? {}).join());
      await tried("cache", () => Object.keys(require.cache ?? {}).filter((key) => key.includes("/worker/")).length);
      await tried("shared", () => JSON.stringify(shared));
      res.json(found);
    };`,
  );
  expect(answer.status).toBe(200);
  const found = answer.json;
  for (const name of [
    "token",
    "policy",
    "other scripts",
    "other data",
    "above",
    "passwd",
    "parent's environ",
    "parent's memory",
    "link out",
    "child",
    "thread",
    "addon",
    "inspector",
    "kill parent",
  ]) {
    expect([name, found[name]]).toEqual([name, "refused"]);
  }
  expect([found["env"], found["argv"], found["shared"]]).toEqual(["", false, "{}"]);
  expect(["refused", false]).toContain(found["own environ"]);
  expect(["refused", 401]).toContain(found["control"]);
  expect(["refused", "undefined"]).toContain(found["binding"]);
  expect(["refused", ""]).toContain(found["main"]);
  expect(["refused", 0]).toContain(found["cache"]);
  expect((await fetch(`${edge.control}/healthz`)).status).toBe(200);
}, 40_000);

test("state, files and modules of two tenants with equal names are two", async () => {
  const { edge } = await twoTenants();
  const code = `const lib = require("./lib/count.js");
    module.exports = (req, res, metadata, shared) => {
      shared.n = (shared.n ?? 0) + 1;
      require("node:fs").appendFileSync("notes.txt", "x");
      globalThis.seen = (globalThis.seen ?? 0) + 1;
      res.json({ shared: shared.n, lib: lib.next(), file: require("node:fs").readFileSync("notes.txt", "utf8").length, global: globalThis.seen });
    };`;
  for (const id of [CONTAINER, OTHER]) {
    edge.script("lib/count.js", "let n = 0; exports.next = () => ++n;", id);
    edge.script("state.js", code, id);
  }
  for (let round = 1; round <= 3; round++) {
    for (const id of [CONTAINER, OTHER]) {
      const answer = await ask(edge.port, { host: edge.host("exec-1", id), path: "/state" });
      expect(answer.json).toEqual({ shared: round, lib: round, file: round, global: round });
    }
  }
}, 30_000);

test("a client's own secrets stay with the tenant it addressed", async () => {
  const { edge } = await twoTenants();
  edge.script(
    "see.js",
    "let last = null; module.exports = (req, res) => { res.json({ last }); last = req.headers['x-secret'] ?? null; };",
    OTHER,
  );
  edge.script(
    "see.js",
    "let last = null; module.exports = (req, res) => { res.json({ last }); last = req.headers['x-secret'] ?? null; };",
  );
  const see = async (id: string, secret?: string) =>
    (
      await ask(edge.port, {
        host: edge.host("exec-1", id),
        path: "/see",
        ...(secret === undefined ? {} : { headers: { "x-secret": secret } }),
      })
    ).json["last"];
  await Promise.all(
    Array.from({ length: 20 }, (_, at) =>
      see(at % 2 === 0 ? CONTAINER : OTHER, at % 2 === 0 ? "mine" : "theirs"),
    ),
  );
  expect([await see(CONTAINER), await see(OTHER)]).toEqual(["mine", "theirs"]);
  // The second look finds what the first one left: nothing.
  expect([await see(CONTAINER), await see(OTHER)]).toEqual([null, null]);
}, 30_000);
