/** One server-sent event. */
export interface SseFrame {
  /** `message` where the server named none. */
  readonly event: string;
  /** The `data` lines joined by line feeds. */
  readonly data: string;
  /** The last `id` seen on the stream; "" before the first. */
  readonly id: string;
}

/** Bytes of one event, and of one line: what a server may make a reader keep. */
const MAX_EVENT_LENGTH = 4_194_304;

/**
 * Parses a `text/event-stream` body (WHATWG HTML, "Server-sent events"). Comments are given to `onComment`
 * (servers send them as heartbeats). An event that the stream's end cuts off is dropped, as the standard says.
 *
 * @throws Error when one event is longer than 4 MiB; whatever the body throws.
 */
export async function* readSse(
  body: AsyncIterable<Uint8Array>,
  onComment: () => void = () => {},
): AsyncGenerator<SseFrame, void, undefined> {
  const decoder = new TextDecoder();
  let rest = "";
  let event = "";
  let data: string[] = [];
  let size = 0;
  let id = "";
  let first = true;
  for await (const chunk of body) {
    rest += decoder.decode(chunk, { stream: true });
    if (first && rest !== "") {
      rest = rest.startsWith("\uFEFF") ? rest.slice(1) : rest;
      first = false;
    }
    for (;;) {
      const end = /\r\n|\n|\r(?!$)/.exec(rest);
      if (end === null) {
        break;
      }
      const line = rest.slice(0, end.index);
      rest = rest.slice(end.index + end[0].length);
      if (line === "") {
        if (data.length > 0) {
          yield { event: event === "" ? "message" : event, data: data.join("\n"), id };
        }
        event = "";
        data = [];
        size = 0;
        continue;
      }
      if (line.startsWith(":")) {
        onComment();
        continue;
      }
      const colon = line.indexOf(":");
      const field = colon < 0 ? line : line.slice(0, colon);
      let value = colon < 0 ? "" : line.slice(colon + 1);
      value = value.startsWith(" ") ? value.slice(1) : value;
      if (field === "event") {
        event = value;
      } else if (field === "data") {
        data.push(value);
        size += value.length + 1;
      } else if (field === "id" && !value.includes("\0")) {
        id = value;
      }
    }
    if (size + rest.length > MAX_EVENT_LENGTH) {
      throw new Error("one event of the stream is longer than 4 MiB");
    }
  }
}
