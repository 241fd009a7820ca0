import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { startUpstream } from "../support/start-upstream.ts";
import { startWorker } from "../support/start-worker.ts";

test("a fetched body that nobody reads gives its connection up once it is garbage", async () => {
  let open = 0;
  const web = await startUpstream((req, res) => {
    open++;
    req.socket.on("close", () => open--);
    res.writeHead(200, { "content-type": "application/octet-stream" });
    const block = Buffer.alloc(65_536);
    const more = (): void => {
      while (res.write(block)) {
        // until the other side does not take any more
      }
    };
    res.on("drain", more);
    more();
  });
  const worker = await startWorker({ flags: ["--expose-gc"] });
  try {
    await worker.write(
      "default/1/drop.js",
      `for (let i = 0; i < 20; i++) { const r = await fetch(${JSON.stringify(web.url)}); void r.status; } return 'dropped';`,
    );
    await worker.write("default/1/collect.js", "globalThis.gc(); return 'collected';");
    expect((await worker.hook("/drop")).text).toBe("dropped");
    for (let round = 0; round < 100 && open > 0; round++) {
      await worker.hook("/collect");
      await sleep(50);
    }
    expect(open).toBe(0);
  } finally {
    await worker.stop();
    await web.stop();
  }
});
