import { EDGE_AUTH_FIELD, edgeAuthField } from "../exec-host/agent/edge-auth.ts";
import type { Clock } from "../policy/kernel/clock.ts";
import type { Config } from "./config.ts";
import type { EmbeddedHosts } from "./hosts.ts";
import type { AgentGateway } from "./router.ts";

/**
 * The way to agent gateways: an embedded one through its host, a remote one as configured. Every request is signed,
 * on the embedded socket too (decision 20).
 */
export function createAgentAccess(
  config: () => Config,
  embedded: Pick<EmbeddedHosts, "agentEndpoint">,
  clock: Clock,
): AgentGateway {
  return {
    endpoint(container) {
      const entry = config().containers.get(container);
      if (entry?.agent.kind === "remote") {
        const { port, secret } = entry.agent;
        return { origin: { kind: "tcp", host: entry.host, port }, secret };
      }
      return embedded.agentEndpoint(container);
    },
    sign: (secret, method, target) => [
      EDGE_AUTH_FIELD,
      edgeAuthField(secret, method, target, clock.now()),
    ],
  };
}
