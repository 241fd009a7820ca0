import { mkdir, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { join } from "node:path";
import { expect, test } from "vitest";
import { toEnvelopeFields } from "../../dispatcher/envelope.ts";
import { startHost } from "../support/exec-scripts.ts";

/** What a caller of the management routes may try against the process that answers them. */

test("log streams that were left before they began take no place", async () => {
  const { host, dataDir } = await startHost();
  await mkdir(join(dataDir, "containers/a/logs"), { recursive: true });
  await writeFile(join(dataDir, "containers/a/logs/scripts.log"), "{}\n");
  const { origin, secret } = await host.manageEndpoint("a");
  const path = origin.kind === "unix" ? origin.path : "";
  const fields = toEnvelopeFields(
    { kind: "ordinary", subdomain: null, execId: null, clientAddress: "192.0.2.1", manage: true },
    secret,
  );
  const head = ["GET /api/v1/exec/logs/stream?file=scripts.log HTTP/1.1", "Host: x"];
  for (let i = 0; i < fields.length; i += 2) {
    head.push(`${fields[i]}: ${fields[i + 1]}`);
  }
  const request = `${head.join("\r\n")}\r\n\r\n`;
  for (let n = 0; n < 150; n++) {
    await new Promise<void>((done) => {
      const socket = connect(path, () => {
        socket.write(request, () => setTimeout(() => socket.destroy(), n % 4));
      });
      socket.on("error", () => {});
      socket.on("close", () => done());
    });
  }
  const first = await new Promise<string>((done, failed) => {
    const socket = connect(path, () => socket.write(request));
    socket.once("data", (data) => {
      done(data.toString("latin1"));
      socket.destroy();
    });
    socket.on("error", failed);
  });
  expect(first.split("\r\n")[0]).toBe("HTTP/1.1 200 OK");
});
