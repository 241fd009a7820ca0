import { existsSync, mkdtempSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join, relative, sep } from "node:path";
import { type Envelope, OUTCOME_FIELD } from "../dispatcher/envelope.ts";
import { createFrameClient } from "../dispatcher/frame-client.ts";
import type { Clock } from "../policy/kernel/clock.ts";
import { newToken, newUuid } from "../policy/kernel/ids.ts";
import { startMock, type MockUpstream, type ReceivedRequest } from "./offline-mock.ts";
import { bareConfinement } from "./pool/confinement.ts";
import { startChild, type Child } from "./pool/child.ts";
import { PROTOCOL_VERSION, type LogLine, type WorkerLimits } from "./protocol.ts";
import { isExecId, isSubdomain } from "./scripts/coordinates.ts";

/** One run of a script, without an edge, a rule or a container. */
export interface OfflineRequest {
  /** Path of the script's file. */
  readonly script: string;
  /** Scripts root; the default is the folder of the script. Helpers and packages are found below it. */
  readonly root?: string;
  readonly method: string;
  /** Path and query. */
  readonly path: string;
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body: Buffer | null;
  /** Where helpers send the request: an `http:` address, or a service made up for the run. */
  readonly upstream: string;
  /** `ordinary` calls the script by its own address, without `metadata.hook`. */
  readonly kind?: "hook" | "ordinary";
  readonly service?: string;
  readonly timeoutMs?: number;
  readonly clientAddress?: string;
  readonly env?: Readonly<Record<string, string>>;
}

/** What happened. */
export interface OfflineExchange {
  readonly request: OfflineRequest;
  /** 0 when the connection was cut before a head. */
  readonly status: number;
  readonly reason: string;
  /** Name, value, name, value… without the fields of the hand-over. */
  readonly fields: readonly string[];
  readonly body: Buffer;
  /** The answer broke off. */
  readonly isCut: boolean;
  /** The audit record's word for it; null for an ordinary call. */
  readonly outcome: string | null;
  readonly durationMs: number;
  readonly log: readonly LogLine[];
  /** Requests that reached the made-up service; null when a real address was given. */
  readonly received: readonly ReceivedRequest[] | null;
}

const LIMITS: WorkerLimits = {
  maxBufferedBodyBytes: 33_554_432,
  ordinaryTimeoutMs: 3_600_000,
  upstreamConnectMs: 3000,
  upstreamIdleMs: 300_000,
  maxHeaderBytes: 32_768,
  maxDeployments: 1,
};
const START_MS = 15_000;
/** How often a worker may write its allowance of output. */
const REFILL_MS = 100;
/** Log lines are gathered by the worker; the last ones arrive a moment after the answer. */
const LAST_LINES_MS = 150;
const MAX_TIMEOUT_MS = 30_000;

/**
 * Runs a script once in a worker process of its own, with the same helpers, limits and permissions as behind an
 * edge, and returns the exchange.
 *
 * @throws Error with one sentence when the script, the address or the worker cannot be used.
 */
export async function runScriptOffline(
  clock: Clock,
  request: OfflineRequest,
): Promise<OfflineExchange> {
  const place = locate(request);
  const home = realpathSync(mkdtempSync(join(tmpdir(), "interpose-run-")));
  let mock: MockUpstream | null = null;
  let worker: OfflineWorker | null = null;
  try {
    mock = request.upstream === "mock" ? await startMock() : null;
    const target = mock === null ? readUpstream(request.upstream) : mock;
    worker = await startWorker(clock, place.root, home, request.env ?? {});
    const started = clock.monotonic();
    const answer = await send(clock, worker, toEnvelope(request, place, target), request);
    const durationMs = clock.monotonic() - started;
    await new Promise<void>((resolve) => clock.after(LAST_LINES_MS, resolve));
    return {
      request,
      ...answer,
      durationMs,
      log: worker.log,
      received: mock?.received ?? null,
    };
  } finally {
    await worker?.stop();
    mock?.stop();
    rmSync(home, { recursive: true, force: true });
  }
}

interface Place {
  readonly root: string;
  readonly subdomain: string | null;
  readonly execId: string | null;
  readonly path: string;
}

/** Coordinates that lead to the file: its folders below the root are subdomain and exec id where they can be. */
function locate(request: OfflineRequest): Place {
  if (!existsSync(request.script)) {
    throw new Error(`There is no script at ${request.script}.`);
  }
  const file = realpathSync(request.script);
  const root = realpathSync(request.root ?? dirname(file));
  const below = relative(root, file);
  if (below === "" || below.startsWith("..")) {
    throw new Error("The script must lie below the scripts root.");
  }
  if (!/\.(?:js|ts)$/.test(file)) {
    throw new Error("A script is a .js or .ts file.");
  }
  const dirs = dirname(below) === "." ? [] : dirname(below).split(sep);
  const [first, second] = dirs;
  const hasSubdomain = first !== undefined && isSubdomain(first);
  const hasExecId = hasSubdomain && second !== undefined && isExecId(second);
  const rest = dirs.slice(hasExecId ? 2 : hasSubdomain ? 1 : 0);
  return {
    root,
    subdomain: hasSubdomain ? first : null,
    execId: hasExecId ? second : null,
    path: `/${[...rest, basename(file)].join("/")}`,
  };
}

interface Target {
  readonly host: string;
  readonly port: number;
}

