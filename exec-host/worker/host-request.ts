import { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { splitFields } from "../../dispatcher/call-frame.ts";
import type { CallSocket } from "./call-socket.ts";

/** Whether a request has a body (RFC 9112 6.3). */
export let isBodyAnnounced: (req: HostRequest) => boolean;

/** Whether anybody has looked at `req.headers`; true for an object that is not the host's. */
export let areHeadersSeen: (req: HostRequest) => boolean;

/** `req.body` or `req.files` is what `read` gives, asked at the first look. */
export let readLater: (req: HostRequest, member: "body" | "files", read: () => unknown) => void;

/** A piece of the body came. */
export let receiveBody: (req: HostRequest, bytes: Buffer) => void;

/** The body is complete. */
export let endBody: (req: HostRequest, trailers: string[]) => void;

/** Whether nobody has looked at the fields, in whatever form. */
export let areFieldsUnread: (req: HostRequest) => boolean;

/** Whether nobody has begun to read the body, or listens for it. */
export let isBodyUntouched: (req: HostRequest) => boolean;

/** The received lines, whatever became of `rawHeaders`. Not to be changed. */
export let receivedFields: (req: HostRequest) => readonly string[];

/** Whether `rawHeaders` are still the received lines. */
export let areFieldsReceived: (req: HostRequest) => boolean;

/** The body went elsewhere: it is over for whoever reads it here, or has been when `isRead`. */
export let skipBody: (req: HostRequest, isRead: boolean) => void;

/** What a request is made of. */
export interface RequestParts {
  readonly method: string;
  readonly target: string;
  /** Name, value, name, value…, a line each. */
  readonly fields: string;
  readonly hasBody: boolean;
  /** Asks for so many bytes of the body. */
  readonly want: (bytes: number) => void;
}

/** Bytes of a body that may be on their way to a script that does not read them yet. */
const WINDOW = 65_536;
/** What was read is asked for anew in portions, not piece by piece. */
const PORTION = 32_768;

/** The request as scripts see it: Node's own, fed by frames. Its body comes when somebody reads it. */
export class HostRequest extends IncomingMessage {
  /** The whole body when the host buffered it; a script may replace it. */
  declare rawBody?: unknown;
  #body: unknown = undefined;
  #files: unknown = undefined;
  #readBody: (() => unknown) | null = null;
  #readFiles: (() => unknown) | null = null;
  readonly #want: (bytes: number) => void;
  readonly #hasBody: boolean;
  /** The received fields until somebody looks at them. */
  #unread: string | null;
  #received: readonly string[] | null = null;
  #areHeadersSeen = false;
  /** Bytes that may be asked for: all that fits at first, then what was taken. */
  #room = WINDOW;
  #lines: string[] = [];

  static {
    const node = Object.getOwnPropertyDescriptor(IncomingMessage.prototype, "headers")!;
    // Node builds the headers object when somebody looks at it; what was never looked at was never changed either.
    Object.defineProperty(HostRequest.prototype, "headers", {
      configurable: true,
      get(this: HostRequest): unknown {
        this.#areHeadersSeen = true;
        this.#readFields();
        return node.get?.call(this) as unknown;
      },
      set(this: HostRequest, value: unknown) {
        this.#areHeadersSeen = true;
        node.set?.call(this, value);
      },
    });
    // On the class: a getter of its own gives every object a hidden class of its own, and those outlive the call by far.
    readLater = (req, member, read) => {
      if (member === "body") {
        req.#readBody = read;
      } else {
        req.#readFiles = read;
      }
    };
    Object.defineProperty(HostRequest.prototype, "rawHeaders", {
      configurable: true,
      get(this: HostRequest): string[] {
        return this.#readFields();
      },
      set(this: HostRequest, lines: string[]) {
        if (#unread in this) {
          receivedFields(this); // this is a script's doing, or Node's at the first look
          this.#unread = null;
          this.#lines = lines;
        }
      },
    });
    isBodyAnnounced = (req) => req.#hasBody;
    areHeadersSeen = (req) => !(#areHeadersSeen in req) || req.#areHeadersSeen;
    isBodyUntouched = (req) =>
      req.#room === WINDOW &&
      !req.readableDidRead &&
      req.readableFlowing !== true &&
      !req.destroyed &&
      req.listenerCount("data") === 0 &&
      req.listenerCount("readable") === 0;
    receivedFields = (req) => (req.#received ??= splitFields(req.#unread ?? ""));
    areFieldsReceived = (req) => {
      if (req.#unread !== null) {
        return true; // nobody has looked, so nobody has changed them
      }
      const received = req.#received ?? [];
      const lines = req.rawHeaders;
      return lines.length === received.length && received.every((text, at) => lines[at] === text);
    };
    areFieldsUnread = (req) => req.#unread !== null;
    skipBody = (req, isRead) => {
      if (!req.complete) {
        req.#end([]);
        if (isRead) {
          req.resume();
        }
      }
    };
    receiveBody = (req, bytes) => req.#receive(bytes);
    endBody = (req, trailers) => req.#end(trailers);
  }

  constructor(socket: CallSocket | undefined, parts: RequestParts) {
    super(socket as unknown as Socket);
    this.httpVersion = "1.1";
    this.httpVersionMajor = 1;
    this.httpVersionMinor = 1;
    this.method = parts.method;
    this.url = parts.target;
    this.#unread = parts.fields;
    this.#want = parts.want;
    this.#hasBody = parts.hasBody;
    if (!parts.hasBody) {
      this.#end([]);
    }
  }

  /** Splits the fields and hands them to Node, once. */
  #readFields(): string[] {
    const text = this.#unread;
    if (text !== null) {
      const lines = [...receivedFields(this)];
      this.#unread = null;
      this.#lines = lines;
      const { complete } = this;
      this.complete = false; // Node takes lines that come later for trailers
      (this as unknown as NodeRequest)._addHeaderLines(lines, lines.length);
      this.complete = complete;
    }
    return this.#lines;
  }

  get body(): unknown {
    if (this.#readBody !== null) {
      this.#body = this.#readBody();
      this.#readBody = null;
    }
    return this.#body;
  }

  set body(value: unknown) {
    this.#readBody = null;
    this.#body = value;
  }

  get files(): unknown {
    if (this.#readFiles !== null) {
      this.#files = this.#readFiles();
      this.#readFiles = null;
    }
    return this.#files;
  }

  set files(value: unknown) {
    this.#readFiles = null;
    this.#files = value;
  }

  #receive(bytes: Buffer): void {
    const isDumped = (this as unknown as NodeRequest)._dumped;
    this.#room += bytes.length;
    if (isDumped || this.push(bytes)) {
      this.#ask(PORTION);
    }
  }

  #end(trailers: string[]): void {
    this.complete = true;
    (this as unknown as NodeRequest)._addHeaderLines(trailers, trailers.length);
    this.push(null);
  }

  override _read(size: number): void {
    super._read(size);
    this.#ask(1);
  }

  #ask(least: number): void {
    if (this.#hasBody && !this.complete && this.#room >= least) {
      const room = this.#room;
      this.#room = 0;
      this.#want(room);
    }
  }

  /** As Node's, without its wait for a socket that others use too. */
  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    if (!this.readableEnded || !this.complete) {
      this.aborted = true;
      this.emit("aborted");
    }
    const { socket } = this as { socket: Socket | undefined };
    if (this.aborted && socket !== undefined && !socket.destroyed) {
      socket.destroy(error ?? undefined);
    }
    // Node tells an error only where somebody listens.
    process.nextTick(() => done(this.listenerCount("error") > 0 ? error : null));
  }
}

/** Parts of Node's request that have no public word. */
interface NodeRequest {
  readonly _dumped: boolean;
  _addHeaderLines(fields: string[], length: number): void;
}
