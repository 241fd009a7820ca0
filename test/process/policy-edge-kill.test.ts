import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { expect, onTestFinished, test } from "vitest";
import { CONTAINER, policyTempDir, PROJECT, TOKEN } from "../support/policy-api.ts";

const MAIN = new URL("../../proxy/main.ts", import.meta.url).pathname;
const HOOKS = `/api/v1/containers/${CONTAINER}/proxy/hooks/terminal`;
const WRITES = 200;
const ROUNDS = 5;

/** A real edge process over `folder`, up and listening. */
async function serve(folder: string) {
  const child = spawn(process.execPath, [MAIN, "serve", "--config", join(folder, "edge.json")], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = new Promise<NodeJS.Signals | null>((resolve) =>
    child.once("exit", (_, signal) => resolve(signal)),
  );
  onTestFinished(async () => {
    child.kill("SIGKILL");
    await ended;
  });
  const control = await new Promise<string>((resolve, reject) => {
    void ended.then(() => reject(new Error("the edge ended before it was ready")));
    createInterface({ input: child.stdout }).on("line", (line) => {
      const entry = JSON.parse(line) as Record<string, string>;
      if (entry["msg"] === "ready") {
        resolve(`http://${entry["control"]}`);
      }
    });
  });
  const call = async (method: string, path: string, ifMatch?: string, body?: unknown) => {
    const response = await fetch(control + path, {
      method,
      headers: {
        authorization: `Bearer ${TOKEN}`,
        "content-type": "application/json",
        ...(ifMatch === undefined ? {} : { "if-match": ifMatch }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    // oxlint-disable-next-line typescript/no-explicit-any
    return { status: response.status, body: (await response.json()) as any };
  };
  return { kill: () => child.kill("SIGKILL"), ended, call };
}

test(
  "an edge that is killed during hook writes keeps every one it acknowledged",
  { timeout: 180_000 },
  async () => {
    const folder = policyTempDir();
    writeFileSync(
      join(folder, "edge.json"),
      JSON.stringify({
        listen: { http: "127.0.0.1:0" },
        control: { listen: "127.0.0.1:0", token: TOKEN },
        dataDir: "./data",
        log: { level: "info", pretty: false },
        containers: [
          {
            project: PROJECT,
            container: CONTAINER,
            host: "127.0.0.1",
            exec: { kind: "none" },
            agent: { kind: "none" },
          },
        ],
      }),
    );
    let acknowledged = 0;
    let path = "";
    for (let round = 1; acknowledged < WRITES; round++) {
      const edge = await serve(folder);
      const list = (await edge.call("GET", HOOKS)).body.data;
      expect(list.file_version).toBeGreaterThanOrEqual(acknowledged);
      expect(list.file_version).toBeLessThanOrEqual(acknowledged + 1);
      if (list.file_version === acknowledged && acknowledged > 0) {
        expect(list.hooks[0].script.path).toBe(path);
      }
      let at = list.file_version as number;
      let id = list.hooks[0]?.id as string | undefined;
      const stopAt = Math.min(WRITES, (round * WRITES) / ROUNDS);
      let killing = false;
      try {
        for (;;) {
          const rule = { match: {}, script: { path: `/v${at + 1}` } };
          const answer =
            id === undefined
              ? await edge.call("POST", HOOKS, `file:v${at}`, rule)
              : await edge.call("PUT", `${HOOKS}/${id}`, `file:v${at}`, rule);
          expect(answer.status).toBeLessThan(300);
          id ??= answer.body.data.hook.id as string;
          at = answer.body.data.file_version as number;
          acknowledged = at;
          path = rule.script.path;
          if (at >= stopAt && !killing) {
            // Somewhere inside one of the next writes.
            killing = true;
            setTimeout(edge.kill, round);
          }
        }
      } catch (cause) {
        if (!killing) {
          throw cause;
        }
        expect(await edge.ended, String(cause)).toBe("SIGKILL");
      }
    }
    const last = await serve(folder);
    const { data } = (await last.call("GET", HOOKS)).body;
    expect(data.file_version).toBeGreaterThanOrEqual(acknowledged);
    expect(data.hooks).toHaveLength(1);
  },
);
