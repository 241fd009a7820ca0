import { mkdir, rename, rm, symlink, unlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startUpstream, type TestUpstream } from "../support/start-upstream.ts";
import { startWorker, type TestWorker } from "../support/start-worker.ts";

let worker: TestWorker;
let upstream: TestUpstream;

beforeAll(async () => {
  worker = await startWorker({ env: { FROM_HOST: "host", SHADED: "host" } });
  upstream = await startUpstream();
});
afterAll(async () => {
  await worker.stop();
  await upstream.stop();
});

const write = (path: string, text: string) => worker.write(path, text);
const hook = (script: string, call = {}, envelope = {}) =>
  worker.hook(script, call, { upstreamPort: upstream.port, ...envelope });
/** Longer than helpers and environments need to be seen (200 ms). */
const settle = () => sleep(250);

describe("addressing", () => {
  test("walks the chain, nearest directory first", async () => {
    await write("chained.js", "return 'root';");
    expect((await worker.ordinary("/chained")).text).toBe("root");
    await write("7/chained.js", "return 'exec id';");
    const at = { subdomain: "app", execId: "7" };
    expect((await worker.ordinary("/chained", {}, at)).text).toBe("exec id");
    await write("app/chained.js", "return 'subdomain';");
    expect((await worker.ordinary("/chained", {}, at)).text).toBe("subdomain");
    await write("app/7/chained.js", "return 'deployment';");
    expect((await worker.ordinary("/chained", {}, at)).text).toBe("deployment");
    expect((await worker.ordinary("/chained")).text).toBe("root");
  });

  test("does not descend into another deployment", async () => {
    await write("default/2/secret.js", "return 'two';");
    await write("app/9/secret.js", "return 'nine';");
    expect((await worker.ordinary("/2/secret")).status).toBe(404);
    expect((await worker.ordinary("/default/2/secret")).status).toBe(404);
    expect((await worker.ordinary("/app/9/secret")).status).toBe(404);
    expect((await hook("/2/secret")).status).toBe(404);
    expect((await worker.ordinary("/secret", {}, { execId: "2" })).text).toBe("two");
  });

  test("serves index files, dynamic, catch-all and optional catch-all routes in this order", async () => {
    const show = "return metadata.parameters;";
    await write("default/1/r/index.js", "return 'index';");
    await write("default/1/r/fixed.js", "return 'fixed';");
    await write("default/1/r/[id].js", show);
    await write("default/1/r/[a]/[b].js", show);
    await write("default/1/r/c/[...slug].js", show);
    await write("default/1/o/[[...path]].js", show);
    const get = async (url: string) => {
      const answer = await worker.ordinary(url);
      return answer.headers["content-type"]?.startsWith("application/json") === true
        ? (JSON.parse(answer.text) as unknown)
        : answer.text;
    };
    expect(await get("/r")).toBe("index");
    expect(await get("/r/")).toBe("index");
    expect(await get("/r/fixed")).toBe("fixed");
    expect(await get("/r/other")).toEqual({ id: "other" });
    expect(await get("/r/x/y%20z")).toEqual({ a: "x", b: "y z" });
    expect(await get("/r/c/1/2")).toEqual({ slug: ["1", "2"] });
    expect(await get("/o")).toEqual({ path: [] });
    expect(await get("/o/1/2")).toEqual({ path: ["1", "2"] });
  });

  test.each([
    "/pre",
    "/post",
    "/_private",
    "/.hidden",
    "/node_modules/x",
    "/lib/..%2fsecret",
    "/a%2Fb",
    "/%",
    "/x%00",
    "/Fixed",
    "/chained.js",
    "/r//fixed",
    "/r/./fixed",
    "/script.env",
    "/[id]",
  ])("finds nothing at %s", async (path) => {
    await write("default/1/pre2/x.js", "return 1;");
    await write("default/1/_private.js", "return 1;");
    await write("default/1/node_modules/x.js", "return 1;");
    expect((await worker.ordinary(path)).status).toBe(404);
  });

  test("takes the extension in a hook's path only, and .ts before .js with a note", async () => {
    await write("default/1/twin.js", "return 'js';");
    expect((await hook("/twin.js")).text).toBe("js");
    await write("default/1/twin.ts", "const word: string = 'ts'; return word;");
    expect((await hook("/twin")).text).toBe("ts");
    expect((await hook("/twin.js")).text).toBe("js");
    await worker.untilLogged((line) => line.msg.includes("default/1/twin.js"));
  });

  test("treats a link out of the scripts folder as absent", async () => {
    const outside = join(dirname(worker.scriptsRoot), "outside.js");
    await writeFile(outside, "return 'outside';");
    await symlink(outside, join(worker.scriptsRoot, "default/1/leak.js"));
    expect((await worker.ordinary("/leak")).status).toBe(404);
    expect((await hook("/leak")).status).toBe(404);
    await write("default/1/inside.js", "return 'inside';");
    await symlink("inside.js", join(worker.scriptsRoot, "default/1/linked.js"));
    expect((await worker.ordinary("/linked")).text).toBe("inside");
  });

  test("answers 404 once a folder vanishes, and serves it when it is back", async () => {
    await write("default/5/gone.js", "return 'there';");
    const folder = join(worker.scriptsRoot, "default/5");
    const get = () => worker.ordinary("/gone", {}, { execId: "5" });
    expect((await get()).text).toBe("there");
    await rename(folder, `${folder}-away`);
    expect((await get()).status).toBe(404);
    await rename(`${folder}-away`, folder);
    expect((await get()).text).toBe("there");
    await rm(folder, { recursive: true });
    expect((await get()).status).toBe(404);
  });

  test("serves Markdown behind the token of the script beside it", async () => {
    await write("default/1/guide.md", "# Guide");
    await write("default/1/guide.system.md", "prompt");
    await write("default/1/_system.md", "prompt");
    const open = await worker.ordinary("/guide.md");
    expect(open.headers["content-type"]).toBe("text/markdown; charset=utf-8");
    expect(open.text).toBe("# Guide");
    await write("default/1/guide.js", "// @token letmein\nreturn 'ran';");
    expect((await worker.ordinary("/guide.md")).status).toBe(401);
    expect((await worker.ordinary("/guide.md?token=letmein")).text).toBe("# Guide");
    expect((await worker.ordinary("/guide.system.md")).status).toBe(404);
    expect((await worker.ordinary("/_system.md")).status).toBe(404);
    await write("default/1/page.md.js", "return 'script';");
    expect((await worker.ordinary("/page.md")).status).toBe(404);
    expect((await hook("/page.md")).text).toBe("script");
  });
});

