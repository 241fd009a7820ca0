import { CONTAINER, type TestEdge, type TestEdgeOptions, startTestEdge } from "./edge.ts";
import { type RecordingUpstream, type Responder, recordingUpstream } from "./recording-upstream.ts";

/** One way through the edge. `lines` are the field lines that arrived behind it. */
export interface FaultRoute {
  readonly name: string;
  readonly host: string;
  readonly path: string;
  /** The fields arrive at a service of bytes, or come back as JSON from a script. */
  readonly shows: "service" | "script";
}

export interface FaultEdge {
  readonly edge: TestEdge;
  readonly upstream: RecordingUpstream;
  readonly agent: RecordingUpstream;
  readonly routes: readonly FaultRoute[];
}

const ECHO = `module.exports = (req, res) => {
  res.setHeader("content-type", "application/json");
  res.end(JSON.stringify({ url: req.url, raw: req.rawHeaders, seen: Object.keys(req.headers) }));
};`;

/**
 * An edge with every way to a service: plain, through an alias, through a port, through a forwarding hook, to a hook's
 * own script, to the exec host directly, to an agent gateway.
 */
export async function startFaultEdge(
  respond?: Responder,
  options: TestEdgeOptions = {},
): Promise<FaultEdge> {
  const upstream = await recordingUpstream(respond);
  const agent = await recordingUpstream(respond);
  const edge = await startTestEdge({
    upstream: upstream.port,
    ...options,
    container: {
      agent: { kind: "remote", port: agent.port, secret: "a-secret-of-the-agent-gateway" },
      ports: { terminal: upstream.port },
      ...options.container,
    },
  });
  edge.script("echo.js", ECHO);
  edge.script("pass.js", "module.exports = (req, res, { hook }) => hook.forward(req, res);");
  edge.script(
    "piped.js",
    "module.exports = async (req, res, { hook }) => hook.pipeResponse(await hook.fetchUpstream(req), res);",
  );
  edge.script("returned.js", "module.exports = (req, res, { hook }) => hook.fetchUpstream(req);");
  for (const name of ["pass", "piped", "returned", "echo"]) {
    await edge.hook("terminal", {
      match: { path: `/${name}*` },
      script: { path: `/${name}` },
      timeout: 15_000,
    });
  }
  const made = await edge.api("POST", "/api/v1/proxy/aliases", {
    container_id: CONTAINER,
    alias: "fault-alias",
    program: "terminal",
  });
  if (made.status !== 201) {
    throw new Error(`no alias: ${String(made.body.message)}`);
  }
  const terminal = edge.host("terminal-1");
  const at = (name: string, host: string, path: string, shows: FaultRoute["shows"]) => ({
    name,
    host,
    path,
    shows,
  });
  return {
    edge,
    upstream,
    agent,
    routes: [
      at("plain", terminal, "/plain", "service"),
      at("port", edge.host(`http-${upstream.port}`), "/plain", "service"),
      at("alias", "fault-alias.local.containers.localhost", "/plain", "service"),
      at("agent", edge.host("agent-1"), "/plain", "service"),
      at("forward", terminal, "/pass", "service"),
      at("pipe", terminal, "/piped", "service"),
      at("return", terminal, "/returned", "service"),
      at("script", terminal, "/echo", "script"),
      at("exec", edge.host("exec-1"), "/echo", "script"),
    ],
  };
}

/** The route's service: the agent's for the agent, the container's for all others. */
export function serviceOf(faults: FaultEdge, route: FaultRoute): RecordingUpstream {
  return route.name === "agent" ? faults.agent : faults.upstream;
}
