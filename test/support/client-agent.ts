import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { HoodyClient } from "../../client/client.ts";
import { EDGE_AUTH_FIELD, edgeAuthField } from "../../exec-host/agent/edge-auth.ts";
import { createGuards } from "../../exec-host/agent/hooks/guards.ts";
import { systemClock } from "../../policy/kernel/clock.ts";
import { SECRET, startGateway } from "./agent-gateway.ts";

/** Signs requests as the edge does, for a gateway that is called without one. */
const signingFetch: typeof fetch = (input, init) => {
  const request = new Request(input, init);
  const { pathname, search } = new URL(request.url);
  request.headers.set(
    EDGE_AUTH_FIELD,
    edgeAuthField(SECRET, request.method, pathname + search, systemClock.now()),
  );
  return fetch(request);
};

/** A whole gateway, its project folder, and a client whose agent it is. */
export async function startAgent() {
  const gateway = await startGateway({ createGuards });
  const client = new HoodyClient({
    baseURL: `http://127.0.0.1:${gateway.port}`,
    token: "not-looked-at",
    fetch: signingFetch,
  });
  const put = (name: string, text: string) => {
    const path = join(gateway.project, name);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
    return path;
  };
  return { ...gateway, agent: client.agent, client, put };
}
