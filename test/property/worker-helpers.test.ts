import fc from "fast-check";
import { expect, test } from "vitest";
import { boundaryOf, parseMultipart } from "../../exec-host/scripts/multipart.ts";
import { parseDirectives } from "../../exec-host/scripts/directives.ts";
import { HookUpstreamError } from "../../exec-host/worker/hook-upstream-error.ts";
import { readOverrides } from "../../exec-host/worker/overrides.ts";
import { toPathText } from "../../exec-host/worker/path-text.ts";
import { encodeForwardPath, isForwardablePath } from "../../policy/kernel/target.ts";

const bytes = fc.string({
  unit: fc.integer({ min: 1, max: 255 }).map((code) => String.fromCharCode(code)),
});

test("readOverrides() accepts or says invalid-override, whatever it is given", () => {
  fc.assert(
    fc.property(
      fc.record(
        {
          method: fc.anything(),
          pathAndQuery: fc.oneof(fc.string(), fc.anything()),
          host: fc.oneof(fc.string(), fc.ipV4(), fc.domain(), fc.anything()),
          port: fc.anything(),
          headers: fc.oneof(fc.dictionary(fc.string(), fc.string()), fc.anything()),
          timeoutMs: fc.anything(),
        },
        { requiredKeys: [] },
      ),
      (given) => {
        try {
          const overrides = readOverrides(given);
          // What was accepted cannot move a line, a header or the path.
          expect(overrides.target ?? "/").toMatch(
            /^\/(?!\/)[\x21-\x22\x24-\x5b\x5d-\x7e\x80-\xff]*$/,
          );
          expect(overrides.host ?? "h").toMatch(/^[A-Za-z0-9_.-]+$/);
          for (const { name, values } of overrides.headers.values()) {
            expect(`${name}: ${(values ?? []).join("")}`).not.toMatch(/[\r\n\0]/);
          }
        } catch (error) {
          if (!(error instanceof HookUpstreamError)) {
            throw error;
          }
          expect(error.kind).toBe("invalid-override");
        }
      },
    ),
  );
});

test("a client's path reaches the service byte for byte, escapes of the specification apart, or is refused", () => {
  fc.assert(
    fc.property(bytes, (rest) => {
      const path = `/${rest}`;
      const text = toPathText(path);
      if (!isForwardablePath(text)) {
        return;
      }
      const wanted = path
        .replace(/[\x00-\x20\x7f\\#?]/g, (char) => escape(char))
        .replace(/[\x80-\xff]+/g, (run) =>
          Array.from(toPathText(run))
            .map((char) => (char < "\x80" ? char : Buffer.from(char).toString("latin1")))
            .join(""),
        );
      expect(encodeForwardPath(text)).toBe(wanted);
    }),
  );
});

function escape(char: string): string {
  return `%${char.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`;
}

test("readers of a script's and a client's text never throw", () => {
  fc.assert(
    fc.property(fc.string(), bytes, (text, data) => {
      parseDirectives(text);
      boundaryOf(text);
      parseMultipart(Buffer.from(data, "latin1"), text || "b");
    }),
  );
});

test("parseMultipart() gives back every part of a form that a browser would send", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(
        fc.record({
          name: fc.string({ minLength: 1 }).filter((name) => name.isWellFormed()),
          data: fc.uint8Array({ maxLength: 200 }),
        }),
        { maxLength: 6 },
      ),
      async (parts) => {
        const form = new FormData();
        for (const { name, data } of parts) {
          form.append(name, new File([data as Uint8Array<ArrayBuffer>], "f.bin"));
        }
        const request = new Response(form);
        const boundary = boundaryOf(request.headers.get("content-type") ?? "") ?? "";
        const parsed = parseMultipart(Buffer.from(await request.arrayBuffer()), boundary);
        expect(parsed?.files.map(({ data }) => [...data])).toEqual(
          parts.map(({ data }) => [...data]),
        );
      },
    ),
  );
});
