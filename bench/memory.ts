import { randomBytes } from "node:crypto";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { type Socket, connect } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type Contender, startEdge, startUpstream } from "./contenders.ts";
import { peakRssKib } from "./cpu.ts";

/*
 * What the edge keeps in memory: per idle kept-alive connection, per idle tunnel, and on top of its rest while one
 * large body goes through, either way. Run with `npm run bench -- --memory`, or this file alone.
 */

export interface MemoryOptions {
  readonly connections: number;
  readonly tunnels: number;
  /** MiB of one body. */
  readonly bodyMiB: number;
}

/** One measured figure with the most it may be. */
export interface MemoryFigure {
  readonly name: string;
  readonly value: number;
  readonly unit: "KiB" | "MiB";
  readonly goal: number;
}

const GOALS = { restMiB: 140, connectionKiB: 20, tunnelKiB: 20, bodyMiB: 16 } as const;
const SETTLE_MS = 700;
const AT_ONCE = 50;
const WARM_UP = 3000;

interface Held {
  /** Resident KiB: with what the allocators keep for later. */
  readonly resident: number;
  /** KiB of live objects and their buffers: without what is native. */
  readonly live: number;
}

const report = join(mkdtempSync(join(tmpdir(), "interpose-bench-")), "memory.json");

/** After a full collection. */
async function held(pid: number): Promise<Held> {
  for (let i = 0; i < 2; i++) {
    rmSync(report, { force: true });
    process.kill(pid, "SIGUSR2");
    await sleep(SETTLE_MS);
  }
  while (!existsSync(report)) {
    await sleep(20);
  }
  const { rss, heapUsed, external } = JSON.parse(
    readFileSync(report, "utf8"),
  ) as NodeJS.MemoryUsage;
  return { resident: rss / 1024, live: (heapUsed + external) / 1024 };
}

/** A connection that sent `head` and got an answer that ends with `end`. */
function open({ port }: Contender, head: string, end: string): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, "127.0.0.1");
    let seen = "";
    socket.on("error", reject);
    socket.on("data", (chunk: Buffer) => {
      seen = (seen + chunk.toString("latin1")).slice(-4096);
      if (seen.endsWith(end)) {
        resolve(socket);
      }
    });
    socket.write(head, "latin1");
  });
}

async function openMany(edge: Contender, count: number, head: string, end: string) {
  const sockets: Socket[] = [];
  while (sockets.length < count) {
    const size = Math.min(AT_ONCE, count - sockets.length);
    const batch = await Promise.all(Array.from({ length: size }, () => open(edge, head, end)));
    sockets.push(...batch);
  }
  return sockets;
}

/**
 * KiB per connection, all open at once; many before them, a few at a time, let the heap grow to its working size.
 * Free room of the heap can hide what is held from the resident size, so the larger growth of the two counts.
 */
async function perConnection(
  edge: Contender,
  count: number,
  head: string,
  end: string,
): Promise<number> {
  for (let done = 0; done < WARM_UP; done += AT_ONCE) {
    for (const socket of await openMany(edge, AT_ONCE, head, end)) {
      socket.destroy();
    }
  }
  await sleep(SETTLE_MS);
  const before = await held(edge.pid);
  const sockets = await openMany(edge, count, head, end);
  const after = await held(edge.pid);
  for (const socket of sockets) {
    socket.destroy();
  }
  await sleep(SETTLE_MS);
  return Math.max(after.resident - before.resident, after.live - before.live) / count;
}

/** MiB of the peak above the rest while `transfer` runs. */
async function above(pid: number, transfer: () => Promise<void>): Promise<number> {
  const before = await held(pid);
  writeFileSync(`/proc/${pid}/clear_refs`, "5"); // the peak counts from here on
  await transfer();
  return (peakRssKib(pid) - before.resident) / 1024;
}

function download({ port, host }: Contender, bytes: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const call = request(
      { host: "127.0.0.1", port, path: `/bytes/${bytes}`, headers: { host } },
      (response) => {
        let seen = 0;
        response.on("data", (chunk: Buffer) => (seen += chunk.length));
        response.on("end", () =>
          seen === bytes ? resolve() : reject(new Error(`${seen} of ${bytes} bytes came`)),
        );
      },
    );
    call.on("error", reject);
    call.end();
  });
}

