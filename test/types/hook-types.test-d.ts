// Checked by `tsc -p test/tsconfig.json`: a mistake in the published types is a compile error here.
import type {
  ForwardOverrides,
  HookMetadata,
  HookScript,
  HookUpstreamError,
  HookUpstreamErrorKind,
  PipeOptions,
  ScriptFetch,
  ScriptMetadata,
  ScriptRequest,
  ScriptResponse,
  UpstreamOverrides,
} from "interpose/hook";
import { expectTypeOf } from "vitest";
import type { HookUpstreamErrorKind as OwnKind } from "../../exec-host/worker/hook-upstream-error.ts";

expectTypeOf<HookUpstreamErrorKind>().toEqualTypeOf<OwnKind>();
expectTypeOf<ScriptMetadata["hook"]>().toEqualTypeOf<HookMetadata | undefined>();
expectTypeOf<HookMetadata["upstream"]>().toEqualTypeOf<{
  readonly host: string;
  readonly port: number;
}>();
expectTypeOf<ReturnType<HookMetadata["forward"]>>().toEqualTypeOf<Promise<void>>();
expectTypeOf<ReturnType<HookMetadata["fetchUpstream"]>>().toEqualTypeOf<Promise<Response>>();
expectTypeOf<ReturnType<HookMetadata["pipeResponse"]>>().toEqualTypeOf<Promise<void>>();
expectTypeOf<ScriptRequest["rawBody"]>().toEqualTypeOf<Buffer | undefined>();
expectTypeOf<ReturnType<ScriptResponse["status"]>>().toExtend<ScriptResponse>();

const gate: HookScript<{ hits?: number }> = async (req, res, metadata, shared) => {
  shared.hits = (shared.hits ?? 0) + 1;
  if (metadata.hook === undefined) {
    res.status(404).send("no hook");
    return;
  }
  const { hook } = metadata;
  expectTypeOf(req.socket.remoteAddress).toEqualTypeOf<string | undefined>();
  expectTypeOf(hook.auditId).toEqualTypeOf<string>();
  const up = await hook.fetchUpstream(req, {
    timeoutMs: 10,
    headers: { a: "b", c: ["d"], e: null },
  });
  up.headers.set("x", "y");
  await hook.pipeResponse(up, res, { method: "HEAD" });
  await hook.forward(req, res, {
    body: new URLSearchParams(),
    onUpstreamError: (error) => {
      expectTypeOf(error).toEqualTypeOf<HookUpstreamError>();
      expectTypeOf(error.kind).toEqualTypeOf<HookUpstreamErrorKind>();
      return { status: 503, headers: { "retry-after": "1" }, body: "later" };
    },
  });
};
void gate;

// Any value may be returned; nothing has to be.
const values: HookScript[] = [
  () => "text",
  () => ({ a: 1 }),
  async () => new Response("x"),
  () => {},
];
void values;

async function misuse(
  hook: HookMetadata,
  req: ScriptRequest,
  res: ScriptResponse,
  fetch: ScriptFetch,
) {
  // @ts-expect-error data fields cannot be assigned
  hook.auditId = "x";
  // @ts-expect-error neither can the upstream
  hook.upstream.port = 1;
  // @ts-expect-error the request is needed
  await hook.forward(res);
  // @ts-expect-error a port is a number
  await hook.fetchUpstream(req, { port: "80" });
  // @ts-expect-error numbers are no header values
  await hook.fetchUpstream(req, { headers: { a: 1 } });
  // @ts-expect-error only forward() has it
  await hook.fetchUpstream(req, { onUpstreamError: () => ({ status: 500 }) });
  // @ts-expect-error a status is needed
  await hook.forward(req, res, { onUpstreamError: () => ({ body: "x" }) });
  // @ts-expect-error an override that does not exist
  await hook.forward(req, res, { path: "/x" });
  await fetch("http://x/", { decompress: false });
  await fetch({ url: "http://x/", decompress: 0, method: "POST" });
  // @ts-expect-error neither text nor number of the right kind
  await fetch("http://x/", { decompress: "no" });
  expectTypeOf<UpstreamOverrides>().toExtend<ForwardOverrides>();
  expectTypeOf<PipeOptions>().toEqualTypeOf<{ method?: string }>();
}
void misuse;