describe("the shapes of a script", () => {
  test.each([
    ["module.exports function", "module.exports = function (req, res) { res.end('ok'); };"],
    ["async module.exports", "module.exports = async (req, res, metadata, shared) => 'ok';"],
    ["exports.default", "exports.default = () => 'ok';"],
    ["module.exports.default", "module.exports.default = () => 'ok';"],
    ["chained exports", "exports = module.exports = () => 'ok';"],
    ["export default function", "export default async function (req, res) { res.end('ok'); }"],
    ["export default arrow", "export default (req, res) => 'ok';"],
    ["export list", "const handler = () => 'ok';\nexport { handler as default };"],
    [
      "imports and a default",
      "import { basename } from 'node:path';\nexport default () => basename('/a/ok');",
    ],
    ["top-level return", "return 'ok';"],
    ["top-level await", "const word = await Promise.resolve('ok');\nreturn word;"],
    [
      "top-level with imports",
      "import path, { join as j } from 'node:path';\nimport * as os from 'node:os';\nreturn path.basename(j('a', typeof os.cpus === 'function' ? 'ok' : ''));",
    ],
    ["top-level that answers", "res.status(200).send('ok');"],
    [
      "own names of the host's",
      "const fetch = 1, console = 2, req2 = 3, Bun = 4, require2 = 5; module.exports = () => fetch + console + Bun === 7 ? 'ok' : '';",
    ],
    [
      "own require",
      "import { createRequire } from 'node:module';\nconst require = createRequire(import.meta.url);\nexport default () => typeof require('node:fs').readFileSync === 'function' ? 'ok' : '';",
    ],
    ["a shebang", "#!/usr/bin/env node\nmodule.exports = () => 'ok';"],
    [
      "import.meta",
      "return import.meta.dirname.endsWith('default/1/shape') && import.meta.url.startsWith('file:') ? 'ok' : '';",
    ],
    [
      "no __dirname",
      "return typeof __dirname + typeof __filename === 'undefinedundefined' ? 'ok' : '';",
    ],
    ["strict code", "'use strict';\nmodule.exports = () => 'ok';"],
  ])("%s works", async (name, text) => {
    const file = name.replaceAll(/[^a-z]/gi, "");
    await write(`default/1/shape/${file}.js`, text);
    const answer = await worker.ordinary(`/shape/${file}`);
    expect([answer.status, answer.text]).toEqual([200, "ok"]);
  });

  test("a TypeScript script runs with its types stripped, lines kept", async () => {
    await write(
      "default/1/typed.ts",
      "interface Row { name: string }\nconst row = { name: 'n' } satisfies Row;\nexport default async (req: unknown, res: { end(text: string): void }): Promise<void> => {\n  if (!row.name) return;\n  throw new Error('typed');\n};",
    );
    expect((await worker.ordinary("/typed")).status).toBe(500);
    await worker.untilLogged((line) => /default\/1\/typed\.ts:5:9/.test(line.msg));
    await write(
      "default/1/enum.ts",
      "const a = 1;\nenum Color { Red }\nexport default () => Color.Red;",
    );
    expect((await worker.ordinary("/enum")).status).toBe(500);
    await worker.untilLogged((line) => /default\/1\/enum\.ts:2/.test(line.msg));
  });

  test("a TypeScript script may return at its top level, with imports in front", async () => {
    await write(
      "default/1/typed-body.ts",
      "// @timeout 5000\nimport { basename } from 'node:path';\nimport type { Stats } from 'node:fs';\nconst word: string = basename('/a/ok');\nif (word === '') return 'none' as string;\nreturn { word: word satisfies string };",
    );
    expect((await worker.ordinary("/typed-body")).text).toBe('{"word":"ok"}');
    await write(
      "default/1/typed-bad.ts",
      "import { a } from './a.ts';\n\nif (a) return 1;\nenum B { C }\n",
    );
    expect((await worker.ordinary("/typed-bad")).status).toBe(500);
    await worker.untilLogged((line) => /typed-bad\.ts:4/.test(line.msg));
  });

  test("a module shape is evaluated once per version, serverless anew, a top level per request", async () => {
    const counting =
      "globalThis.evals = (globalThis.evals ?? 0) + 1;\nconst mine = globalThis.evals;\n";
    await write("default/1/once.js", `${counting}module.exports = () => mine;`);
    await write("default/1/esm-once.js", `${counting}export default () => mine;`);
    await write(
      "default/1/anew.js",
      `// @mode serverless\n${counting}module.exports = () => mine;`,
    );
    await write("default/1/body.js", `${counting}return mine;`);
    const twice = async (url: string) => [
      (await worker.ordinary(url)).text,
      (await worker.ordinary(url)).text,
    ];
    const [one, two] = await twice("/once");
    expect(one).toBe(two);
    const [first, second] = await twice("/esm-once");
    expect(first).toBe(second);
    expect(new Set(await twice("/anew")).size).toBe(2);
    expect(new Set(await twice("/body")).size).toBe(2);
  });

  test.each([
    [
      "does not parse",
      "module.exports = () => {\n  const = 1;\n};",
      /default\/1\/broken\/0\.js:2:/,
    ],
    [
      "throws while it is evaluated",
      "\n\nthrow new Error('at load');\nmodule.exports = 1;",
      /default\/1\/broken\/1\.js:3:7/,
    ],
    [
      "needs a package that is not there",
      "const x = require('left-pad');\nmodule.exports = () => x;",
      /package "left-pad" is not installed/,
    ],
    [
      "asks for a version",
      "require('lodash@4');\nmodule.exports = () => 1;",
      /version cannot be part/,
    ],
    ["exports no function", "module.exports = { a: 1 };", /does not export a function/],
    ["exports no default", "export const a = 1;", /needs a default export/],
    [
      "breaks out of its function",
      "}); console.log('out'); (() => {\nmodule.exports = 1;",
      /default\/1\/broken\/6\.js:1:/,
    ],
  ])(
    "one that %s is a 500 with its place in the log, and works once mended",
    async (_name, text, logged) => {
      const index = /broken\\\/(\d)/.exec(logged.source)?.[1] ?? `x${text.length}`;
      await write(`default/1/broken/${index}.js`, text);
      const answer = await hook(`/broken/${index}`);
      expect(answer.status).toBe(500);
      expect(answer.text).not.toMatch(/at load|left-pad|broken/);
      await worker.untilLogged((line) => logged.test(line.msg));
      await write(`default/1/broken/${index}.js`, "module.exports = () => 'mended';");
      expect((await hook(`/broken/${index}`)).text).toBe("mended");
    },
  );
});

