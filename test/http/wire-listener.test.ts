import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import http2 from "node:http2";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import tls from "node:tls";
import { describe, expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../policy/kernel/clock.ts";
import type { Exchange } from "../../policy/kernel/exchange.ts";
import { silentLog } from "../../policy/kernel/log.ts";
import { createTrustedProxies } from "../../proxy/client-address.ts";
import { createListener, type ListenerOptions } from "../../proxy/wire/listener.ts";
import {
  createCertificates,
  type CertificateFiles,
  type Certificates,
} from "../../proxy/wire/tls.ts";
import { rawClient } from "../support/raw-client.ts";
import { eventually, WIRE_LIMITS } from "../support/wire-edge.ts";

const PEM = new URL("../cases/tls/", import.meta.url).pathname;
const files = (name: string, hosts: string[] = []): CertificateFiles => ({
  cert: `${PEM}${name}.cert.pem`,
  key: `${PEM}${name}.key.pem`,
  hosts,
});

function certificates(pairs: CertificateFiles[]): Certificates {
  const loaded = createCertificates(pairs, { clock: systemClock, log: silentLog() });
  onTestFinished(() => loaded.close());
  return loaded;
}

/** A listener that answers with what it knows about the peer and the request. */
async function listen(
  options: Partial<ListenerOptions>,
  limits = {},
): Promise<{ port: number; exchanges: Exchange[] }> {
  const exchanges: Exchange[] = [];
  const listener = createListener(
    {
      limits: { ...WIRE_LIMITS, ...limits },
      clock: systemClock,
      log: silentLog(),
      onExchange(exchange) {
        exchanges.push(exchange);
        const { address, port, encrypted } = exchange.peer;
        const text = `${exchange.head.version} ${address} ${port} ${encrypted} ${exchange.head.target}`;
        exchange.answer({ status: 200, reason: "OK", fields: [] }, Buffer.from(text));
      },
    },
    { proxyProtocol: null, certificates: null, ...options },
  );
  await new Promise<void>((resolve) => listener.server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    listener.drain();
    listener.destroy();
  });
  return { port: (listener.server.address() as AddressInfo).port, exchanges };
}

const GET = "GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
const PROXY = "PROXY TCP4 192.0.2.1 10.0.0.1 4660 80\r\n";

async function subjectOf(port: number, servername?: string): Promise<string> {
  const socket = tls.connect({
    host: "127.0.0.1",
    port,
    rejectUnauthorized: false,
    ...(servername === undefined ? {} : { servername }),
  });
  onTestFinished(() => void socket.destroy());
  await new Promise((resolve, reject) =>
    socket.once("secureConnect", resolve).once("error", reject),
  );
  const subject = String(socket.getPeerCertificate().subject.CN);
  socket.destroy();
  return subject.replace("interpose test ", "");
}

