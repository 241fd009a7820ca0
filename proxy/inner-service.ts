import { createHmac, timingSafeEqual } from "node:crypto";
import type { Dispatcher } from "../dispatcher/dispatch.ts";
import { ENVELOPE_FIELDS, ENVELOPE_PREFIX } from "../dispatcher/envelope.ts";
import type { Clock } from "../policy/kernel/clock.ts";
import type { Exchange } from "../policy/kernel/exchange.ts";
import { fieldValue, sweepHopByHop } from "../policy/kernel/fields.ts";
import type { Http1Client, OutgoingRequest } from "../policy/kernel/http1/types.ts";
import { newHex } from "../policy/kernel/ids.ts";
import type { Log } from "../policy/kernel/log.ts";
import { answerRefusal, refusal } from "./answer.ts";
import { forward } from "./forward.ts";
import type { AgentGateway } from "./router.ts";

/**
 * The way of a hook on `exec` or `agent` to the service behind it. Embedded hosts listen on private sockets, so a script
 * could not forward to them: it gets this loopback address instead, and a token that names the one destination
 * that the hooked request was admitted to. Whoever has no token gets 403, whatever he asks for.
 */
export interface InnerDestination {
  readonly container: string;
  readonly service: "exec" | "agent";
  /** Of the host that the client addressed. */
  readonly subdomain: string | null;
  readonly execId: string | null;
}

/** Hands out and checks the tokens by which hooks reach hosts that have no port of their own. */
export interface InnerService {
  /** A token for one dispatch, good for `ms`. */
  mint(destination: InnerDestination, ms: number): string;
  /** Answers a request that came to the inner listener. */
  handle(exchange: Exchange): void;
}

/** What {@link createInnerService} builds on. */
export interface InnerServiceDeps {
  readonly clock: Clock;
  readonly log: Log;
  readonly client: Http1Client;
  readonly dispatcher: Pick<Dispatcher, "callExec">;
  readonly agents: AgentGateway;
  readonly limits: () => OutgoingRequest["limits"];
}

const EDGE_AUTH = "x-hoody-edge-auth";

interface Claims extends InnerDestination {
  /** ms since the epoch. */
  readonly until: number;
}

/** Builds it; a request without the token of a running dispatch is refused. */
export function createInnerService(deps: InnerServiceDeps): InnerService {
  const { clock, client, dispatcher, agents } = deps;
  const log = deps.log.child({ component: "inner" });
  const secret = newHex(32);

  function sign(payload: string): Buffer {
    return createHmac("sha256", secret).update(payload).digest();
  }

  function read(token: string | undefined): Claims | null {
    const [payload = "", signature = "", more] = (token ?? "").split(".");
    const given = Buffer.from(signature, "base64url");
    const right = sign(payload);
    if (more !== undefined || given.length !== right.length || !timingSafeEqual(given, right)) {
      return null;
    }
    const claims = JSON.parse(Buffer.from(payload, "base64url").toString()) as Claims; // ours, as the signature says
    return claims.until > clock.now() ? claims : null;
  }

  async function toAgent(exchange: Exchange, container: string, fields: string[]): Promise<void> {
    const { method, target } = exchange.head;
    const { origin, secret: agentSecret } = await agents.endpoint(container);
    const outcome = await forward(exchange, {
      client,
      clock,
      origin,
      method,
      target,
      fields: [...fields, ...agents.sign(agentSecret, method, target)],
      limits: deps.limits(),
    });
    if (outcome.kind === "failed" && !outcome.headSent) {
      answerRefusal(exchange, refusal("UPSTREAM_FAILED"));
    }
  }

  return {
    mint(destination, ms) {
      const claims: Claims = { ...destination, until: clock.now() + ms };
      const payload = Buffer.from(JSON.stringify(claims)).toString("base64url");
      return `${payload}.${sign(payload).toString("base64url")}`;
    },
    handle(exchange) {
      const { fields, target } = exchange.head;
      const claims = read(fieldValue(fields, ENVELOPE_FIELDS.upstreamToken.toLowerCase()));
      if (claims === null) {
        answerRefusal(exchange, refusal("FORBIDDEN"));
        return;
      }
      const kept = withoutOurs(sweepHopByHop(fields));
      if (claims.service === "exec") {
        const { container, subdomain, execId } = claims;
        const clientAddress = fieldValue(fields, "x-real-ip") ?? exchange.peer.address;
        const call = {
          exchange,
          fields: kept,
          target,
          clientAddress,
          container,
          subdomain,
          execId,
        };
        void dispatcher.callExec({ ...call, manage: false }); // never rejects, always answers
        return;
      }
      toAgent(exchange, claims.container, kept).catch((cause: unknown) => {
        log.warn({ err: cause, container: claims.container }, "agent gateway not available");
        answerRefusal(exchange, refusal("SERVICE_UNAVAILABLE"));
      });
    },
  };
}

/** Without what only the edge may say: a script is no edge, not even towards its own container. */
function withoutOurs(fields: readonly string[]): string[] {
  const kept: string[] = [];
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const name = (fields[i] as string).toLowerCase().replaceAll("_", "-");
    if (!name.startsWith(ENVELOPE_PREFIX) && name !== EDGE_AUTH) {
      kept.push(fields[i] as string, fields[i + 1] as string);
    }
  }
  return kept;
}
