import { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { ENVELOPE_PREFIX } from "../../dispatcher/envelope.ts";

/** Whether a request's head announces a body: chunks, or a length above zero (RFC 9112 6.3). */
export let isBodyAnnounced: (req: HostRequest) => boolean;

/** Whether anybody has looked at `req.headers`; true for an object that is not the host's. */
export let areHeadersSeen: (req: HostRequest) => boolean;

function announcesBody(name: string, value: string): boolean {
  if (name.length === 14) {
    return name.toLowerCase() === "content-length" && Number(value) > 0;
  }
  return name.length === 17 && name.toLowerCase() === "transfer-encoding";
}

/** The request as scripts see it: Node's own, without the hand-over fields. */
export class HostRequest extends IncomingMessage {
  /** The whole body when the host buffered it. Set by the host as an accessor; a script may replace it. */
  declare body?: unknown;
  declare rawBody?: unknown;
  declare files?: unknown;
  #onRead: (() => void) | null = null;
  #isBodyAnnounced = false;
  #areHeadersSeen = false;
  #isTaken = false;

  static {
    const node = Object.getOwnPropertyDescriptor(IncomingMessage.prototype, "headers")!;
    // Node builds the headers object when somebody looks at it; a call that nobody looks into is spared that, and
    // what was never looked at was never changed either.
    Object.defineProperty(HostRequest.prototype, "headers", {
      configurable: true,
      get(this: HostRequest): unknown {
        if (!this.#isTaken) {
          return expectation(this.rawHeaders); // Node's server looks for nothing else, and all would be built anew
        }
        this.#areHeadersSeen = true;
        return node.get?.call(this) as unknown;
      },
      set(this: HostRequest, value: unknown) {
        this.#areHeadersSeen = true;
        node.set?.call(this, value);
      },
    });
    isBodyAnnounced = (req) => req.#isBodyAnnounced;
    areHeadersSeen = (req) => !(#areHeadersSeen in req) || req.#areHeadersSeen;
  }

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
   * Takes the hand-over fields out, with the edge's own expectation, and returns them by lower-case name, null when
   * one is repeated. From here on neither `headers` nor `rawHeaders` nor `headersDistinct` shows any of them.
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
        this.#isBodyAnnounced ||= announcesBody(name, raw[i + 1]!);
      }
    }
    // Node fills `headers` and `headersDistinct` from `rawHeaders` when they are asked for, as far as this call says.
    (this as { headers: unknown }).headers = null;
    (this as unknown as HeaderLines)._addHeaderLines(kept, kept.length);
    this.#areHeadersSeen = false;
    this.#isTaken = true;
    return isRepeated ? null : taken;
  }
}

/** The one field that Node's server asks for before it hands a request over. */
function expectation(raw: readonly string[]): { readonly expect?: string } {
  for (let i = 0; i + 1 < raw.length; i += 2) {
    if (raw[i]!.length === 6 && raw[i]!.toLowerCase() === "expect") {
      return { expect: raw[i + 1]! };
    }
  }
  return NO_FIELDS;
}

const NO_FIELDS = {};

interface HeaderLines {
  _addHeaderLines(fields: string[], length: number): void;
}

/** Makes a connection from the edge show the client's address instead of its own (it has none, being a unix socket). */
export function showPeer(socket: Socket, address: string): void {
  const family = address.includes(":") ? "IPv6" : "IPv4";
  if (socket.remoteAddress !== address || socket.remoteFamily !== family) {
    define(socket, "remoteAddress", address);
    define(socket, "remoteFamily", family);
  }
}

function define(socket: Socket, name: string, value: string): void {
  Object.defineProperty(socket, name, {
    value,
    configurable: true,
    writable: true,
    enumerable: false,
  });
}
