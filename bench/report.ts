/** One slice of load on one contender. */
export interface Sample {
  readonly name: string;
  readonly requestsPerSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly cpuMicros: number;
  readonly errors: number;
}

function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}

/** Best and median per contender; ratios are of best samples, since noise only ever adds cost. */
export function printReport(samples: readonly Sample[], print: (line: string) => void): void {
  const byName = Map.groupBy(samples, (sample) => sample.name);
  const best = (name: string) => Math.min(...(byName.get(name) ?? []).map((s) => s.cpuMicros));
  const floor = best("node-pipe");
  const plain = best("edge plain");
  print("");
  print(
    "contender                  req/s    p50 ms   p99 ms   CPU us/req best (median)   x node-pipe   x edge plain   errors",
  );
  for (const [name, list] of byName) {
    const cpu = best(name);
    const cells = [
      name.padEnd(24),
      String(Math.round(median(list.map((s) => s.requestsPerSecond)))).padStart(7),
      median(list.map((s) => s.p50Ms))
        .toFixed(1)
        .padStart(9),
      median(list.map((s) => s.p99Ms))
        .toFixed(1)
        .padStart(8),
      `${cpu.toFixed(1)} (${median(list.map((s) => s.cpuMicros)).toFixed(1)})`.padStart(26),
      (cpu / floor).toFixed(2).padStart(13),
      (cpu / plain).toFixed(2).padStart(14),
      String(list.reduce((sum, s) => sum + s.errors, 0)).padStart(8),
    ];
    print(cells.join(" "));
  }
}
