import { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { ENVELOPE_PREFIX } from "../../dispatcher/envelope.ts";

/** The request as scripts see it: Node's own, without the hand-over fields. */
export class HostRequest extends IncomingMessage {
  /** The whole body when the host buffered it. Set by the host as an accessor; a script may replace it. */
  declare body?: unknown;
  declare rawBody?: unknown;
  declare files?: unknown;
  #onRead: (() => void) | null = null;

  /** Called when somebody wants the body, before any of it is read. */
  watchRead(listener: () => void): void {
    this.#onRead = listener;
  }

  override _read(size: number): void {
    const listener = this.#onRead;
    this.#onRead = null;
    listener?.();
    super._read(size);
  }

  /**
   * Takes the hand-over fields out, with the edge's own expectation, and returns them by lower-case name, null when one is repeated. From here on
   * neither `headers` nor `rawHeaders` nor `headersDistinct` shows any of them.
   */
  takeEnvelope(): ReadonlyMap<string, string> | null {
    const taken = new Map<string, string>();
    const kept: string[] = [];
    const raw = this.rawHeaders;
    let isRepeated = false;
    for (let i = 0; i + 1 < raw.length; i += 2) {
      const name = raw[i]!;
      const lower = name.length > ENVELOPE_PREFIX.length ? name.toLowerCase() : "";
      if (lower.startsWith(ENVELOPE_PREFIX)) {
        isRepeated ||= taken.has(lower);
        taken.set(lower, raw[i + 1]!);
      } else if (name.length !== 6 || name.toLowerCase() !== "expect") {
        kept.push(name, raw[i + 1]!);
      }
    }
    // Node fills `headers` and `headersDistinct` from `rawHeaders`; this is the call with which its parser does so.
    this.headers = {};
    (this as unknown as HeaderLines)._addHeaderLines(kept, kept.length);
    return isRepeated ? null : taken;
  }
}

interface HeaderLines {
  _addHeaderLines(fields: string[], length: number): void;
}

/** Makes a connection from the edge show the client's address instead of its own (it has none, being a unix socket). */
export function showPeer(socket: Socket, address: string): void {
  define(socket, "remoteAddress", address);
  define(socket, "remoteFamily", address.includes(":") ? "IPv6" : "IPv4");
}

function define(socket: Socket, name: string, value: string): void {
  Object.defineProperty(socket, name, {
    value,
    configurable: true,
    writable: true,
    enumerable: false,
  });
}
