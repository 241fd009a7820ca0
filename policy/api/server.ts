import { createHash, timingSafeEqual } from "node:crypto";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { createAdaptorServer } from "@hono/node-server";
import type { OpenAPIHono } from "@hono/zod-openapi";
import type { Context } from "hono";
import { cors } from "hono/cors";
import { z } from "zod";
import { systemClock, type Clock } from "../kernel/clock.ts";
import { ApiError, createJsonApi, envelope } from "../kernel/json-api.ts";
import type { Log } from "../kernel/log.ts";
import type { Metrics } from "../kernel/metrics.ts";
import type { Aliases } from "../store/aliases.ts";
import type { AuditStore } from "../store/audit-store.ts";
import type { PolicyCache } from "../store/cache.ts";
import { createDocumentHealth } from "../store/health.ts";
import { StoreError, type PolicyStore } from "../store/store.ts";
import { addAliasEndpoints } from "./aliases.ts";
import { addAuditEndpoints } from "./audit.ts";
import { OBJECT_ID, pathParameter, type ContainerInfo } from "./context.ts";
import { addDiscoveryEndpoints } from "./discovery.ts";
import { addEndpoint } from "./endpoint.ts";
import { addExplainEndpoint } from "./explain.ts";
import { addHookEndpoints } from "./hooks.ts";
import { formatEtag } from "./if-match.ts";
import { addPermissionEndpoints } from "./permissions.ts";
import { storedVersion } from "../documents/version.ts";

/** A limit as `GET /api/v1/meta/limits` shows it. */
export interface LimitInfo {
  readonly name: string;
  readonly value: number;
  readonly unit: string;
}

/** A key that identity claims are signed with. */
export interface PublicKeyInfo {
  readonly kid: string;
  readonly publicKeyHex: string;
}

/** Whether a part of the process can do its work. */
export interface PartState {
  readonly ok: boolean;
  readonly reason?: string;
}

/** What the control API builds on. */
export interface ControlApiDeps {
  readonly store: PolicyStore;
  readonly cache: PolicyCache;
  readonly metrics: Metrics;
  readonly log: Log;
  readonly clock: Clock;
  /** The secret that callers must send as Bearer token. */
  readonly token: string;
  /** Configured containers by id, as of now. */
  readonly containers: () => ReadonlyMap<string, ContainerInfo>;
  /** Name of this node, `server_name` of every container. */
  readonly node: string;
  /** State of each configured part; the API adds its own. */
  readonly readiness: () => Readonly<Record<string, PartState>>;
  readonly limits: () => readonly LimitInfo[];
  /** Without it the alias calls answer 503. */
  readonly aliases?: Aliases;
  /** Without it the audit calls answer 503. */
  readonly audit?: AuditStore;
  /** Address of an alias for browsers; by default `https://<alias>.<node>`. */
  readonly aliasUrl?: (alias: string) => string;
  /** Keys for identity claims, the active one first. */
  readonly publicKeys: () => readonly PublicKeyInfo[];
}

/** Bounds of the control API. */
export interface ControlApiOptions {
  /** Largest request body in bytes. */
  readonly maxBodyBytes?: number;
}

/** The control API (contract.md 3). */
export function createControlApi(
  deps: ControlApiDeps,
  options: ControlApiOptions = {},
): OpenAPIHono {
  const maxBodyBytes = options.maxBodyBytes ?? 1024 * 1024;
  const app = createJsonApi({ log: deps.log, translate: storeFailure });
  const shared = cors({
    origin: "*",
    allowMethods: ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
    allowHeaders: [
      "Authorization",
      "Content-Type",
      "If-Match",
      "X-Hoody-Client-ID",
      "X-Hoody-Client-Name",
    ],
    exposeHeaders: ["ETag", "Retry-After"],
    maxAge: 600,
  });
  app.use("/api/v1/*", shared);
  app.use("/openapi.json", shared);
  addOpenRoutes(app, deps);
  addMetaEndpoints(app, deps);
  app.use("/api/v1/*", bearerToken(deps.token));
  app.use("/api/v1/*", logWrites(deps.log));
  app.use("/api/v1/containers/:id/proxy/*", alwaysEtag(deps));

  const container = (context: Context): ContainerInfo => {
    const found = deps.containers().get(pathParameter(context, "id", OBJECT_ID));
    if (found === undefined) {
      throw new ApiError("NOT_FOUND", "Resource not found: no container has this id");
    }
    return found;
  };
  addContainerEndpoints(app, deps, container);
  const project = (context: Context): string => {
    const id = pathParameter(context, "id", OBJECT_ID);
    for (const info of deps.containers().values()) {
      if (info.project === id) {
        return id;
      }
    }
    throw new ApiError("NOT_FOUND", "Resource not found: no container belongs to this project");
  };
  addHookEndpoints(app, { store: deps.store, clock: deps.clock, maxBodyBytes, container });
  app.all("/api/v1/projects/:id/proxy/hooks/*", (context) => {
    project(context);
    throw new ApiError("VALIDATION_ERROR", "hooks belong to containers; a project has none");
  });
  addPermissionEndpoints(app, { store: deps.store, maxBodyBytes, container, project });
  addExplainEndpoint(app, { cache: deps.cache, maxBodyBytes, container });
  addAuditEndpoints(app, { audit: deps.audit ?? null, clock: deps.clock, container });
  addAliasEndpoints(app, {
    aliases: deps.aliases ?? null,
    aliasUrl: deps.aliasUrl ?? ((alias) => `https://${alias}.${deps.node}`),
    clock: deps.clock,
    containers: deps.containers,
    node: deps.node,
    maxBodyBytes,
  });
  addDiscoveryEndpoints(app, { store: deps.store, maxBodyBytes, container, project });

  app.openAPIRegistry.registerComponent("securitySchemes", "bearer", {
    type: "http",
    scheme: "bearer",
  });
  let description: object | null = null;
  app.get("/openapi.json", (context) => {
    // Made once, on the first call: it costs some milliseconds and anybody may ask for it.
    description ??= app.getOpenAPI31Document({
      openapi: "3.1.0",
      info: { title: "interpose control API", version: "1" },
      servers: [{ url: "/" }],
    });
    return context.json(description);
  });
  return app;
}

