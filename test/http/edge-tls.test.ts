import { copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { connect, constants } from "node:http2";
import { tmpdir } from "node:os";
import { join } from "node:path";
import tls from "node:tls";
import { onTestFinished, test } from "vitest";
import { CONTAINER, startTestEdge } from "../support/edge.ts";
import { recordingUpstream } from "../support/recording-upstream.ts";

const NAME = "*.local.containers.localhost";
const PEM = join(import.meta.dirname, "../cases/tls");

/** Puts one of the two test certificates into a folder. */
function place(
  folder: string,
  name: "one" | "two",
  parts: readonly ("cert" | "key")[] = ["cert", "key"],
) {
  const files = { cert: join(folder, "cert.pem"), key: join(folder, "key.pem") };
  for (const part of parts) {
    copyFileSync(join(PEM, `${name}.${part}.pem`), files[part]);
  }
  return files;
}

async function secureEdge(options: Parameters<typeof startTestEdge>[0] = {}) {
  const folder = mkdtempSync(join(tmpdir(), "interpose-tls-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const files = place(folder, "one");
  const edge = await startTestEdge({
    ...options,
    config: {
      ...options.config,
      listen: { http: "127.0.0.1:0", https: "127.0.0.1:0" },
      tls: [{ ...files, hosts: [NAME] }],
    },
  });
  return { edge, folder, port: edge.edge.addresses.https?.port ?? 0 };
}

function h2(port: number, host: string, headers: Record<string, string>, body?: string) {
  const session = connect(`https://${host}:${port}`, {
    createConnection: () =>
      tls.connect({
        host: "127.0.0.1",
        port,
        servername: host,
        ALPNProtocols: ["h2"],
        rejectUnauthorized: false,
      }),
  });
  onTestFinished(() => session.destroy());
  return new Promise<{ status: number; body: string }>((resolve, reject) => {
    session.on("error", reject);
    const stream = session.request(
      { ":authority": host, ...headers },
      { endStream: body === undefined },
    );
    let status = 0;
    let text = "";
    stream.on("response", (head) => (status = Number(head[constants.HTTP2_HEADER_STATUS])));
    stream.on("data", (chunk: Buffer) => (text += chunk.toString()));
    stream.on("end", () => resolve({ status, body: text }));
    stream.on("error", reject);
    if (body !== undefined) {
      stream.end(body);
    }
  });
}

test("HTTP/2 runs the same pipeline: sweeping, selectors, permissions, hooks", async ({
  expect,
}) => {
  const upstream = await recordingUpstream();
  const { edge, port } = await secureEdge({ upstream: upstream.port });
  edge.script(
    "say.js",
    "module.exports = (req, res, metadata) => res.end(metadata.hook.origPath + ' ' + req.headers['x-real-ip']);",
  );
  await edge.hook("terminal", {
    match: { path: "/hooked*" },
    script: { path: "/say" },
    timeout: 5000,
  });
  const host = edge.host("terminal-3");
  const plain = await h2(port, host, {
    ":path": "/a?terminal_id=9",
    "x-hoody-identity-user-id": "me",
    "x-forwarded-proto": "ftp",
  });
  expect([plain.status, plain.body]).toEqual([200, "ok"]);
  const [request] = upstream.requests;
  expect(request?.target).toBe("/a?terminal_id=3&display=3");
  expect(request?.lines).toContain("X-Forwarded-Proto: https");
  expect(request?.lines.join().toLowerCase()).not.toContain("identity");
  expect(request?.lines.filter((line) => /^host:/i.test(line))).toHaveLength(1);
  const hooked = await h2(port, host, { ":path": "/%68ooked/x" });
  expect(hooked.body).toBe("/%68ooked/x 127.0.0.1");
  const path = `/api/v1/containers/${CONTAINER}/proxy/permissions/default`;
  await edge.api("PATCH", path, { default: "deny" }, "file:v1");
  expect((await h2(port, host, { ":path": "/a" })).status).toBe(403);
});

test("a new certificate counts for the next handshake, a broken one leaves the old in force", async ({
  expect,
}) => {
  const { edge, folder, port } = await secureEdge();
  const serial = () =>
    new Promise<string>((resolve, reject) => {
      const socket = tls.connect(
        { host: "127.0.0.1", port, servername: edge.host("terminal-1"), rejectUnauthorized: false },
        () => {
          resolve(socket.getPeerCertificate().serialNumber);
          socket.destroy();
        },
      );
      socket.on("error", reject);
    });
  const before = await serial();
  place(folder, "two", ["key"]);
  await new Promise((wait) => setTimeout(wait, 1500));
  expect(await serial()).toBe(before); // key and certificate do not belong together yet
  place(folder, "two", ["cert"]);
  const until = Date.now() + 8000;
  while ((await serial()) === before) {
    expect(Date.now()).toBeLessThan(until);
    await new Promise((wait) => setTimeout(wait, 100));
  }
});

test("a reload changes limits and trusted proxies without a new listener, and refuses an unusable certificate", async ({
  expect,
}) => {
  const upstream = await recordingUpstream();
  const { edge, port } = await secureEdge({ upstream: upstream.port });
  const host = edge.host("terminal-1");
  const { config } = edge.edge;
  await edge.edge.reload({
    ...config,
    trustedProxies: ["127.0.0.0/8"],
    limits: { ...config.limits, maxTargetBytes: 300 },
  });
  await h2(port, host, { ":path": "/x", "x-forwarded-for": "203.0.113.9" });
  expect(upstream.requests.at(-1)?.lines).toContain("X-Real-IP: 203.0.113.9");
  expect((await h2(port, host, { ":path": `/${"a".repeat(400)}` })).status).toBe(414);
  const broken = {
    ...edge.edge.config,
    tls: [{ cert: "/nowhere.pem", key: "/nowhere.pem", hosts: [NAME] }],
  };
  await expect(edge.edge.reload(broken)).rejects.toThrow();
  expect((await h2(port, host, { ":path": "/x" })).status).toBe(200);
});
