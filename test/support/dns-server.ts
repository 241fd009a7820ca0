import dgram from "node:dgram";
import { once } from "node:events";
import { onTestFinished } from "vitest";

/** What the server says about a name: the target of its CNAME, or how it has none. */
export type DnsRecord =
  | { readonly cname: string; /** How long the answer takes. */ readonly afterMs?: number }
  | "no-such-name"
  | "no-data"
  | "server-failure"
  | "silent";

export interface DnsServer {
  /** For `customDomains.resolvers`. */
  readonly address: string;
  /** Names asked for, as they stood in the question, in their order. */
  readonly queries: string[];
  /** Names of this zone, in lower case; any other does not exist. */
  readonly zone: Map<string, DnsRecord>;
}

const CNAME = 5;
const RCODES = { "no-data": 0, "server-failure": 2, "no-such-name": 3 } as const;

/** A name server on UDP (RFC 1035 4.1) that knows CNAME records only; ended with the test. */
export async function startDnsServer(
  zone: Readonly<Record<string, DnsRecord>> = {},
): Promise<DnsServer> {
  const records = new Map(Object.entries(zone));
  const queries: string[] = [];
  let closed = false;
  const socket = dgram.createSocket("udp4");
  socket.on("message", (message, from) => {
    const { name, end } = readName(message);
    queries.push(name);
    const record = records.get(name.toLowerCase()) ?? "no-such-name";
    if (record !== "silent") {
      const answer = reply(message, end + 4, record);
      const late = typeof record === "object" ? (record.afterMs ?? 0) : 0;
      const send = () => {
        if (!closed) {
          socket.send(answer, from.port, from.address);
        }
      };
      if (late === 0) {
        send();
      } else {
        setTimeout(send, late);
      }
    }
  });
  socket.bind(0, "127.0.0.1");
  await once(socket, "listening");
  onTestFinished(() => {
    closed = true;
    socket.close();
  });
  return { address: `127.0.0.1:${socket.address().port}`, queries, zone: records };
}

/** The name of the question, and where it ends. */
function readName(message: Buffer): { name: string; end: number } {
  const labels: string[] = [];
  let at = 12;
  for (let length = message[at] ?? 0; length > 0; length = message[at] ?? 0) {
    labels.push(message.toString("latin1", at + 1, at + 1 + length));
    at += 1 + length;
  }
  return { name: labels.join("."), end: at + 1 };
}

function reply(query: Buffer, questionEnd: number, record: Exclude<DnsRecord, "silent">): Buffer {
  const answered = typeof record === "object";
  const header = Buffer.from(query.subarray(0, 12));
  // A response, recursion as desired and available; one question, and one answer or none.
  header.writeUInt16BE(0x8180 | (answered ? 0 : RCODES[record]), 2);
  header.writeUInt16BE(1, 4);
  header.writeUInt16BE(answered ? 1 : 0, 6);
  header.writeUInt32BE(0, 8);
  const question = query.subarray(12, questionEnd);
  if (!answered) {
    return Buffer.concat([header, question]);
  }
  const target = writeName(record.cname);
  const fixed = Buffer.alloc(12);
  fixed.writeUInt16BE(0xc00c, 0); // the question's own name
  fixed.writeUInt16BE(CNAME, 2);
  fixed.writeUInt16BE(1, 4);
  fixed.writeUInt32BE(60, 6);
  fixed.writeUInt16BE(target.length, 10);
  return Buffer.concat([header, question, fixed, target]);
}

function writeName(name: string): Buffer {
  const labels = name.replace(/\.$/, "").split(".");
  const parts = labels.map((label) =>
    Buffer.concat([Buffer.of(label.length), Buffer.from(label, "latin1")]),
  );
  return Buffer.concat([...parts, Buffer.of(0)]);
}
