import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { test } from "vitest";
import {
  ApiError,
  ConnectionError,
  InterposeClient,
  ValidationError,
} from "../../client/client.ts";
import { createTransport } from "../../client/transport.ts";
import { startEcho } from "../support/client-echo.ts";

const C = "890abcdef12345678901cdef";
const RULE = { match: {}, script: { path: "/gate" } };

/** What a promise rejects with. */
async function failure(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    () => "resolved",
    (cause: unknown) => cause,
  );
}

test("an error answer becomes an ApiError with status, code, message and body", async ({
  expect,
}) => {
  const { baseURL } = await startEcho((_request, response) => {
    response.writeHead(412, { "content-type": "application/json", "retry-after": "2" });
    response.end(
      '{"statusCode":412,"error":"Precondition Failed","code":"PRECONDITION_FAILED","message":"etag_mismatch"}',
    );
  });
  const client = new InterposeClient({ baseURL });
  const error = await failure(
    client.api.proxy.hooks.create(C, "files", RULE, { ifMatch: "file:v1" }),
  );
  expect(error).toBeInstanceOf(ApiError);
  expect(error).toMatchObject({
    status: 412,
    code: "PRECONDITION_FAILED",
    message: "etag_mismatch",
    retryAfterSeconds: 2,
    method: "POST",
    path: `/api/v1/containers/${C}/proxy/hooks/files`,
    response: { error: "Precondition Failed" },
  });
});

test("an ApiError of the agent has its details", async ({ expect }) => {
  const { baseURL } = await startEcho((_request, response) => {
    response.writeHead(409, { "content-type": "application/json; charset=utf-8" });
    response.end(
      '{"code":"tool_needs_confirmation","message":"confirm first","details":{"confirm_token":"t"}}',
    );
  });
  const error = await failure(new InterposeClient({ baseURL }).agent.tools.runTool("bash"));
  expect(error).toMatchObject({ status: 409, code: "tool_needs_confirmation" });
  expect((error as ApiError).details).toEqual({ confirm_token: "t" });
});

test.for([
  ["text/html", "<h1>Bad</h1>", "Bad Gateway"],
  ["application/json", "{broken", "Bad Gateway"],
  ["application/json", "[1]", "Bad Gateway"],
  ["application/json", '{"error":"only this"}', "only this"],
] as const)(
  "an error of another kind keeps its body: %s %s",
  async ([type, body, text], { expect }) => {
    const { baseURL } = await startEcho((_request, response) => {
      response.writeHead(502, { "content-type": type });
      response.end(body);
    });
    const error = await failure(new InterposeClient({ baseURL }).api.containers.list());
    expect(error).toMatchObject({ status: 502, code: "HTTP_502", message: text });
  },
);

test("a redirect is not followed", async ({ expect }) => {
  const elsewhere = await startEcho();
  const { baseURL } = await startEcho((_request, response) => {
    response.writeHead(307, { location: `${elsewhere.baseURL}/stolen` });
    response.end();
  });
  const client = new InterposeClient({ baseURL, token: "secret-token" });
  const error = await failure(
    client.api.proxy.settings.update(C, { default: "deny" }, { ifMatch: "file:v1" }),
  );
  expect(error).toMatchObject({ name: "ApiError", status: 307 });
  expect(elsewhere.seen).toEqual([]);
});

test("a write without its version, or a path argument that is none, sends nothing", async ({
  expect,
}) => {
  const { baseURL, seen } = await startEcho();
  const client = new InterposeClient({ baseURL });
  const untyped = client.api.proxy.hooks as unknown as Record<
    string,
    (...args: unknown[]) => Promise<unknown>
  >;
  const calls = [
    untyped["create"]?.(C, "files", RULE),
    untyped["create"]?.(C, "files", RULE, {}),
    untyped["clear"]?.(C, "files", { ifMatch: "" }),
    untyped["get"]?.(C, "files", ".."),
    untyped["get"]?.(C, "files", "."),
    untyped["get"]?.(C, "", "x"),
    untyped["get"]?.(C, undefined, "x"),
    untyped["get"]?.(C, "files", "\ud800"),
    client.agent.hooks.run({ session_id: "s", event: "Stop", shipped_id: "x" } as never),
    client.agent.hooks.run({ session_id: "s" } as never),
    client.agent.hooks.test({ session_id: "s" } as never),
  ];
  for (const call of calls) {
    expect(await failure(call as Promise<unknown>)).toBeInstanceOf(ValidationError);
  }
  expect(seen).toEqual([]);
});

test("ifMatch: null leaves the decision to the server", async ({ expect }) => {
  const { baseURL, seen } = await startEcho();
  await new InterposeClient({ baseURL }).api.proxy.hooks.clear(C, "files", { ifMatch: null });
  expect(seen[0]?.headers).not.toHaveProperty("if-match");
});

test.for(["", "nonsense", "ftp://x/", "http://user:pw@x/", "http://x/?a=b", "http://x/#y"])(
  "a client refuses the base URL %j",
  (baseURL, { expect }) => {
    expect(() => new InterposeClient({ baseURL })).toThrow(ValidationError);
  },
);

test("a token that cannot be sent is refused without being shown", ({ expect }) => {
  const make = () => new InterposeClient({ baseURL: "http://x", token: "hush\nhush" });
  expect(make).toThrow(ValidationError);
  expect(make).not.toThrow(/hush/);
});

test("a path prefix of the base URL stays", async ({ expect }) => {
  const { baseURL, seen } = await startEcho();
  await new InterposeClient({ baseURL: `${baseURL}/edge/a//` }).api.containers.list();
  expect(seen[0]?.line).toBe("GET /edge/a/api/v1/containers");
});

