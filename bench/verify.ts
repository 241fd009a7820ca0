import { request } from "node:http";
import type { Contender } from "./contenders.ts";

function ask(
  contender: Contender,
  method: string,
  body: Buffer | null,
): Promise<{ status: number; body: string }> {
  return new Promise((resolve, reject) => {
    const call = request(
      {
        host: "127.0.0.1",
        port: contender.port,
        path: contender.path,
        method,
        headers: { host: contender.host, ...(body ? { "content-length": body.length } : {}) },
      },
      (response) => {
        const chunks: Buffer[] = [];
        response.on("data", (chunk: Buffer) => chunks.push(chunk));
        response.on("end", () =>
          resolve({ status: response.statusCode ?? 0, body: Buffer.concat(chunks).toString() }),
        );
      },
    );
    call.on("error", reject);
    call.end(body ?? undefined);
  });
}

/** Throws unless every contender gives the answer of the upstream itself. */
export async function verifyEqualAnswers(
  upstream: Contender,
  contenders: readonly Contender[],
): Promise<void> {
  const expected = await ask(upstream, "GET", null);
  const payload = Buffer.alloc(102_400, "p");
  for (const contender of contenders) {
    const answer = await ask(contender, "GET", null);
    if (answer.status !== expected.status || answer.body !== expected.body) {
      throw new Error(
        `${contender.name} answers ${answer.status} with ${answer.body.length} bytes, unlike the upstream`,
      );
    }
    if (contender.name.endsWith("(answer)") || contender.name === "minimal-engine") {
      continue; // never reads a body
    }
    const counted = await ask(contender, "POST", payload);
    if (counted.body !== JSON.stringify({ bytes: payload.length })) {
      throw new Error(
        `${contender.name} loses bytes of a POST: ${counted.status} ${counted.body.slice(0, 80)}`,
      );
    }
  }
}
