import { createServer } from "node:http";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** One question as the judge double received it. */
export interface JudgeCall {
  readonly authorization: string | undefined;
  readonly model: unknown;
  /** All message texts, joined. */
  readonly prompt: string;
  /** Ids that an answer is asked for. */
  readonly ids: readonly string[];
}

/** How the double answers one call. */
export type JudgeBehaviour =
  /** Probabilities by id; ids that are missing here get 0. */
  | {
      readonly kind: "answer";
      readonly yes?: Readonly<Record<string, number>>;
      readonly afterMs?: number;
    }
  /** The completion's content, as it stands. */
  | { readonly kind: "content"; readonly content: unknown }
  /** The whole body, as it stands. */
  | { readonly kind: "body"; readonly body: string; readonly status?: number }
  /** A body of that many bytes that never makes sense. */
  | { readonly kind: "flood"; readonly bytes: number }
  /** Takes the request and says nothing. */
  | { readonly kind: "silent" }
  /** Sends a head and a first byte, then nothing. */
  | { readonly kind: "stall" }
  /** Cuts the connection. */
  | { readonly kind: "cut" }
  | { readonly kind: "redirect"; readonly location: string };

export interface TestJudge {
  readonly url: string;
  readonly calls: readonly JudgeCall[];
  /** Replaces the script from now on. */
  script(next: JudgeScript): void;
  stop(): Promise<void>;
}

/** Decides by call; the index counts from 0 since the script was set. */
export type JudgeScript = JudgeBehaviour | ((call: JudgeCall, index: number) => JudgeBehaviour);

/** A chat endpoint on a free loopback port that answers by script, for tests of the rules judge and for trials by hand. */
export async function startJudge(first: JudgeScript = { kind: "answer" }): Promise<TestJudge> {
  const calls: JudgeCall[] = [];
  let script = first;
  let index = 0;
  const server = createServer((request, response) => {
    response.on("error", () => {}); // clients that gave up
    void readCall(request).then((call) => {
      calls.push(call);
      const behaviour = typeof script === "function" ? script(call, index) : script;
      index += 1;
      behave(behaviour, call, response);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/v1/chat/completions`,
    calls,
    script(next) {
      script = next;
      index = 0;
    },
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

async function readCall(request: IncomingMessage): Promise<JudgeCall> {
  const chunks: Buffer[] = [];
  for await (const chunk of request as AsyncIterable<Buffer>) {
    chunks.push(chunk);
  }
  const body = JSON.parse(Buffer.concat(chunks).toString("utf8")) as {
    model: unknown;
    messages: { content: string }[];
  };
  const prompt = body.messages.map(({ content }) => content).join("\n");
  const ids = /these ids: (.*)$/.exec(prompt)?.[1]?.split(", ") ?? [];
  return { authorization: request.headers.authorization, model: body.model, prompt, ids };
}

function behave(behaviour: JudgeBehaviour, call: JudgeCall, response: ServerResponse): void {
  switch (behaviour.kind) {
    case "answer": {
      const yes = new Map(Object.entries(behaviour.yes ?? {}));
      const content = Object.fromEntries(call.ids.map((id) => [id, { yes: yes.get(id) ?? 0 }]));
      setTimeout(() => send(response, completion(JSON.stringify(content))), behaviour.afterMs ?? 0);
      return;
    }
    case "content":
      send(response, completion(behaviour.content));
      return;
    case "body":
      send(response, behaviour.body, behaviour.status);
      return;
    case "flood": {
      response.writeHead(200, { "Content-Type": "application/json" });
      const chunk = Buffer.alloc(65_536, "x");
      for (let sent = 0; sent < behaviour.bytes; sent += chunk.length) {
        response.write(chunk);
      }
      response.end();
      return;
    }
    case "silent":
      return;
    case "stall":
      response.writeHead(200, { "Content-Type": "application/json" });
      response.write("{");
      return;
    case "cut":
      response.destroy();
      return;
    case "redirect":
      response.writeHead(307, { Location: behaviour.location });
      response.end();
      return;
  }
}

function completion(content: unknown): string {
  return JSON.stringify({ choices: [{ index: 0, message: { role: "assistant", content } }] });
}

function send(response: ServerResponse, body: string, status = 200): void {
  response.writeHead(status, { "Content-Type": "application/json" });
  response.end(body);
}
