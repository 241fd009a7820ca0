import { execFile } from "node:child_process";
import { mkdirSync, utimesSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, test } from "vitest";
import { HoodyClient } from "../../client/client.ts";
import { fetchFor } from "../../client/localhost-fetch.ts";
import { TOKEN } from "../support/edge.ts";
import {
  type DocumentAgent,
  type Json,
  openDocumentAgent,
  publishedDocument,
} from "../support/document-agent.ts";

/*
 * The samples of the two published agent documents, run against an edge. Addresses, ids and paths are replaced; nothing
 * else. Without the documents beside the checkout there are no cases.
 */

const run = promisify(execFile);
const TOOLS = publishedDocument("agent-tools");
const HOOKS = publishedDocument("agent-hooks");

let agent: DocumentAgent;
let marker: string;

beforeAll(async () => {
  agent = await openDocumentAgent();
  mkdirSync(join(agent.project, "src/sub"), { recursive: true });
  writeFileSync(join(agent.project, "README.md"), "readme\n");
  writeFileSync(join(agent.project, "src/agent.ts"), "export const agent = 1;\n");
  writeFileSync(join(agent.project, "src/sub/cli.ts"), "one\ntwo\n");
  marker = agent.put("marker", "");
  utimesSync(marker, 1, 1);
}, 60_000);
afterAll(() => agent.close());

/** The document's stand-ins for what only a running system has. */
function substituted(sample: string, session: string): string {
  return sample
    .replaceAll("/home/user/project", agent.project)
    .replaceAll("/tmp/marker", marker)
    .replaceAll("/tmp/hooks.log", join(agent.home, "hooks.log"))
    .replaceAll(/sess_01[0-9A-Z]+|67e89abc123def456789abcd890abcdef/g, session);
}

/** Paths at which the document shows a curl line, and what its own answer example has at the top. */
const curls = [...TOOLS.matchAll(/```bash\n(curl [\s\S]*?)\n```/g)].map((match) => match[1] ?? "");

/** Where a published answer has something that ours has not, or has with another type; lists are compared by their first entry. */
function lacking(published: unknown, ours: unknown, path = ""): string[] {
  if (Array.isArray(published)) {
    const [first] = published as unknown[];
    const [one] = Array.isArray(ours) ? (ours as unknown[]) : [];
    return Array.isArray(ours)
      ? one === undefined
        ? []
        : lacking(first, one, `${path}[]`)
      : [path];
  }
  if (typeof published === "object" && published !== null) {
    return typeof ours !== "object" || ours === null
      ? [path]
      : Object.entries(published).flatMap(([key, value]) =>
          // a schema is the tool's own
          key === "properties" ? [] : lacking(value, (ours as Json)[key], `${path}.${key}`),
        );
  }
  return typeof published === typeof ours ? [] : [path];
}

