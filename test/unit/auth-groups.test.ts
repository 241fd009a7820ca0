import { describe, test } from "vitest";
import { parseIPv4 } from "../../proxy/auth/ip.ts";
import { accessOf, principalOf, testAuthenticator } from "../support/auth-request.ts";
import type { TestRequest } from "../support/auth-request.ts";

const access = accessOf({
  office: { type: "ip", range: "203.0.113.7/24" },
  host: { type: "ip", range: "198.51.100.9/32" },
  web: { type: "password", username: "web", password: "open sesame", salt: "s1" },
  umlaut: { type: "password", username: "jürgen", password: "pässword:x", salt: "s2" },
  key: { type: "token", header: "X-Api-Key", value: "abc" },
  bearer: { type: "token", header: "Authorization", value: "tok" },
  cookie: { type: "token", cookie: "__Host-k", value: "v=1" },
  param: { type: "token", param: "api key", value: "a b+ü" },
  either: [
    { type: "ip", range: "10.0.0.0/8" },
    { type: "token", cookie: "k2", value: "v2" },
  ],
});
const authenticator = testAuthenticator();
const groupsOf = (request: TestRequest) =>
  [...principalOf(authenticator, access, request).groups].sort();
const basic = (text: string) => `Basic ${Buffer.from(text, "utf8").toString("base64")}`;
const authorization = (value: string): TestRequest => ({ fields: ["Authorization", value] });
const cookie = (...values: string[]): TestRequest => ({
  fields: values.flatMap((value) => ["Cookie", value]),
});

describe("authenticate()", () => {
  // edge-proxy.md 2.2, decision 25, K06, K16, K18
  test.for<[string, TestRequest, string[]]>([
    ["nothing", {}, []],
    ["an address inside the range", { address: "203.0.113.255" }, ["office"]],
    ["an address outside", { address: "203.0.114.0" }, []],
    ["one address alone", { address: "198.51.100.9" }, ["host"]],
    ["a mapped address", { address: "::ffff:203.0.113.4" }, ["office"]],
    ["a mapped address in hex", { address: "::FFFF:cb00:7104" }, ["office"]],
    ["an IPv6 address", { address: "2001:db8::1" }, []],
    ["no address", { address: "" }, []],
    ["a forwarding field", { fields: ["X-Forwarded-For", "203.0.113.1"] }, []],
    ["Basic credentials", authorization(basic("web:open sesame")), ["web"]],
    [
      "the scheme in another case",
      authorization(basic("web:open sesame").replace("Basic", "bAsIc ")),
      ["web"],
    ],
    ["a wrong password", authorization(basic("web:open")), []],
    ["a wrong user", authorization(basic("wob:open sesame")), []],
    ["the stored hash as password", authorization(basic(`web:${"0".repeat(64)}`)), []],
    ["names and passwords in UTF-8, colons", authorization(basic("jürgen:pässword:x")), ["umlaut"]],
    ["Basic without colon", authorization(basic("web")), []],
    ["Basic that is no base64", authorization("Basic %%%"), []],
    ["an empty Basic", authorization("Basic "), []],
    ["the scheme alone", authorization("Basic"), []],
    ["a token in its header", { fields: ["x-api-KEY", "abc"] }, ["key"]],
    ["a token with more behind it", { fields: ["X-Api-Key", "abcd"] }, []],
    ["a token behind Bearer in another header", { fields: ["X-Api-Key", "Bearer abc"] }, []],
    ["a repeated header", { fields: ["X-Api-Key", "abc", "x-api-key", "abc"] }, []],
    ["a bearer token", authorization("Bearer tok"), ["bearer"]],
    ["a bearer token in another case", authorization("bearer  tok"), ["bearer"]],
    ["the bare token", authorization("tok"), ["bearer"]],
    ["Bearer alone", authorization("Bearer "), []],
    ["a cookie", cookie("a=b; __Host-k=v=1; c=d"), ["cookie"]],
    ["cookies in two lines", cookie("a=b", "__Host-k=v=1"), ["cookie"]],
    ["a cookie twice", cookie("__Host-k=v=1; __Host-k=v=1"), []],
    ["a cookie twice, in two lines", cookie("__Host-k=v=1", "__Host-k=other"), []],
    ["a cookie of another case", cookie("__host-k=v=1"), []],
    ["a cookie with a bad escape", cookie("__Host-k=%ZZ; ;=;x"), []],
    ["an escaped cookie is another one", cookie("__Host-k=v%3D1"), []],
    ["a parameter", { query: "x=1&api+key=a+b%2B%C3%BC" }, ["param"]],
    ["a parameter in another spelling", { query: "%61pi%20key=a%20b%2b%c3%bc" }, ["param"]],
    ["a parameter decoded twice", { query: "api+key=a%2520b%252B%25C3%25BC" }, []],
    ["a parameter twice", { query: "api+key=a+b%2B%C3%BC&api%20key=a+b%2B%C3%BC" }, []],
    ["a broken query", { query: "%&%ZZ=%Z&&=&api+key=%" }, []],
    ["one alternative", { address: "10.1.2.3" }, ["either"]],
    ["the other alternative", cookie("k2=v2"), ["either"]],
    [
      "several at once",
      { address: "10.1.2.3", fields: ["Authorization", "Bearer tok", "X-Api-Key", "abc"] },
      ["bearer", "either", "key"],
    ],
  ])("%s", ([, request, groups], { expect }) => {
    expect(groupsOf(request)).toEqual(groups);
  });

  test("refuses a repeated Authorization, whatever the groups are", ({ expect }) => {
    for (const groups of [access, accessOf({})]) {
      const result = authenticator.authenticate(groups, {
        fields: ["Authorization", basic("web:open sesame"), "AUTHORIZATION", "x"],
        query: null,
        clientAddress: "10.0.0.1",
      });
      expect(result).toEqual({ kind: "refused", code: "BAD_REQUEST" });
    }
  });

  test("tells a credential from an address", ({ expect }) => {
    const credential = (request: TestRequest) =>
      principalOf(authenticator, access, request).credential;
    expect(credential({ address: "10.0.0.1" })).toBe(false);
    expect(credential({ address: "10.0.0.1", fields: ["Cookie", "k2=v2"] })).toBe(true);
    expect(credential({ fields: ["X-Api-Key", "abc"] })).toBe(true);
    expect(credential({ fields: ["X-Api-Key", "abd"] })).toBe(false);
  });

  test("knows groups whose names are members of objects only when they are defined", ({
    expect,
  }) => {
    const { groups } = principalOf(authenticator, access, { address: "10.0.0.1" });
    expect(groups.has("constructor")).toBe(false);
    expect(groups.has("__proto__")).toBe(false);
  });
});

describe("parseIPv4()", () => {
  test.for<[string, number | null]>([
    ["0.0.0.0", 0],
    ["255.255.255.255", 0xffffffff],
    ["::ffff:1.2.3.4", 0x01020304],
    ["::ffff:102:304", 0x01020304],
    ["256.0.0.1", null],
    ["1.2.3", null],
    ["1.2.3.4.5", null],
    ["::1.2.3.4", null],
    ["64:ff9b::1.2.3.4", null],
    ["::1", null],
    ["0x7f.0.0.1", null],
    ["", null],
  ])("%s", ([address, value], { expect }) => {
    expect(parseIPv4(address)).toBe(value);
  });
});