/** Health, readiness, metrics: for machines, without a token. */
function addOpenRoutes(app: OpenAPIHono, deps: ControlApiDeps): void {
  app.get("/healthz", (context) => context.json({ status: "ok" }));
  const health = createDocumentHealth(deps);
  app.get("/readyz", async (context) => {
    const problem = deps.cache.storeProblem() ?? deps.aliases?.problem() ?? null;
    const invalid = await health.problem();
    const parts: Record<string, PartState> = {
      ...deps.readiness(),
      "policy store": problem === null ? { ok: true } : { ok: false, reason: problem },
      "policy documents": invalid === null ? { ok: true } : { ok: false, reason: invalid },
    };
    const ready = Object.values(parts).every((part) => part.ok);
    context.header("Cache-Control", "no-store");
    return context.json({ status: ready ? "ready" : "unavailable", parts }, ready ? 200 : 503);
  });
  app.get("/metrics", async (context) => {
    deps.metrics.policyAge.set(deps.cache.ageSeconds());
    return context.body(await deps.metrics.registry.metrics(), 200, {
      "Content-Type": deps.metrics.registry.contentType,
      "Cache-Control": "no-store",
    });
  });
}

function addMetaEndpoints(app: OpenAPIHono, deps: ControlApiDeps): void {
  const tag = "meta";
  addEndpoint(app, {
    methods: ["get"],
    path: "/api/v1/meta/public-key",
    operationId: "getPublicKeys",
    summary: "Keys that identity claims are verified with",
    tag,
    open: true,
    errors: [],
    data: z.object({
      keys: z.array(
        z.object({
          kid: z.string(),
          algorithm: z.literal("ed25519"),
          public_key_hex: z.string(),
          public_key_b64: z.string(),
          public_key_b64url: z.string(),
        }),
      ),
      active_kid: z.string().nullable(),
      usage: z.array(z.string()),
      signing_format: z.record(z.string(), z.unknown()),
    }),
    handle(context) {
      const keys = deps.publicKeys();
      return envelope(context, "Public keys listed successfully", {
        keys: keys.map(({ kid, publicKeyHex }) => {
          const raw = Buffer.from(publicKeyHex, "hex");
          return {
            kid,
            algorithm: "ed25519",
            public_key_hex: publicKeyHex,
            public_key_b64: raw.toString("base64"),
            public_key_b64url: raw.toString("base64url"),
          };
        }),
        active_kid: keys[0]?.kid ?? null,
        usage: ["identity_claim"],
        signing_format: {
          identity_claim_signed_data: "the bytes of payload_b64",
          replay_tolerance_seconds: 300,
        },
      });
    },
  });
  addEndpoint(app, {
    methods: ["get"],
    path: "/api/v1/meta/limits",
    operationId: "getLimits",
    summary: "Every limit with its value and unit",
    tag,
    open: true,
    errors: [],
    data: z.object({
      limits: z.array(z.object({ name: z.string(), value: z.number(), unit: z.string() })),
    }),
    handle: (context) => envelope(context, "Limits listed successfully", { limits: deps.limits() }),
  });
}