/** The answer that the tools' document shows for a curl line: the first block behind the section's "Response". */
function publishedAnswer(line: string): unknown {
  const section = TOOLS.slice(0, TOOLS.indexOf(line)).split(/^### /m).at(-1) ?? "";
  const block = /#### Response[\s\S]*?```json\n([\s\S]*?)```/.exec(section)?.[1];
  return block === undefined ? {} : JSON.parse(block);
}

test.for(
  curls.map((line) => [/\/api\/v1\/agent\S*?(?=[?"])/.exec(line)?.[0] ?? "", line] as const),
)(
  "the published curl call of %s is answered as documented",
  { timeout: 40_000 },
  async ([path, line], { expect }) => {
    const session = await agent.session();
    const command = substituted(line, session)
      .replaceAll(
        "https://{projectId}-{containerId}-agent-1.{server}.containers.hoody.icu",
        agent.origin,
      )
      .replace(
        "curl ",
        `curl -sS -w '\\n%{http_code} %{content_type}' --resolve '*:${agent.edge.port}:127.0.0.1' `,
      );
    const { stdout } = await run("bash", ["-c", command], { timeout: 30_000 });
    const text = stdout.slice(0, stdout.lastIndexOf("\n"));
    const [status = "", type = ""] = stdout.slice(stdout.lastIndexOf("\n") + 1).split(" ");
    if (path.endsWith("/stream")) {
      expect([status, type]).toEqual(["200", "text/event-stream"]);
      expect(text.match(/^event: .*$/gm)).toEqual(["event: start", "event: result", "event: end"]);
      expect(text).toContain("agent.ts");
      return;
    }
    expect(type).toBe("application/json");
    const json = JSON.parse(text) as Json;
    expect(lacking(publishedAnswer(line), json)).toEqual([]);
    if (path.endsWith("/runAsync")) {
      expect(status).toBe("202");
      expect(json).toEqual({ job_id: expect.stringMatching(/^job_/) as unknown });
      const result = async () =>
        (await agent.call("GET", `/jobs/${String(json["job_id"])}/result`)).json;
      await expect
        .poll(async () => (await result())["status"], { timeout: 15_000 })
        .toBe("succeeded");
      expect(await result()).toMatchObject({
        result: { tool: "bash", is_error: false },
        error: "",
      });
      expect(JSON.stringify(await result())).toContain("cli.ts");
    } else if (path.endsWith("/run")) {
      expect(status).toBe("200");
      expect(json).toMatchObject({
        tool: path.includes("read_file") ? "read_file" : "bash",
        is_error: false,
        content: [{ type: "text", text: expect.stringMatching(/README|export const/) as unknown }],
      });
    } else if (path.endsWith("/bash")) {
      expect(status).toBe("200");
      expect(json).toMatchObject({
        name: "bash",
        read_only: false,
        input_schema: { required: ["cmd"] },
      });
    } else {
      expect(status).toBe("200");
      const items = json["items"] as Json[];
      expect(json).toMatchObject({ meta: { total: items.length, page: 1, limit: 50 } });
      for (const item of items) {
        expect(item).toMatchObject({
          name: expect.any(String) as unknown,
          description: expect.any(String) as unknown,
          read_only: expect.any(Boolean) as unknown,
          input_schema: { type: "object" },
        });
      }
      expect(items.length > 0).toBe(!path.endsWith("/mcp"));
    }
  },
);

/** A client as the samples make it, apart from its address; the agent's home is where it works. */
function client(): HoodyClient {
  return new HoodyClient({
    baseURL: agent.origin,
    token: TOKEN,
    fetch: fetchFor(agent.origin),
  });
}

// oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the constructor of async functions has no global name
const AsyncFunction = (async () => {}).constructor as new (
  ...parts: string[]
) => (...values: unknown[]) => Promise<unknown>;

const scripts = [...TOOLS.matchAll(/```js\n([\s\S]*?)\n```/g)].map((match) => match[1] ?? "");

test.for(
  scripts
    .filter((source) => !source.includes("getJobResult"))
    .map((source) => [/client\.agent\.\w+\.\w+/.exec(source)?.[0] ?? "", source] as const),
)("the published call of %s runs unmodified", async ([name, source], { expect }) => {
  const session = await agent.session();
  const frames: unknown[] = [];
  // the value of a sample's one expression or variable, or the frames that its loop sees
  const code = substituted(source, session)
    .replace("// frame.event", "frames.push(frame); // frame.event")
    .replace(/^await /, "return await ")
    .replace(/^const \{ job_id \} = /, "return ");
  const value = await new AsyncFunction("client", "frames", code)(client(), frames);
  if (name.endsWith("Iterator")) {
    const names: unknown[] = [];
    for await (const tool of value as AsyncIterable<Json>) {
      names.push(tool["name"]);
    }
    expect(names.includes("read_file")).toBe(!name.includes("MCP"));
  } else if (name.endsWith("streamTool")) {
    expect(frames).toMatchObject([{ event: "start" }, { event: "result" }, { event: "end" }]);
  } else if (name.endsWith("runToolAsync")) {
    const { job_id } = value as { job_id: string };
    const rest = scripts.find((one) => one.includes("getJobResult")) ?? "";
    const read = () =>
      new AsyncFunction("client", "job_id", `${rest}\nreturn result;`)(
        client(),
        job_id,
      ) as Promise<Json>;
    await expect.poll(async () => (await read())["status"], { timeout: 15_000 }).toBe("succeeded");
  } else {
    expect(value).toMatchObject(
      name.endsWith("getTool")
        ? { name: "bash" }
        : { is_error: false, content: [{ type: "text" }] },
    );
  }
});

const calls = [...HOOKS.matchAll(/^import \{ HoodyClient \}[\s\S]*?^(?:await [\s\S]*?\);)$/gm)].map(
  (match) => match[0],
);
/** Operations of the writes, by the method that makes them. */
const OPS: Readonly<Record<string, string>> = {
  setRules: "rules_set",
  upsert: "upsert",
  delete: "delete",
  disable: "toggle",
  disableAll: "set_disabled",
};

test("the published hook programs run one after the other with what each needs before it", async ({
  expect,
}) => {
  // in the document's own order, every program starting where the ones before have left the session
  const session = await agent.session();
  const seen: string[] = [];
  for (const source of calls) {
    const method = /client\.agent\.hooks\.(\w+)/.exec(source)?.[1] ?? "";
    const op = OPS[method];
    const nonce = op === undefined ? "" : await agent.nonce(session, op);
    const { json: shown } = await agent.call("GET", `/hooks?session_id=${session}`);
    const block = shown["rules"] as { scopes: { scope: string; revision: string }[] };
    if (method === "disable") {
      // its hook was deleted by the program before
      const upsert = calls.find((one) => one.includes("hooks.upsert(")) ?? "";
      await execute(upsert, session, await agent.nonce(session, "upsert"));
    }
    const value = await execute(
      source
        .replace(
          "01HPRO9a4b2c5f8e0d1a9b8d37091e3a",
          block.scopes.find((one) => one.scope === "project")?.revision ?? "",
        )
        .replace("f4c2e1a9b8d37091e3a4b2c5f8e0d1a9", String((shown["trust"] as Json)["hash"])),
      session,
      nonce,
    );
    seen.push(method);
    const section = HOOKS.slice(0, HOOKS.indexOf(source))
      .split("Section titled “Response”\n")
      .at(-1);
    const shownAnswer = /^\{\n[\s\S]*?^\}$/m.exec(section ?? "")?.[0] ?? "{}";
    expect([method, lacking(JSON.parse(shownAnswer), value)]).toEqual([method, []]);
    expect([method, value]).toMatchObject([method, EXPECTED[method] ?? {}]);
  }
  expect(seen).toEqual(
    calls.length === 0
      ? []
      : [
          "list",
          "reload",
          "getRules",
          "createWriteIntent",
          "setRules",
          "upsert",
          "delete",
          "disable",
          "disableAll",
          "run",
          "trust",
        ],
  );
}, 60_000);

const TRIPLE = { ok: true, event: "PreToolUse", matcher: "Bash", scope: "project" };
/** What the document's answer examples have, ids and paths apart. */
const EXPECTED: Readonly<Record<string, Json>> = {
  list: { live: {}, session: /./, stale: [], trust: { needs_ack: false, high_risk: false } },
  reload: { reloaded: true, stale: [] },
  getRules: {
    rules: {
      live: [],
      timeout_ms: 3000,
      scopes: [{ scope: "user" }],
      exec_trust: [],
      warnings: [],
      rule_warnings: [],
      rules_complete: true,
    },
  },
  createWriteIntent: { op: "upsert", scope: "project" },
  setRules: {
    ok: true,
    scope: "project",
    rules: {
      live: [
        {
          id: "limit-no-rm-rf",
          kind: "limit",
          applies_as: "checked",
          tools: ["bash"],
          agents: ["general"],
        },
      ],
      timeout_ms: 1500,
    },
  },
  upsert: { ...TRIPLE, created: true },
  delete: { ...TRIPLE, removed: 1 },
  disable: { ...TRIPLE, disabled: true },
  disableAll: { ok: true, scope: "project", value: true, disableAllHooks: true },
  run: {
    ok: true,
    event: "PreToolUse",
    match_value: "Bash",
    exit_code: 0,
    stdout: "",
    stderr: "",
    fired: true,
  },
  trust: { ok: true, high_risk: false },
};

test(
  "the published programs compile against the client",
  { timeout: 60_000 },
  async ({ expect }) => {
    const folder = join(agent.home, "programs");
    mkdirSync(folder);
    const root = resolve(import.meta.dirname, "../..");
    const path = join(root, "client/client.ts");
    const all = [
      ...calls.map((source) => source.replace("'hoody-sdk'", JSON.stringify(path))),
      ...scripts.map(
        (source) =>
          `import type { HoodyClient } from ${JSON.stringify(path)};\ndeclare const client: HoodyClient;\n${
            source.includes("const { job_id }") ? "" : "declare const job_id: string;\n"
          }${source}\nexport {};`,
      ),
    ];
    all.forEach((source, i) => writeFileSync(join(folder, `program-${i}.mts`), source));
    const config = {
      extends: join(root, "test/tsconfig.json"),
      compilerOptions: {
        rootDir: "/",
        typeRoots: [join(root, "node_modules/@types")],
        noPropertyAccessFromIndexSignature: false,
        noUnusedLocals: false,
      },
      include: [],
      files: ["empty.mts", ...all.map((_, i) => `program-${i}.mts`)],
    };
    writeFileSync(join(folder, "empty.mts"), "export {};");
    writeFileSync(join(folder, "tsconfig.json"), JSON.stringify(config));
    const tsc = join(root, "node_modules/.bin/tsc");
    const { stdout } = await run(tsc, ["-p", folder]).catch((failed: { stdout: string }) => failed);
    expect(stdout).toBe("");
  },
);

async function execute(source: string, session: string, nonce: string): Promise<unknown> {
  const code = substituted(source, session)
    .replaceAll("01HDEF9a4b2c5f8e0d1a9b8d37091e3a", nonce)
    .replace(/^import .*$/m, "")
    .replaceAll(
      "https://{projectId}-{containerId}-agent-1.{server}.containers.hoody.com",
      agent.origin,
    )
    .replace(/^await /m, "return await ");
  return new AsyncFunction("HoodyClient", "process", code)(HoodyClient, {
    env: { HOODY_TOKEN: TOKEN },
  });
}
