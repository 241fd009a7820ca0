import { ServerResponse } from "node:http";
import { OUTCOME_FIELD } from "../../dispatcher/envelope.ts";
import { toBytes } from "./bytes.ts";
import { finishSocket, returnSocket, type CallSocket } from "./call-socket.ts";
import type { HostRequest } from "./host-request.ts";

const OUTCOME_NAME = OUTCOME_FIELD.toLowerCase();
/** Framing and connection handling are Node's own business here; a script's idea of them would break the line to the edge. */
const HOST_FIELDS = ["transfer-encoding", "connection", "keep-alive", "upgrade"] as const;

const HOST_FIELD_NAMES: ReadonlySet<string> = new Set([...HOST_FIELDS, OUTCOME_NAME]);

/** What the host hears of a response. */
export interface ResponseWatcher {
  /** A final head is about to be sent; returns the value of the outcome field to put into it, or null for none. */
  head(status: number): string | null;
  /** The response is closed, finished or not; called once. */
  closed(): void;
  /** Runs listeners of the script's as its call's. */
  within(task: () => boolean): boolean;
}

/** Node's own methods, whatever a script put on its response; only the forms that are used here. */
const NODE = ServerResponse.prototype as unknown as {
  writeHead(status: number, reason: string | undefined, fields: readonly string[]): unknown;
  write(...given: unknown[]): boolean;
};

const NOBODY: ResponseWatcher = { head: () => null, closed() {}, within: (task) => task() };

let watch: (res: HostResponse, watcher: ResponseWatcher) => void;
let watcherOf: (res: HostResponse) => ResponseWatcher | null;

/** Who is told that fields were staged; null for nobody. */
export let watchStaging: (res: HostResponse, staged: (() => void) | null) => void;

/** The call's socket takes more. */
export let tellDrain: (res: HostResponse) => void;

/**
 * The response as scripts see it: Node's own, with `status`, `json` and `send`. What only the host may do with it are
 * functions of this module, out of a script's reach.
 */
export class HostResponse extends ServerResponse<HostRequest> {
  #watcher: ResponseWatcher = NOBODY;
  #needsDrain = false;
  #staged: (() => void) | null = null;

  static {
    Object.defineProperty(HostResponse.prototype, "writableNeedDrain", {
      configurable: true,
      get(this: HostResponse): boolean {
        return !this.destroyed && !this.finished && this.#needsDrain;
      },
    });
    watchStaging = (res, staged) => {
      res.#staged = staged;
    };
    tellDrain = (res) => {
      if (res.writableNeedDrain) {
        res.#needsDrain = false;
        res.emit("drain");
      }
    };
    watch = (res, watcher) => {
      res.#watcher = watcher;
    };
    // A script may pass an object of its own for its response.
    watcherOf = (res) => (#watcher in res ? res.#watcher : null);
  }

  /** What the host does about an event; not by listeners, which a script can take away. */
  override emit(event: string | symbol, ...rest: unknown[]): boolean {
    const watcher = this.#watcher;
    if (event === "finish") {
      this.#finished();
    } else if (event === "close") {
      this.#watcher = NOBODY;
      watcher.closed();
    } else {
      return super.emit(event, ...rest);
    }
    return this.listenerCount(event) > 0 && watcher.within(() => super.emit(event, ...rest));
  }

  /** The last byte is on its way: what Node's server does then. */
  #finished(): void {
    const { req, socket } = this;
    const { _consuming, _readableState, _dump } = req as unknown as RequestState;
    if (!_consuming && !_readableState.resumeScheduled) {
      _dump.call(req);
    }
    if (socket !== null) {
      this.detachSocket(socket);
      process.nextTick(closeResponse, this);
      finishSocket(socket as unknown as CallSocket, (this as unknown as HeadState)._last);
    }
  }

  override setHeader(...given: Parameters<ServerResponse["setHeader"]>): this {
    super.setHeader(...given);
    this.#staged?.();
    return this;
  }

  override appendHeader(...given: Parameters<ServerResponse["appendHeader"]>): this {
    super.appendHeader(...given);
    this.#staged?.();
    return this;
  }

  override removeHeader(name: string): void {
    super.removeHeader(name);
    this.#staged?.();
  }

  override write(...given: unknown[]): boolean {
    const isTaken = NODE.write.apply(this, given);
    this.#needsDrain ||= !isTaken;
    return isTaken;
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
      if (!Array.isArray(fields) && this.getHeaderNames().length === 0) {
        return this.#writePlain(status, reason, fields);
      }
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
    const outcome = this.#watcher.head(status);
    if (outcome === null) {
      this.removeHeader(OUTCOME_NAME);
    } else {
      this.setHeader(OUTCOME_FIELD, outcome);
    }
    this.#holdToLength(status, this.hasHeader("content-length"));
    return reason ? super.writeHead(status, reason) : super.writeHead(status);
  }

