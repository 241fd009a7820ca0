import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { HOOK_UPSTREAM_ERROR_KINDS } from "../../exec-host/worker/hook-upstream-error.ts";
import { startUpstream } from "../support/start-upstream.ts";
import { startWorker } from "../support/start-worker.ts";

const PAGE = readFileSync(join(import.meta.dirname, "../../docs/scripts.md"), "utf8");

test("every script of docs/scripts.md runs, as a hook and by its own address", async () => {
  const scripts = [...PAGE.matchAll(/```js\n([\s\S]*?)```/g)].map((found) => found[1] ?? "");
  expect(scripts.length).toBeGreaterThanOrEqual(4);
  const worker = await startWorker();
  const service = await startUpstream();
  try {
    for (const [at, text] of scripts.entries()) {
      await worker.write(`default/1/doc${at}.js`, text);
      const hooked = await worker.hook(
        `/doc${at}`,
        { method: "POST", body: "abc" },
        { upstreamPort: service.port },
      );
      expect([at, hooked.status]).toEqual([at, 200]);
      expect((await worker.ordinary(`/doc${at}`)).status).toBeLessThan(500);
    }
  } finally {
    await worker.stop();
    await service.stop();
  }
});

test("docs/scripts.md names every kind of HookUpstreamError", () => {
  for (const kind of HOOK_UPSTREAM_ERROR_KINDS) {
    expect(PAGE).toContain(`| \`${kind}\` |`);
  }
});
