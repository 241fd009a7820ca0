import {
  AggregatorRegistry,
  Counter as Reference,
  Histogram as ReferenceHistogram,
  Registry,
} from "prom-client";
import { test } from "vitest";
import { Counter, Histogram } from "../../policy/kernel/metric-types.ts";

const BUCKETS = [0.1, 0.5, 1];

/** The same moves on our metrics and on prom-client's own. */
function both() {
  const ours = new Registry();
  const theirs = new Registry();
  const counter = { name: "c_total", help: "c", labelNames: ["a", "b"] as const };
  const histogram = { name: "h_seconds", help: "h", labelNames: ["s"] as const, buckets: BUCKETS };
  const own = {
    counter: new Counter({ ...counter, registers: [ours] }),
    plain: new Counter({ name: "p_total", help: "p", registers: [ours] }),
    histogram: new Histogram({ ...histogram, registers: [ours] }),
    bare: new Histogram({ name: "b_seconds", help: "b", buckets: BUCKETS, registers: [ours] }),
  };
  const reference = {
    counter: new Reference({ ...counter, registers: [theirs] }),
    plain: new Reference({ name: "p_total", help: "p", registers: [theirs] }),
    histogram: new ReferenceHistogram({ ...histogram, registers: [theirs] }),
    bare: new ReferenceHistogram({
      name: "b_seconds",
      help: "b",
      buckets: BUCKETS,
      registers: [theirs],
    }),
  };
  for (const { counter: c, plain, histogram: h, bare } of [own, reference]) {
    c.labels("x", 'quote " and \\').inc();
    (c as Reference<"a" | "b">).inc({ a: "x", b: "y" });
    c.labels("x", "y").inc(4);
    plain.inc();
    plain.inc(2);
    for (const value of [0, 0.1, 0.100001, 0.7, 1, 5]) {
      h.labels("one").observe(value);
      bare.observe(value);
    }
    h.labels("two").observe(0.2);
  }
  return { ours, theirs };
}

test("a scrape gives the text that prom-client's own metrics give", async ({ expect }) => {
  const { ours, theirs } = both();
  const lines = async (registry: Registry) => (await registry.metrics()).split("\n").toSorted();
  expect(await lines(ours)).toEqual(await lines(theirs));
});

test("processes add up as prom-client's own metrics do", async ({ expect }) => {
  const { ours, theirs } = both();
  const twice = async (registry: Registry) => {
    const json = await registry.getMetricsAsJSON();
    return (await AggregatorRegistry.aggregate([json, structuredClone(json)]).metrics())
      .split("\n")
      .toSorted();
  };
  expect(await twice(ours)).toEqual(await twice(theirs));
});
