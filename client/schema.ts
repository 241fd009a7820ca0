/**
 * Types of the control API, generated from its own description (GET /openapi.json). Do not edit;
 * `node test/support/client-schema.ts` writes this file again.
 */

export type Group =
  | {
      readonly range: string;
      readonly type: "ip";
    }
  | {
      readonly username: string;
      readonly password: string;
      readonly salt: string;
      readonly algorithm?: "sha256";
      readonly type: "password";
    }
  | {
      readonly header?: string;
      readonly cookie?: string;
      readonly param?: string;
      readonly value: string;
      readonly type: "token";
    }
  | {
      readonly secret: string;
      readonly algorithm: "HS256" | "RS256" | "ES256";
      readonly sources: readonly string[];
      readonly claims?: unknown;
      readonly type: "jwt";
    }
  | {
      readonly audience: string;
      readonly allow_types?: readonly ("user" | "admin")[];
      readonly users?: readonly string[];
      readonly max_age_seconds?: number;
      readonly expose_type?: boolean;
      readonly type: "hoody-identity";
    };

export type Container = {
  readonly id: string;
  readonly project_id: string;
  readonly server_name: string;
  readonly status: "running" | "stopped";
};

export type Error = {
  readonly statusCode: number;
  readonly error: string;
  readonly code: string;
  readonly message: string;
  readonly data?: readonly {
    readonly path: string;
    readonly message: string;
  }[];
};

export type Hook = {
  readonly match: {
    readonly method?: string | readonly string[];
    readonly path?: string;
    readonly headers?: Readonly<Record<string, string>>;
  };
  readonly script: {
    readonly subdomain?: string;
    readonly execId?: string;
    readonly path: string;
  };
  readonly timeout?: number;
  readonly applies_to?: {
    readonly groups: readonly string[];
  };
  readonly id: string;
  readonly position: number;
};

export type ContainerPermissions = {
  readonly project: string;
  /** One configuration per group, or several of which any satisfies it */
  readonly groups: Readonly<Record<string, Group | readonly Group[]>>;
  /** By group, then by program */
  readonly permissions: Readonly<
    Record<string, Readonly<Record<string, boolean | number | readonly number[] | string>>>
  >;
  readonly default: "allow" | "deny";
  readonly enable_proxy: boolean;
  readonly schema_version: number;
  readonly file_version: number;
  readonly etag: string;
  readonly container: string;
  readonly hooks: Readonly<Record<string, readonly unknown[]>>;
  readonly [member: string]: unknown;
};

export type ProjectPermissions = {
  readonly project: string;
  /** One configuration per group, or several of which any satisfies it */
  readonly groups: Readonly<Record<string, Group | readonly Group[]>>;
  /** By group, then by program */
  readonly permissions: Readonly<
    Record<string, Readonly<Record<string, boolean | number | readonly number[] | string>>>
  >;
  readonly default: "allow" | "deny";
  readonly enable_proxy: boolean;
  readonly schema_version: number;
  readonly file_version: number;
  readonly etag: string;
  readonly [member: string]: unknown;
};

export type AuditRecord = {
  readonly audit_id: string;
  readonly ts: string;
  readonly project: string;
  readonly container: string;
  readonly service: string;
  readonly hook_id: string;
  readonly method: string;
  readonly path: string;
  readonly client_ip: string;
  readonly matched_groups: readonly string[];
  readonly script: string;
  readonly outcome: string;
  readonly status: number;
  readonly duration_ms: number;
  readonly upstream_ms?: number | null;
};

export type Alias = {
  readonly id: string;
  readonly user_id: string | null;
  readonly project_id: string;
  readonly container_id: string;
  readonly server_id: string;
  readonly server_name: string;
  readonly alias: string;
  readonly program: string;
  readonly port: number | null;
  readonly index: number;
  readonly target_path: string | null;
  readonly allow_path_override: boolean;
  readonly expires_at: string | null;
  readonly enabled: boolean;
  readonly url: string;
  readonly created_at: string;
  readonly updated_at: string;
};

