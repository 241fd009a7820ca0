import type { Registry } from "prom-client";

/**
 * Counters and histograms that cost next to nothing to move. prom-client hashes its label values at every move, which was
 * a tenth of a plain request; here each set of labels is a number, or a row of them, that its owner holds. The
 * registry reads them when it is scraped, in prom-client's own shape, so that text, JSON and aggregation stay its own.
 */
interface MetricOptions<L extends string> {
  readonly name: string;
  /** When it moves. */
  readonly help: string;
  readonly labelNames?: readonly L[];
  readonly registers: readonly Registry[];
}

type Labels<L extends string> = Readonly<Record<L, string>>;

/** One value as prom-client's registry expects it. */
interface Sample<L extends string> {
  readonly labels: Readonly<Partial<Record<L, string | number>>>;
  readonly value: number;
  readonly metricName?: string;
}

/** A number that only grows. */
export interface BoundCounter {
  inc(by?: number): void;
}

class Cell implements BoundCounter {
  value = 0;

  inc(by = 1): void {
    this.value += by;
  }
}

/** What all label sets of a metric share: finding the one that is meant. */
class Family<L extends string, C> {
  readonly name: string;
  readonly help: string;
  readonly labelNames: readonly L[];
  readonly #make: () => C;
  readonly #children = new Map<string, { readonly labels: Labels<L>; readonly child: C }>();

  constructor(options: MetricOptions<L>, make: () => C) {
    this.name = options.name;
    this.help = options.help;
    this.labelNames = options.labelNames ?? [];
    this.#make = make;
  }

  /** The child of label values in the order of `labelNames`; made when it is asked for the first time. */
  labels(...values: string[]): C {
    const key = JSON.stringify(values);
    let found = this.#children.get(key);
    if (found === undefined) {
      const labels = Object.fromEntries(
        this.labelNames.map((name, index) => [name, values[index] ?? ""]),
      ) as Labels<L>;
      found = { labels, child: this.#make() };
      this.#children.set(key, found);
    }
    return found.child;
  }

  of(labels: Labels<L>): C {
    return this.labels(...this.labelNames.map((name) => labels[name]));
  }

  *children(): Iterable<{ readonly labels: Labels<L>; readonly child: C }> {
    yield* this.#children.values();
  }
}

/** A counter with labels from closed sets. Without labels it is there, at 0, from the start. */
export class Counter<L extends string = never> extends Family<L, BoundCounter> {
  readonly #only: BoundCounter | null;

  constructor(options: MetricOptions<L>) {
    super(options, () => new Cell());
    register(this, options.registers);
    this.#only = this.labelNames.length === 0 ? this.labels() : null;
  }

  /** `inc()`, `inc(by)`, or `inc(labels)`. */
  inc(by: number | Labels<L> = 1): void {
    if (typeof by === "number") {
      this.#only?.inc(by);
    } else {
      this.of(by).inc();
    }
  }

  get() {
    const values: Sample<L>[] = [];
    for (const { labels, child } of this.children()) {
      values.push({ labels, value: (child as Cell).value });
    }
    return Promise.resolve({
      name: this.name,
      help: this.help,
      type: "counter",
      values,
      aggregator: "sum",
    });
  }
}

/** One label set's observations. */
export interface BoundHistogram {
  observe(value: number): void;
}

class Row implements BoundHistogram {
  readonly #bounds: readonly number[];
  /** Observations by bucket, not added up; the last one is beyond every bound. */
  readonly counts: number[];
  sum = 0;

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    this.counts = Array.from({ length: bounds.length + 1 }, () => 0);
  }

  observe(value: number): void {
    const bounds = this.#bounds;
    let at = 0;
    while (at < bounds.length && value > bounds[at]!) {
      at++;
    }
    this.counts[at]!++;
    this.sum += value;
  }
}

/** A histogram over fixed bounds. */
export class Histogram<L extends string = never> extends Family<L, BoundHistogram> {
  readonly #bounds: readonly number[];
  readonly #only: BoundHistogram | null;

  constructor(options: MetricOptions<L> & { readonly buckets: readonly number[] }) {
    super(options, () => new Row(options.buckets));
    this.#bounds = options.buckets;
    register(this, options.registers);
    this.#only = this.labelNames.length === 0 ? this.labels() : null;
  }

  /** For a histogram without labels. */
  observe(value: number): void {
    this.#only?.observe(value);
  }

  get() {
    const values: Sample<string>[] = [];
    for (const { labels, child } of this.children()) {
      const { counts, sum } = child as Row;
      let total = 0;
      for (const [at, bound] of [...this.#bounds, "+Inf" as const].entries()) {
        total += counts[at] ?? 0;
        values.push({
          labels: { le: bound, ...labels },
          value: total,
          metricName: `${this.name}_bucket`,
        });
      }
      values.push({ labels, value: sum, metricName: `${this.name}_sum` });
      values.push({ labels, value: total, metricName: `${this.name}_count` });
    }
    return Promise.resolve({
      name: this.name,
      help: this.help,
      type: "histogram",
      values,
      aggregator: "sum",
    });
  }
}

/** The registry asks its metrics for a name and for `get()`, and nothing else. */
function register(
  metric: { readonly name: string; get(): Promise<object> },
  registers: readonly Registry[],
): void {
  for (const registry of registers) {
    registry.registerMetric(metric as unknown as Parameters<Registry["registerMetric"]>[0]);
  }
}
