import { spawn } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { ask, type Ask } from "../support/ask.ts";
import { CONTAINER, PROJECT } from "../support/edge.ts";
import { tempDir } from "../support/exec-pool.ts";

/** Secrets that are configured, sent or made; none may be found in what is written for people to read. */

const MAIN = new URL("../../proxy/main.ts", import.meta.url).pathname;

/** Distinct words, so that the test can say which one leaked. */
const SECRETS = {
  control: "sekret-control-token-9f1c",
  wrongControl: "sekret-wrong-control-2b77",
  environment: "sekret-of-the-environment-51d0",
  token: "sekret-param-token-77aa",
  password: "sekret-password-c0de",
  jwt: "sekret-jwt-key-3141592653589793238462",
  claim: "sekret-claim.c2Vrcmv0.c2Vrcmv0",
  cookie: "sekret-cookie-8842",
  query: "sekret-query-value-4e4e",
  remote: "sekret-remote-exec-secret-66",
  body: "sekret-request-body-1212",
};

async function serve(folder: string) {
  writeFileSync(
    join(folder, "edge.json"),
    JSON.stringify({
      listen: { http: "127.0.0.1:0" },
      control: { listen: "127.0.0.1:0", token: "${CONTROL}" },
      dataDir: "./data",
      log: { level: "debug", pretty: false },
      containers: [
        {
          project: PROJECT,
          container: CONTAINER,
          ports: { terminal: 9 },
          agent: { kind: "embedded", rateLimit: "off" },
        },
        {
          project: PROJECT,
          container: "890abcdef1234567890fffff",
          exec: { kind: "remote", port: 9, secret: "${REMOTE}" },
        },
      ],
    }),
  );
  const child = spawn(process.execPath, [MAIN, "serve", "--config", join(folder, "edge.json")], {
    stdio: ["ignore", "pipe", "pipe"],
    env: {
      PATH: process.env["PATH"],
      CONTROL: SECRETS.control,
      REMOTE: SECRETS.remote,
      INTERPOSE_UNRELATED: SECRETS.environment,
      NODE_OPTIONS: "--no-deprecation",
    },
  });
  const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  onTestFinished(async () => {
    child.kill("SIGKILL");
    await ended;
  });
  const written: string[] = [];
  const ready = Promise.withResolvers<Record<string, string>>();
  void ended.then(() => ready.reject(new Error(`ended: ${written.join("")}`)));
  let rest = "";
  child.stderr.on("data", (chunk: Buffer) => written.push(chunk.toString()));
  child.stdout.on("data", (chunk: Buffer) => {
    written.push(chunk.toString());
    const lines = (rest + chunk.toString()).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) {
      const entry = JSON.parse(line) as Record<string, string>;
      if (entry["msg"] === "ready") {
        ready.resolve(entry);
      }
    }
  });
  const { http = "", control = "" } = await ready.promise;
  return {
    port: Number(http.split(":").at(-1)),
    controlPort: Number(control.split(":").at(-1)),
    async stop(): Promise<string> {
      child.kill("SIGTERM");
      await ended;
      return written.join("");
    },
  };
}

/** Texts of all files below a folder. */
function contents(folder: string): string {
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map((entry) => readFileSync(join(entry.parentPath, entry.name), "utf8"))
    .join("\n");
}