export interface Operations {
  /** Keys that identity claims are verified with */
  "GET /api/v1/meta/public-key": {
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: {
        readonly keys: readonly {
          readonly kid: string;
          readonly algorithm: "ed25519";
          readonly public_key_hex: string;
          readonly public_key_b64: string;
          readonly public_key_b64url: string;
        }[];
        readonly active_kid: string | null;
        readonly usage: readonly string[];
        readonly signing_format: Readonly<Record<string, unknown>>;
      };
    };
  };
  /** Every limit with its value and unit */
  "GET /api/v1/meta/limits": {
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: {
        readonly limits: readonly {
          readonly name: string;
          readonly value: number;
          readonly unit: string;
        }[];
      };
    };
  };
  /** List the configured containers */
  "GET /api/v1/containers": {
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: {
        readonly containers: readonly Container[];
        readonly count: number;
      };
    };
  };
  /** Read one container */
  "GET /api/v1/containers/{}": {
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: Container;
    };
  };
  /** List the hooks of a container by service */
  "GET /api/v1/containers/{}/proxy/hooks": {
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: {
        readonly hooks: Readonly<Record<string, readonly Hook[]>>;
        readonly file_version: number;
        readonly etag: string;
      };
    };
  };
  /** List the hooks of one service in order */
  "GET /api/v1/containers/{}/proxy/hooks/{}": {
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: {
        readonly service: string;
        readonly hooks: readonly Hook[];
        readonly file_version: number;
        readonly etag: string;
      };
    };
  };
  /** Append a hook, or insert it at a position */
  "POST /api/v1/containers/{}/proxy/hooks/{}": {
    readonly body: {
      readonly match: {
        readonly method?: string | readonly string[];
        readonly path?: string;
        readonly headers?: Readonly<Record<string, string>>;
      };
      readonly script: {
        readonly subdomain?: string;
        readonly execId?: string;
        readonly path: string;
      };
      readonly timeout?: number;
      readonly applies_to?: {
        readonly groups: readonly string[];
      };
      readonly position?: number;
    };
    readonly answer: {
      readonly statusCode: 201;
      readonly message: string;
      readonly data: {
        readonly hook: Hook;
        readonly file_version: number;
        readonly etag: string;
      };
    };
  };
  /** Remove all hooks of a service, unreadable ones too */
  "DELETE /api/v1/containers/{}/proxy/hooks/{}": {
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: {
        readonly removed: number;
        readonly file_version: number;
        readonly etag: string;
      };
    };
  };
  /** Read one hook */
  "GET /api/v1/containers/{}/proxy/hooks/{}/{}": {
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: {
        readonly hook: Hook;
        readonly file_version: number;
        readonly etag: string;
      };
    };
  };
  /** Replace a hook; it keeps its id and position */
  "PUT /api/v1/containers/{}/proxy/hooks/{}/{}": {
    readonly body: {
      readonly match: {
        readonly method?: string | readonly string[];
        readonly path?: string;
        readonly headers?: Readonly<Record<string, string>>;
      };
      readonly script: {
        readonly subdomain?: string;
        readonly execId?: string;
        readonly path: string;
      };
      readonly timeout?: number;
      readonly applies_to?: {
        readonly groups: readonly string[];
      };
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: {
        readonly hook: Hook;
        readonly file_version: number;
        readonly etag: string;
      };
    };
  };
  /** Remove a hook */
  "DELETE /api/v1/containers/{}/proxy/hooks/{}/{}": {
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: {
        readonly file_version: number;
        readonly etag: string;
      };
    };
  };
  /** Replace a hook; it keeps its id and position */
  "PATCH /api/v1/containers/{}/proxy/hooks/{}/{}": {
    readonly body: {
      readonly match: {
        readonly method?: string | readonly string[];
        readonly path?: string;
        readonly headers?: Readonly<Record<string, string>>;
      };
      readonly script: {
        readonly subdomain?: string;
        readonly execId?: string;
        readonly path: string;
      };
      readonly timeout?: number;
      readonly applies_to?: {
        readonly groups: readonly string[];
      };
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: {
        readonly hook: Hook;
        readonly file_version: number;
        readonly etag: string;
      };
    };
  };
  /** Move a hook to another position of its service */
  "PATCH /api/v1/containers/{}/proxy/hooks/{}/{}/position": {
    readonly body: {
      readonly position: number;
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: {
        readonly hook: Hook;
        readonly file_version: number;
        readonly etag: string;
      };
    };
  };
  /** Read the permissions document; the switches are those in force */
  "GET /api/v1/containers/{}/proxy/permissions": {
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ContainerPermissions;
    };
  };
  /** Replace groups, permissions and switches; hooks stay */
  "PUT /api/v1/containers/{}/proxy/permissions": {
    readonly body: {
      readonly project?: string;
      /** One configuration per group, or several of which any satisfies it */
      readonly groups: Readonly<Record<string, Group | readonly Group[]>>;
      /** By group, then by program */
      readonly permissions: Readonly<
        Record<string, Readonly<Record<string, boolean | number | readonly number[] | string>>>
      >;
      readonly default?: "allow" | "deny";
      readonly enable_proxy?: boolean;
      readonly hooks?: unknown;
      readonly schema_version?: unknown;
      readonly file_version?: unknown;
      readonly etag?: unknown;
      readonly container?: string;
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ContainerPermissions;
    };
  };
  /** Reset groups, permissions and switches; hooks stay */
  "DELETE /api/v1/containers/{}/proxy/permissions": {
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ContainerPermissions;
    };
  };
  /** Replace groups, permissions and switches; hooks stay */
  "PATCH /api/v1/containers/{}/proxy/permissions": {
    readonly body: {
      readonly project?: string;
      /** One configuration per group, or several of which any satisfies it */
      readonly groups: Readonly<Record<string, Group | readonly Group[]>>;
      /** By group, then by program */
      readonly permissions: Readonly<
        Record<string, Readonly<Record<string, boolean | number | readonly number[] | string>>>
      >;
      readonly default?: "allow" | "deny";
      readonly enable_proxy?: boolean;
      readonly hooks?: unknown;
      readonly schema_version?: unknown;
      readonly file_version?: unknown;
      readonly etag?: unknown;
      readonly container?: string;
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ContainerPermissions;
    };
  };
  /** Say what happens to callers in no group */
  "PATCH /api/v1/containers/{}/proxy/permissions/default": {
    readonly body: {
      readonly default: "allow" | "deny";
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ContainerPermissions;
    };
  };
  /** Close everything, or open it again for those who may */
  "PATCH /api/v1/containers/{}/proxy/permissions/state": {
    readonly body: {
      readonly enable_proxy: boolean;
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ContainerPermissions;
    };
  };
  /** Add or replace a group of type ip */
  "PUT /api/v1/containers/{}/proxy/permissions/groups/{}/ip": {
    readonly body: {
      readonly range: string;
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ContainerPermissions;
    };
  };
  /** Add or replace a group of type ip */
  "PATCH /api/v1/containers/{}/proxy/permissions/groups/{}/ip": {
    readonly body: {
      readonly range: string;
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ContainerPermissions;
    };
  };
  /** Add or replace a group of type jwt */
  "PUT /api/v1/containers/{}/proxy/permissions/groups/{}/jwt": {
    readonly body: {
      readonly secret: string;
      readonly algorithm: "HS256" | "RS256" | "ES256";
      readonly sources: readonly string[];
      readonly claims?: unknown;
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ContainerPermissions;
    };
  };
  /** Add or replace a group of type jwt */
  "PATCH /api/v1/containers/{}/proxy/permissions/groups/{}/jwt": {
    readonly body: {
      readonly secret: string;
      readonly algorithm: "HS256" | "RS256" | "ES256";
      readonly sources: readonly string[];
      readonly claims?: unknown;
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ContainerPermissions;
    };
  };
  /** Add or replace a group of type password */
  "PUT /api/v1/containers/{}/proxy/permissions/groups/{}/password": {
    readonly body: {
      readonly username: string;
      readonly password: string;
      readonly salt: string;
      readonly algorithm?: "sha256";
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ContainerPermissions;
    };
  };
  /** Add or replace a group of type password */
  "PATCH /api/v1/containers/{}/proxy/permissions/groups/{}/password": {
    readonly body: {
      readonly username: string;
      readonly password: string;
      readonly salt: string;
      readonly algorithm?: "sha256";
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ContainerPermissions;
    };
  };
  /** Add or replace a group of type token */
  "PUT /api/v1/containers/{}/proxy/permissions/groups/{}/token": {
    readonly body: {
      readonly header?: string;
      readonly cookie?: string;
      readonly param?: string;
      readonly value: string;
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ContainerPermissions;
    };
  };
  /** Add or replace a group of type token */
  "PATCH /api/v1/containers/{}/proxy/permissions/groups/{}/token": {
    readonly body: {
      readonly header?: string;
      readonly cookie?: string;
      readonly param?: string;
      readonly value: string;
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ContainerPermissions;
    };
  };
  /** Remove a group and its cells */
  "DELETE /api/v1/containers/{}/proxy/permissions/groups/{}": {
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ContainerPermissions;
    };
  };
  /** Say which instances of a program a group may use */
  "PUT /api/v1/containers/{}/proxy/permissions/permissions/{}": {
    readonly body: {
      readonly program: string;
      /** All instances or none, one, several, or a range such as 8000-8100 */
      readonly access: boolean | number | readonly number[] | string;
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ContainerPermissions;
    };
  };
  /** Remove every cell of a group */
  "DELETE /api/v1/containers/{}/proxy/permissions/permissions/{}": {
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ContainerPermissions;
    };
  };
  /** Say which instances of a program a group may use */
  "PATCH /api/v1/containers/{}/proxy/permissions/permissions/{}": {
    readonly body: {
      readonly program: string;
      /** All instances or none, one, several, or a range such as 8000-8100 */
      readonly access: boolean | number | readonly number[] | string;
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ContainerPermissions;
    };
  };
  /** Remove one cell */
  "DELETE /api/v1/containers/{}/proxy/permissions/permissions/{}/{}": {
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ContainerPermissions;
    };
  };
  /** Read the permissions document; the switches are those in force */
  "GET /api/v1/projects/{}/proxy/permissions": {
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ProjectPermissions;
    };
  };
  /** Replace groups, permissions and switches; hooks stay */
  "PUT /api/v1/projects/{}/proxy/permissions": {
    readonly body: {
      readonly project?: string;
      /** One configuration per group, or several of which any satisfies it */
      readonly groups: Readonly<Record<string, Group | readonly Group[]>>;
      /** By group, then by program */
      readonly permissions: Readonly<
        Record<string, Readonly<Record<string, boolean | number | readonly number[] | string>>>
      >;
      readonly default?: "allow" | "deny";
      readonly enable_proxy?: boolean;
      readonly hooks?: unknown;
      readonly schema_version?: unknown;
      readonly file_version?: unknown;
      readonly etag?: unknown;
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ProjectPermissions;
    };
  };
  /** Reset groups, permissions and switches; hooks stay */
  "DELETE /api/v1/projects/{}/proxy/permissions": {
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ProjectPermissions;
    };
  };
  /** Replace groups, permissions and switches; hooks stay */
  "PATCH /api/v1/projects/{}/proxy/permissions": {
    readonly body: {
      readonly project?: string;
      /** One configuration per group, or several of which any satisfies it */
      readonly groups: Readonly<Record<string, Group | readonly Group[]>>;
      /** By group, then by program */
      readonly permissions: Readonly<
        Record<string, Readonly<Record<string, boolean | number | readonly number[] | string>>>
      >;
      readonly default?: "allow" | "deny";
      readonly enable_proxy?: boolean;
      readonly hooks?: unknown;
      readonly schema_version?: unknown;
      readonly file_version?: unknown;
      readonly etag?: unknown;
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ProjectPermissions;
    };
  };
  /** Say what happens to callers in no group */
  "PATCH /api/v1/projects/{}/proxy/permissions/default": {
    readonly body: {
      readonly default: "allow" | "deny";
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ProjectPermissions;
    };
  };
  /** Close everything, or open it again for those who may */
  "PATCH /api/v1/projects/{}/proxy/permissions/state": {
    readonly body: {
      readonly enable_proxy: boolean;
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ProjectPermissions;
    };
  };
  /** Add or replace a group of type ip */
  "PUT /api/v1/projects/{}/proxy/permissions/groups/{}/ip": {
    readonly body: {
      readonly range: string;
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ProjectPermissions;
    };
  };
  /** Add or replace a group of type ip */
  "PATCH /api/v1/projects/{}/proxy/permissions/groups/{}/ip": {
    readonly body: {
      readonly range: string;
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ProjectPermissions;
    };
  };
  /** Add or replace a group of type jwt */
  "PUT /api/v1/projects/{}/proxy/permissions/groups/{}/jwt": {
    readonly body: {
      readonly secret: string;
      readonly algorithm: "HS256" | "RS256" | "ES256";
      readonly sources: readonly string[];
      readonly claims?: unknown;
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ProjectPermissions;
    };
  };
  /** Add or replace a group of type jwt */
  "PATCH /api/v1/projects/{}/proxy/permissions/groups/{}/jwt": {
    readonly body: {
      readonly secret: string;
      readonly algorithm: "HS256" | "RS256" | "ES256";
      readonly sources: readonly string[];
      readonly claims?: unknown;
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ProjectPermissions;
    };
  };
  /** Add or replace a group of type password */
  "PUT /api/v1/projects/{}/proxy/permissions/groups/{}/password": {
    readonly body: {
      readonly username: string;
      readonly password: string;
      readonly salt: string;
      readonly algorithm?: "sha256";
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ProjectPermissions;
    };
  };
  /** Add or replace a group of type password */
  "PATCH /api/v1/projects/{}/proxy/permissions/groups/{}/password": {
    readonly body: {
      readonly username: string;
      readonly password: string;
      readonly salt: string;
      readonly algorithm?: "sha256";
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ProjectPermissions;
    };
  };
  /** Add or replace a group of type token */
  "PUT /api/v1/projects/{}/proxy/permissions/groups/{}/token": {
    readonly body: {
      readonly header?: string;
      readonly cookie?: string;
      readonly param?: string;
      readonly value: string;
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ProjectPermissions;
    };
  };
  /** Add or replace a group of type token */
  "PATCH /api/v1/projects/{}/proxy/permissions/groups/{}/token": {
    readonly body: {
      readonly header?: string;
      readonly cookie?: string;
      readonly param?: string;
      readonly value: string;
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ProjectPermissions;
    };
  };
  /** Remove a group and its cells */
  "DELETE /api/v1/projects/{}/proxy/permissions/groups/{}": {
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ProjectPermissions;
    };
  };
  /** Say which instances of a program a group may use */
  "PUT /api/v1/projects/{}/proxy/permissions/permissions/{}": {
    readonly body: {
      readonly program: string;
      /** All instances or none, one, several, or a range such as 8000-8100 */
      readonly access: boolean | number | readonly number[] | string;
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ProjectPermissions;
    };
  };
  /** Remove every cell of a group */
  "DELETE /api/v1/projects/{}/proxy/permissions/permissions/{}": {
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ProjectPermissions;
    };
  };
  /** Say which instances of a program a group may use */
  "PATCH /api/v1/projects/{}/proxy/permissions/permissions/{}": {
    readonly body: {
      readonly program: string;
      /** All instances or none, one, several, or a range such as 8000-8100 */
      readonly access: boolean | number | readonly number[] | string;
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ProjectPermissions;
    };
  };
  /** Remove one cell */
  "DELETE /api/v1/projects/{}/proxy/permissions/permissions/{}/{}": {
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: ProjectPermissions;
    };
  };
  /** Say which hook would take a request, and why each other one would not */
  "POST /api/v1/containers/{}/proxy/explain": {
    readonly body: {
      readonly service: string;
      readonly instance?: number;
      readonly method: string;
      readonly path: string;
      readonly headers?: Readonly<Record<string, string>>;
      readonly groups?: readonly string[];
      readonly upgrade?: boolean;
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: {
        readonly outcome: "dispatch" | "forward" | "refuse";
        readonly status?: number;
        readonly code?: string;
        readonly hook_id?: string;
        readonly script?: {
          readonly subdomain?: string;
          readonly execId?: string;
          readonly path: string;
        };
        readonly rules: readonly {
          readonly hook_id: string;
          readonly position: number;
          readonly fits: boolean;
          readonly failed: "method" | "path" | "headers" | "groups" | "invalid" | null;
          readonly detail: string;
        }[];
      };
    };
  };
  /** List hook dispatches, newest first */
  "GET /api/v1/containers/{}/proxy/audit": {
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: {
        readonly records: readonly AuditRecord[];
        readonly next: string | null;
      };
    };
  };
  /** Follow hook dispatches live: one event per record, its id in `id` */
  "GET /api/v1/containers/{}/proxy/audit/stream": {
    readonly answer: unknown;
  };
  /** List aliases */
  "GET /api/v1/proxy/aliases": {
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: {
        readonly aliases: readonly Alias[];
        readonly count: number;
      };
    };
  };
  /** Give a program of a container a name of its own */
  "POST /api/v1/proxy/aliases": {
    readonly body: {
      readonly container_id: string;
      readonly alias?: string | false | null;
      readonly program: string;
      readonly port?: number | null;
      readonly index?: number | null;
      readonly target_path?: string | null;
      readonly allow_path_override?: boolean;
      readonly expires_at?: string | null;
      readonly enabled?: boolean;
    };
    readonly answer: {
      readonly statusCode: 201;
      readonly message: string;
      readonly data: Alias;
    };
  };
  /** Read one alias */
  "GET /api/v1/proxy/aliases/{}": {
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: Alias;
    };
  };
  /** Remove an alias */
  "DELETE /api/v1/proxy/aliases/{}": {
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: {
        readonly id: string;
      };
    };
  };
  /** Change fields of an alias */
  "PATCH /api/v1/proxy/aliases/{}": {
    readonly body: {
      readonly container_id?: string;
      readonly alias?: string;
      readonly program?: string;
      readonly port?: number | null;
      readonly index?: number | null;
      readonly target_path?: string | null;
      readonly allow_path_override?: boolean;
      readonly expires_at?: string | null;
      readonly enabled?: boolean;
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: Alias;
    };
  };
  /** Switch an alias on or off */
  "PATCH /api/v1/proxy/aliases/{}/state": {
    readonly body: {
      readonly enabled: boolean;
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: Alias;
    };
  };
  /** Read the two switches as they are in force */
  "GET /api/v1/containers/{}/proxy/settings": {
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: {
        readonly enable_proxy: boolean;
        readonly default: "allow" | "deny";
        readonly file_version: number;
        readonly etag: string;
      };
    };
  };
  /** Set one or both switches */
  "PUT /api/v1/containers/{}/proxy/settings": {
    readonly body: {
      readonly enable_proxy?: boolean;
      readonly default?: "allow" | "deny";
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: {
        readonly enable_proxy: boolean;
        readonly default: "allow" | "deny";
        readonly file_version: number;
        readonly etag: string;
      };
    };
  };
  /** Set one or both switches */
  "PATCH /api/v1/containers/{}/proxy/settings": {
    readonly body: {
      readonly enable_proxy?: boolean;
      readonly default?: "allow" | "deny";
    };
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: {
        readonly enable_proxy: boolean;
        readonly default: "allow" | "deny";
        readonly file_version: number;
        readonly etag: string;
      };
    };
  };
  /** List the container's groups */
  "GET /api/v1/containers/{}/proxy/groups": {
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: {
        readonly groups: readonly {
          readonly name: string;
          readonly auth_rule_count: number;
        }[];
        readonly file_version: number;
        readonly etag: string;
      };
    };
  };
  /** List the programs that a permission or a hook names */
  "GET /api/v1/containers/{}/proxy/services": {
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: {
        readonly services: readonly string[];
        readonly file_version: number;
        readonly etag: string;
      };
    };
  };
  /** Read everything the document says about one program */
  "GET /api/v1/containers/{}/proxy/services/{}": {
    readonly answer: {
      readonly statusCode: 200;
      readonly message: string;
      readonly data: {
        readonly service: string;
        readonly is_reject_listed: boolean;
        readonly permissions_raw: Readonly<Record<string, unknown>>;
        readonly hooks: readonly unknown[];
        readonly effective_default: "allow" | "deny";
        readonly file_version: number;
        readonly etag: string;
      };
    };
  };
}
