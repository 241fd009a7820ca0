import { z } from "zod";
import type { McpServerSetting } from "./seams.ts";

/** A usable MCP server entry. */
export interface McpServer {
  readonly name: string;
  readonly transport:
    | {
        readonly kind: "stdio";
        readonly command: string;
        readonly args: readonly string[];
        readonly env: Readonly<Record<string, string>>;
      }
    | {
        readonly kind: "http" | "sse";
        readonly url: string;
        readonly headers: Readonly<Record<string, string>>;
      };
  /** Raw tool names; null: all. */
  readonly allowedTools: ReadonlySet<string> | null;
  readonly requireConfirmation: boolean;
  /** What the operator says about all its tools; null: the server's own hints count. */
  readonly readOnly: boolean | null;
}

const NAME = /^(?!.*__)[A-Za-z0-9_-]{1,64}$/;
const RESERVED = /^(?:hoody|mcp)$/i;
const HTTP_TYPES = new Set(["http", "url", "streamable", "streamable-http"]);

const texts = z.record(z.string(), z.string());
const entrySchema = z.looseObject({
  name: z
    .string()
    .regex(NAME)
    .refine((name) => !RESERVED.test(name)),
  type: z.string().default("stdio"),
  command: z.string().min(1).optional(),
  args: z.array(z.string()).default([]),
  url: z.string().optional(),
  env: texts.default({}),
  headers: texts.default({}),
  allowed_tools: z.array(z.string()).optional(),
  require_confirmation: z.boolean().default(false),
  enabled: z.boolean().default(true),
  read_only: z.boolean().optional(),
});

/**
 * Decodes the `mcp_servers` of all layers (section 15). What cannot be used is left out with a warning: an invalid entry,
 * a name that an earlier layer already has (a repository cannot take the place of a user's server), a variable that is
 * not set. Disabled and held servers are left out silently.
 *
 * @param env for `${NAME}` in `env` and `headers`.
 */
export function decodeMcpServers(
  settings: readonly McpServerSetting[],
  env: Readonly<Record<string, string>>,
): { readonly servers: readonly McpServer[]; readonly warnings: readonly string[] } {
  const servers: McpServer[] = [];
  const warnings: string[] = [];
  const names = new Set<string>();
  for (const setting of settings) {
    const decoded = entrySchema.safeParse(setting.value);
    if (!decoded.success) {
      warnings.push(
        `${setting.source}: an MCP server entry is not valid (${decoded.error.issues[0]?.path.join(".") ?? ""})`,
      );
      continue;
    }
    const entry = decoded.data;
    if (names.has(entry.name.toLowerCase())) {
      warnings.push(`${setting.source}: the MCP server name "${entry.name}" is taken`);
      continue;
    }
    names.add(entry.name.toLowerCase());
    if (!entry.enabled || setting.held) {
      continue;
    }
    const transport = toTransport(entry, env);
    if (typeof transport === "string") {
      warnings.push(`${setting.source}: MCP server "${entry.name}": ${transport}`);
      continue;
    }
    servers.push({
      name: entry.name,
      transport,
      allowedTools: entry.allowed_tools === undefined ? null : new Set(entry.allowed_tools),
      requireConfirmation: entry.require_confirmation,
      readOnly: entry.read_only ?? null,
    });
  }
  return { servers, warnings };
}

function toTransport(
  entry: z.infer<typeof entrySchema>,
  env: Readonly<Record<string, string>>,
): McpServer["transport"] | string {
  const type = entry.type.toLowerCase();
  if (type === "stdio") {
    const own = expandAll(entry.env, env);
    if (entry.command === undefined) {
      return "a command is missing";
    }
    return typeof own === "string"
      ? own
      : { kind: "stdio", command: entry.command, args: entry.args, env: own };
  }
  if (!HTTP_TYPES.has(type) && type !== "sse") {
    return "its type is not known";
  }
  if (entry.url === undefined || !/^https?:$/.test(URL.parse(entry.url)?.protocol ?? "")) {
    return "a http or https url is missing";
  }
  const headers = expandAll(entry.headers, env);
  return typeof headers === "string"
    ? headers
    : { kind: type === "sse" ? "sse" : "http", url: entry.url, headers };
}

/** Values with `${NAME}` replaced, or what is wrong; values themselves are never repeated in a warning. */
function expandAll(
  values: Readonly<Record<string, string>>,
  env: Readonly<Record<string, string>>,
): Record<string, string> | string {
  const expanded: [string, string][] = [];
  for (const [key, value] of Object.entries(values)) {
    let missing: string | null = null;
    const text = value.replaceAll(/\$\{(\w+)\}/g, (_match, name: string) => {
      const found = Object.hasOwn(env, name) ? env[name] : undefined;
      missing ??= found === undefined ? name : null;
      return found ?? "";
    });
    if (missing !== null) {
      return `the variable ${String(missing)} is not set`;
    }
    expanded.push([key, text]);
  }
  return Object.fromEntries(expanded);
}
