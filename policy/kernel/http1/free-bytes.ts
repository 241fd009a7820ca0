import type { Writable } from "node:stream";

/** Smaller pieces share their memory with others, or are not worth the call. */
const MIN_BYTES = 16_384;

/**
 * Writes a piece that nobody else will look at again, and frees its memory when it was sent. Left to the garbage
 * collector, the pieces of a large body pile up to tens of megabytes before it looks at memory outside its heap.
 */
export function writeAndFree(to: Writable, chunk: Buffer): boolean {
  const memory = chunk.buffer;
  if (
    chunk.length < MIN_BYTES ||
    memory.byteLength !== chunk.length ||
    !(memory instanceof ArrayBuffer)
  ) {
    return to.write(chunk);
  }
  return to.write(chunk, () => {
    if (!memory.detached) {
      memory.transfer(0);
    }
  });
}
