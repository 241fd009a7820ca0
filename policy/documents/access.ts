/** Placeholder of the group schema; completed with the permissions document. */
export interface GroupConfig {
  readonly type: "ip" | "password" | "token" | "jwt" | "hoody-identity";
}