describe("returned values", () => {
  test.each([
    ["{ a: 1 }", 200, "application/json; charset=utf-8", '{"a":1}'],
    ["[1, 'b']", 200, "application/json; charset=utf-8", '[1,"b"]'],
    [
      "{ status: 404, body: 'x' }",
      200,
      "application/json; charset=utf-8",
      '{"status":404,"body":"x"}',
    ],
    ["'text'", 200, "text/plain; charset=utf-8", "text"],
    ["Buffer.from('b')", 200, "application/octet-stream", "b"],
    ["new Uint8Array([66])", 200, "application/octet-stream", "B"],
    ["5", 200, "application/json; charset=utf-8", "5"],
    ["false", 200, "application/json; charset=utf-8", "false"],
    ["null", 200, "application/json; charset=utf-8", "null"],
    ["(res.status(201), { made: true })", 201, "application/json; charset=utf-8", '{"made":true}'],
    ["(res.setHeader('content-type', 'a/b'), 'x')", 200, "a/b", "x"],
    [
      "{ textStream: (async function* () { yield 'a'; yield 'b'; })() }",
      200,
      "text/plain; charset=utf-8",
      "ab",
    ],
    ["Promise.resolve('later')", 200, "text/plain; charset=utf-8", "later"],
    ["(res.json({ j: 1 }), 'ignored')", 200, "application/json; charset=utf-8", '{"j":1}'],
    ["(res.send(Buffer.from('s')), 'ignored')", 200, "application/octet-stream", "s"],
  ])("%s becomes %i %s", async (value, status, type, text) => {
    await write("default/1/value.js", `module.exports = (req, res) => (${value});`);
    for (const answer of [await worker.ordinary("/value"), await hook("/value")]) {
      expect([answer.status, answer.headers["content-type"], answer.text]).toEqual([
        status,
        type,
        text,
      ]);
    }
  });

  test("nothing is 204 for an ordinary call, and waits for an answer or the deadline on a hook", async () => {
    await write(
      "default/1/nothing.js",
      "module.exports = (req, res) => { res.setHeader('x-s', '1'); };",
    );
    const answer = await worker.ordinary("/nothing");
    expect(answer.status).toBe(204);
    expect(answer.headers["x-s"]).toBe("1");
    expect((await hook("/nothing", {}, { timeoutMs: 100 })).status).toBe(504);
    await write(
      "default/1/later.js",
      "module.exports = (req, res) => { setTimeout(() => res.end('called back'), 50); };",
    );
    expect((await hook("/later")).text).toBe("called back");
  });

  test("a value that cannot be JSON is a 500", async () => {
    await write(
      "default/1/cyclic.js",
      "module.exports = () => { const a = {}; a.a = a; return a; };",
    );
    expect((await worker.ordinary("/cyclic")).status).toBe(500);
  });
});

