import { writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { basename } from "node:path";
import { parseArgs } from "node:util";
import autocannon from "autocannon";
import { type Contender, startEdge, startPeer, startUpstream } from "./contenders.ts";
import { cpuMicros } from "./cpu.ts";
import { type Sample, printReport } from "./report.ts";
import { verifyEqualAnswers } from "./verify.ts";

const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "3" },
    seconds: { type: "string", default: "2" },
    connections: { type: "string", default: "32" },
    only: { type: "string" },
    against: { type: "string" },
    "node-flags": { type: "string", default: "" },
    memory: { type: "boolean", default: false },
    json: { type: "string" },
  },
});

function keep(figures: object): void {
  if (values.json) {
    const machine = { cpu: cpus()[0]?.model, cores: cpus().length, node: process.version };
    writeFileSync(values.json, `${JSON.stringify({ machine, ...figures }, null, 2)}\n`);
  }
}

if (values.memory) {
  const { measureMemory } = await import("./memory.ts");
  const print = (line: string): void => void process.stdout.write(`${line}\n`);
  keep({ memory: await measureMemory({ connections: 5000, tunnels: 1000, bodyMiB: 1024 }, print) });
  process.exit(0);
}

const FIELDS = {
  accept: "application/json, text/plain, */*",
  "accept-encoding": "gzip, deflate, br",
  "accept-language": "en-GB,en;q=0.8",
  "cache-control": "no-cache",
  referer: "http://bench.invalid/page",
  "user-agent": "bench/1.0 (X11; Linux x86_64)",
  "x-request-id": "0123456789abcdef",
};

/** One slice of load; CPU is read around it, so only its own requests are counted. */
async function slice(contender: Contender, seconds: number, connections: number): Promise<Sample> {
  const before = cpuMicros(contender.pid);
  const result = await autocannon({
    url: `http://127.0.0.1:${contender.port}${contender.path}`,
    connections,
    duration: seconds,
    headers: { ...FIELDS, host: contender.host },
  });
  const used = cpuMicros(contender.pid) - before;
  const requests = result["2xx"];
  return {
    name: contender.name,
    requestsPerSecond: requests / result.duration,
    p50Ms: result.latency.p50,
    p99Ms: result.latency.p99,
    cpuMicros: used / Math.max(1, requests),
    errors: result.errors + result.non2xx,
  };
}

const upstream = await startUpstream();
const started: Contender[] = [];
try {
  for (const name of ["node-pipe", "minimal-engine", "http-proxy-3"]) {
    started.push(await startPeer(name, upstream.port));
  }
  const nodeFlags = values["node-flags"].split(" ").filter((flag) => flag !== "");
  started.push(...(await startEdge(upstream.port, { nodeFlags })));
  for (const root of values.against?.split(",") ?? []) {
    const label = basename(root);
    started.push(...(await startEdge(upstream.port, { root, label, nodeFlags })));
  }
  const wanted = values.only?.split(",");
  const contenders = started.filter((c) => !wanted || wanted.some((name) => c.name.includes(name)));
  await verifyEqualAnswers(upstream, contenders);
  process.stdout.write(`${contenders.length} contenders give equal answers; warming up\n`);
  const connections = Number(values.connections);
  for (const contender of contenders) {
    await slice(contender, 3, connections);
  }
  const samples: Sample[] = [];
  for (let round = 0; round < Number(values.rounds); round++) {
    const order = round % 2 === 0 ? contenders : contenders.toReversed();
    for (const contender of order) {
      process.stdout.write(`round ${round + 1}: ${contender.name}\n`);
      samples.push(await slice(contender, Number(values.seconds), connections));
    }
  }
  printReport(samples, (line) => process.stdout.write(`${line}\n`));
  keep({ samples });
} finally {
  for (const contender of new Set([...started, upstream])) {
    contender.stop();
  }
}
