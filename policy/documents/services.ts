/**
 * The service table: the one place that knows service names, ports and instance selectors
 * (edge-proxy.md 1.3 and 1.4, decisions 27 and 28). Only terminal's port is given by a source
 * document; the others are our own choice: low, reserved numbers that no application listens on.
 */
export interface Service {
  readonly name: string;
  readonly aliases: readonly string[];
  /** Label in hostnames where it differs from the name (`n` for notifications). */
  readonly slug?: string;
  /** Port inside the container, unless the configuration names another. */
  readonly port: number;
  readonly minIndex: number;
  readonly maxIndex: number;
  /** Query key that carries the authorised instance; set on hook dispatches and on plain traffic. */
  readonly selector?: "id" | "terminal_id" | "display" | "browser_port";
  /** Added to the index to make the selector's value. */
  readonly selectorBase?: number;
  /** Arguments forced on plain traffic beside the selector; a number is added to the index. */
  readonly forced?: Readonly<Record<string, string | number>>;
  readonly hookable: boolean;
  /** Reject-listed: hooks are never saved for it and never run. */
  readonly rejectListed?: boolean;
  /** Access rules may only be booleans; `strict` grants on a literal true alone. */
  readonly access?: "boolean" | "strict";
}

const plain = (name: string, port: number, aliases: readonly string[] = []): Service => ({
  name,
  aliases,
  port,
  minIndex: 1,
  maxIndex: 9999,
  hookable: true,
});

/** In the order that decides which service owns a shared port. */
export const SERVICES: readonly Service[] = [
  {
    name: "terminal",
    aliases: ["tty", "ttyd", "t"],
    port: 76,
    minIndex: 0,
    maxIndex: 65535,
    selector: "terminal_id",
    selectorBase: 0,
    forced: { display: 0 },
    hookable: true,
  },
  {
    name: "desktop",
    aliases: [],
    port: 76,
    minIndex: 1,
    maxIndex: 59935,
    selector: "terminal_id",
    selectorBase: 1600,
    forced: { display: 1600, desktop: "true", redirect: "display" },
    hookable: true,
  },
  {
    name: "agent",
    aliases: [],
    port: 7800,
    minIndex: 1,
    maxIndex: 19999,
    selector: "terminal_id",
    selectorBase: 40000,
    forced: { display: 40000, agent: 0 },
    hookable: true,
  },
  {
    name: "display",
    aliases: ["d"],
    port: 4000,
    minIndex: 1,
    maxIndex: 61535,
    selector: "display",
    selectorBase: 0,
    hookable: true,
  },
  {
    name: "browser",
    aliases: ["b"],
    port: 65,
    minIndex: 1,
    maxIndex: 9999,
    selector: "browser_port",
    selectorBase: 30000,
    forced: { display: 500 },
    hookable: true,
  },
  {
    name: "code",
    aliases: [],
    port: 7000,
    minIndex: 1,
    maxIndex: 58535,
    selector: "id",
    selectorBase: 0,
    hookable: true,
  },
  {
    name: "notifications",
    aliases: ["notification", "n"],
    slug: "n",
    port: 66,
    minIndex: 1,
    maxIndex: 61535,
    selector: "display",
    selectorBase: 0,
    hookable: true,
    access: "boolean",
  },
  { ...plain("files", 41, ["f"]), access: "boolean" },
  plain("notes", 54, ["note"]),
  {
    name: "exec",
    aliases: ["e"],
    port: 7700,
    minIndex: 1,
    maxIndex: 1,
    hookable: true,
    access: "boolean",
  },
  plain("sqlite", 55),
  plain("watch", 56, ["w"]),
  plain("run", 57),
  plain("curl", 58),
  plain("cron", 59),
  plain("pipe", 60),
  plain("daemon", 61),
  plain("tunnel", 62),
  plain("bot", 64),
  {
    name: "d-tcp",
    aliases: [],
    port: 4001,
    minIndex: 1,
    maxIndex: 61535,
    selector: "display",
    selectorBase: 0,
    hookable: true,
  },
  { ...plain("logs", 68, ["log", "l"]), hookable: false, rejectListed: true, access: "strict" },
  { ...plain("egress", 71), maxIndex: 65535, hookable: false, rejectListed: true },
  {
    name: "cdp",
    aliases: [],
    port: 73,
    minIndex: 1,
    maxIndex: 9999,
    selector: "browser_port",
    selectorBase: 30000,
    hookable: false,
    rejectListed: true,
  },
  { ...plain("workspaces", 72), maxIndex: 65535, hookable: false, rejectListed: true },
];

/** Protocols: valid programs in access rules, never services. */
export const PROTOCOLS = ["http", "https", "ssh"] as const;

const byName = new Map<string, Service>();
for (const service of SERVICES) {
  byName.set(service.name, service);
}
const byAlias = new Map<string, Service>();
for (const service of SERVICES) {
  for (const alias of service.aliases) {
    byAlias.set(alias, service);
  }
}

/** The service of that canonical name. */
export function serviceByName(name: string): Service | undefined {
  return byName.get(name);
}

/** The service that a canonical name or a short name means. */
export function serviceBySpelling(spelling: string): Service | undefined {
  return byName.get(spelling) ?? byAlias.get(spelling);
}
