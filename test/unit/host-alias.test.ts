import { readFileSync } from "node:fs";
import { describe, test } from "vitest";
import { serviceByName } from "../../policy/documents/services.ts";
import { joinTarget, splitTarget } from "../../policy/kernel/target.ts";
import { routeAlias, upstreamHost } from "../../proxy/alias-route.ts";
import type { AliasRouting, AliasTarget } from "../../proxy/alias-route.ts";

interface Case {
  source: string;
  what: string;
  alias: AliasTarget;
  target: string;
  expect:
    | string
    | { route: string; landing: boolean; target: string; hookTarget: string; testPaths: string[] };
}

const NOW = Date.parse("2026-06-01T00:00:00Z");
const cases = JSON.parse(
  readFileSync(new URL("../cases/aliases.json", import.meta.url), "utf8"),
) as Case[];

function outcome(routing: AliasRouting): Case["expect"] {
  if (routing.kind === "refused") {
    return routing.code;
  }
  const { route, landing, target, hookTarget, testPaths } = routing;
  return {
    route: nameOf(route),
    landing,
    target: joinTarget(target.path, target.query),
    hookTarget: joinTarget(hookTarget.path, hookTarget.query),
    testPaths: [...testPaths],
  };
}

function nameOf(route: Extract<AliasRouting, { kind: "routed" }>["route"]): string {
  switch (route.kind) {
    case "service":
      return `${route.service}-${route.index}`;
    case "exec":
      return `exec:${route.execId}`;
    case "port":
      return `${route.scheme}:${route.port}`;
  }
}

describe("routeAlias()", () => {
  test.for(cases)("$what: $alias.program $target ($source)", (row, { expect }) => {
    expect(outcome(routeAlias(row.alias, splitTarget(row.target), NOW))).toEqual(row.expect);
  });

  test("addresses the alias's own container", ({ expect }) => {
    const alias = cases[0]?.alias;
    const routing = alias && routeAlias(alias, splitTarget("/"), NOW);
    expect(routing).toMatchObject({
      route: { project: "67e89abc123def456789abcd", container: "890abcdef12345678901cdef" },
    });
  });
});

describe("upstreamHost()", () => {
  const space = { node: "local", domain: "containers.localhost" };
  const container = {
    project: "a".repeat(24),
    container: "b".repeat(24),
    host: "127.0.0.1",
    state: "running",
    ports: new Map(),
    exec: { kind: "none" },
    agent: { kind: "none" },
  } as const;
  const canonical = `${"a".repeat(24)}-${"b".repeat(24)}`;

  test("is canonical for a built-in service, with the client's port (decision 23)", ({
    expect,
  }) => {
    const service = serviceByName("terminal") ?? null;
    const to = { container, service, instance: 2, endpoint: { kind: "tcp", port: 76 } } as const;
    expect(upstreamHost(to, "Shop.local.containers.localhost", space)).toBe(
      `${canonical}-terminal-2.local.containers.localhost`,
    );
    expect(upstreamHost(to, "shop.local.containers.localhost:8080", space)).toBe(
      `${canonical}-terminal-2.local.containers.localhost:8080`,
    );
  });

  test("names the deployment for exec", ({ expect }) => {
    const service = serviceByName("exec") ?? null;
    const endpoint = { kind: "exec", subdomain: null, execId: "1" } as const;
    expect(upstreamHost({ container, service, instance: 1, endpoint }, "x", space)).toBe(
      `${canonical}-exec-1.local.containers.localhost`,
    );
  });

  test("is the client's own for any other port", ({ expect }) => {
    const endpoint = { kind: "tcp", port: 8080 } as const;
    expect(
      upstreamHost(
        { container, service: null, instance: 8080, endpoint },
        "Shop.example:80",
        space,
      ),
    ).toBe("Shop.example:80");
  });
});
