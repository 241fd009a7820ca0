const HEAD_BYTES = 16 * 1024;
const TAIL_BYTES = 48 * 1024;

/** Keeps the first 16 and the last 48 KiB of a stream of any length: an answer may stand behind a flood. */
export interface CapturedOutput {
  push(chunk: Buffer): void;
  /** What was kept; a line in the middle says how much is missing. */
  text(): string;
}

/** An empty capture. */
export function captureOutput(): CapturedOutput {
  const head: Buffer[] = [];
  let headBytes = 0;
  let tail: Buffer[] = [];
  let tailBytes = 0;
  let total = 0;

  function trim(): void {
    const joined = Buffer.concat(tail, tailBytes);
    tail = [Buffer.from(joined.subarray(-TAIL_BYTES))];
    tailBytes = Math.min(tailBytes, TAIL_BYTES);
  }

  return {
    push(chunk) {
      total += chunk.length;
      let rest = chunk;
      if (headBytes < HEAD_BYTES) {
        const part = Buffer.from(chunk.subarray(0, HEAD_BYTES - headBytes));
        head.push(part);
        headBytes += part.length;
        rest = chunk.subarray(part.length);
      }
      if (rest.length > 0) {
        const kept = rest.subarray(-TAIL_BYTES);
        tail.push(kept);
        tailBytes += kept.length;
        if (tailBytes > 4 * TAIL_BYTES) {
          trim();
        }
      }
    },
    text() {
      trim();
      const missing = total - headBytes - tailBytes;
      if (missing <= 0) {
        return Buffer.concat([...head, ...tail]).toString("utf8");
      }
      const first = Buffer.concat(head).toString("utf8");
      const last = Buffer.concat(tail).toString("utf8");
      return `${first}\n[… ${missing} bytes left out …]\n${last}`;
    },
  };
}
