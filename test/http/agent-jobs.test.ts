import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { describe, test } from "vitest";
import type { JsonObject } from "../../exec-host/agent/seams.ts";
import { codeOf, startGateway } from "../support/agent-gateway.ts";
import type { Answer, TestGateway } from "../support/agent-gateway.ts";
import { openStream } from "../support/agent-stream.ts";

const P = "/api/v1/agent";

function submit(
  gateway: TestGateway,
  tool: string,
  body: JsonObject,
  headers: Record<string, string> = {},
): Promise<Answer> {
  return gateway.call("POST", `${P}/tools/${tool}/runAsync`, {
    body,
    headers: { "x-hoody-cwd": gateway.project, ...headers },
  });
}

async function finished(gateway: TestGateway, id: unknown): Promise<JsonObject> {
  for (let i = 0; i < 2000; i++) {
    const { json } = await gateway.call("GET", `${P}/jobs/${String(id)}/result`);
    if (json["status"] !== "pending" && json["status"] !== "running") {
      return json;
    }
    await wait(10);
  }
  throw new Error("the job did not end");
}

describe("jobs", () => {
  test("results, parked confirmations and refusals arrive in band", async ({ expect }) => {
    const gateway = await startGateway();
    const ok = await submit(gateway, "bash", { params: { cmd: "echo hi" } });
    expect(ok.status).toBe(202);
    expect(Object.keys(ok.json)).toEqual(["job_id"]);
    expect(await finished(gateway, ok.json["job_id"])).toMatchObject({
      status: "succeeded",
      error: "",
      result: { tool: "bash", is_error: false, output: "hi\n" },
    });
    const record = await gateway.call("GET", `${P}/jobs/${String(ok.json["job_id"])}`);
    expect(record.json).toMatchObject({
      job_id: ok.json["job_id"],
      kind: "tool.run_gated",
      run_id: null,
      status: "succeeded",
    });

    const parked = await submit(gateway, "bash", {
      params: { cmd: "git push -f" },
      allow_mutations: true,
    });
    const result = (await finished(gateway, parked.json["job_id"]))["result"] as JsonObject;
    expect(result).toMatchObject({
      needs_confirmation: true,
      tool: "bash",
      params: { cmd: "git push -f" },
      gate_cause: "high_risk",
    });
    const again = await submit(gateway, "bash", {
      params: { cmd: "git push -f" },
      confirm: true,
      confirm_token: result["confirm_token"],
    });
    expect(await finished(gateway, again.json["job_id"])).toMatchObject({
      status: "succeeded",
      result: { tool: "bash", is_error: true },
    });

    const refused = await submit(gateway, "bash", { params: { cmd: "touch x" } });
    expect(await finished(gateway, refused.json["job_id"])).toMatchObject({
      status: "failed",
      result: null,
      error: expect.stringContaining("tool_mutation_refused: ") as string,
    });
    const unknown = await submit(gateway, "nope", {});
    expect(await finished(gateway, unknown.json["job_id"])).toMatchObject({
      status: "failed",
      error: expect.stringContaining("tool_not_found") as string,
    });
  });

  test("a running job is cancelled for good, a finished one forgotten", async ({ expect }) => {
    const gateway = await startGateway();
    const slow = await submit(gateway, "bash", {
      params: { cmd: "echo $$ > pid; sleep 60" },
      allow_mutations: true,
    });
    const id = String(slow.json["job_id"]);
    await wait(300);
    expect((await gateway.call("DELETE", `${P}/jobs/${id}`)).json).toEqual({
      status: "ok",
      canceled: true,
    });
    for (let i = 0; i < 20; i++) {
      expect((await gateway.call("GET", `${P}/jobs/${id}/result`)).json).toEqual({
        status: "canceled",
        result: null,
        error: "",
      });
      await wait(10);
    }
    const pid = Number(readFileSync(join(gateway.project, "pid"), "utf8"));
    expect(() => process.kill(pid, 0)).toThrow();
    expect((await gateway.call("DELETE", `${P}/jobs/${id}`)).json).toEqual({
      status: "ok",
      deleted: true,
    });
    for (const path of [id, `${id}/result`]) {
      expect(codeOf(await gateway.call("GET", `${P}/jobs/${path}`))).toBe("not_found");
    }
    expect((await gateway.call("DELETE", `${P}/jobs/${id}`)).status).toBe(404);
  });

  test("200 times: a cancel that meets the end leaves a job canceled or succeeded, never both", async ({
    expect,
  }) => {
    const gateway = await startGateway();
    for (let round = 0; round < 200; round++) {
      const job = await submit(gateway, "read_file", { params: { path: "missing" } });
      const id = String(job.json["job_id"]);
      if (round % 3 === 0) {
        await wait(round % 4);
      }
      const removed = await gateway.call("DELETE", `${P}/jobs/${id}`);
      const status = (await gateway.call("GET", `${P}/jobs/${id}/result`)).json["status"];
      if (removed.json["canceled"] === true) {
        expect(status).toBe("canceled");
        await wait(2);
        expect((await gateway.call("GET", `${P}/jobs/${id}/result`)).json["status"]).toBe(
          "canceled",
        );
      } else {
        expect(removed.json).toEqual({ status: "ok", deleted: true });
        expect(status).toBeUndefined();
      }
    }
  }, 120_000);

  test("1,000 jobs with large results end in bounded memory, and those beyond the cap are told to wait", async ({
    expect,
  }) => {
    const gateway = await startGateway();
    await writeFile(join(gateway.project, "big"), "x".repeat(200_000));
    globalThis.gc?.();
    const before = process.memoryUsage().rss;
    const ids: string[] = [];
    let refused = 0;
    const submitOne = async (): Promise<void> => {
      for (;;) {
        const answer = await submit(gateway, "read_file", { params: { path: "big" } });
        if (answer.status === 202) {
          ids.push(String(answer.json["job_id"]));
          return;
        }
        expect([answer.status, codeOf(answer), answer.headers["retry-after"]]).toEqual([
          503,
          "service_unavailable",
          "1",
        ]);
        refused += 1;
        await wait(20);
      }
    };
    for (let i = 0; i < 1000; i += 50) {
      await Promise.all(Array.from({ length: 50 }, submitOne));
    }
    await finished(gateway, ids.at(-1));
    for (let i = 0; i < 500 && gateway.server.status()["jobs"] !== 0; i++) {
      await wait(20);
    }
    expect(gateway.server.status()["jobs"]).toBe(0);
    expect(new Set(ids).size).toBe(1000);
    const last = await finished(gateway, ids.at(-1));
    expect(last["status"]).toBe("succeeded");
    // every result would be 400 MB; what is kept is capped
    expect(process.memoryUsage().rss - before).toBeLessThan(400 * 1024 * 1024);
    expect(refused).toBeGreaterThanOrEqual(0);
  }, 120_000);
});

