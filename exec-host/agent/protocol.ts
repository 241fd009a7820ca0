import { z } from "zod";

/** Number that parent and gateway must agree on. */
export const PROTOCOL_VERSION = 1;

const rateLimit = z.object({ perSecond: z.number().positive(), burst: z.number().positive() });

/** First message to a gateway process; secrets travel here and never in the environment. */
const startMessage = z.object({
  type: z.literal("start"),
  version: z.literal(PROTOCOL_VERSION),
  socketPath: z.string().min(1),
  containerId: z.string(),
  home: z.string(),
  dataDir: z.string(),
  fleet: z.boolean(),
  realms: z.array(z.string()),
  judge: z.object({ url: z.string(), apiKey: z.string().nullable(), model: z.string() }).nullable(),
  rateLimit: rateLimit.nullable(),
  env: z.record(z.string(), z.string()),
  secrets: z.array(z.string().min(16)),
  logLevel: z.string(),
});

/** What a parent tells a gateway. */
export type StartMessage = z.infer<typeof startMessage>;

/** Decodes the parent's first message; null for anything else. */
export function decodeStart(message: unknown): StartMessage | null {
  const decoded = startMessage.safeParse(message);
  return decoded.success ? decoded.data : null;
}

const gatewayMessage = z.discriminatedUnion("type", [
  z.object({
    type: z.literal("ready"),
    version: z.literal(PROTOCOL_VERSION),
    sandbox: z.enum(["bubblewrap", "none"]),
    sandboxReason: z.string().nullable(),
  }),
  z.object({ type: z.literal("failed"), reason: z.string().max(500) }),
  z.object({ type: z.literal("tool_run"), tool: z.string().max(64), outcome: z.string().max(32) }),
  z.object({ type: z.literal("hook_run"), event: z.string().max(64), outcome: z.string().max(32) }),
]);

/** What a gateway tells its parent. */
export type GatewayMessage = z.infer<typeof gatewayMessage>;

/** Decodes a gateway's message; null for anything else. */
export function decodeGatewayMessage(message: unknown): GatewayMessage | null {
  const decoded = gatewayMessage.safeParse(message);
  return decoded.success ? decoded.data : null;
}