test("no server, a cut answer and a slow one become a ConnectionError with the reason", async ({
  expect,
}) => {
  const closed = createServer();
  await new Promise<void>((ready) => closed.listen(0, "127.0.0.1", ready));
  const { port } = closed.address() as AddressInfo;
  await new Promise<void>((done) => closed.close(() => done()));
  const refused = await failure(
    new InterposeClient({ baseURL: `http://127.0.0.1:${port}` }).api.containers.list(),
  );
  expect(refused).toBeInstanceOf(ConnectionError);
  expect((refused as Error).message).toBe(
    `no answer from http://127.0.0.1:${port}: connection refused`,
  );

  const cutting = await startEcho((_request, response) => {
    response.writeHead(200, { "content-type": "application/json", "content-length": "100" });
    response.write("{");
    setTimeout(() => response.destroy(), 20);
  });
  const cut = await failure(new InterposeClient(cutting).api.containers.list());
  expect(cut).toBeInstanceOf(ConnectionError);

  const silent = await startEcho(() => {});
  const late = await failure(
    new InterposeClient({ ...silent, timeoutMs: 100 }).api.containers.list(),
  );
  expect(late).toBeInstanceOf(ConnectionError);
  expect((late as Error).message).toContain("within 100 ms");
});

test("a call ends with the reason of its own signal", async ({ expect }) => {
  const silent = await startEcho(() => {});
  const reason = new Error("enough");
  const error = await failure(
    new InterposeClient(silent).api.containers.list({ signal: AbortSignal.abort(reason) }),
  );
  expect(error).toBe(reason);
});

test("an answer without end is given up at the limit", async ({ expect }) => {
  const { baseURL } = await startEcho((_request, response) => {
    response.writeHead(200, { "content-type": "application/json" });
    const chunk = Buffer.alloc(65_536, 0x20);
    const more = () => {
      while (!response.destroyed && response.write(chunk)) {
        // until the socket is full
      }
    };
    response.on("drain", more);
    more();
  });
  const transport = createTransport({ baseURL, maxAnswerBytes: 1_000_000 });
  const error = await failure(transport.request({ method: "GET", path: "/" }));
  expect(error).toBeInstanceOf(ConnectionError);
  expect((error as Error).message).toBe("the answer is longer than 1000000 bytes");
});

test("a list iterator walks the pages, and stops at a server that repeats one", async ({
  expect,
}) => {
  const names = ["a", "b", "c", "d", "e"];
  let honest = true;
  const { baseURL, seen } = await startEcho((request, response) => {
    const query = new URL(request.url ?? "", "http://x").searchParams;
    const page = honest ? Number(query.get("page") ?? 1) : 1;
    const limit = Number(query.get("limit") ?? 0);
    const items = limit === 0 ? names : names.slice((page - 1) * limit, page * limit);
    response.writeHead(200, { "content-type": "application/json" });
    response.end(
      JSON.stringify({
        items: items.map((name) => ({ name })),
        meta: { total: names.length, page, limit: limit === 0 ? names.length : limit },
      }),
    );
  });
  const { tools } = new InterposeClient({ baseURL }).agent;
  const collect = async (options?: { page?: number; limit?: number }) => {
    const found: string[] = [];
    for await (const tool of tools.listToolsIterator(options)) {
      found.push(tool.name);
    }
    return found;
  };
  const pending = tools.listToolsIterator({ page: 1, limit: 2 });
  expect(seen).toEqual([]);
  expect((await pending.next()).value).toEqual({ name: "a" });
  expect(await collect()).toEqual(names);
  expect(await collect({ page: 1, limit: 2 })).toEqual(names);
  expect(await collect({ page: 2, limit: 2 })).toEqual(["c", "d", "e"]);
  expect(await collect({ page: 1, limit: 5 })).toEqual(names);
  expect(await collect({ page: 9, limit: 2 })).toEqual([]);
  honest = false;
  expect(await failure(collect({ page: 1, limit: 2 }))).toBeInstanceOf(ConnectionError);
});

test("a streamed run gives its events and says when it broke off", async ({ expect }) => {
  let end = true;
  const { baseURL, seen } = await startEcho((_request, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write('event: start\ndata: {"tool":"bash"}\n\n: heartbeat\n\n');
    response.write('event: result\ndata: {"is_error":false}\n\n');
    response.end(end ? 'event: end\ndata: {"tool":"bash"}\n\n' : "");
  });
  const { tools } = new InterposeClient({ baseURL }).agent;
  const events = async () => {
    const found: string[] = [];
    for await (const frame of tools.streamTool("bash", { params: { cmd: "ls" } })) {
      found.push(frame.event);
    }
    return found;
  };
  expect(await events()).toEqual(["start", "result", "end"]);
  expect(seen[0]).toMatchObject({
    headers: { accept: "text/event-stream" },
    body: { params: { cmd: "ls" } },
  });
  end = false;
  expect(await failure(events())).toBeInstanceOf(ConnectionError);
});

test("leaving a stream early closes its connection", async ({ expect }) => {
  const gone = Promise.withResolvers<void>();
  const { baseURL } = await startEcho((_request, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write('id: 1\ndata: {"audit_id":"1"}\n\n');
    response.on("close", gone.resolve);
  });
  const client = new InterposeClient({ baseURL });
  for await (const event of await client.api.proxy.audit.stream(C)) {
    expect(event).toEqual({ id: "1", record: { audit_id: "1" } });
    break;
  }
  await gone.promise;
});

test("something else than an event stream is said so", async ({ expect }) => {
  const { baseURL } = await startEcho();
  const error = await failure(new InterposeClient({ baseURL }).api.proxy.audit.stream(C));
  expect(error).toMatchObject({
    name: "ConnectionError",
    message: "the answer is no event stream",
  });
});
