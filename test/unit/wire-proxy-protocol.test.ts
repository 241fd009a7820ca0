import { describe, expect, test } from "vitest";
import { readProxyHeader } from "../../proxy/wire/proxy-protocol.ts";

const bytes = (text: string): Buffer => Buffer.from(text, "latin1");
const V2 = "\r\n\r\n\0\r\nQUIT\n";
const v2 = (command: number, family: number, payload: Buffer): Buffer => {
  const head = Buffer.alloc(4);
  head[0] = command;
  head[1] = family;
  head.writeUInt16BE(payload.length, 2);
  return Buffer.concat([bytes(V2), head, payload]);
};
const IPV4 = Buffer.from([192, 0, 2, 1, 10, 0, 0, 1, 0x12, 0x34, 0, 80]);
const IPV6 = Buffer.concat([
  Buffer.from("20010db8000000000000000000000001", "hex"),
  Buffer.alloc(16),
  Buffer.from([0x12, 0x34, 0, 80]),
]);

describe("readProxyHeader()", () => {
  test("reads version 1", () => {
    const four = "PROXY TCP4 192.0.2.1 10.0.0.1 4660 80\r\n";
    expect(readProxyHeader(bytes(`${four}GET / HTTP/1.1\r\n`))).toEqual({
      kind: "header",
      size: four.length,
      source: { address: "192.0.2.1", port: 4660 },
    });
    expect(readProxyHeader(bytes("PROXY TCP6 2001:db8::1 ::1 1 2\r\n"))).toMatchObject({
      source: { address: "2001:db8::1", port: 1 },
    });
    expect(readProxyHeader(bytes("PROXY UNKNOWN\r\n"))).toMatchObject({
      kind: "header",
      source: null,
    });
    expect(readProxyHeader(bytes("PROXY UNKNOWN ffff::1 whatever\r\n"))).toMatchObject({
      kind: "header",
      source: null,
    });
  });

  test("reads version 2", () => {
    expect(readProxyHeader(v2(0x21, 0x11, IPV4))).toEqual({
      kind: "header",
      size: 28,
      source: { address: "192.0.2.1", port: 4660 },
    });
    expect(readProxyHeader(v2(0x21, 0x21, IPV6))).toMatchObject({
      size: 52,
      source: { address: "2001:db8:0:0:0:0:0:1", port: 4660 },
    });
    const extended = Buffer.concat([IPV4, Buffer.from([4, 0, 2, 9, 9])]);
    expect(readProxyHeader(v2(0x21, 0x11, extended))).toMatchObject({
      size: 33,
      source: { address: "192.0.2.1" },
    });
    expect(readProxyHeader(v2(0x20, 0, Buffer.alloc(0)))).toEqual({
      kind: "header",
      size: 16,
      source: null,
    });
    expect(readProxyHeader(v2(0x21, 0, Buffer.alloc(0)))).toMatchObject({
      kind: "header",
      source: null,
    });
  });

  test("asks for more at every cut, and never decides early", () => {
    for (const whole of [
      bytes("PROXY TCP4 192.0.2.1 10.0.0.1 4660 80\r\n"),
      v2(0x21, 0x11, IPV4),
    ]) {
      for (let length = 1; length < whole.length; length++) {
        expect(readProxyHeader(whole.subarray(0, length))).toEqual({ kind: "more" });
      }
    }
  });

  test("leaves other protocols alone", () => {
    for (const text of [
      "GET / HTTP/1.1\r\n",
      "POST",
      "PUT /",
      "\x16\x03\x01",
      "PROXX ",
      "proxy TCP4",
      "\r\n\r\nGET",
    ]) {
      expect(readProxyHeader(bytes(text))).toEqual({ kind: "none" });
    }
  });

  test.for<[string, Buffer]>([
    ["another protocol", bytes("PROXY TCP5 192.0.2.1 10.0.0.1 1 2\r\n")],
    ["the wrong family", bytes("PROXY TCP6 192.0.2.1 10.0.0.1 1 2\r\n")],
    ["a host name", bytes("PROXY TCP4 example.org 10.0.0.1 1 2\r\n")],
    ["a port out of range", bytes("PROXY TCP4 192.0.2.1 10.0.0.1 65536 2\r\n")],
    ["a port with a zero in front", bytes("PROXY TCP4 192.0.2.1 10.0.0.1 080 2\r\n")],
    ["too few parts", bytes("PROXY TCP4 192.0.2.1 10.0.0.1 1\r\n")],
    ["too many parts", bytes("PROXY TCP4 192.0.2.1 10.0.0.1 1 2 3\r\n")],
    ["two blanks", bytes("PROXY TCP4  192.0.2.1 10.0.0.1 1 2\r\n")],
    ["an endless line", bytes(`PROXY UNKNOWN ${"x".repeat(100)}`)],
    ["a line that is too long", bytes(`PROXY UNKNOWN ${"x".repeat(100)}\r\n`)],
    ["version 2 with another version", v2(0x31, 0x11, IPV4)],
    ["version 2 with another command", v2(0x22, 0x11, IPV4)],
    ["version 2 that is too short", v2(0x21, 0x11, IPV4.subarray(0, 11))],
    ["version 2 for a unix socket", v2(0x21, 0x31, Buffer.alloc(216))],
    ["version 2 that is too long", v2(0x21, 0x11, Buffer.alloc(5000))],
  ])("refuses %s", ([, header]) => {
    expect(readProxyHeader(header)).toEqual({ kind: "invalid" });
  });
});
