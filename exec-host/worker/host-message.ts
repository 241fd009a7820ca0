import { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { DispatchOutcomeName } from "../../dispatcher/envelope.ts";
import { ENVELOPE_PREFIX, OUTCOME_FIELD } from "../../dispatcher/envelope.ts";

const OUTCOME_NAME = OUTCOME_FIELD.toLowerCase();
/** Framing and connection handling are Node's own business here; a script's idea of them would break the line to the edge. */
const HOST_FIELDS = ["transfer-encoding", "connection", "keep-alive", "upgrade"] as const;

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

/** Called when a final head is about to be sent; returns the outcome word to put into it, or null for none. */
export type HeadListener = (status: number) => DispatchOutcomeName | null;

/** The response as scripts see it: Node's own, with `status`, `json` and `send`. */
export class HostResponse extends ServerResponse<HostRequest> {
  #onHead: HeadListener = () => null;
  #onClose: () => void = () => {};

  /** Set once by the host, before the script gets the response. */
  watchHead(listener: HeadListener): void {
    this.#onHead = listener;
  }

  /** Hears of the end of the response; once. Not a listener like others: a script can take those away. */
  watchClose(listener: () => void): void {
    this.#onClose = listener;
  }

  override emit(event: string | symbol, ...rest: unknown[]): boolean {
    if (event === "close") {
      const listener = this.#onClose;
      this.#onClose = () => {};
      listener();
    }
    return super.emit(event, ...rest);
  }

  /** Sets the status; chainable. */
  status(code: number): this {
    this.statusCode = code;
    return this;
  }

  /** Answers with JSON. */
  json(value: unknown): this {
    if (!this.hasHeader("content-type")) {
      this.setHeader("content-type", "application/json; charset=utf-8");
    }
    this.end(JSON.stringify(value) ?? "null");
    return this;
  }

  /** Answers with text, bytes, or JSON for anything else. */
  send(value?: unknown): this {
    if (value === undefined) {
      this.end();
      return this;
    }
    if (typeof value === "string") {
      this.#defaultType("text/plain; charset=utf-8");
      this.end(value);
      return this;
    }
    const bytes = toBytes(value);
    if (bytes === null) {
      return this.json(value);
    }
    this.#defaultType("application/octet-stream");
    this.end(bytes);
    return this;
  }

  #defaultType(type: string): void {
    if (!this.hasHeader("content-type")) {
      this.setHeader("content-type", type);
    }
  }

  /**
   * Node's `writeHead`, held to what can be one final answer on a kept-alive line: no interim status, no framing
   * or connection field of the script's own, no length on a 204.
   */
  override writeHead(status: number, ...rest: unknown[]): this {
    if (this.headersSent) {
      return super.writeHead(status); // throws ERR_HTTP_HEADERS_SENT
    }
    if (!(Number.isInteger(status) && status >= 200 && status <= 999)) {
      throw Object.assign(new RangeError(`Invalid status code: ${String(status)}`), {
        code: "ERR_HTTP_INVALID_STATUS_CODE",
      });
    }
    const reason = typeof rest[0] === "string" ? rest[0] : this.statusMessage;
    const fields = rest[0] != null && typeof rest[0] === "object" ? rest[0] : rest[1];
    if (fields != null) {
      stage(this, fields);
    }
    for (const name of HOST_FIELDS) {
      if (this.hasHeader(name)) {
        this.removeHeader(name);
      }
    }
    // Node takes a removed framing field for a wish to have none at all.
    const state = this as unknown as HeadState;
    state._removedTE = false;
    state._removedConnection = false;
    if (status === 204) {
      this.removeHeader("content-length");
    }
    const outcome = this.#onHead(status);
    if (outcome === null) {
      this.removeHeader(OUTCOME_NAME);
    } else {
      this.setHeader(OUTCOME_FIELD, outcome);
    }
    this.#noteLength(status);
    return reason ? super.writeHead(status, reason) : super.writeHead(status);
  }

  /**
   * Sends a head whose fields are known to be sendable and to agree with the body, merged over what the script
   * staged: a field of the list replaces staged ones of its name, except that both sides' cookies are kept.
   * Without staged fields, the usual case, Node writes the list as it is.
   */
  sendHead(status: number, reason: string, fields: string[]): void {
    dropField(fields, OUTCOME_NAME);
    const staged = this.getHeaderNames();
    if (staged.length === 0) {
      const outcome = this.#onHead(status);
      if (outcome !== null) {
        fields.push(OUTCOME_FIELD, outcome);
      }
      super.writeHead(status, reason || undefined, fields);
      return;
    }
    const cookies = [this.getHeader("set-cookie") ?? []].flat() as string[];
    for (let i = 0; i < fields.length; i += 2) {
      this.removeHeader(fields[i]!);
    }
    if (cookies.length > 0) {
      this.setHeader("Set-Cookie", cookies);
    }
    for (let i = 0; i < fields.length; i += 2) {
      this.appendHeader(fields[i]!, fields[i + 1]!);
    }
    HostResponse.prototype.writeHead.call(this, status, reason);
  }

  #noteLength(status: number): void {
    const isBodyless = this.req.method === "HEAD" || status === 204 || status === 304;
    // Node compares what is written with the announced length from here on: a message that is shorter or longer
    // than its head says would shift every later answer on this connection.
    this.strictContentLength = !isBodyless && this.hasHeader("content-length");
  }

  /** Whether the head that was made announces a length. */
  get hasLength(): boolean {
    return (this as unknown as HeadState)._contentLength !== null;
  }

  /** True once a byte of the head is on its way. `headersSent` is already true when the head is only made up. */
  get isHeadOut(): boolean {
    return (this as unknown as HeadState)._headerSent;
  }

  /**
   * Answers in the script's place: everything it staged is dropped, a head that was made up but not sent included.
   * Not for a response whose head is out. Only Node's own methods are used, since a script may have put others on
   * the object.
   */
  answerInstead(status: number, fields: readonly string[], body: Buffer): void {
    const node = ServerResponse.prototype;
    const state = this as unknown as HeadState;
    state._header = null; // Node refuses to change fields once a head is made up
    for (const name of node.getHeaderNames.call(this)) {
      node.removeHeader.call(this, name);
    }
    Object.assign(state, FRESH_HEAD);
    state._hasBody = this.req.method !== "HEAD";
    this.strictContentLength = false;
    this.sendDate = true;
    const outcome = this.#onHead(status);
    const lines = [...fields, "Content-Length", String(body.length)];
    if (outcome !== null) {
      lines.push(OUTCOME_FIELD, outcome);
    }
    node.writeHead.call(this, status, lines);
    node.end.call(this, body, "latin1");
  }
}

