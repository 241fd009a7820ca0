import type { OpenAPIHono } from "@hono/zod-openapi";
import type { Context } from "hono";
import { streamSSE } from "hono/streaming";
import { z } from "zod";
import { delay, type Clock } from "../kernel/clock.ts";
import { ApiError, envelope } from "../kernel/json-api.ts";
import type { AuditRow } from "../store/audit-row.ts";
import type { AuditStore } from "../store/audit-store.ts";
import { OBJECT_ID, type ContainerInfo } from "./context.ts";
import { addEndpoint } from "./endpoint.ts";
import { checkedBody } from "./permission-schemas.ts";

/** What the audit endpoints build on. */
export interface AuditApiDeps {
  /** null where no records are kept: the calls then answer 503. */
  readonly audit: AuditStore | null;
  readonly clock: Clock;
  readonly container: (context: Context) => ContainerInfo;
}

const BASE = "/api/v1/containers/{id}/proxy/audit";
const AUDIT_ID = /^[0-9a-f-]{36}$/;
/** Most live streams at once. */
const MAX_STREAMS = 64;
/** Most records that wait for a slow reader; it is cut off then. */
const MAX_BACKLOG = 1024;
const HEARTBEAT_MS = 15_000;
/** Most records that a resumed stream repeats. */
const MAX_REPLAY = 1000;

const rowSchema = z
  .object({
    audit_id: z.string(),
    ts: z.string(),
    project: z.string(),
    container: z.string(),
    service: z.string(),
    hook_id: z.string(),
    method: z.string(),
    path: z.string(),
    client_ip: z.string(),
    matched_groups: z.array(z.string()),
    script: z.string(),
    outcome: z.string(),
    status: z.int(),
    duration_ms: z.number(),
    upstream_ms: z.number().nullable().optional(),
  })
  .meta({ id: "AuditRecord" });

const query = z.object({
  limit: z
    .string()
    .regex(/^[1-9]\d{0,3}$/, { error: "expected a number from 1 to 1000" })
    .refine((text) => Number(text) <= 1000, { error: "expected a number from 1 to 1000" })
    .optional(),
  after: z.string().regex(AUDIT_ID, { error: "expected an audit id" }).optional(),
});

/** Adds the audit endpoints (contract.md 3, decision 40): pages, newest first, and a live tail. */
export function addAuditEndpoints(
  app: OpenAPIHono,
  { audit, clock, container }: AuditApiDeps,
): void {
  const params = { id: z.string().regex(OBJECT_ID) };
  addEndpoint(app, {
    methods: ["get"],
    path: BASE,
    operationId: "listAudit",
    summary: "List hook dispatches, newest first",
    tag: "audit",
    params,
    query,
    data: z.object({ records: z.array(rowSchema), next: z.string().nullable() }),
    errors: [400, 404],
    async handle(context) {
      const info = container(context);
      const { limit, after } = checkedBody(query, context.req.query());
      const page = await kept(audit).query({
        container: info.id,
        limit: Number(limit ?? 100),
        after: after ?? null,
      });
      return envelope(context, "Audit records listed successfully", page);
    },
  });

  let streams = 0;
  app.get("/api/v1/containers/:id/proxy/audit/stream", (context) => {
    const info = container(context);
    const last = context.req.header("last-event-id");
    const records = kept(audit);
    if (streams >= MAX_STREAMS) {
      throw new ApiError(
        "SERVICE_UNAVAILABLE",
        `At most ${MAX_STREAMS} audit streams may be open.`,
      );
    }
    streams++;
    context.header("Cache-Control", "no-store");
    return streamSSE(context, async (stream) => {
      const backlog: AuditRow[] = [];
      let wake = (): void => {};
      const unsubscribe = records.subscribe(info.id, (record) => {
        backlog.push(record);
        if (backlog.length > MAX_BACKLOG) {
          stream.abort(); // the reader comes back with the id of its last record
        }
        wake();
      });
      const heartbeat = clock.every(HEARTBEAT_MS, () => void stream.write(": still here\n\n"));
      stream.onAbort(() => wake());
      try {
        await stream.write(": audit records\n\n"); // the head goes out at once, so that readers know they listen
        const sent = new Set<string>();
        for (const record of await missed(records, info.id, last)) {
          sent.add(record.audit_id);
          await stream.writeSSE({ id: record.audit_id, data: JSON.stringify(record) });
        }
        while (!stream.aborted && !stream.closed) {
          const record = backlog.shift();
          if (record === undefined) {
            await Promise.race([
              new Promise<void>((resolve) => (wake = resolve)),
              delay(clock, HEARTBEAT_MS),
            ]);
          } else if (!sent.delete(record.audit_id)) {
            await stream.writeSSE({ id: record.audit_id, data: JSON.stringify(record) });
          }
        }
      } finally {
        streams--;
        heartbeat.cancel();
        unsubscribe();
      }
    });
  });
  app.openAPIRegistry.registerPath({
    method: "get",
    path: `${BASE}/stream`,
    operationId: "streamAudit",
    summary: "Follow hook dispatches live: one event per record, its id in `id`",
    tags: ["audit"],
    security: [{ bearer: [] }],
    request: { params: z.object(params) },
    responses: {
      200: {
        description: "Server-sent events",
        content: { "text/event-stream": { schema: z.string() } },
      },
      401: { description: "No valid token" },
      404: { description: "No such resource" },
    },
  });
}

function kept(audit: AuditStore | null): AuditStore {
  if (audit === null) {
    throw new ApiError("SERVICE_UNAVAILABLE", "No audit records are kept here.");
  }
  return audit;
}

/** Records since the one a reader saw last, oldest first; nothing for one that does not say. */
async function missed(
  audit: AuditStore,
  container: string,
  last: string | undefined,
): Promise<readonly AuditRow[]> {
  if (last === undefined || !AUDIT_ID.test(last)) {
    return [];
  }
  const { records } = await audit.query({ container, limit: MAX_REPLAY, after: null });
  const seen = records.findIndex((record) => record.audit_id === last);
  return (seen < 0 ? records : records.slice(0, seen)).toReversed();
}
