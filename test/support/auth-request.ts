import { compileAccess } from "../../policy/compile/access.ts";
import type { CompiledAccess } from "../../policy/compile/compiled-policy.ts";
import type { Clock } from "../../policy/kernel/clock.ts";
import { createAuthenticator } from "../../proxy/auth/authenticate.ts";
import type { Authenticator, Principal } from "../../proxy/auth/authenticate.ts";
import { toPublicKey } from "../../proxy/claim.ts";
import type { SigningKey } from "../../proxy/claim.ts";
import { fakeClock } from "./auth-clock.ts";

/** What a test request presents; header text is latin1, as on the wire. */
export interface TestRequest {
  readonly fields?: readonly string[];
  readonly query?: string;
  readonly address?: string;
}

/** An authenticator with the given keys and no issuer. */
export function testAuthenticator(
  signing: readonly SigningKey[] = [],
  clock: Clock = fakeClock(),
): Authenticator {
  const keys = new Map(signing.map((key) => [key.kid, toPublicKey(key.publicKeyHex) ?? undefined]));
  return createAuthenticator({
    clock,
    keys: { get: (kid) => keys.get(kid), refresh: () => null },
  });
}

/** The principal of a request; throws when it was refused or had to wait. */
export function principalOf(
  authenticator: Authenticator,
  access: CompiledAccess,
  request: TestRequest,
): Principal {
  const result = authenticator.authenticate(access, {
    fields: request.fields ?? [],
    query: request.query ?? null,
    clientAddress: request.address ?? "192.0.2.1",
  });
  if (result instanceof Promise || result.kind !== "principal") {
    throw new Error("expected a principal at once");
  }
  return result.principal;
}

/** Compiles groups; throws when one of them is not valid. */
export function accessOf(groups: Record<string, unknown>): CompiledAccess {
  const access = compileAccess({ groups }, null);
  if (access.problems.length > 0) {
    throw new Error(JSON.stringify(access.problems));
  }
  return access;
}