/** The parts of Node's message that tell a head made up from a head sent; there is no public word for them. */
interface HeadState {
  _headerSent: boolean;
  _header: string | null;
  _contentLength: number | null;
  _hasBody: boolean;
  _removedTE: boolean;
  _removedConnection: boolean;
}

/** A message for which no head was made up yet. */
const FRESH_HEAD = {
  _header: null,
  _contentLength: null,
  _last: false,
  _removedContLen: false,
  _removedTE: false,
  _removedConnection: false,
  chunkedEncoding: false,
  statusMessage: "",
} as const;

/** Takes a field out of a list of lines, in place. */
function dropField(fields: string[], lower: string): void {
  for (let i = fields.length - 2; i >= 0; i -= 2) {
    if (fields[i]!.length === lower.length && fields[i]!.toLowerCase() === lower) {
      fields.splice(i, 2);
    }
  }
}

/** Stages the fields of a `writeHead` call in any of Node's forms: an object, a flat list, a list of pairs. */
function stage(res: ServerResponse, fields: object): void {
  if (!Array.isArray(fields)) {
    for (const [name, value] of Object.entries(fields) as [string, string | string[]][]) {
      res.setHeader(name, value);
    }
    return;
  }
  const list = (Array.isArray(fields[0]) ? fields.flat() : fields) as string[];
  if (list.length % 2 !== 0) {
    throw Object.assign(new TypeError("header fields must come in pairs"), {
      code: "ERR_INVALID_ARG_VALUE",
    });
  }
  for (let i = 0; i < list.length; i += 2) {
    res.removeHeader(String(list[i]));
  }
  for (let i = 0; i < list.length; i += 2) {
    res.appendHeader(String(list[i]), list[i + 1]!);
  }
}

/** The bytes of a Buffer, typed array, DataView or ArrayBuffer; null for anything else. */
export function toBytes(value: unknown): Buffer | null {
  if (Buffer.isBuffer(value)) {
    return value;
  }
  if (ArrayBuffer.isView(value)) {
    return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  }
  if (value instanceof ArrayBuffer || value instanceof SharedArrayBuffer) {
    return Buffer.from(value);
  }
  return null;
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
