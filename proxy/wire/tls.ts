import { createPrivateKey, X509Certificate } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import { createSecureContext, type SecureContext } from "node:tls";
import type { Clock } from "../../policy/kernel/clock.ts";
import type { Log } from "../../policy/kernel/log.ts";

/** One certificate with its key: PEM files, and the host names it is for. */
export interface CertificateFiles {
  readonly cert: string;
  readonly key: string;
  /** Names, or `*.` and a name for exactly one more label. Empty: those that the certificate states itself. */
  readonly hosts: readonly string[];
}

/** Certificates by server name, read again when their files change. */
export interface Certificates {
  /** The certificate for a server name: exact before wildcard, the first one when none fits or no name was sent. */
  contextFor(serverName: string): SecureContext;
  /** The pair for clients that name no server: the first one. */
  first(): { readonly cert: Buffer; readonly key: Buffer };
  /** Calls `listener` whenever a pair was exchanged. */
  onChange(listener: () => void): void;
  /** Takes other files from now on. Throws, and changes nothing, when one of them is not usable. */
  replace(files: readonly CertificateFiles[]): void;
  /** Looks at the files now; what is not usable is logged and the old one stays. */
  check(): void;
  close(): void;
}

interface Loaded {
  readonly files: CertificateFiles;
  cert: Buffer;
  key: Buffer;
  context: SecureContext;
  names: readonly string[];
  /** What the files looked like when they were last read, usable or not. */
  stamp: string;
}

const CHECK_MS = 1000;

/**
 * Certificates by server name, read again when their files change: connections that exist keep theirs, the next
 * handshake uses the new one. A pair that cannot be used leaves the old one in force.
 *
 * @throws Error when a file cannot be read or key and certificate do not belong together.
 */
export function createCertificates(
  files: readonly CertificateFiles[],
  deps: { readonly clock: Clock; readonly log: Log },
): Certificates {
  let loaded = loadAll(files);
  let exact = new Map<string, SecureContext>();
  let wildcards = new Map<string, SecureContext>();
  const listeners: (() => void)[] = [];
  index();
  const timer = deps.clock.every(CHECK_MS, check);

  function changes(): void {
    index();
    for (const listener of listeners) {
      listener();
    }
  }

  function index(): void {
    exact = new Map();
    wildcards = new Map();
    for (const { names, context } of loaded) {
      for (const name of names) {
        const [map, key] = name.startsWith("*.") ? [wildcards, name.slice(2)] : [exact, name];
        if (!map.has(key)) {
          map.set(key, context);
        }
      }
    }
  }

  function check(): void {
    let changed = false;
    for (const one of loaded) {
      const stamp = stampOf(one.files);
      if (stamp === one.stamp) {
        continue;
      }
      one.stamp = stamp;
      try {
        const fresh = load(one.files);
        Object.assign(one, {
          cert: fresh.cert,
          key: fresh.key,
          context: fresh.context,
          names: fresh.names,
        });
        changed = true;
        deps.log.info({ cert: one.files.cert }, "certificate read again");
      } catch (cause) {
        deps.log.warn(
          { cert: one.files.cert, err: cause },
          "changed certificate is not usable, the old one stays",
        );
      }
    }
    if (changed) {
      changes();
    }
  }

  return {
    contextFor(serverName) {
      const name = plainName(serverName);
      const dot = name.indexOf(".");
      return (
        exact.get(name) ??
        (dot > 0 ? wildcards.get(name.slice(dot + 1)) : undefined) ??
        loaded[0]!.context
      );
    },
    replace(next) {
      loaded = loadAll(next);
      changes();
    },
    first: () => ({ cert: loaded[0]!.cert, key: loaded[0]!.key }),
    onChange: (listener) => void listeners.push(listener),
    check,
    close: () => timer.cancel(),
  };
}

function loadAll(files: readonly CertificateFiles[]): Loaded[] {
  if (files.length === 0) {
    throw new Error("at least one certificate is needed");
  }
  return files.map(load);
}

function load(files: CertificateFiles): Loaded {
  const stamp = stampOf(files); // before reading: a change in between is seen at the next look
  const cert = readFileSync(files.cert);
  const key = readFileSync(files.key);
  const context = createSecureContext({ cert, key, minVersion: "TLSv1.2" });
  const leaf = new X509Certificate(cert);
  if (!leaf.checkPrivateKey(createPrivateKey(key))) {
    throw new Error("key and certificate do not belong together");
  }
  const names = files.hosts.length > 0 ? files.hosts : namesOf(leaf);
  return { files, cert, key, context, names: names.map(plainName), stamp };
}

/** Changes whenever one of the files does; a file that is away for a moment counts as a change. */
function stampOf(files: CertificateFiles): string {
  return [files.cert, files.key]
    .map((path) => {
      const stats = statSync(path, { bigint: true, throwIfNoEntry: false });
      return stats === undefined ? "none" : `${stats.ino}/${stats.size}/${stats.mtimeNs}`;
    })
    .join(" ");
}

function namesOf(leaf: X509Certificate): string[] {
  const names: string[] = [];
  for (const part of (leaf.subjectAltName ?? "").split(", ")) {
    if (part.startsWith("DNS:")) {
      names.push(part.slice(4));
    }
  }
  return names;
}

function plainName(name: string): string {
  const lower = name.toLowerCase();
  return lower.endsWith(".") ? lower.slice(0, -1) : lower;
}
