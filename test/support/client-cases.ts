import type { InterposeClient } from "../../client/client.ts";

/** A method of the client, the request it has to send, and its body. */
export type ClientCase = readonly [
  name: string,
  call: (client: InterposeClient) => unknown,
  line: string,
  body?: unknown,
];

const C = "890abcdef12345678901cdef";
const P = "67e89abc123def456789abcd";
const H = "01k5x0q8w3zr7v2m9n4p6t1a0b";
const AT = { ifMatch: "file:v3" };
const RULE = { match: { path: "*" }, script: { path: "/gate" } };

/** edge-proxy.md 9.2, the newer names; every write carries its version. */
export const CONTROL_CASES: readonly ClientCase[] = [
  ["hooks.list", (c) => c.api.proxy.hooks.list(C), `GET /api/v1/containers/${C}/proxy/hooks`],
  [
    "hooks.listByService",
    (c) => c.api.proxy.hooks.listByService(C, "terminal"),
    `GET /api/v1/containers/${C}/proxy/hooks/terminal`,
  ],
  [
    "hooks.create",
    (c) => c.api.proxy.hooks.create(C, "terminal", RULE, AT),
    `POST /api/v1/containers/${C}/proxy/hooks/terminal`,
    RULE,
  ],
  [
    "hooks.clear",
    (c) => c.api.proxy.hooks.clear(C, "terminal", AT),
    `DELETE /api/v1/containers/${C}/proxy/hooks/terminal`,
  ],
  [
    "hooks.get",
    (c) => c.api.proxy.hooks.get(C, "d-tcp", H),
    `GET /api/v1/containers/${C}/proxy/hooks/d-tcp/${H}`,
  ],
  [
    "hooks.set",
    (c) => c.api.proxy.hooks.set(C, "terminal", H, RULE, AT),
    `PUT /api/v1/containers/${C}/proxy/hooks/terminal/${H}`,
    RULE,
  ],
  [
    "hooks.delete",
    (c) => c.api.proxy.hooks.delete(C, "terminal", H, AT),
    `DELETE /api/v1/containers/${C}/proxy/hooks/terminal/${H}`,
  ],
  [
    "hooks.move",
    (c) => c.api.proxy.hooks.move(C, "terminal", H, { position: 0 }, AT),
    `PATCH /api/v1/containers/${C}/proxy/hooks/terminal/${H}/position`,
    { position: 0 },
  ],
  [
    "settings.get",
    (c) => c.api.proxy.settings.get(C),
    `GET /api/v1/containers/${C}/proxy/settings`,
  ],
  [
    "settings.update",
    (c) => c.api.proxy.settings.update(C, { default: "deny" }, AT),
    `PUT /api/v1/containers/${C}/proxy/settings`,
    { default: "deny" },
  ],
  ["groups.list", (c) => c.api.proxy.groups.list(C), `GET /api/v1/containers/${C}/proxy/groups`],
  [
    "services.list",
    (c) => c.api.proxy.services.list(C),
    `GET /api/v1/containers/${C}/proxy/services`,
  ],
  [
    "services.get",
    (c) => c.api.proxy.services.get(C, "files"),
    `GET /api/v1/containers/${C}/proxy/services/files`,
  ],
  [
    "aliases.list",
    (c) => c.api.proxy.aliases.list({ container_id: C, enabled: true }),
    `GET /api/v1/proxy/aliases?container_id=${C}&enabled=true`,
  ],
  ["aliases.get", (c) => c.api.proxy.aliases.get(H), `GET /api/v1/proxy/aliases/${H}`],
  [
    "aliases.create",
    (c) => c.api.proxy.aliases.create({ container_id: C, program: "files" }),
    "POST /api/v1/proxy/aliases",
    { container_id: C, program: "files" },
  ],
  [
    "aliases.update",
    (c) => c.api.proxy.aliases.update(H, { target_path: "/x" }),
    `PATCH /api/v1/proxy/aliases/${H}`,
    { target_path: "/x" },
  ],
  [
    "aliases.enable",
    (c) => c.api.proxy.aliases.enable(H),
    `PATCH /api/v1/proxy/aliases/${H}/state`,
    { enabled: true },
  ],
  [
    "aliases.disable",
    (c) => c.api.proxy.aliases.disable(H),
    `PATCH /api/v1/proxy/aliases/${H}/state`,
    { enabled: false },
  ],
  ["aliases.delete", (c) => c.api.proxy.aliases.delete(H), `DELETE /api/v1/proxy/aliases/${H}`],
  [
    "audit.list",
    (c) => c.api.proxy.audit.list(C, { limit: 5, after: "x y" }),
    `GET /api/v1/containers/${C}/proxy/audit?limit=5&after=x+y`,
  ],
  [
    "explain",
    (c) => c.api.proxy.explain(C, { service: "files", method: "GET", path: "/" }),
    `POST /api/v1/containers/${C}/proxy/explain`,
    { service: "files", method: "GET", path: "/" },
  ],
  ["containers.list", (c) => c.api.containers.list(), "GET /api/v1/containers"],
  ["containers.get", (c) => c.api.containers.get(C), `GET /api/v1/containers/${C}`],
  ["meta.publicKey", (c) => c.api.meta.publicKey(), "GET /api/v1/meta/public-key"],
  ["meta.limits", (c) => c.api.meta.limits(), "GET /api/v1/meta/limits"],
  ...(["containers", "projects"] as const).flatMap((owner): ClientCase[] => {
    const id = owner === "containers" ? C : P;
    const base = `/api/v1/${owner}/${id}/proxy/permissions`;
    const of = (c: InterposeClient) =>
      owner === "containers" ? c.api.proxy.containerPermissions : c.api.proxy.projectPermissions;
    const document = { groups: {}, permissions: {} } as never;
    const password = { username: "u", password: "p", salt: "s" };
    const jwt = { algorithm: "HS256" as const, secret: "k", sources: ["header:Authorization"] };
    return [
      [`${owner} get`, (c) => of(c).get(id), `GET ${base}`],
      [`${owner} set`, (c) => of(c).set(id, document, AT), `PUT ${base}`, document],
      [`${owner} delete`, (c) => of(c).delete(id, AT), `DELETE ${base}`],
      [
        `${owner} setDefault`,
        (c) => of(c).setDefault(id, { default: "deny" }, AT),
        `PATCH ${base}/default`,
        { default: "deny" },
      ],
      [
        `${owner} enable`,
        (c) => of(c).enable(id, AT),
        `PATCH ${base}/state`,
        { enable_proxy: true },
      ],
      [
        `${owner} disable`,
        (c) => of(c).disable(id, AT),
        `PATCH ${base}/state`,
        { enable_proxy: false },
      ],
      [
        `${owner} setIpGroup`,
        (c) => of(c).setIpGroup(id, "g", { range: "10.0.0.0/8" }, AT),
        `PUT ${base}/groups/g/ip`,
        { range: "10.0.0.0/8" },
      ],
      [
        `${owner} setJwtGroup`,
        (c) => of(c).setJwtGroup(id, "g", jwt, AT),
        `PUT ${base}/groups/g/jwt`,
        jwt,
      ],
      [
        `${owner} setPasswordGroup`,
        (c) => of(c).setPasswordGroup(id, "g", password, AT),
        `PUT ${base}/groups/g/password`,
        password,
      ],
      [
        `${owner} setTokenGroup`,
        (c) => of(c).setTokenGroup(id, "g", { cookie: "k", value: "v" }, AT),
        `PUT ${base}/groups/g/token`,
        { cookie: "k", value: "v" },
      ],
      [
        `${owner} deleteAuthGroup`,
        (c) => of(c).deleteAuthGroup(id, "g", AT),
        `DELETE ${base}/groups/g`,
      ],
      [
        `${owner} setGroupPermission`,
        (c) => of(c).setGroupPermission(id, "g", { program: "files", access: true }, AT),
        `PUT ${base}/permissions/g`,
        { program: "files", access: true },
      ],
      [
        `${owner} deleteGroupPermission`,
        (c) => of(c).deleteGroupPermission(id, "g", "files", AT),
        `DELETE ${base}/permissions/g/files`,
      ],
      [
        `${owner} clearGroupPermissions`,
        (c) => of(c).clearGroupPermissions(id, "g", AT),
        `DELETE ${base}/permissions/g`,
      ],
    ];
  }),
];