describe("streamed runs", () => {
  const stream = (gateway: TestGateway, tool: string, body: JsonObject) =>
    openStream(gateway.port, "POST", `${P}/tools/${tool}/stream`, body, {
      "x-hoody-cwd": gateway.project,
    });

  test.for([
    ["bash", { params: { cmd: "echo hi" } }, "result"],
    ["bash", { params: { cmd: "git push -f" }, allow_mutations: true }, "needs_confirmation"],
    ["bash", { params: { cmd: "touch x" } }, "error"],
    ["nope", {}, "error"],
  ] as const)("%s %j is start, %s, end", async ([tool, body, middle], { expect }) => {
    const gateway = await startGateway();
    const open = await stream(gateway, tool, { ...body });
    expect(open.status).toBe(200);
    expect(open.headers).toMatchObject({
      "content-type": "text/event-stream",
      "cache-control": "no-store",
    });
    await open.ended;
    expect(open.frames.map((frame) => frame.event)).toEqual(["start", middle, "end"]);
    expect(open.frames[0]?.data).toEqual({
      tool,
      started_at: expect.stringMatching(/^\d{4}-.*Z$/) as string,
    });
    expect(open.frames[2]?.data).toEqual({
      tool,
      finished_at: expect.stringMatching(/^\d{4}-.*Z$/) as string,
    });
  });

  test("a reader that leaves cancels the run", async ({ expect }) => {
    const gateway = await startGateway();
    const open = await stream(gateway, "bash", {
      params: { cmd: "echo $$ > pid; sleep 60" },
      allow_mutations: true,
    });
    await open.next("start");
    await wait(300);
    const pid = Number(readFileSync(join(gateway.project, "pid"), "utf8"));
    open.close();
    for (let i = 0; i < 200 && gateway.server.status()["executions"] !== 0; i++) {
      await wait(10);
    }
    expect(gateway.server.status()["executions"]).toBe(0);
    expect(() => process.kill(pid, 0)).toThrow();
  });
});