describe("createListener() with the PROXY protocol", () => {
  const trusted = createTrustedProxies(["127.0.0.0/8"]);

  test("believes a header of a trusted peer, also when it comes in pieces", async () => {
    const { port } = await listen({ proxyProtocol: trusted });
    const whole = await rawClient(port);
    whole.send(PROXY + GET);
    expect(await whole.closed()).toMatch(/1\.1 192\.0\.2\.1 4660 false \/x$/);
    const pieces = await rawClient(port);
    for (const piece of [
      PROXY.slice(0, 3),
      PROXY.slice(3, 20),
      PROXY.slice(20) + GET.slice(0, 10),
      GET.slice(10),
    ]) {
      pieces.send(piece);
      await new Promise((resolve) => setTimeout(resolve, 30));
    }
    expect(await pieces.closed()).toMatch(/1\.1 192\.0\.2\.1 4660 false \/x$/);
  });

  test("keeps the socket's peer without a header, and for UNKNOWN", async () => {
    const { port } = await listen({ proxyProtocol: trusted });
    for (const head of ["", "PROXY UNKNOWN\r\n"]) {
      const client = await rawClient(port);
      client.send(head + GET);
      expect(await client.closed()).toContain(`1.1 127.0.0.1 ${client.socket.localPort} false /x`);
    }
  });

  test("serves several requests and a body behind a header", async () => {
    const { port, exchanges } = await listen({ proxyProtocol: trusted });
    const client = await rawClient(port);
    client.send(`${PROXY}GET /1 HTTP/1.1\r\nHost: a\r\n\r\n`);
    await client.waitFor("/1");
    client.send(
      "POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET /3 HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    await client.waitFor("/3");
    expect(exchanges.every((exchange) => exchange.peer.address === "192.0.2.1")).toBe(true);
  });

  test("does not believe anybody else: the header is a request that cannot be read", async () => {
    for (const proxyProtocol of [createTrustedProxies(["10.0.0.0/8"]), null]) {
      const { port, exchanges } = await listen({ proxyProtocol });
      const client = await rawClient(port);
      client.send(PROXY + GET);
      expect(await client.closed()).toMatch(/^HTTP\/1\.1 400 /);
      expect(exchanges).toEqual([]);
    }
  });

  test("hangs up on a header that is not valid, on a second one, and on silence", async () => {
    const { port, exchanges } = await listen({ proxyProtocol: trusted }, { headMs: 300 });
    const broken = await rawClient(port);
    broken.send(`PROXY TCP4 1.2.3.4\r\n${GET}`);
    expect(await broken.closed()).toBe("");
    const twice = await rawClient(port);
    twice.send(PROXY + PROXY + GET);
    expect(await twice.closed()).toMatch(/^HTTP\/1\.1 400 /);
    const silent = await rawClient(port);
    expect(await silent.closed()).toBe("");
    const slow = await rawClient(port);
    slow.send(`${PROXY}GET / HT`);
    expect(await slow.closed()).toMatch(/^HTTP\/1\.1 408 /);
    expect(exchanges).toEqual([]);
  });

  test("reads it in front of TLS, for HTTP/1.1 and HTTP/2", async () => {
    const { port } = await listen({
      proxyProtocol: trusted,
      certificates: certificates([files("one")]),
    });
    for (const protocol of ["http/1.1", "h2"]) {
      const plain = await rawClient(port);
      plain.socket.removeAllListeners("data");
      plain.send(PROXY);
      const secure = tls.connect({
        socket: plain.socket,
        rejectUnauthorized: false,
        ALPNProtocols: [protocol],
      });
      await new Promise((resolve) => secure.once("secureConnect", resolve));
      expect(secure.alpnProtocol).toBe(protocol);
      let text = "";
      if (protocol === "h2") {
        const session = http2.connect("https://a", { createConnection: () => secure });
        const stream = session.request({ ":path": "/x" });
        stream.on("data", (chunk) => (text += String(chunk)));
        await new Promise((resolve) => stream.on("close", resolve));
        session.destroy();
        expect(text).toBe("2 192.0.2.1 4660 true /x");
      } else {
        secure.on("data", (chunk) => (text += String(chunk)));
        secure.write(GET);
        await new Promise((resolve) => secure.on("end", resolve));
        expect(text).toMatch(/1\.1 192\.0\.2\.1 4660 true \/x$/);
      }
    }
  });
});

describe("createCertificates()", () => {
  test("chooses by server name: exact, wildcard for one label, else the first", async () => {
    const { port } = await listen({
      certificates: certificates([
        files("one"),
        files("two"),
        files("three", ["c.example", "*.a.example"]),
      ]),
    });
    const chosen = async (name?: string): Promise<string> => subjectOf(port, name);
    expect(await chosen("a.example")).toBe("one");
    expect(await chosen("A.Example")).toBe("one");
    expect(await chosen("x.b.example")).toBe("two");
    expect(await chosen("c.example")).toBe("three");
    expect(await chosen("x.a.example")).toBe("three");
    expect(await chosen("b.example")).toBe("one");
    expect(await chosen("x.y.b.example")).toBe("one");
    expect(await chosen("unknown.example")).toBe("one");
    expect(await chosen()).toBe("one");
  });

  test("reads changed files again, without touching connections, and keeps the old pair when the new one is broken", async () => {
    const folder = mkdtempSync(join(tmpdir(), "wire-tls-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const put = (name: string, part: "cert" | "key"): void =>
      copyFileSync(`${PEM}${name}.${part}.pem`, join(folder, part));
    put("one", "cert");
    put("one", "key");
    const pair = { cert: join(folder, "cert"), key: join(folder, "key"), hosts: [] };
    const loaded = certificates([pair]);
    const { port } = await listen({ certificates: loaded });
    const old = await rawClient(port, { tls: { servername: "a.example" } });
    expect(await subjectOf(port, "a.example")).toBe("one");
    put("three", "cert"); // the key comes later, as when somebody copies files
    loaded.check();
    expect(await subjectOf(port, "a.example")).toBe("one");
    put("three", "key");
    loaded.check();
    expect(await subjectOf(port, "a.example")).toBe("three");
    expect(await subjectOf(port)).toBe("three");
    writeFileSync(pair.cert, "nonsense");
    loaded.check();
    expect(await subjectOf(port, "a.example")).toBe("three");
    rmSync(pair.cert);
    loaded.check();
    expect(await subjectOf(port, "a.example")).toBe("three");
    put("three", "cert");
    loaded.check();
    put("one", "cert");
    put("one", "key");
    let name = "";
    const timer = setInterval(
      () => void subjectOf(port, "a.example").then((subject) => (name = subject)),
      200,
    );
    await eventually(() => name === "one"); // by itself, without being told
    clearInterval(timer);
    old.send(GET);
    expect(await old.closed()).toMatch(/1\.1 127\.0\.0\.1 \d+ true \/x$/);
  });

  test("refuses pairs that do not belong together, missing files and an empty list", () => {
    const make = (pairs: CertificateFiles[]): Certificates =>
      createCertificates(pairs, { clock: systemClock, log: silentLog() });
    expect(() => make([{ cert: files("one").cert, key: files("two").key, hosts: [] }])).toThrow();
    expect(() => make([{ cert: "/nonexistent", key: files("two").key, hosts: [] }])).toThrow();
    expect(() => make([])).toThrow();
    const loaded = certificates([files("one")]);
    expect(() =>
      loaded.replace([files("one"), { cert: files("one").cert, key: files("two").key, hosts: [] }]),
    ).toThrow();
  });
});

describe("createListener() with TLS", () => {
  test("serves HTTP/1.1 to clients without ALPN and those that ask for it", async () => {
    const { port } = await listen({ certificates: certificates([files("one")]) });
    for (const ALPNProtocols of [undefined, ["http/1.1"]]) {
      const client = await rawClient(port, {
        tls: ALPNProtocols === undefined ? {} : { ALPNProtocols },
      });
      client.send(GET);
      expect(await client.closed()).toMatch(/1\.1 127\.0\.0\.1 \d+ true \/x$/);
    }
  });

  test("a plain request, garbage and silence end without an answer or a crash", async () => {
    const { port, exchanges } = await listen(
      { certificates: certificates([files("one")]) },
      { headMs: 300 },
    );
    const plain = await rawClient(port);
    plain.send(GET);
    expect(await plain.closed()).not.toContain("HTTP/1.1 200");
    const silent = await rawClient(port);
    await silent.closed();
    const quietInside = await rawClient(port, { tls: {} });
    expect(await quietInside.closed()).toMatch(/^(HTTP\/1\.1 408 |$)/);
    expect(exchanges).toEqual([]);
  });

  test("serves TLS to peers that may not send a PROXY header", async () => {
    const { port } = await listen({
      certificates: certificates([files("one")]),
      proxyProtocol: createTrustedProxies(["10.0.0.0/8"]),
    });
    const client = await rawClient(port, { tls: {} });
    client.send(GET);
    expect(await client.closed()).toMatch(/1\.1 127\.0\.0\.1 \d+ true \/x$/);
  });

  test("does not speak TLS 1.1", async () => {
    const { port } = await listen({ certificates: certificates([files("one")]) });
    await expect(
      rawClient(port, { tls: { maxVersion: "TLSv1.1", minVersion: "TLSv1" } }),
    ).rejects.toThrow();
  });
});