describe("request bodies", () => {
  const show =
    "return { body: Buffer.isBuffer(req.body) ? 'bytes:' + req.body : req.body, raw: String(req.rawBody), files: req.files?.map((f) => ({ ...f, data: String(f.data) })) };";

  test.each([
    ["application/json", '{"a":[1]}', { a: [1] }],
    ["application/json; charset=utf-8", "null", null],
    [
      "application/x-www-form-urlencoded",
      "a=1&a=2&b=x+y&__proto__=z",
      { a: "2", b: "x y", ["__proto__"]: "z" },
    ],
    ["text/plain", "hello", "bytes:hello"],
    ["application/octet-stream", "\u0001", "bytes:\u0001"],
  ])("of %s are read", async (type, sent, body) => {
    await write("default/1/bodies.js", show);
    const answer = await hook("/bodies", {
      method: "POST",
      headers: { "content-type": type },
      body: sent,
    });
    const got = JSON.parse(answer.text) as { body: unknown; raw: string };
    expect(JSON.stringify(got.body)).toBe(JSON.stringify(body));
    expect(got.raw).toBe(sent);
  });

  test("of forms with files keep every file", async () => {
    await write("default/1/bodies.js", show);
    const form = new FormData();
    form.append("text", "value \u00e9");
    form.append("f", new File(["one"], "a.txt", { type: "text/plain" }));
    form.append("f", new File([], "empty.bin"));
    form.append("f", new File(["--x\r\n"], 'q"uote.txt'));
    const request = new Request("http://x/", { method: "POST", body: form });
    const answer = await hook("/bodies", {
      method: "POST",
      headers: { "content-type": request.headers.get("content-type") ?? "" },
      body: Buffer.from(await request.arrayBuffer()),
    });
    expect(JSON.parse(answer.text)).toMatchObject({
      body: { text: "value \u00e9" },
      files: [
        { fieldName: "f", filename: "a.txt", type: "text/plain", size: 3, data: "one" },
        { fieldName: "f", filename: "empty.bin", size: 0, data: "" },
        { fieldName: "f", filename: 'q"uote.txt', size: 5, data: "--x\r\n" },
      ],
    });
  });

  test("that do not parse are bytes for a hook and a 400 for an ordinary call", async () => {
    await write("default/1/bodies.js", show);
    const broken = {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: "{oops",
    };
    expect(JSON.parse((await hook("/bodies", broken)).text)).toMatchObject({ body: "bytes:{oops" });
    expect((await worker.ordinary("/bodies", broken)).status).toBe(400);
    const form = {
      method: "POST",
      headers: { "content-type": "multipart/form-data; boundary=b" },
      body: "no form",
    };
    expect(JSON.parse((await hook("/bodies", form)).text)).toMatchObject({ body: "bytes:no form" });
  });

  test("are absent for GET and with @rawBody, and can be replaced", async () => {
    await write("default/1/absent.js", "return [typeof req.body, typeof req.rawBody];");
    expect((await hook("/absent", { body: "x" })).text).toBe('["undefined","undefined"]');
    await write(
      "default/1/raw.js",
      "// @rawBody\nlet n = 0; for await (const c of req) n += c.length; return [typeof req.body, typeof req.rawBody, n];",
    );
    expect((await hook("/raw", { method: "POST", body: "12345" })).text).toBe(
      '["undefined","undefined",5]',
    );
    await write("default/1/replace.js", "req.body = 'mine'; return req.body;");
    const json = { method: "POST", headers: { "content-type": "application/json" }, body: "{}" };
    expect((await hook("/replace", json)).text).toBe("mine");
  });
});