  /** The usual call, an object of fields and nothing staged: Node writes a list of lines without staging them. */
  #writePlain(status: number, reason: string, fields: object): this {
    const lines: string[] = [];
    let hasLength = false;
    for (const [name, value] of Object.entries(fields) as [string, unknown][]) {
      const lower = name.toLowerCase();
      const isLength = lower === "content-length";
      if (HOST_FIELD_NAMES.has(lower) || (isLength && status === 204)) {
        continue;
      }
      hasLength ||= isLength;
      for (const one of Array.isArray(value) ? (value as unknown[]) : [value]) {
        lines.push(name, one as string); // Node checks names and values as it writes them
      }
    }
    this.#holdToLength(status, hasLength);
    const outcome = this.#watcher.head(status);
    if (outcome !== null) {
      lines.push(OUTCOME_FIELD, outcome);
    }
    NODE.writeHead.call(this, status, reason || undefined, lines);
    return this;
  }

  /**
   * Node compares what is written with the announced length: a message that is shorter or longer than its head says
   * would shift every later answer on this connection.
   */
  #holdToLength(status: number, hasLength: boolean): void {
    const isBodyless = this.req.method === "HEAD" || status === 204 || status === 304;
    this.strictContentLength = !isBodyless && hasLength;
  }
}

/** Sets who hears of a response; once, before a script gets it. */
export function watchResponse(res: HostResponse, watcher: ResponseWatcher): void {
  watch(res, watcher);
}

/** True once a byte of the head is on its way. `headersSent` is already true when the head is only made up. */
export function isHeadOut(res: HostResponse): boolean {
  return (res as unknown as HeadState)._headerSent;
}

/**
 * Sends a head whose fields are known to be sendable and to agree with the body, merged over what the script
 * staged: a field of the list replaces staged ones of its name, except that both sides' cookies are kept.
 * Without staged fields, the usual case, Node writes the list as it is.
 */
export function sendHead(
  res: HostResponse,
  status: number,
  reason: string,
  fields: string[],
): void {
  dropField(fields, OUTCOME_NAME);
  const watcher = watcherOf(res);
  const staged = res.getHeaderNames();
  if (watcher !== null && staged.length === 0) {
    const outcome = watcher.head(status);
    if (outcome !== null) {
      fields.push(OUTCOME_FIELD, outcome);
    }
    NODE.writeHead.call(res, status, reason || undefined, fields);
    return;
  }
  const cookies = [res.getHeader("set-cookie") ?? []].flat() as string[];
  for (let i = 0; i < fields.length; i += 2) {
    res.removeHeader(fields[i]!);
  }
  if (cookies.length > 0) {
    res.setHeader("Set-Cookie", cookies);
  }
  for (let i = 0; i < fields.length; i += 2) {
    res.appendHeader(fields[i]!, fields[i + 1]!);
  }
  res.writeHead(status, reason);
}

/** Has Node hold the body to the length of the head, if it announces one; for heads that a script may have changed. */
export function holdToLength(res: HostResponse): void {
  res.strictContentLength = (res as unknown as HeadState)._contentLength !== null;
}

/**
 * Answers in the script's place: everything it staged is dropped, a head that was made up but not sent included.
 * Not for a response whose head is out. Only Node's own methods are used, since a script may have put others on
 * the object.
 */
export function answerInstead(
  res: HostResponse,
  status: number,
  fields: readonly string[],
  body: Buffer,
): void {
  const node = ServerResponse.prototype;
  const state = res as unknown as HeadState;
  takeBack(res);
  state.finished = false;
  state._header = null; // Node refuses to change fields once a head is made up
  for (const name of node.getHeaderNames.call(res)) {
    node.removeHeader.call(res, name);
  }
  Object.assign(state, FRESH_HEAD);
  state._hasBody = res.req.method !== "HEAD";
  res.strictContentLength = false;
  res.sendDate = true;
  const outcome = watcherOf(res)?.head(status) ?? null;
  const lines = [...fields, "Content-Length", String(body.length)];
  if (outcome !== null) {
    lines.push(OUTCOME_FIELD, outcome);
  }
  node.writeHead.call(res, status, lines);
  node.end.call(res, body, "latin1");
}

/** There was no answer: the response is as it was before. */
export function takeBack(res: HostResponse): void {
  watchStaging(res, null);
  if (res.socket !== null) {
    returnSocket(socketOf(res));
  }
}

/** The call's line, while the response has it. */
export function socketOf(res: HostResponse): CallSocket {
  return res.socket as unknown as CallSocket;
}

/** The parts of Node's message that tell a head made up from a head sent; there is no public word for them. */
export interface HeadState {
  /** The connection closes behind the answer. */
  _last: boolean;
  finished: boolean;
  readonly _trailer: string;
  _headerSent: boolean;
  _header: string | null;
  _contentLength: number | null;
  _hasBody: boolean;
  _removedTE: boolean;
  _removedConnection: boolean;
}

/** Parts of Node's request that say whether somebody reads it. */
interface RequestState {
  readonly _consuming: boolean;
  readonly _readableState: { readonly resumeScheduled: boolean };
  _dump(): void;
}

function closeResponse(res: HostResponse): void {
  const state = res as unknown as { _closed: boolean; destroyed: boolean };
  if (!state._closed) {
    state.destroyed = true;
    state._closed = true;
    res.emit("close");
  }
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
