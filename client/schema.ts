/** Types of the control API, one entry per operation. Generated from its description; do not edit. */

export interface Hook {
  id: string;
  position: number;
  match: { method?: string | string[]; path?: string; headers?: Record<string, string> };
  script: { subdomain?: string; execId?: string; path: string };
  timeout?: number;
  applies_to?: { groups: string[] };
}
export interface HookInput {
  match: { method?: string | string[]; path?: string; headers?: Record<string, string> };
  script: { subdomain?: string; execId?: string; path: string };
  timeout?: number;
  applies_to?: { groups: string[] };
  position?: number;
}
type Envelope<D> = { statusCode: number; message: string; data: D };
type Version = { file_version: number; etag: string };
type Document = Version & {
  groups: Record<string, unknown>;
  permissions: Record<string, Record<string, unknown>>;
  default?: "allow" | "deny";
  enable_proxy?: boolean;
};
type OneHook = Envelope<Version & { hook: Hook }>;
type Write<B> = { body: B; answer: Envelope<Document> };
type Alias = { id: string; alias: string; enabled: boolean; url: string };
type Container = { id: string; project_id: string; server_name: string; status: string };
type PermissionOperations<B extends string> = {
  [
    K in
      | `GET ${B}`
      | `DELETE ${B}`
      | `DELETE ${B}/groups/{}`
      | `DELETE ${B}/permissions/{}`
      | `DELETE ${B}/permissions/{}/{}`
  ]: { answer: Envelope<Document> };
} & {
  [K in `PUT ${B}`]: Write<Record<string, unknown>>;
} & {
  [K in `PATCH ${B}/default`]: Write<{ default: "allow" | "deny" }>;
} & { [K in `PATCH ${B}/state`]: Write<{ enable_proxy: boolean }> } & {
  [K in `PUT ${B}/groups/{}/ip`]: Write<{ range: string }>;
} & {
  [K in `PUT ${B}/groups/{}/jwt`]: Write<{
    secret: string;
    algorithm: "HS256" | "RS256" | "ES256";
    sources: string[];
    claims?: Record<string, string | number | boolean>;
  }>;
} & {
  [K in `PUT ${B}/groups/{}/password`]: Write<{
    username: string;
    password: string;
    salt: string;
    algorithm?: "sha256";
  }>;
} & {
  [K in `PUT ${B}/groups/{}/token`]: Write<{
    header?: string;
    cookie?: string;
    param?: string;
    value: string;
  }>;
} & {
  [K in `PUT ${B}/permissions/{}`]: Write<{
    program: string;
    access: boolean | number | number[] | string;
  }>;
};
export interface Operations
  extends
    PermissionOperations<"/api/v1/containers/{}/proxy/permissions">,
    PermissionOperations<"/api/v1/projects/{}/proxy/permissions"> {
  "GET /api/v1/containers/{}/proxy/hooks": {
    answer: Envelope<Version & { hooks: Record<string, Hook[]> }>;
  };
  "GET /api/v1/containers/{}/proxy/hooks/{}": {
    answer: Envelope<Version & { service: string; hooks: Hook[] }>;
  };
  "POST /api/v1/containers/{}/proxy/hooks/{}": { body: HookInput; answer: OneHook };
  "DELETE /api/v1/containers/{}/proxy/hooks/{}": {
    answer: Envelope<Version & { removed: number }>;
  };
  "GET /api/v1/containers/{}/proxy/hooks/{}/{}": { answer: OneHook };
  "PUT /api/v1/containers/{}/proxy/hooks/{}/{}": { body: HookInput; answer: OneHook };
  "DELETE /api/v1/containers/{}/proxy/hooks/{}/{}": { answer: Envelope<Version> };
  "PATCH /api/v1/containers/{}/proxy/hooks/{}/{}/position": {
    body: { position: number };
    answer: OneHook;
  };
  "GET /api/v1/containers/{}/proxy/settings": {
    answer: Envelope<Version & { enable_proxy: boolean; default: "allow" | "deny" }>;
  };
  "PUT /api/v1/containers/{}/proxy/settings": {
    body: { enable_proxy?: boolean; default?: "allow" | "deny" };
    answer: Envelope<Version & { enable_proxy: boolean; default: "allow" | "deny" }>;
  };
  "GET /api/v1/containers/{}/proxy/groups": {
    answer: Envelope<Version & { groups: { name: string; auth_rule_count: number }[] }>;
  };
  "GET /api/v1/containers/{}/proxy/services": {
    answer: Envelope<Version & { services: string[] }>;
  };
  "GET /api/v1/containers/{}/proxy/services/{}": {
    answer: Envelope<
      Version & {
        service: string;
        is_reject_listed: boolean;
        permissions_raw: Record<string, unknown>;
        hooks: Hook[];
        effective_default: "allow" | "deny";
      }
    >;
  };
  "GET /api/v1/containers/{}/proxy/audit": {
    answer: Envelope<{ records: AuditRecord[]; next: string | null }>;
  };
  "POST /api/v1/containers/{}/proxy/explain": {
    body: {
      service: string;
      instance?: number;
      method: string;
      path: string;
      headers?: Record<string, string>;
      groups?: string[];
      upgrade?: boolean;
    };
    answer: Envelope<{
      outcome: "dispatch" | "forward" | "refuse";
      status?: number;
      code?: string;
      hook_id?: string;
      script?: unknown;
      rules: {
        hook_id: string | null;
        position: number;
        fits: boolean;
        failed: string | null;
        detail: string | null;
      }[];
    }>;
  };
  "GET /api/v1/containers": { answer: Envelope<{ containers: Container[]; count: number }> };
  "GET /api/v1/containers/{}": { answer: Envelope<Container> };
  "GET /api/v1/proxy/aliases": { answer: Envelope<{ aliases: Alias[]; count: number }> };
  "POST /api/v1/proxy/aliases": { body: Record<string, unknown>; answer: Envelope<Alias> };
  "GET /api/v1/proxy/aliases/{}": { answer: Envelope<Alias> };
  "PATCH /api/v1/proxy/aliases/{}": { body: Record<string, unknown>; answer: Envelope<Alias> };
  "DELETE /api/v1/proxy/aliases/{}": { answer: Envelope<unknown> };
  "PATCH /api/v1/proxy/aliases/{}/state": { body: { enabled: boolean }; answer: Envelope<Alias> };
  "GET /api/v1/meta/public-key": { answer: Envelope<unknown> };
  "GET /api/v1/meta/limits": {
    answer: Envelope<{ limits: { name: string; value: number; unit: string }[] }>;
  };
}
export interface AuditRecord {
  audit_id: string;
  ts: string;
  project: string;
  container: string;
  service: string;
  hook_id: string;
  method: string;
  path: string;
  client_ip: string;
  matched_groups: string[];
  script: string;
  outcome: string;
  status: number | null;
  duration_ms: number;
}
