import type { Clock } from "../policy/kernel/clock.ts";
import type { Exchange } from "../policy/kernel/exchange.ts";
import type { Log } from "../policy/kernel/log.ts";
import { type Authenticator, createAuthenticator } from "./auth/authenticate.ts";
import { type IdentityKeys, createIdentityKeys } from "./auth/identity-keys.ts";
import { type TrustedProxies, clientAddress, createTrustedProxies } from "./client-address.ts";
import {
  type EmbeddedAgent,
  type EmbeddedExec,
  embeddedAgents,
  embeddedExecs,
} from "./config-views.ts";
import type { Config } from "./config.ts";
import { createCustomDomains } from "./custom-domains.ts";
import { createDnsLookup } from "./dns-lookup.ts";
import { type AliasLookup, type HostResolver, createHostResolver } from "./host-resolver.ts";

/** Everything of the edge that is made from one configuration; a reload makes a new one and swaps the pointer. */
export interface Generation {
  readonly config: Config;
  readonly hosts: HostResolver;
  readonly keys: IdentityKeys;
  readonly authenticator: Authenticator;
  /** Running containers whose scripts this process runs; one object for the life of the generation. */
  readonly embeddedExecs: ReadonlyMap<string, EmbeddedExec>;
  /** Running containers whose agent gateway this process runs. */
  readonly embeddedAgents: ReadonlyMap<string, EmbeddedAgent>;
  readonly trusted: TrustedProxies;
  clientAddress(exchange: Exchange): string;
}

/** What a generation is built from beside the configuration. */
export interface GenerationDeps {
  readonly clock: Clock;
  readonly log: Log;
  readonly aliases: AliasLookup;
}

/**
 * Builds a generation. Identity keys, with what was fetched and verified, are carried over while the `identity` part
 * of the configuration stays the same; the caller closes the keys that are not.
 */
export function createGeneration(
  config: Config,
  { clock, log, aliases }: GenerationDeps,
  previous: Generation | null,
): Generation {
  const kept =
    previous !== null &&
    JSON.stringify(previous.config.identity) === JSON.stringify(config.identity)
      ? previous
      : null;
  const keys = kept?.keys ?? createIdentityKeys({ clock, log, fetch }, config.identity);
  const { customDomains } = config;
  const domains =
    customDomains === "off"
      ? null
      : createCustomDomains(
          { lookup: createDnsLookup(customDomains), clock, log },
          { space: config, ...customDomains },
        );
  const trusted = createTrustedProxies(config.trustedProxies);
  return {
    config,
    keys,
    embeddedExecs: embeddedExecs(config),
    embeddedAgents: embeddedAgents(config),
    hosts: createHostResolver(config, { aliases, domains, clock }),
    authenticator: kept?.authenticator ?? createAuthenticator({ clock, keys }),
    trusted,
    clientAddress: ({ peer, head }) => clientAddress(peer.address, head.fields, trusted),
  };
}
