import { timingSafeEqual } from "node:crypto";
import { STATUS_CODES } from "node:http";
import { toEnvelopeFields, type ExecEndpoint } from "../../dispatcher/envelope.ts";
import { errorBody, errorFields, statusOf, type ErrorCode } from "../../policy/kernel/errors.ts";
import type { Exchange, FieldLines } from "../../policy/kernel/exchange.ts";
import { fieldValues, sweepResponse } from "../../policy/kernel/fields.ts";
import type { Http1Client } from "../../policy/kernel/http1/types.ts";
import type { Log } from "../../policy/kernel/log.ts";
import { Relay } from "../../policy/kernel/relay.ts";

/** Who may use a container's management routes (decision 43). */
export type ManageMode = "admitted" | "open" | "off";

/** One request to the management routes of a container. */
export interface ManageCall {
  readonly exchange: Exchange;
  readonly fields: FieldLines;
  readonly target: string;
  readonly container: string;
  readonly subdomain: string | null;
  readonly execId: string | null;
  /** Whether a granting group of the container admitted the caller. */
  readonly admitted: boolean;
  readonly clientAddress: string;
}

/** The management routes of all containers: who may call is decided here, what a call does in another process. */
export interface ManageApi {
  /** True for a path of these routes. */
  owns(path: string): boolean;
  /** Answers the exchange; never rejects. The status that was sent, 0 when the client left. */
  handle(call: ManageCall): Promise<number>;
}

/** What {@link createManageApi} builds on. */
export interface ManageApiDeps {
  readonly client: Http1Client;
  readonly log: Log;
  /** The control token: its bearer is admitted everywhere but where management is off. */
  readonly token: string;
  readonly mode: (containerId: string) => ManageMode;
  /** Where the routes of a container are answered; null when it has no exec host. May throw or reject. */
  readonly endpoint: (containerId: string) => ExecEndpoint | null | Promise<ExecEndpoint | null>;
}

const BASE = "/api/v1/exec";
const LIMITS = { connectMs: 3_000, idleMs: 60_000, maxHeaderBytes: 65_536 };

/** Passes management requests to the container's management process. */
export function createManageApi(deps: ManageApiDeps): ManageApi {
  const { client } = deps;
  const log = deps.log.child({ component: "manage" });
  const token = Buffer.from(deps.token);

  const hasToken = (fields: FieldLines): boolean => {
    const [value, more] = fieldValues(fields, "authorization");
    const given = Buffer.from(/^bearer +(\S+) *$/i.exec(value ?? "")?.[1] ?? "", "latin1");
    return (
      more === undefined &&
      token.length > 0 &&
      given.length === token.length &&
      timingSafeEqual(given, token)
    );
  };

  const refusalOf = (call: ManageCall): ErrorCode | null => {
    switch (deps.mode(call.container)) {
      case "off":
        return "NOT_FOUND";
      case "open":
        return null;
      case "admitted":
        if (call.admitted || hasToken(call.fields)) {
          return null;
        }
        return fieldValues(call.fields, "authorization").length > 0 ? "FORBIDDEN" : "UNAUTHORIZED";
    }
  };

  const handle = async (call: ManageCall): Promise<number> => {
    const { exchange, container } = call;
    let gone = false;
    exchange.onGone(() => (gone = true));
    try {
      const refused = refusalOf(call);
      if (refused !== null) {
        return answerError(exchange, refused);
      }
      const endpoint = await deps.endpoint(container);
      if (gone) {
        return 0;
      }
      return endpoint === null
        ? answerError(exchange, "SERVICE_UNAVAILABLE")
        : await relay(call, endpoint);
    } catch (cause) {
      log.warn({ container, err: cause }, "management is not available");
      return answerError(exchange, "EXEC_UNREACHABLE");
    }
  };

  const relay = (call: ManageCall, endpoint: ExecEndpoint): Promise<number> =>
    new Promise((resolve) => {
      const { exchange } = call;
      let status = 0;
      const passing = new Relay(exchange, {
        head(head) {
          status = head.status;
          return sweepResponse(head.fields);
        },
        done(end) {
          if (end.kind === "failed" && !end.answered) {
            // A pattern or a text that never comes to an end takes its process with it: the caller's own doing.
            const { kind } = end.failure;
            resolve(
              answerError(exchange, kind === "connect" ? "EXEC_UNREACHABLE" : "SCRIPT_ERROR"),
            );
          } else {
            resolve(end.kind === "gone" && status === 0 ? 0 : status);
          }
        },
      });
      passing.attach(
        client.send(
          {
            origin: endpoint.origin,
            method: exchange.head.method,
            target: call.target,
            fields: [
              ...withoutCredentials(call.fields),
              ...toEnvelopeFields(
                {
                  kind: "ordinary",
                  subdomain: call.subdomain,
                  execId: call.execId,
                  clientAddress: call.clientAddress,
                  manage: true,
                },
                endpoint.secret,
              ),
            ],
            body: exchange.body,
            once: true,
            limits: LIMITS,
          },
          passing,
        ),
      );
    });

  return {
    owns: (path) => path === BASE || path.startsWith(`${BASE}/`),
    handle,
  };
}

/** The process behind the routes needs to know what is asked, not who asks. */
function withoutCredentials(fields: FieldLines): string[] {
  const kept: string[] = [];
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const name = fields[i]!.toLowerCase();
    if (name !== "authorization" && name !== "cookie") {
      kept.push(fields[i]!, fields[i + 1]!);
    }
  }
  return kept;
}

function answerError(exchange: Exchange, code: ErrorCode): number {
  if (exchange.answered) {
    return 0;
  }
  const status = statusOf(code);
  const fields = errorFields(code);
  if (code === "UNAUTHORIZED") {
    fields.push("WWW-Authenticate", "Bearer");
  }
  exchange.answer(
    { status, reason: STATUS_CODES[status] ?? "", fields },
    Buffer.from(errorBody(code)),
  );
  return status;
}
