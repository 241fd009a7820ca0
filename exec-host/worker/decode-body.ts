import type { Transform } from "node:stream";
import * as zlib from "node:zlib";
import { IncomingBody } from "./incoming-body.ts";

/**
 * The body of an answer without its coding. What a decoder makes of a broken or cut body is a failure of the result.
 *
 * @param coding one of gzip, x-gzip, deflate, br, zstd.
 */
export function decodeBody(body: IncomingBody, coding: string): IncomingBody {
  const decoded = new IncomingBody();
  let decoder: Transform | null = null;
  let isGivenUp = false;
  decoded.bind({
    resume: () => void decoder?.resume(),
    abort() {
      isGivenUp = true;
      decoder?.destroy();
      body.cancel();
    },
  });
  const makeDecoder = (first: Buffer): Transform => {
    const made = createDecoder(coding, first);
    made.on("data", (chunk: Buffer) => {
      if (!decoded.push(chunk)) {
        made.pause();
      }
    });
    made.on("end", () => decoded.end());
    made.on("error", (error) => {
      body.cancel();
      decoded.fail(error);
    });
    return made;
  };
  body.pour({
    data(chunk) {
      if (isGivenUp) {
        return true;
      }
      decoder ??= makeDecoder(chunk);
      if (decoder.write(chunk)) {
        return true;
      }
      decoder.once("drain", () => body.resume());
      return false;
    },
    end() {
      if (decoder === null) {
        decoded.end();
      } else {
        decoder.end();
      }
    },
    fail(error) {
      decoder?.destroy();
      decoded.fail(error);
    },
  });
  return decoded;
}

/** Decoders that give out what they have at every piece, so that an event stream is not held back. */
function createDecoder(coding: string, first: Buffer): Transform {
  const { constants } = zlib;
  const lenient = { flush: constants.Z_SYNC_FLUSH, finishFlush: constants.Z_SYNC_FLUSH };
  switch (coding) {
    case "deflate":
      // RFC 9110 8.4.1.2 means the zlib format; some servers send the bare one.
      return (first[0]! & 0x0f) === 0x08
        ? zlib.createInflate(lenient)
        : zlib.createInflateRaw(lenient);
    case "br":
      return zlib.createBrotliDecompress({
        flush: constants.BROTLI_OPERATION_FLUSH,
        finishFlush: constants.BROTLI_OPERATION_FLUSH,
      });
    case "zstd":
      return zlib.createZstdDecompress({
        flush: constants.ZSTD_e_flush,
        finishFlush: constants.ZSTD_e_end,
      });
    default:
      return zlib.createGunzip(lenient);
  }
}
