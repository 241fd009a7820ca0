/** HTTP/2 frames by hand: what no client library sends. */

const FRAME = { data: 0, headers: 1, reset: 3, settings: 4, ping: 6, continuation: 9 } as const;

export const PREFACE = Buffer.concat([
  Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "latin1"),
  frame("settings", 0, 0),
]);

export function frame(
  type: keyof typeof FRAME,
  flags: number,
  stream: number,
  payload: Buffer = Buffer.alloc(0),
): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head[3] = FRAME[type];
  head[4] = flags;
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

/** Field lines as literals without indexing and without Huffman coding; names and values of at most 126 bytes. */
export function block(lines: readonly (readonly [string, string])[]): Buffer {
  return Buffer.concat(
    lines.flatMap(([name, value]) => [
      Buffer.from([0, name.length]),
      Buffer.from(name, "latin1"),
      Buffer.from([value.length]),
      Buffer.from(value, "latin1"),
    ]),
  );
}

export const GET: readonly (readonly [string, string])[] = [
  [":method", "GET"],
  [":scheme", "https"],
  [":path", "/"],
  [":authority", "a.example"],
];

/** Frames in a byte stream from a server: type, flags, stream and payload. */
export function readFrames(
  bytes: string,
): { type: number; flags: number; stream: number; payload: Buffer }[] {
  const buffer = Buffer.from(bytes, "latin1");
  const frames = [];
  for (let at = 0; at + 9 <= buffer.length;) {
    const length = buffer.readUIntBE(at, 3);
    frames.push({
      type: buffer[at + 3]!,
      flags: buffer[at + 4]!,
      stream: buffer.readUInt32BE(at + 5),
      payload: buffer.subarray(at + 9, at + 9 + length),
    });
    at += 9 + length;
  }
  return frames;
}