function upload({ port, host }: Contender, bytes: number): Promise<void> {
  const piece = Buffer.alloc(65_536, "u");
  return new Promise((resolve, reject) => {
    const call = request(
      {
        host: "127.0.0.1",
        port,
        path: "/plain",
        method: "POST",
        headers: { host, "content-length": bytes },
      },
      (response) => {
        const chunks: Buffer[] = [];
        response.on("data", (chunk: Buffer) => chunks.push(chunk));
        response.on("end", () => {
          const text = Buffer.concat(chunks).toString();
          const whole = text === JSON.stringify({ bytes });
          return whole ? resolve() : reject(new Error(`the service counted ${text}`));
        });
      },
    );
    call.on("error", reject);
    let left = bytes;
    const fill = (): void => {
      while (left > 0) {
        left -= piece.length;
        if (!call.write(piece)) {
          call.once("drain", fill);
          return;
        }
      }
      call.end();
    };
    fill();
  });
}

/** Measures, each figure on an edge of its own: what one leaves resident would hide the next. Prints as it goes. */
export async function measureMemory(
  { connections, tunnels, bodyMiB }: MemoryOptions,
  print: (line: string) => void,
  nodeFlags: readonly string[] = [],
): Promise<MemoryFigure[]> {
  const figures: MemoryFigure[] = [];
  const upstream = await startUpstream();
  const preload = ["--expose-gc", "--import", join(import.meta.dirname, "gc-on-signal.ts")];
  const bytes = bodyMiB * 1024 * 1024;

  async function measure(
    name: string,
    unit: MemoryFigure["unit"],
    goal: number,
    take: (edge: Contender) => Promise<number>,
  ): Promise<void> {
    process.env["BENCH_MEMORY_FILE"] = report;
    const [edge] = await startEdge(upstream.port, { nodeFlags: [...preload, ...nodeFlags] });
    if (edge === undefined) {
      throw new Error("no edge");
    }
    try {
      await download(edge, 65_536);
      await upload(edge, 65_536);
      const value = await take(edge);
      figures.push({ name, value, unit, goal });
      print(`${name.padEnd(52)} ${value.toFixed(1).padStart(8)} ${unit}   (goal ${goal})`);
    } finally {
      edge.stop();
    }
  }

  try {
    await measure("edge at rest", "MiB", GOALS.restMiB, async ({ pid }) => {
      return (await held(pid)).resident / 1024;
    });
    await measure(`each of ${connections} idle connections`, "KiB", GOALS.connectionKiB, (edge) =>
      perConnection(edge, connections, plainRequest(edge.host), '"}'),
    );
    await measure(`each of ${tunnels} idle tunnels`, "KiB", GOALS.tunnelKiB, (edge) =>
      perConnection(edge, tunnels, handshake(edge.host), "\r\n\r\n"),
    );
    await measure(`${bodyMiB} MiB from the service, above rest`, "MiB", GOALS.bodyMiB, (edge) =>
      above(edge.pid, () => download(edge, bytes)),
    );
    await measure(`${bodyMiB} MiB to the service, above rest`, "MiB", GOALS.bodyMiB, (edge) =>
      above(edge.pid, () => upload(edge, bytes)),
    );
    return figures;
  } finally {
    upstream.stop();
    rmSync(dirname(report), { recursive: true, force: true });
  }
}

function plainRequest(host: string): string {
  return `GET /plain HTTP/1.1\r\nHost: ${host}\r\nUser-Agent: bench\r\n\r\n`;
}

function handshake(host: string): string {
  const key = randomBytes(16).toString("base64");
  return (
    `GET /socket HTTP/1.1\r\nHost: ${host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n` +
    `Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${key}\r\n\r\n`
  );
}

if (import.meta.main) {
  const print = (line: string): void => void process.stdout.write(`${line}\n`);
  const sizes = { connections: 5000, tunnels: 1000, bodyMiB: 1024 };
  await measureMemory(sizes, print, process.argv.slice(2));
}
