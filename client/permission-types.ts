/** Shapes of permissions documents that the API's description leaves open (edge-proxy.md 2.2 and 2.3). */

/** Callers whose address is in a range. */
export interface IpGroup {
  readonly type: "ip";
  /** IPv4 CIDR. */
  readonly range: string;
}

/** Callers with one user name and password (HTTP Basic). */
export interface PasswordGroup {
  readonly type: "password";
  readonly username: string;
  /** Stored as the SHA-256 of salt and password; 64 lower-case hex characters are taken for that hash. */
  readonly password: string;
  readonly salt: string;
  readonly algorithm?: "sha256";
}

/** Callers that present a fixed token, in exactly one place. */
export type TokenGroup = { readonly type: "token"; readonly value: string } & (
  | { readonly header: string }
  | { readonly cookie: string }
  | { readonly param: string }
);

/** Callers with a signed token. */
export interface JwtGroup {
  readonly type: "jwt";
  readonly secret: string;
  readonly algorithm: "HS256" | "RS256" | "ES256";
  /** `header:<name>` or `cookie:<name>`. */
  readonly sources: readonly string[];
  readonly claims?: Readonly<Record<string, string | number | boolean>>;
}

/** Callers with a signed statement about their account. */
export interface IdentityGroup {
  readonly type: "hoody-identity";
  readonly audience: string;
  readonly allow_types?: readonly string[];
  readonly users?: readonly string[];
  readonly max_age_seconds?: number;
  readonly expose_type?: boolean;
}

/** A permission group of any type. */
export type GroupConfig = IpGroup | PasswordGroup | TokenGroup | JwtGroup | IdentityGroup;

/** Which instances a group may use: all or none, one, several, or a range such as `"8000-8100"`. */
export type AccessRule = boolean | number | readonly number[] | string;

/** What a bulk write sets. Hooks are not among it: only an empty `hooks` is taken. */
export interface PermissionsInput {
  readonly groups: Readonly<Record<string, GroupConfig | readonly GroupConfig[]>>;
  readonly permissions: Readonly<Record<string, Readonly<Record<string, AccessRule>>>>;
  readonly default?: "allow" | "deny";
  readonly enable_proxy?: boolean;
  readonly project?: string;
  readonly container?: string;
  readonly hooks?: Readonly<Record<string, never>>;
}
