/** Lines of one container. */
interface Lines {
  buffer: Buffer;
  /** Bytes of `buffer` that are lines. */
  length: number;
  count: number;
}

/** Lines that wait to be written, by container. */
export interface AuditBatch {
  readonly lines: Map<string, Lines>;
  /** Lines in all. */
  count: number;
  bytes: number;
  /** For whoever needs a large buffer first. */
  spare: Buffer | null;
}

const FIRST_BYTES = 2048;
const MAX_SPARE_BYTES = 1024 * 1024;

/** An empty batch. It takes a buffer over from one that is written: fresh memory of this size costs page faults. */
export function createBatch(written?: AuditBatch): AuditBatch {
  let spare = written?.spare ?? null;
  for (const { buffer } of written?.lines.values() ?? []) {
    if (buffer.length > (spare?.length ?? FIRST_BYTES) && buffer.length <= MAX_SPARE_BYTES) {
      spare = buffer;
    }
  }
  return { lines: new Map(), count: 0, bytes: 0, spare };
}

/**
 * Adds a line. It is encoded at once, into bytes outside the heap: text that waits would be copied about by the young
 * collector, piece by piece, which costs more than making it.
 */
export function addLine(batch: AuditBatch, container: string, line: string): void {
  let lines = batch.lines.get(container);
  if (lines === undefined) {
    lines = { buffer: Buffer.allocUnsafe(FIRST_BYTES), length: 0, count: 0 };
    batch.lines.set(container, lines);
  }
  const most = lines.length + line.length * 3; // no UTF-16 unit takes more bytes in UTF-8
  if (most > lines.buffer.length) {
    let larger = batch.spare;
    if (larger !== null && larger.length >= most) {
      batch.spare = null;
    } else {
      larger = Buffer.allocUnsafe(Math.max(most, lines.buffer.length * 2));
    }
    lines.buffer.copy(larger, 0, 0, lines.length);
    lines.buffer = larger;
  }
  const written = lines.buffer.write(line, lines.length);
  lines.length += written;
  lines.count++;
  batch.count++;
  batch.bytes += written;
}