describe("directives", () => {
  test("@enabled false is a 404", async () => {
    await write("default/1/off.js", "// @enabled false\nreturn 'ran';");
    expect((await worker.ordinary("/off")).status).toBe(404);
    expect((await hook("/off")).status).toBe(404);
  });

  test("@timeout bounds a call; the smaller of it and the rule's counts", async () => {
    await write(
      "default/1/slow.js",
      "// @timeout 80\nawait new Promise((r) => setTimeout(r, 2000)); return 'late';",
    );
    const ordinary = await worker.ordinary("/slow");
    expect(ordinary.status).toBe(504);
    expect(JSON.parse(ordinary.text)).toMatchObject({ code: "SCRIPT_TIMEOUT" });
    const started = Date.now();
    expect((await hook("/slow", {}, { timeoutMs: 5000 })).status).toBe(504);
    expect(Date.now() - started).toBeLessThan(1500);
  });

  test("@token lets in who presents it, hooks in any case", async () => {
    await write("default/1/gated.js", "// @token one\n// @token two more\nreturn 'in';");
    const get = async (url: string, headers = {}) =>
      (await worker.ordinary(url, { headers })).status;
    expect(await get("/gated")).toBe(401);
    expect(await get("/gated", { authorization: "Bearer one" })).toBe(200);
    expect(await get("/gated", { authorization: "Bearer two" })).toBe(200);
    expect(await get("/gated", { authorization: "Bearer more" })).toBe(401);
    expect(
      await get("/gated", { authorization: `Basic ${Buffer.from("user:one").toString("base64")}` }),
    ).toBe(200);
    expect(await get("/gated", { "x-token": "two" })).toBe(200);
    expect(await get("/gated?token=one")).toBe(200);
    expect(await get("/gated?token=one", { authorization: "Bearer wrong" })).toBe(401);
    expect((await hook("/gated")).text).toBe("in");
    await worker.untilLogged((line) => line.msg.includes("@token takes one word"));
    await write("default/1/empty-token.js", "// @token\nreturn 'in';");
    expect(await get("/empty-token")).toBe(401);
    expect(await get("/empty-token?token=")).toBe(401);
  });

  test("@cors adds its fields to ordinary calls only, none by default", async () => {
    const origin = { origin: "https://app.example" };
    await write("default/1/nocors.js", "return 1;");
    expect(
      (await worker.ordinary("/nocors", { headers: origin })).headers[
        "access-control-allow-origin"
      ],
    ).toBeUndefined();
    await write(
      "default/1/cors.js",
      "// @cors reflective\n// @cors-credentials true\n// @cors-methods GET, PUT\n// @cors-max-age 60\nreturn 1;",
    );
    const answer = await worker.ordinary("/cors", { headers: origin });
    expect(answer.headers).toMatchObject({
      "access-control-allow-origin": "https://app.example",
      "access-control-allow-credentials": "true",
      vary: "Origin",
    });
    const preflight = await worker.ordinary("/cors", {
      method: "OPTIONS",
      headers: {
        ...origin,
        "access-control-request-method": "PUT",
        "access-control-request-headers": "x-a",
      },
    });
    expect(preflight.status).toBe(204);
    expect(preflight.headers).toMatchObject({
      "access-control-allow-methods": "GET, PUT",
      "access-control-allow-headers": "x-a",
      "access-control-max-age": "60",
    });
    expect(
      (await hook("/cors", { headers: origin })).headers["access-control-allow-origin"],
    ).toBeUndefined();
    await write("default/1/anyone.js", "// @cors *\nreturn 1;");
    expect(
      (await worker.ordinary("/anyone", { headers: origin })).headers[
        "access-control-allow-origin"
      ],
    ).toBe("*");
  });

  test("@concurrent caps serverless calls", async () => {
    await write(
      "default/1/capped.js",
      "// @mode serverless\n// @concurrent false\nshared.now = (shared.now ?? 0) + 1; const seen = shared.now; await new Promise((r) => setTimeout(r, 20)); shared.now--; return seen;",
    );
    const answers = await Promise.all(Array.from({ length: 5 }, () => hook("/capped")));
    expect(answers.map((answer) => answer.text)).toEqual(["1", "1", "1", "1", "1"]);
  });

  test("@await-promises false does not wait for the returned promise", async () => {
    await write(
      "default/1/unawaited.js",
      "// @await-promises false\nmodule.exports = (req, res) => { setTimeout(() => res.end('own'), 30); return new Promise((r) => setTimeout(() => r('promised'), 5)); };",
    );
    expect((await hook("/unawaited")).text).toBe("own");
  });

  test("@log-level none keeps a script's lines out of the log", async () => {
    await write(
      "default/1/quiet.js",
      "// @log-level none\nconsole.error('never shown'); return 1;",
    );
    await write("default/1/loud.js", "console.log('shown', { a: 1 }); return 1;");
    await hook("/quiet");
    await hook("/loud");
    await worker.untilLogged((line) => line.msg === "shown { a: 1 }");
    expect(worker.logs.some((line) => line.msg.includes("never shown"))).toBe(false);
  });

  test("that are wrong keep their default and are named in the log", async () => {
    await write(
      "default/1/odd.js",
      "// @mode sometimes\n// @timeout soon\n// @rawBody true please\n// @unknown x\nreturn 'ran';",
    );
    expect((await hook("/odd")).text).toBe("ran");
    for (const name of ["mode", "timeout", "rawBody"]) {
      await worker.untilLogged((line) => line.msg.includes(`@${name} must be`));
    }
  });
});

