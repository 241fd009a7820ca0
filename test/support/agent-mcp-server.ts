import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { createInterface } from "node:readline";

// A small MCP server: run as a program it speaks over its standard streams; `startHttpMcp` serves the same over HTTP.

interface Message {
  readonly id?: number | string;
  readonly method?: string;
  readonly params?: {
    readonly name?: string;
    readonly arguments?: Record<string, unknown>;
    readonly protocolVersion?: string;
  };
}

const open = { type: "object", properties: {} };
const TOOLS = [
  {
    name: "echo",
    description: "Says it back.",
    inputSchema: {
      type: "object",
      properties: { text: { type: "string" } },
      required: ["text"],
      additionalProperties: false,
    },
    annotations: { readOnlyHint: true },
  },
  { name: "change", description: "Changes something.", inputSchema: open },
  {
    name: "env",
    description: "Tells a variable.",
    inputSchema: { type: "object", properties: { name: { type: "string" } } },
    annotations: { readOnlyHint: true },
  },
  {
    name: "die",
    description: "Ends the server.",
    inputSchema: open,
    annotations: { readOnlyHint: true },
  },
  {
    name: "slow",
    description: "Takes for ever.",
    inputSchema: open,
    annotations: { readOnlyHint: true },
  },
  {
    name: "_b",
    description: "An odd name.",
    inputSchema: open,
    annotations: { readOnlyHint: true },
  },
  {
    name: "b",
    description: "A short name.",
    inputSchema: open,
    annotations: { readOnlyHint: true },
  },
];

function answer(message: Message): unknown {
  switch (message.method ?? "") {
    case "initialize":
      return {
        protocolVersion: message.params?.protocolVersion,
        capabilities: { tools: {} },
        serverInfo: { name: "test", version: "1" },
      };
    case "tools/list":
      return { tools: TOOLS };
    case "tools/call": {
      const args = message.params?.arguments ?? {};
      switch (message.params?.name ?? "") {
        case "die":
          return process.exit(1);
        case "slow":
          return undefined;
        case "env":
          return { content: [{ type: "text", text: process.env[String(args["name"])] ?? "" }] };
        default:
          return {
            content: [
              {
                type: "text",
                text: `${String(message.params?.name)} ${JSON.stringify(args)} ${process.pid}`,
              },
            ],
          };
      }
    }
    default:
      return {};
  }
}

/** Settings entry of a server over standard streams. */
export function stdioServer(
  name: string,
  more: Record<string, unknown> = {},
): Record<string, unknown> {
  return {
    name,
    command: process.execPath,
    args: [fileURLToPath(import.meta.url), "serve"],
    ...more,
  };
}

/** Serves over streamable HTTP until `onEnd`'s callback is called; returns the url. Requests without the header `x-key: right` are refused. */
export async function startHttpMcp(onEnd: (end: () => void) => void): Promise<string> {
  const server = createServer((request, response) => {
    if (request.headers["x-key"] !== "right") {
      response.writeHead(401).end();
      return;
    }
    if (request.method !== "POST") {
      response.writeHead(405).end();
      return;
    }
    let text = "";
    request.setEncoding("utf8").on("data", (chunk: string) => (text += chunk));
    request.once("end", () => {
      const message = JSON.parse(text) as Message;
      if (message.id === undefined) {
        response.writeHead(202).end();
        return;
      }
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify({ jsonrpc: "2.0", id: message.id, result: answer(message) }));
    });
  });
  await new Promise<void>((resolve) => {
    server.listen(0, "127.0.0.1", resolve);
  });
  onEnd(() => {
    server.close();
    server.closeAllConnections();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`;
}

if (process.argv[2] === "serve") {
  createInterface({ input: process.stdin }).on("line", (line) => {
    const message = JSON.parse(line) as Message;
    const result = message.id === undefined ? undefined : answer(message);
    if (result !== undefined) {
      process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", id: message.id, result })}\n`);
    }
  });
}
