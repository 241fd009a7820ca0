import { ServerResponse } from "node:http";
import { lendSocket, noteHead, returnSocket } from "./call-socket.ts";
import { HostResponse, socketOf, watchStaging, type HeadState } from "./host-response.ts";

// A response whose answer the edge gives (`order-forward.ts`): how the script's own looks meanwhile.

/** What a response must be as the host made it, for its answer to be given by somebody else unnoticed. */
const { write, end, emit, writeHead, flushHeaders, getHeaderNames } = HostResponse.prototype;
const { write: nodeWrite, end: nodeEnd } = ServerResponse.prototype;
const { getRawHeaderNames } = ServerResponse.prototype as unknown as {
  readonly getRawHeaderNames: (this: ServerResponse) => string[];
};

/** Nobody has begun an answer, or put methods of his own in the way of one. */
export function isUntouched(res: HostResponse): boolean {
  const state = res as unknown as HeadState;
  return (
    !res.headersSent &&
    !res.destroyed &&
    !res.finished &&
    res.statusMessage === undefined &&
    state._trailer === "" &&
    Object.isExtensible(res) &&
    res.write === write &&
    res.end === end &&
    res.emit === emit &&
    res.writeHead === writeHead &&
    res.flushHeaders === flushHeaders &&
    res.getHeaderNames === getHeaderNames &&
    ServerResponse.prototype.write === nodeWrite &&
    ServerResponse.prototype.end === nodeEnd
  );
}

/** The fields that are staged for the answer, one line for each value. */
export function stagedFields(res: HostResponse): string[] {
  const lines: string[] = [];
  for (const name of getRawHeaderNames.call(res)) {
    const value = ServerResponse.prototype.getHeader.call(res, name);
    for (const one of Array.isArray(value) ? value : [value]) {
      lines.push(name, String(one));
    }
  }
  return lines;
}

/**
 * The edge answers in this response's place. To the script it looks as it did: what it stages is told to `staged`; what it
 * writes before the answer's head takes the place back, which is told to `takenBack`.
 */
export function lend(res: HostResponse, staged: () => void, takenBack: () => void): void {
  watchStaging(res, staged);
  lendSocket(socketOf(res), () => {
    watchStaging(res, null);
    takenBack();
  });
}

/** The head of the answer is out. */
export function tellLentHead(res: HostResponse, status: number, reason: string): void {
  const state = res as unknown as HeadState;
  watchStaging(res, null);
  noteHead(socketOf(res));
  res.statusCode = status;
  res.statusMessage = reason;
  state._header = "HTTP/1.1 200 OK\r\n\r\n"; // Node only asks whether there is one
  state._headerSent = true;
  state._hasBody = false; // nothing is to be written here, not even the end of a body
}

/** The whole answer is out. */
export function finishLent(res: HostResponse): void {
  if (res.finished) {
    return; // by the script
  }
  const socket = socketOf(res);
  (nodeEnd as (this: ServerResponse) => unknown).call(res);
  returnSocket(socket);
}