describe("middleware", () => {
  test("runs around each script of its own directory and nowhere else", async () => {
    await write("default/1/mw/main.js", "return { user: req.user, main: true };");
    await write("default/1/mw/deep/main.js", "return { user: req.user ?? null };");
    await write(
      "default/1/mw/pre.js",
      "req.user = 'u'; if (metadata.query.stop) return { stopped: true }; if (metadata.query.own) res.end('own');",
    );
    await write(
      "default/1/mw/post.js",
      "if (res.headersSent) { try { res.setHeader('x', '1'); } catch (e) { console.log('post saw', e.code); } return; }\nif (metadata.query.keep) return null; return { wrapped: mainResult, same: metadata.mainResult === mainResult };",
    );
    const get = async (url: string) => (await worker.ordinary(url)).text;
    expect(JSON.parse(await get("/mw/main"))).toEqual({
      wrapped: { user: "u", main: true },
      same: true,
    });
    expect(JSON.parse(await get("/mw/main?keep=1"))).toEqual({ user: "u", main: true });
    expect(JSON.parse(await get("/mw/main?stop=1"))).toEqual({
      wrapped: { stopped: true },
      same: true,
    });
    expect(await get("/mw/main?own=1")).toBe("own");
    await worker.untilLogged((line) => line.msg.includes("post saw ERR_HTTP_HEADERS_SENT"));
    expect(JSON.parse(await get("/mw/deep/main"))).toEqual({ user: null });
    const hooked = await hook("/mw/main", { url: "/any" });
    expect(JSON.parse(hooked.text)).toMatchObject({ wrapped: { main: true } });
    await unlink(join(worker.scriptsRoot, "default/1/mw/post.js"));
    expect(JSON.parse(await get("/mw/main"))).toEqual({ user: "u", main: true });
  });

  test("may be written as modules, and its errors are errors of the call", async () => {
    await write("default/1/mm/main.js", "return 'main';");
    await write(
      "default/1/mm/post.ts",
      "export default (req: unknown, res: unknown, metadata: { mainResult: string }) => metadata.mainResult + '!';",
    );
    expect((await worker.ordinary("/mm/main")).text).toBe("main!");
    await write("default/1/mm/pre.js", "throw new Error('in pre');");
    expect((await worker.ordinary("/mm/main")).status).toBe(500);
    await worker.untilLogged((line) => /mm\/pre\.js:1/.test(line.msg));
  });

  test("that drained a raw stream leaves no body to forward", async () => {
    await write(
      "default/1/drain/main.js",
      "// @rawBody\ntry { await metadata.hook.forward(req, res); } catch (e) { return e.kind; }",
    );
    await write("default/1/drain/pre.js", "for await (const chunk of req) {}");
    expect((await hook("/drain/main", { method: "POST", body: "data" })).text).toBe("no-body");
  });
});