function readUpstream(address: string): Target {
  let url: URL;
  try {
    url = new URL(address);
  } catch {
    throw new Error(`The upstream must be "mock" or an address such as http://127.0.0.1:3000.`);
  }
  if (
    url.protocol !== "http:" ||
    url.pathname !== "/" ||
    url.search !== "" ||
    url.username !== ""
  ) {
    throw new Error("The upstream is a plain http:// address without a path.");
  }
  return { host: url.hostname, port: url.port === "" ? 80 : Number(url.port) };
}

function toEnvelope(request: OfflineRequest, place: Place, target: Target): Envelope {
  const clientAddress = request.clientAddress ?? "127.0.0.1";
  const { subdomain, execId } = place;
  if (request.kind === "ordinary") {
    return { kind: "ordinary", subdomain, execId, clientAddress, manage: false };
  }
  return {
    kind: "hook",
    auditId: newUuid(),
    method: request.method,
    path: request.path.split("?", 1)[0] ?? "/",
    service: request.service ?? "terminal",
    upstreamHost: target.host,
    upstreamPort: target.port,
    subdomain,
    execId,
    scriptPath: place.path,
    timeoutMs: Math.min(request.timeoutMs ?? MAX_TIMEOUT_MS, MAX_TIMEOUT_MS),
    clientAddress,
  };
}

interface OfflineWorker {
  readonly socketPath: string;
  readonly secret: string;
  readonly log: readonly LogLine[];
  stop(): Promise<void>;
}

async function startWorker(
  clock: Clock,
  root: string,
  home: string,
  env: Readonly<Record<string, string>>,
): Promise<OfflineWorker> {
  const secret = newToken();
  const socketPath = join(home, "s");
  const log: LogLine[] = [];
  let lastOutput = "";
  const ready = Promise.withResolvers<void>();
  const gone = Promise.withResolvers<void>();
  const child: Child = startChild(
    clock,
    {
      role: "scripts",
      cwd: home,
      readPaths: [`${root}/`],
      writePaths: [`${home}/`],
      heapMb: 256,
      allowChildProcess: false,
      user: null,
      confinement: bareConfinement(false),
    },
    {
      message(message) {
        if (message.type === "ready") {
          ready.resolve();
        } else if (message.type === "failed") {
          ready.reject(new Error(`The worker cannot start: ${message.message}`));
        } else if (message.type === "logs") {
          log.push(...message.lines);
        }
      },
      output(line) {
        lastOutput = line;
      },
      violation(detail) {
        ready.reject(new Error(`The worker broke its channel: ${detail}`));
      },
      exit() {
        ready.reject(new Error(`The worker ended early. ${lastOutput}`.trim()));
        gone.resolve();
      },
    },
  );
  const timer = clock.after(START_MS, () => {
    ready.reject(new Error("The worker did not start in time."));
  });
  const refill = clock.every(REFILL_MS, () => child.refill());
  child.send({
    type: "start",
    version: PROTOCOL_VERSION,
    containerId: "offline",
    secret,
    socketPath,
    scriptsRoot: root,
    dataDir: home,
    env,
    limits: LIMITS,
  });
  const stop = async (): Promise<void> => {
    refill.cancel();
    child.kill();
    await gone.promise;
  };
  try {
    await ready.promise;
  } catch (cause) {
    await stop();
    throw cause;
  } finally {
    timer.cancel();
  }
  return { socketPath, secret, log, stop };
}

type Answer = Pick<OfflineExchange, "status" | "reason" | "fields" | "body" | "isCut" | "outcome">;

function send(
  clock: Clock,
  worker: OfflineWorker,
  envelope: Envelope,
  request: OfflineRequest,
): Promise<Answer> {
  const client = createFrameClient(clock);
  const fields = request.headers.flatMap(([name, value]) => [name, value]);
  if (!request.headers.some(([name]) => name.toLowerCase() === "host")) {
    fields.unshift("Host", "localhost");
  }
  const { body } = request;
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let head: Omit<Answer, "body" | "isCut"> = { status: 0, reason: "", fields: [], outcome: null };
    const finish = (isCut: boolean): void => {
      client.close();
      resolve({ ...head, body: Buffer.concat(chunks), isCut });
    };
    client.send(
      {
        endpoint: {
          origin: { kind: "unix", path: worker.socketPath },
          secret: worker.secret,
          generation: 0,
        },
        envelope,
        method: request.method,
        target: request.path,
        fields,
        body:
          body === null || body.length === 0
            ? null
            : {
                length: body.length,
                start(sink) {
                  sink.data(body);
                  sink.end([]);
                },
                resume() {},
                cancel() {},
              },
        awaitContinue: false,
        orders: null,
        idleMs: LIMITS.ordinaryTimeoutMs + 60_000,
      },
      {
        interim() {},
        head(received) {
          const shown: string[] = [];
          let outcome: string | null = null;
          for (let i = 0; i + 1 < received.fields.length; i += 2) {
            if (received.fields[i]!.toLowerCase() === OUTCOME_FIELD.toLowerCase()) {
              outcome = received.fields[i + 1]!.split(" ", 1)[0]!;
            } else if (!/^(?:connection|keep-alive)$/i.test(received.fields[i]!)) {
              shown.push(received.fields[i]!, received.fields[i + 1]!);
            }
          }
          head = { status: received.status, reason: received.reason, fields: shown, outcome };
        },
        data(chunk) {
          chunks.push(chunk);
          return true;
        },
        end: () => finish(false),
        tunnel(_head, stream) {
          stream.destroy();
          finish(true);
        },
        fail: () => finish(true),
      },
    );
  });
}