function addContainerEndpoints(
  app: OpenAPIHono,
  deps: ControlApiDeps,
  container: (context: Context) => ContainerInfo,
): void {
  const schema = z
    .object({
      id: z.string(),
      project_id: z.string(),
      server_name: z.string(),
      status: z.enum(["running", "stopped"]),
    })
    .meta({ id: "Container" });
  const toJson = ({ id, project, status }: ContainerInfo) => ({
    id,
    project_id: project,
    server_name: deps.node,
    status,
  });
  addEndpoint(app, {
    methods: ["get"],
    path: "/api/v1/containers",
    operationId: "listContainers",
    summary: "List the configured containers",
    tag: "containers",
    errors: [],
    data: z.object({ containers: z.array(schema), count: z.int() }),
    handle(context) {
      const containers = [...deps.containers().values()].map(toJson);
      return envelope(context, "Containers listed successfully", {
        containers,
        count: containers.length,
      });
    },
  });
  addEndpoint(app, {
    methods: ["get"],
    path: "/api/v1/containers/{id}",
    operationId: "getContainer",
    summary: "Read one container",
    tag: "containers",
    params: { id: z.string().regex(OBJECT_ID) },
    errors: [400, 404],
    data: schema,
    handle: (context) =>
      envelope(context, "Container retrieved successfully", toJson(container(context))),
  });
}

/** Lets only callers through that send the token; compares in constant time, whatever its length. */
function bearerToken(token: string) {
  const digest = (text: string): Buffer => createHash("sha256").update(text).digest();
  const wanted = digest(token);
  return async (context: Context, next: () => Promise<void>): Promise<void> => {
    const sent = /^bearer +(\S+) *$/i.exec(context.req.header("authorization") ?? "")?.[1];
    if (!timingSafeEqual(digest(sent ?? ""), wanted) || sent === undefined) {
      context.header("WWW-Authenticate", 'Bearer realm="interpose"');
      throw new ApiError(
        "UNAUTHORIZED",
        "A valid API token is required: Authorization: Bearer <token>",
      );
    }
    await next();
  };
}

/** Gives answers about a container's document its ETag where the handler had no version at hand (decision 39). */
function alwaysEtag({ containers, store }: ControlApiDeps) {
  return async (context: Context, next: () => Promise<void>): Promise<void> => {
    await next();
    const id = context.req.param("id") ?? "";
    if (!context.res.headers.has("etag") && containers().has(id)) {
      const stored = await store.read(`containers/${id}`).then(
        ({ text }) => storedVersion(text),
        () => null,
      );
      if (stored?.ok === true) {
        context.res.headers.set("ETag", formatEtag(stored.version));
      }
    }
  };
}

/** Leaves a line for every call that may have changed something. */
function logWrites(log: Log) {
  return async (context: Context, next: () => Promise<void>): Promise<void> => {
    await next();
    const { method, path } = context.req;
    if (method !== "GET" && method !== "HEAD" && method !== "OPTIONS") {
      log.info(
        { method, path, status: context.res.status, revision: context.res.headers.get("etag") },
        "control call",
      );
    }
  };
}

/** A store that cannot read or write is a 503 with its reason; reads of other documents go on. */
function storeFailure(cause: unknown): ApiError | null {
  return cause instanceof StoreError
    ? new ApiError("SERVICE_UNAVAILABLE", `The call could not be carried out: ${cause.message}.`)
    : null;
}

/** A control listener that is up. */
export interface ControlListener {
  readonly host: string;
  readonly port: number;
  /** Stops listening; idle connections end at once, others with their answer or after a short grace. */
  close(): Promise<void>;
}

/** Connections that the control listener holds at most. */
const MAX_CONNECTIONS = 512;
/** How long running calls may go on after `close`, in ms; streams never end by themselves. */
const CLOSE_GRACE_MS = 2_000;

/** Serves the API on an address; port 0 is any free one. Rejects when the address is taken. */
export function listenControl(
  app: OpenAPIHono,
  address: { readonly host: string; readonly port: number },
  clock: Clock = systemClock,
): Promise<ControlListener> {
  const server = createAdaptorServer({
    fetch: app.fetch,
    createServer,
    // The process has other users of Request and Response than this listener.
    overrideGlobalObjects: false,
    serverOptions: {
      headersTimeout: 10_000,
      requestTimeout: 60_000,
      maxHeaderSize: 32_768,
      keepAliveTimeout: 65_000,
    },
  }) as Server;
  server.maxConnections = MAX_CONNECTIONS;
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(address.port, address.host, () => {
      server.off("error", reject);
      resolve({
        host: address.host,
        port: (server.address() as AddressInfo).port,
        close: () =>
          new Promise((done) => {
            const grace = clock.after(CLOSE_GRACE_MS, () => server.closeAllConnections());
            server.close(() => {
              grace.cancel();
              done();
            });
            server.closeIdleConnections();
          }),
      });
    });
  });
}