describe("modules", () => {
  test("keep their state per deployment and are live within 200 ms when changed", async () => {
    await write(
      "default/1/lib/counter.js",
      "let n = 0; exports.next = () => ++n; exports.version = 1;",
    );
    await write(
      "default/1/count.js",
      "const { next, version } = require('./lib/counter.js'); module.exports = () => [next(), version];",
    );
    await write(
      "default/2/count.js",
      "const { next } = require('../1/lib/counter.js'); module.exports = () => [next()];",
    );
    expect((await worker.ordinary("/count")).text).toBe("[1,1]");
    expect((await worker.ordinary("/count")).text).toBe("[2,1]");
    expect((await worker.ordinary("/count", {}, { execId: "2" })).text).toBe("[1]");
    await write(
      "default/1/count.js",
      "const { next, version } = require('./lib/counter.js'); module.exports = () => ['new', next(), version];",
    );
    expect((await worker.ordinary("/count")).text).toBe('["new",3,1]');
    await write(
      "default/1/lib/counter.js",
      "let n = 10; exports.next = () => ++n; exports.version = 2;",
    );
    await settle();
    expect((await worker.ordinary("/count")).text).toBe('["new",11,2]');
  });

  test("change through others that use them", async () => {
    await write("default/1/lib/leaf.js", "exports.word = 'old';");
    await write("default/1/lib/middle.js", "exports.get = () => require('./leaf').word;");
    await write(
      "default/1/lib/esm-middle.mjs",
      "import leaf, { word } from './leaf.js';\nexport const both = word + leaf.word;",
    );
    await write(
      "default/1/deep.js",
      "const { get } = require('./lib/middle'); module.exports = async () => [get(), (await import('./lib/esm-middle.mjs')).both];",
    );
    expect((await worker.ordinary("/deep")).text).toBe('["old","oldold"]');
    await write("default/1/lib/leaf.js", "exports.word = 'new';");
    await settle();
    expect((await worker.ordinary("/deep")).text).toBe('["new","newnew"]');
  });

  test("that break answer 500 with their place, and mend", async () => {
    await write("default/1/lib/frail.js", "exports.a = 1;");
    await write(
      "default/1/frail.js",
      "const { a } = require('./lib/frail.js'); module.exports = () => a;",
    );
    expect((await worker.ordinary("/frail")).text).toBe("1");
    await write("default/1/lib/frail.js", "exports.a = ;");
    await settle();
    expect((await worker.ordinary("/frail")).status).toBe(500);
    await worker.untilLogged((line) => line.msg.includes("default/1/lib/frail.js:1:"));
    await write("default/1/lib/frail.js", "exports.a = 2;");
    await settle();
    expect((await worker.ordinary("/frail")).text).toBe("2");
  });

  test("that lack a module of their own load once it is there", async () => {
    await write(
      "default/1/lack/a.mjs",
      "import './b.mjs';\nimport { c } from './c.mjs';\nexport default c;",
    );
    await write("default/1/lack/b.mjs", "export {};");
    await write("default/1/lack/main.js", "import c from './a.mjs';\nexport default () => c;");
    expect((await worker.ordinary("/lack/main")).status).toBe(500);
    await worker.untilLogged((line) => line.msg.includes('Cannot find module "./c.mjs"'));
    await write("default/1/lack/c.mjs", "throw new Error('not yet');\nexport const c = 1;");
    expect((await worker.ordinary("/lack/main")).status).toBe(500);
    await worker.untilLogged((line) => /lack\/c\.mjs:1/.test(line.msg));
    await write("default/1/lack/c.mjs", "export const c = 'here';");
    await settle();
    expect((await worker.ordinary("/lack/main")).text).toBe("here");
  });

  test("may be ES modules with cycles, live bindings, JSON, TypeScript and top-level await", async () => {
    await write(
      "default/1/esm/a.js",
      "import { b, bump } from './b.js';\nimport data from './data.json' with { type: 'json' };\nimport { typed } from './t.ts';\nexport const fromA = 'a';\nexport const seen = () => [b(), bump(), data.x, typed];",
    );
    await write(
      "default/1/esm/b.js",
      "import { fromA } from './a.js';\nexport let n = 0;\nexport const bump = () => ++n;\nexport const b = () => fromA;",
    );
    await write("default/1/esm/data.json", '{"x":5}');
    await write("default/1/esm/t.ts", "export const typed: string = await Promise.resolve('t');");
    await write(
      "default/1/esm/main.js",
      "import * as a from './a.js';\nimport { n } from './b.js';\nexport default () => [...a.seen(), n, import.meta.filename.endsWith('esm/main.js')];",
    );
    expect(JSON.parse((await worker.ordinary("/esm/main")).text)).toEqual([
      "a",
      1,
      5,
      "t",
      1,
      true,
    ]);
  });

  test("come from the scripts' own node_modules, by main, exports and conditions", async () => {
    const pack = async (name: string, manifest: object, files: Record<string, string>) => {
      await write(`node_modules/${name}/package.json`, JSON.stringify({ name, ...manifest }));
      for (const [file, text] of Object.entries(files)) {
        await write(`node_modules/${name}/${file}`, text);
      }
    };
    await pack(
      "plain",
      { main: "lib/index" },
      { "lib/index.js": "module.exports = { name: 'plain', dir: __dirname.split('/').pop() };" },
    );
    await pack(
      "@scope/dual",
      {
        exports: {
          ".": { import: "./i.mjs", require: "./r.cjs" },
          "./sub/*": "./deep/*.js",
          "./private/*": null,
        },
      },
      {
        "i.mjs": "export default 'import';\nexport const named = 1;",
        "r.cjs": "module.exports = 'require';",
        "deep/x.js": "module.exports = 'x';",
      },
    );
    await pack(
      "modern",
      { type: "module", exports: "./m.js" },
      { "m.js": "export const value = 'modern';" },
    );
    await pack("escape", { main: "../../../outside.js" }, {});
    await write(
      "default/1/packages.js",
      `
const out = [require('plain'), require('@scope/dual'), require('@scope/dual/sub/x')];
out.push((await import('@scope/dual')).default, require('modern').value, (await import('modern')).value, (await import('plain')).default.name);
for (const name of ['escape', '@scope/dual/private/y', '@scope/dual/nope', '../../../outside.js', '/etc/hostname', '#none']) { try { require(name); out.push('found ' + name); } catch (e) { out.push(e.code); } }
return out;`,
    );
    expect(JSON.parse((await worker.ordinary("/packages")).text)).toEqual([
      { name: "plain", dir: "lib" },
      "require",
      "x",
      "import",
      "modern",
      "modern",
      "plain",
      ...Array.from({ length: 6 }, () => "MODULE_NOT_FOUND"),
    ]);
  });

  test("survive require cycles as Node has them", async () => {
    await write(
      "default/1/cyc/a.js",
      "exports.early = 1; exports.b = require('./b.js').seen; exports.late = 2;",
    );
    await write(
      "default/1/cyc/b.js",
      "const a = require('./a.js'); exports.seen = Object.keys(a);",
    );
    await write("default/1/cyc/main.js", "return require('./a.js');");
    expect(JSON.parse((await worker.ordinary("/cyc/main")).text)).toEqual({
      early: 1,
      b: ["early"],
      late: 2,
    });
  });
});