test(
  "no log and no tenant's process shows a secret, whatever is asked and whatever fails",
  { timeout: 120_000 },
  async () => {
    const folder = await tempDir();
    const scripts = join(folder, "data/containers", CONTAINER, "scripts/default/1");
    mkdirSync(scripts, { recursive: true });
    writeFileSync(
      join(scripts, "see.js"),
      `module.exports = async (req, res, metadata) => {
        console.log("seen", req.method);
        return { env: process.env, argv: process.argv, execArgv: process.execArgv, report: process.report.getReport().environmentVariables };
      };`,
    );
    writeFileSync(join(scripts, "fail.js"), `throw new Error("broken " + req.method);`);
    writeFileSync(
      join(scripts, "pass.js"),
      `await metadata.hook.forward(); return { hook: undefined };`,
    );
    const edge = await serve(folder);
    const host = (tail: string, container = CONTAINER): string =>
      `${PROJECT}-${container}-${tail}.local.containers.localhost`;
    const control = async (method: string, path: string, body?: unknown, token = SECRETS.control) =>
      fetch(`http://127.0.0.1:${edge.controlPort}${path}`, {
        method,
        headers: {
          authorization: `Bearer ${token}`,
          "content-type": "application/json",
          "if-match": await version(path),
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
    const version = async (path: string): Promise<string> => {
      const base = /^\/api\/v1\/containers\/\w+\/proxy/.exec(path)?.[0];
      if (base === undefined) {
        return "file:v0";
      }
      const answer = await fetch(`http://127.0.0.1:${edge.controlPort}${base}/hooks/terminal`, {
        headers: { authorization: `Bearer ${SECRETS.control}` },
      });
      return answer.headers.get("etag") ?? "file:v0";
    };
    const base = `/api/v1/containers/${CONTAINER}/proxy`;
    const groups: [string, object][] = [
      ["by-token/token", { param: "key", value: SECRETS.token }],
      ["by-password/password", { username: "u", password: SECRETS.password, salt: "s" }],
      ["by-jwt/jwt", { algorithm: "HS256", secret: SECRETS.jwt, sources: ["cookie:session"] }],
    ];
    for (const [path, body] of groups) {
      const answer = await control("PUT", `${base}/permissions/groups/${path}`, body);
      expect([200, 201], await answer.clone().text()).toContain(answer.status);
    }
    for (const program of ["terminal", "exec", "agent"]) {
      await control("PUT", `${base}/permissions/permissions/by-token`, { program, access: true });
    }
    const hook = { match: { path: "/hooked/*" }, script: { path: "/pass" }, timeout: 5000 };
    expect((await control("POST", `${base}/hooks/terminal`, hook)).status).toBe(201);
    await control("GET", "/api/v1/containers", undefined, SECRETS.wrongControl);
    await control("PUT", `${base}/permissions/groups/x/token`, {
      header: "bad header",
      value: SECRETS.token,
    });

    const secretFields = {
      authorization: `Basic ${Buffer.from(`u:${SECRETS.password}`).toString("base64")}`,
      cookie: `session=${SECRETS.cookie}`,
      "x-hoody-identity-claim": SECRETS.claim,
      "x-hoody-edge-auth": SECRETS.claim,
    };
    const key = `key=${SECRETS.token}&q=${SECRETS.query}`;
    const calls: Ask[] = [
      { host: host("terminal-1"), path: `/plain?${key}` },
      { host: host("terminal-1"), path: `/hooked/x?${key}` },
      { host: host("terminal-1"), path: `/hooked/..%2fx?${key}` },
      { host: host("terminal-1"), path: `/%zz?${key}` },
      { host: host("terminal-1"), path: `/plain?key=wrong&q=${SECRETS.query}` },
      { host: "nobody.example", path: `/x?${key}` },
      { host: host("exec-1"), path: `/fail?${key}` },
      { host: host("exec-1"), path: `/none?${key}` },
      { host: host("exec-1", "890abcdef1234567890fffff"), path: `/x?${key}` },
      { host: host("exec-1"), path: `/api/v1/exec/scripts/list?${key}` },
      { host: host("agent-1"), path: `/api/v1/agent/tools?${key}` },
      { host: host("agent-1"), path: `/api/v1/agent/nothing?${key}` },
    ];
    for (const call of calls) {
      for (const method of ["GET", "POST"]) {
        const headers = { ...secretFields, "content-type": "application/json" };
        await ask(edge.port, {
          ...call,
          method,
          headers,
          ...(method === "POST" ? { body: JSON.stringify({ a: SECRETS.body }) } : {}),
        });
      }
    }
    const double = { ...secretFields, authorization: [`Bearer ${SECRETS.cookie}`, "Bearer b"] };
    await ask(edge.port, { host: host("terminal-1"), path: "/", headers: double });

    const seen = await ask(edge.port, { host: host("exec-1"), path: `/see?key=${SECRETS.token}` });
    expect(seen.status, seen.body).toBe(200);
    expect(seen.json["env"]).toEqual({});
    const home = join(folder, "data/containers", CONTAINER, "home");
    const run = await ask(edge.port, {
      method: "POST",
      host: host("agent-1"),
      path: `/api/v1/agent/tools/bash/run?key=${SECRETS.token}`,
      headers: { "content-type": "application/json", "x-hoody-cwd": home },
      body: JSON.stringify({
        params: { cmd: "env; cat /proc/$PPID/environ; true" },
        allow_mutations: true,
      }),
    });
    expect(run.status, run.body).toBe(200);
    expect(run.json["is_error"], run.body).toBe(false);
    const environment = run.body.replaceAll(SECRETS.token, ""); // sent by ourselves
    for (const text of [seen.body, environment]) {
      for (const [name, secret] of Object.entries(SECRETS)) {
        expect(text.includes(secret), name).toBe(false);
      }
      expect(text).not.toMatch(/CONTROL|REMOTE|UNRELATED|no-deprecation/);
    }

    const log = await edge.stop();
    const data = join(folder, "data");
    const files =
      contents(join(data, "audit")) + contents(join(data, "containers", CONTAINER, "logs"));
    expect(log).toContain('"msg":"request"');
    expect(files).toContain("seen GET");
    for (const [name, secret] of Object.entries(SECRETS)) {
      for (const form of [secret, Buffer.from(`u:${secret}`).toString("base64")]) {
        expect(log.includes(form), `${name} in the log`).toBe(false);
        expect(files.includes(form), `${name} in the files`).toBe(false);
      }
    }
    expect(log).not.toMatch(/"(?:authorization|cookie)":"(?!\[redacted\])/i);
  },
);