const S = "sess_01HMZ8XJ5K7Y9P3Q4R6T8V0WAB";
const WRITE = { session_id: S, nonce: "n", scope: "project" } as const;
const TRIPLE = { event: "PreToolUse", matcher: "Bash", command: "true" } as const;
export const RUN = { params: { cmd: "ls" }, allow_mutations: false };

/** agent-gateway.md 18.1, and the routes of its table A. */
export const AGENT_CASES: readonly ClientCase[] = [
  ["hooks.list", (c) => c.agent.hooks.list({ session_id: S }), `GET hooks?session_id=${S}`],
  [
    "hooks.list in a realm",
    (c) => c.agent.hooks.list({ session_id: S }, { realm: "global" }),
    `GET hooks?session_id=${S}&realm=global`,
  ],
  ["hooks.reload", (c) => c.agent.hooks.reload(), "POST hooks/reload"],
  [
    "hooks.reload of a session",
    (c) => c.agent.hooks.reload({ session_id: S }),
    "POST hooks/reload",
    { session_id: S },
  ],
  ["hooks.getRules", (c) => c.agent.hooks.getRules(), "GET hooks/rules"],
  [
    "hooks.createWriteIntent",
    (c) => c.agent.hooks.createWriteIntent({ session_id: S, op: "upsert", scope: "project" }),
    "POST hooks/begin-write",
    { session_id: S, op: "upsert", scope: "project" },
  ],
  [
    "hooks.setRules",
    (c) =>
      c.agent.hooks.setRules({ ...WRITE, rules: [], timeout_ms: 1500, expected_revision: null }),
    "POST hooks/rules",
    { ...WRITE, rules: [], timeout_ms: 1500, expected_revision: null },
  ],
  [
    "hooks.upsert",
    (c) => c.agent.hooks.upsert({ ...WRITE, ...TRIPLE, timeout: 60 }),
    "PUT hooks",
    { ...WRITE, ...TRIPLE, timeout: 60 },
  ],
  [
    "hooks.delete",
    (c) => c.agent.hooks.delete({ ...WRITE, ...TRIPLE }),
    "DELETE hooks",
    { ...WRITE, ...TRIPLE },
  ],
  [
    "hooks.enable",
    (c) => c.agent.hooks.enable({ ...WRITE, ...TRIPLE }),
    "POST hooks/toggle",
    { ...WRITE, ...TRIPLE, disabled: false },
  ],
  [
    "hooks.disable",
    (c) => c.agent.hooks.disable({ ...WRITE, ...TRIPLE }),
    "POST hooks/toggle",
    { ...WRITE, ...TRIPLE, disabled: true },
  ],
  [
    "hooks.enable a shipped one",
    (c) => c.agent.hooks.enable({ ...WRITE, shipped_id: "x" }),
    "POST hooks/toggle",
    { ...WRITE, shipped_id: "x", enabled: true },
  ],
  [
    "hooks.disable a shipped one",
    (c) => c.agent.hooks.disable({ ...WRITE, shipped_id: "x" }),
    "POST hooks/toggle",
    { ...WRITE, shipped_id: "x", enabled: false },
  ],
  [
    "hooks.enableAll",
    (c) => c.agent.hooks.enableAll(WRITE),
    "POST hooks/disable-all",
    { ...WRITE, value: false },
  ],
  [
    "hooks.disableAll",
    (c) => c.agent.hooks.disableAll(WRITE),
    "POST hooks/disable-all",
    { ...WRITE, value: true },
  ],
  [
    "hooks.run",
    (c) =>
      c.agent.hooks.run({
        session_id: S,
        event: "PreToolUse",
        match_value: "Bash",
        command: "true",
        timeout: 30,
      }),
    "POST hooks/test",
    { session_id: S, event: "PreToolUse", match_value: "Bash", command: "true", timeout: 30 },
  ],
  [
    "hooks.test",
    (c) => c.agent.hooks.test({ session_id: S, shipped_id: "x" }),
    "POST hooks/test",
    { session_id: S, shipped_id: "x" },
  ],
  [
    "hooks.trust",
    (c) => c.agent.hooks.trust({ session_id: S, hash: "h" }),
    "POST hooks/trust/ack",
    { session_id: S, hash: "h" },
  ],
  [
    "tools.listTools",
    (c) => c.agent.tools.listTools({ page: 2, limit: 5 }),
    "GET tools?page=2&limit=5",
  ],
  ["tools.list", (c) => c.agent.tools.list(), "GET tools"],
  ["tools.listReadOnlyTools", (c) => c.agent.tools.listReadOnlyTools(), "GET tools/read-only"],
  ["tools.getTool", (c) => c.agent.tools.getTool("bash"), "GET tools/bash"],
  ["tools.get with escapes", (c) => c.agent.tools.get("a/b?c"), "GET tools/a%2Fb%3Fc"],
  ["tools.listSessionTools", (c) => c.agent.tools.listSessionTools(S), `GET sessions/${S}/tools`],
  [
    "tools.listSessionMCPTools",
    (c) => c.agent.tools.listSessionMCPTools(S),
    `GET sessions/${S}/tools/mcp`,
  ],
  ["tools.runTool", (c) => c.agent.tools.runTool("bash", RUN), "POST tools/bash/run", RUN],
  ["tools.run without a body", (c) => c.agent.tools.run("list_dir"), "POST tools/list_dir/run", {}],
  [
    "tools.runToolAsync",
    (c) => c.agent.tools.runToolAsync("bash", RUN),
    "POST tools/bash/runAsync",
    RUN,
  ],
  ["tools.start", (c) => c.agent.tools.start("bash", RUN), "POST tools/bash/runAsync", RUN],
  [
    "tools.runSessionTool",
    (c) => c.agent.tools.runSessionTool(S, "read_file", { params: {} }),
    `POST sessions/${S}/tools/read_file/run`,
    { params: {} },
  ],
  [
    "sessions.create",
    (c) => c.agent.sessions.create({ headless: true }),
    "POST sessions",
    { headless: true },
  ],
  [
    "sessions.list",
    (c) => c.agent.sessions.list({ limit: 3, includeSystem: true }),
    "GET sessions?limit=3&include_system=true",
  ],
  ["sessions.get", (c) => c.agent.sessions.get(S), `GET sessions/${S}`],
  ["sessions.close", (c) => c.agent.sessions.close(S), `POST sessions/${S}/close`],
  [
    "sessions.delete",
    (c) => c.agent.sessions.delete(S, { hard: true }),
    `DELETE sessions/${S}?hard=true`,
  ],
  ["sessions.cancel", (c) => c.agent.sessions.cancel(S), `POST sessions/${S}/cancel`],
  [
    "sessions.confirm",
    (c) => c.agent.sessions.confirm(S, { approved: true }),
    `POST sessions/${S}/confirm`,
    { approved: true },
  ],
  [
    "sessions.answer",
    (c) => c.agent.sessions.answer(S, { text: "x" }),
    `POST sessions/${S}/answer`,
    { text: "x" },
  ],
  [
    "sessions.listApplicableRules",
    (c) => c.agent.sessions.listApplicableRules(S, { tool: "bash" }),
    `GET sessions/${S}/rules/applies?tool=bash`,
  ],
  [
    "sessions.listDecisions",
    (c) => c.agent.sessions.listDecisions(S),
    `GET sessions/${S}/decisions`,
  ],
  ["sessions.listTools", (c) => c.agent.sessions.listTools(S), `GET sessions/${S}/tools`],
  ["sessions.listMcpTools", (c) => c.agent.sessions.listMcpTools(S), `GET sessions/${S}/tools/mcp`],
  [
    "sessions.runTool",
    (c) => c.agent.sessions.runTool(S, "bash", RUN),
    `POST sessions/${S}/tools/bash/run`,
    RUN,
  ],
  ["jobs.getJob", (c) => c.agent.jobs.getJob({ id: "job_1" }), "GET jobs/job_1"],
  ["jobs.getJobResult", (c) => c.agent.jobs.getJobResult({ id: "job_1" }), "GET jobs/job_1/result"],
  ["jobs.deleteJob", (c) => c.agent.jobs.deleteJob({ id: "job_1" }), "DELETE jobs/job_1"],
  ["changes.get", (c) => c.agent.changes.get(), "GET changes"],
];
