import net from "node:net";
import { CallTable } from "../../dispatcher/call-table.ts";
import { decodeCall, type CallHead } from "../../dispatcher/call-frame.ts";
import {
  ANSWER_WINDOW,
  FRAME,
  FrameReader,
  FrameWriter,
  readNumber,
} from "../../dispatcher/frames.ts";
import { decodeOrderFailure, decodeOrderHead, encodeStage } from "../../dispatcher/order.ts";
import type { Clock } from "../../policy/kernel/clock.ts";
import { isForbidden, readFields } from "../../policy/kernel/http1/field-section.ts";
import { withOneLook } from "../scripts/stamp.ts";
import {
  bindMessages,
  CallSocket,
  drainSocket,
  grantBytes,
  loseSocket,
  type CallLine,
} from "./call-socket.ts";
import type { OrderDesk, OrderEvents } from "./order-forward.ts";
import { endBody, HostRequest, receiveBody } from "./host-request.ts";
import { HostResponse, tellDrain } from "./host-response.ts";

/** One call as it arrived. */
export interface ReceivedCall {
  readonly head: CallHead;
  readonly req: HostRequest;
  readonly res: HostResponse;
  /** Where the edge takes orders for this call; null where it does not. */
  readonly desk: OrderDesk | null;
}

/** Who gets the calls, and how a caller proves itself. */
export interface CallServerOptions {
  /** Compares what a connection says first, in constant time. */
  isSecret(presented: Buffer): boolean;
  call(call: ReceivedCall): void;
}

/** Serves frames (`dispatcher/frames.ts`): each connection is an edge process, and carries its calls. */
export function createCallServer(options: CallServerOptions, clock: Clock): net.Server {
  return net.createServer((socket) => new Line(socket, options, clock));
}

interface Open {
  readonly socket: CallSocket;
  readonly req: HostRequest;
  order: OrderEvents | null;
}

/** One connection of a caller. */
class Line implements CallLine {
  readonly writer: FrameWriter;
  readonly #socket: net.Socket;
  readonly #options: CallServerOptions;
  readonly #open = new CallTable<Open>();
  #waiting: Set<CallSocket> | null = null;
  /** Run when the turn is over, right before its frames leave. */
  #atFlush: (() => void)[] = [];
  #isKnown = false;

  constructor(socket: net.Socket, options: CallServerOptions, clock: Clock) {
    this.#socket = socket;
    this.#options = options;
    this.writer = new FrameWriter(socket, clock);
    this.writer.onFlush = () => {
      if (this.#atFlush.length > 0) {
        this.#atFlush.splice(0).forEach((decide) => decide());
      }
    };
    const reader = new FrameReader((type, id, payload) => this.#take(type, id, payload));
    socket.on("data", (chunk: Buffer) => {
      if (!withOneLook(() => reader.push(chunk, chunk.length))) {
        socket.destroy();
      }
    });
    socket.on("drain", () => {
      this.writer.isFull = false;
      this.#tellDrain();
    });
    socket.on("error", () => {}); // `close` follows
    socket.on("close", () => this.#close());
  }

  await(socket: CallSocket): void {
    if (this.#waiting === null) {
      this.#waiting = new Set();
      this.writer.after(() => {
        if (!this.writer.isFull) {
          this.#tellDrain();
        }
      });
    }
    this.#waiting.add(socket);
  }

  closed(id: number, isWhole: boolean): void {
    const open = this.#open.get(id);
    if (open !== null && !(isWhole && !open.req.complete)) {
      this.#open.remove(id);
    }
  }

  #take(type: number, id: number, payload: Buffer): void {
    if (!this.#isKnown) {
      this.#isKnown = type === FRAME.hello && this.#options.isSecret(payload);
      if (!this.#isKnown) {
        this.#socket.destroy();
      }
      return;
    }
    if (type === FRAME.call) {
      this.#receive(id, payload);
      return;
    }
    const open = this.#open.get(id);
    if (open === null) {
      return; // over, as far as this side knows
    }
    switch (type) {
      case FRAME.body:
        receiveBody(open.req, Buffer.from(payload)); // the connection's buffer is not kept for it
        return;
      case FRAME.bodyEnd:
        this.#endBody(id, open, payload.toString("latin1"));
        return;
      case FRAME.credit:
        grantBytes(open.socket, readNumber(payload) ?? 0);
        return;
      case FRAME.orderHead:
      case FRAME.orderDone:
      case FRAME.orderFailed:
        if (type === FRAME.orderDone) {
          this.#open.remove(id); // the number may be used again right behind this frame
        }
        tellOrder(open, type, payload.toString("latin1"));
        return;
      case FRAME.cancel:
        this.#open.remove(id);
        if (!open.socket.writable) {
          open.req.destroy(); // answered, and the rest of the upload does not come
        } else {
          loseSocket(open.socket);
        }
        return;
      default:
        this.#socket.destroy();
    }
  }

  #receive(id: number, payload: Buffer): void {
    const head = decodeCall(payload.toString("latin1"));
    if (head === null) {
      this.#socket.destroy();
      return;
    }
    const { method, target, fields, hasBody } = head;
    const socket = new CallSocket(id, this, head.envelope.clientAddress, ANSWER_WINDOW);
    const want = (bytes: number): void => this.writer.number(FRAME.want, id, bytes);
    const req = new HostRequest(socket, { method, target, fields, hasBody, want });
    const res = new HostResponse(req);
    bindMessages(socket, req, () => tellDrain(res));
    res.assignSocket(socket as unknown as net.Socket);
    const open: Open = { socket, req, order: null };
    if (!this.#open.put(id, open)) {
      this.#socket.destroy();
      return;
    }
    const desk = head.takesOrders ? this.#desk(id, open) : null;
    this.#options.call({ head, req, res, desk });
  }

  #desk(id: number, open: Open): OrderDesk {
    return {
      place: (decide, events) => {
        this.#atFlush.push(() => {
          const order = decide();
          if (order !== null) {
            open.order = events;
            this.writer.text(FRAME.order, id, order);
          }
        });
        this.writer.schedule();
      },
      stage: (fields) => this.writer.text(FRAME.stage, id, encodeStage(fields)),
    };
  }

  #endBody(id: number, open: Open, text: string): void {
    const trailers: string[] = [];
    if (text !== "" && (isForbidden(text) || !readFields(text, 0, trailers))) {
      this.#socket.destroy();
      return;
    }
    endBody(open.req, trailers);
    if (!open.socket.writable) {
      this.#open.remove(id);
    }
  }

  #tellDrain(): void {
    const waiting = this.#waiting;
    this.#waiting = null;
    for (const socket of waiting ?? []) {
      drainSocket(socket);
    }
  }

  #close(): void {
    for (const { socket, req } of this.#open.all()) {
      if (!socket.writable) {
        req.destroy();
      } else {
        loseSocket(socket);
      }
    }
  }
}

function tellOrder(open: Open, type: number, payload: string): void {
  const { order } = open;
  if (type === FRAME.orderHead || (type === FRAME.orderDone && payload !== "")) {
    const { status, reason, ms } = decodeOrderHead(payload);
    order?.head(status, reason, ms);
  }
  if (type === FRAME.orderHead) {
    return;
  }
  open.order = null;
  if (type === FRAME.orderDone) {
    order?.done();
  } else {
    order?.failed(decodeOrderFailure(payload));
  }
}
