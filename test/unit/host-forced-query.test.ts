import { readFileSync } from "node:fs";
import { describe, test } from "vitest";
import { serviceByName } from "../../policy/documents/services.ts";
import { forceQuery } from "../../proxy/forced-query.ts";

interface Case {
  source: string;
  what: string;
  service: string | null;
  index: number;
  query: string | null;
  plain: string | null;
  hook: string | null;
}

const cases = JSON.parse(
  readFileSync(new URL("../cases/forced-query.json", import.meta.url), "utf8"),
) as Case[];

describe("forceQuery()", () => {
  test.for(cases)("$what: $service-$index ?$query ($source)", (row, { expect }) => {
    const service = row.service === null ? null : (serviceByName(row.service) ?? null);
    expect(service?.name ?? null).toBe(row.service);
    expect(forceQuery(row.query, service, row.index, "plain")).toBe(row.plain);
    expect(forceQuery(row.query, service, row.index, "hook")).toBe(row.hook);
  });
});