describe("shared and the environment", () => {
  test("shared is one object per deployment", async () => {
    await write("default/1/share.js", "shared.n = (shared.n ?? 0) + 1; return shared.n;");
    await write(
      "default/1/share2.js",
      "module.exports = (req, res, metadata, shared) => shared.n;",
    );
    await write("default/3/share.js", "shared.n = (shared.n ?? 0) + 1; return shared.n;");
    expect((await worker.ordinary("/share")).text).toBe("1");
    expect((await worker.ordinary("/share")).text).toBe("2");
    expect((await hook("/share2")).text).toBe("2");
    expect((await worker.ordinary("/share", {}, { execId: "3" })).text).toBe("1");
  });

  test("env files layer, nearest wins, changes are seen", async () => {
    await write("_default.env", "A=root\nB=root # note\nSHADED=root");
    await write("default/1/env/_default.env", 'export B="folder\\nline"');
    await write("default/1/env/show.env", "C='own'");
    await write(
      "default/1/env/show.js",
      "const { A, B, C, FROM_HOST, SHADED, HOME } = process.env; return { A, B, C, FROM_HOST, SHADED, HOME };",
    );
    expect(JSON.parse((await worker.ordinary("/env/show")).text)).toEqual({
      A: "root",
      B: "folder\nline",
      C: "own",
      FROM_HOST: "host",
      SHADED: "root",
    });
    await write("default/1/env/show.env", "C=changed");
    await settle();
    expect(JSON.parse((await worker.ordinary("/env/show")).text)).toMatchObject({ C: "changed" });
  });

  test("files are written to the data folder", async () => {
    await write(
      "default/1/files.js",
      "const fs = require('fs'); fs.writeFileSync('kept.txt', 'x'); return [process.cwd().endsWith('/data'), fs.readFileSync('kept.txt', 'utf8')];",
    );
    expect((await worker.ordinary("/files")).text).toBe('[true,"x"]');
    await mkdir(join(worker.dataDir, "sub"), { recursive: true });
  });
});
