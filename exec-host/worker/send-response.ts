import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { ReadableStream as WebStream } from "node:stream/web";
import type { Call } from "./call.ts";

/** Answers with a Fetch API response that a script returned. */
export async function sendResponse(call: Call, response: Response): Promise<void> {
  const { res } = call;
  res.writeHead(response.status, [...response.headers].flat());
  if (response.body === null) {
    res.end();
    return;
  }
  await pipeline(Readable.fromWeb(response.body as WebStream), res);
}

/** Answers with text that comes bit by bit. */
export async function sendTextStream(call: Call, stream: AsyncIterable<unknown>): Promise<void> {
  call.res.setHeader("content-type", "text/plain; charset=utf-8");
  await pipeline(Readable.from(stream), call.res);
}
