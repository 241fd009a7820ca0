import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import { onTestFinished } from "vitest";

/** A request as it arrived. */
export interface SeenRequest {
  /** `METHOD target`. */
  readonly line: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  /** Parsed JSON; undefined without a body. */
  readonly body: unknown;
}

export type Answer = (request: IncomingMessage, response: ServerResponse) => void;

const accept: Answer = (_request, response) => {
  response.setHeader("content-type", "application/json");
  response.end('{"statusCode":200,"message":"ok","data":{}}');
};

/** A server on loopback that notes every request and answers as told. */
export async function startEcho(answer: Answer = accept) {
  const seen: SeenRequest[] = [];
  const server = createServer((request, response) => {
    void text(request).then((body) => {
      seen.push({
        line: `${request.method} ${request.url}`,
        headers: request.headers,
        body: body === "" ? undefined : JSON.parse(body),
      });
      answer(request, response);
    });
  });
  await new Promise<void>((ready) => server.listen(0, "127.0.0.1", ready));
  onTestFinished(
    () =>
      new Promise<void>((done) => {
        server.close(() => done());
        server.closeAllConnections();
      }),
  );
  return { baseURL: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, seen, server };
}
