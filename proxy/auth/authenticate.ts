import { LRUCache } from "lru-cache";
import type { CompiledAccess } from "../../policy/compile/compiled-policy.ts";
import type { GroupConfig } from "../../policy/documents/access.ts";
import type { Clock } from "../../policy/kernel/clock.ts";
import type { Check } from "./check.ts";
import { CLAIM_FIELD, compileIdentity, createClaimVerifier } from "./identity.ts";
import type { Identity, IdentityCheck, VerifiedClaim } from "./identity.ts";
import type { IdentityKeys } from "./identity-keys.ts";
import { compileIp } from "./ip.ts";
import { compileJwt } from "./jwt.ts";
import type { TokenCache, VerifiedToken } from "./jwt.ts";
import { compilePassword } from "./password.ts";
import { readPresented } from "./presented.ts";
import type { AuthRequest, Presented, Wanted } from "./presented.ts";
import { compileToken } from "./token.ts";

/** Who a request speaks for, as far as it proved it. */
export interface Principal {
  /** Groups with at least one satisfied configuration. */
  readonly groups: ReadonlySet<string>;
  /** Whether a valid credential, anything but an address, was among what satisfied them. */
  readonly credential: boolean;
  readonly identity: Identity | null;
}

/** Who the caller is, or why the request cannot be judged. */
export type Authentication =
  | { readonly kind: "principal"; readonly principal: Principal }
  /** What was sent contradicts itself: `Authorization` occurs twice (decision 25). */
  | { readonly kind: "refused"; readonly code: "BAD_REQUEST" };

/** Finds out which groups a request belongs to. */
export interface Authenticator {
  /**
   * Evaluates every group of a container's access on the fields as received. Reads no file and waits for nothing; a
   * promise comes only when a claim with an unknown key id makes the issuer be asked. Never throws.
   */
  authenticate(
    access: CompiledAccess,
    request: AuthRequest,
  ): Authentication | Promise<Authentication>;
}

/** What the authenticator builds on. */
export interface AuthenticatorDeps {
  readonly clock: Clock;
  readonly keys: Pick<IdentityKeys, "get" | "refresh">;
}

/** Bounds of the authenticator. */
export interface AuthenticatorOptions {
  /** Verified JWTs that are remembered, and the characters they have in all. */
  readonly maxTokens?: number;
  readonly maxTokenCharacters?: number;
  /** Verified identity claims that are remembered. */
  readonly maxClaims?: number;
}

const NOBODY: Authentication = {
  kind: "principal",
  principal: { groups: new Set(), credential: false, identity: null },
};
const REFUSED: Authentication = { kind: "refused", code: "BAD_REQUEST" };

interface CompiledGroup {
  readonly name: string;
  readonly address: readonly Check[];
  readonly credentials: readonly Check[];
  readonly identities: readonly { readonly check: IdentityCheck; readonly exposeType: boolean }[];
}

interface CompiledGroups {
  readonly groups: readonly CompiledGroup[];
  readonly wanted: Wanted;
  readonly identity: boolean;
}

/** The authenticators of all group types, with their caches. Groups are compiled once per access generation. */
export function createAuthenticator(
  { clock, keys }: AuthenticatorDeps,
  options: AuthenticatorOptions = {},
): Authenticator {
  const tokens: TokenCache = new LRUCache<string, VerifiedToken>({
    max: options.maxTokens ?? 4096,
    maxSize: options.maxTokenCharacters ?? 4_194_304,
  });
  const claims = createClaimVerifier(keys, { maxEntries: options.maxClaims ?? 4096 });
  const compiled = new WeakMap<CompiledAccess, CompiledGroups>();

  return {
    authenticate(access, request) {
      let groups = compiled.get(access);
      if (groups === undefined) {
        groups = compileGroups(access, tokens);
        compiled.set(access, groups);
      }
      const presented = readPresented(request, groups.wanted, clock.now());
      if (presented === null) {
        return REFUSED;
      }
      if (groups.groups.length === 0) {
        return NOBODY;
      }
      const text = groups.identity ? presented.header(CLAIM_FIELD) : undefined;
      const claim = text === undefined ? null : claims.verify(text, presented.now);
      if (claim instanceof Promise) {
        const waiting = groups;
        return claim.then((late) => evaluate(waiting, presented, late));
      }
      return evaluate(groups, presented, claim);
    },
  };
}

function evaluate(
  { groups }: CompiledGroups,
  presented: Presented,
  claim: VerifiedClaim | null,
): Authentication {
  const satisfied = new Set<string>();
  let credential = false;
  let identified: Map<string, { exposeType: boolean }> | null = null;
  for (const group of groups) {
    let proven = group.credentials.some((check) => check(presented));
    if (claim !== null) {
      for (const { check, exposeType } of group.identities) {
        if (check(claim, presented.now)) {
          proven = true;
          identified ??= new Map();
          const shown = identified.get(group.name)?.exposeType ?? false;
          identified.set(group.name, { exposeType: exposeType || shown });
        }
      }
    }
    if (proven || group.address.some((check) => check(presented))) {
      satisfied.add(group.name);
      credential ||= proven;
    }
  }
  const identity = claim === null || identified === null ? null : { claim, groups: identified };
  return { kind: "principal", principal: { groups: satisfied, credential, identity } };
}

function compileGroups(access: CompiledAccess, tokens: TokenCache): CompiledGroups {
  const headers = new Set<string>();
  let cookies = false;
  let identity = false;
  const groups: CompiledGroup[] = [];
  for (const [name, configs] of access.groups) {
    const address: Check[] = [];
    const credentials: Check[] = [];
    const identities: { check: IdentityCheck; exposeType: boolean }[] = [];
    for (const config of configs) {
      for (const header of headersOf(config)) {
        headers.add(header);
      }
      cookies ||= usesCookies(config);
      switch (config.type) {
        case "ip":
          address.push(compileIp(config));
          break;
        case "password":
          credentials.push(compilePassword(config));
          break;
        case "token":
          credentials.push(compileToken(config));
          break;
        case "jwt":
          credentials.push(compileJwt(config, tokens));
          break;
        case "hoody-identity":
          identity = true;
          identities.push({
            check: compileIdentity(config),
            exposeType: config.expose_type === true,
          });
          break;
      }
    }
    groups.push({ name, address, credentials, identities });
  }
  return { groups, wanted: { headers, cookies }, identity };
}

/** Lower-case names of the headers a configuration looks at. */
function headersOf(config: GroupConfig): string[] {
  switch (config.type) {
    case "ip":
      return [];
    case "password":
      return ["authorization"];
    case "token":
      return config.header === undefined ? [] : [config.header.toLowerCase()];
    case "jwt":
      return config.sources
        .filter((source) => source.startsWith("header:"))
        .map((source) => source.slice("header:".length).toLowerCase());
    case "hoody-identity":
      return [CLAIM_FIELD];
  }
}

function usesCookies(config: GroupConfig): boolean {
  return (
    (config.type === "token" && config.cookie !== undefined) ||
    (config.type === "jwt" && config.sources.some((source) => source.startsWith("cookie:")))
  );
}
