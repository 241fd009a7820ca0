import { FRAME, FrameReader, type FrameTarget } from "../../dispatcher/frames.ts";

/** Types whose frames may be told in pieces. */
export const PIECEWISE: readonly number[] = [FRAME.answer, FRAME.body];

export interface Frame {
  readonly type: number;
  readonly call: number;
  readonly payload: string;
}

/** A connection that keeps what is written, and is full when the test says so. */
export function fakeTarget(isRoomy = true) {
  const written: Buffer[] = [];
  const doneCalls: (() => void)[] = [];
  let corks = 0;
  const target = {
    destroyed: false as boolean,
    cork: () => void corks++,
    uncork: () => void corks--,
    write(data: string | Buffer, encoding?: BufferEncoding, done?: () => void) {
      written.push(typeof data === "string" ? Buffer.from(data, encoding) : Buffer.from(data));
      if (done !== undefined) {
        doneCalls.push(done);
      }
      return isRoomy;
    },
  } satisfies FrameTarget;
  return {
    target,
    corks: () => corks,
    writes: () => written.length,
    bytes: () => Buffer.concat(written),
    finishWrites: () => doneCalls.splice(0).forEach((done) => done()),
  };
}

/** What a reader makes of a stream that comes in pieces. Neighbouring pieces of one body or answer are joined. */
export function readFrames(
  stream: Buffer,
  cuts: readonly number[],
): { frames: Frame[]; isKept: boolean } {
  const frames: Frame[] = [];
  const reader = new FrameReader((type, call, payload) => {
    const last = frames.at(-1);
    const text = payload.toString("latin1");
    if (last !== undefined && isSameFlow(last, { type, call })) {
      frames[frames.length - 1] = { ...last, payload: last.payload + text };
    } else {
      frames.push({ type, call, payload: text });
    }
  });
  const points = [...new Set(cuts.map((cut) => cut % (stream.length + 1)))].sort((a, b) => a - b);
  let from = 0;
  for (const point of [...points, stream.length]) {
    // As the client's connection reads: into one buffer that is used again.
    const size = point - from;
    const shared = Buffer.alloc(size + 7, 0xee);
    stream.copy(shared, 0, from, point);
    if (!reader.push(shared, size)) {
      return { frames, isKept: false };
    }
    shared.fill(0xdd);
    from = point;
  }
  return { frames, isKept: true };
}

function isSameFlow(frame: Frame, { type, call }: { type: number; call: number }): boolean {
  return PIECEWISE.includes(type) && frame.type === type && frame.call === call;
}

/** Frames as a reader tells them: without empty pieces, neighbours of one flow joined. */
export function joined(frames: readonly Frame[]): Frame[] {
  const result: Frame[] = [];
  for (const { type, call, payload } of frames) {
    const last = result.at(-1);
    if (PIECEWISE.includes(type) && payload === "") {
      continue;
    }
    if (last !== undefined && isSameFlow(last, { type, call })) {
      result[result.length - 1] = { ...last, payload: last.payload + payload };
    } else {
      result.push({ type, call, payload });
    }
  }
  return result;
}
