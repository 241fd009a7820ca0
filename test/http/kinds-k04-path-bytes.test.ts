import { expect, test } from "vitest";
import { head } from "../support/faults.ts";
import { serviceOf, startFaultEdge } from "../support/fault-routes.ts";
import { rawClient, rawExchange } from "../support/raw-client.ts";

/** K04: what the client sent is what arrives, apart from the escapes that are written down. */

const PLAIN = [
  "/[...slug].js",
  "/[[...rest]]/(group)/@modal/page",
  "/@scope/pkg@1.2.3",
  "/a%2525b%2f%2F%zz%",
  "/%",
  "/%%%",
  "/%00%0d%0a%20",
  "/%ff%fe%C3%A4",
  "//double//inside///",
  "/./../dots/%2e%2e/%2E",
  "/.../..a/a../.hidden",
  "/a;b=c;d/;",
  "/|^`{}<>\"'~!$&()*+,=:",
  "/back\\slash\\",
  "/CaSe%aA%Aa",
  "/x?",
  "/x??",
  "/x?a=b&&=&a&a=&=b",
  "/x?next=../y&p=a\\b&%=%zz&q=%26%3d",
  "/x?a=1?b=2#no",
  "/x?q=/../..//&r=a+b%20c",
  '/x?[]=1&a[b]=c&"=<>|^`{}',
  `/${"long/".repeat(900)}`,
];

/** The query that the edge adds behind the client's own. */
function withSelector(target: string, selector: string): string {
  const bare = target.endsWith("?");
  return target.includes("?")
    ? `${target}${bare && !target.endsWith("??") ? "" : "&"}${selector}`
    : `${target}?${selector}`;
}

test("a plain path and query arrive byte for byte, with the selector behind them", async () => {
  const faults = await startFaultEdge();
  const client = await rawClient(faults.edge.port);
  const host = faults.edge.host("terminal-3");
  for (const target of PLAIN) {
    client.send(head(`GET ${target} HTTP/1.1`, `Host: ${host}`));
  }
  await faults.upstream.waitForRequests(PLAIN.length);
  expect(faults.upstream.requests.map(({ target }) => target)).toEqual(
    PLAIN.map((target) => withSelector(target, "terminal_id=3&display=3")),
  );
});

/** Client's path below the hook, and how `forward()` sends it (exec-host.md 5.3). */
const FORWARDED: readonly (readonly [string, string])[] = [
  ["/[...slug].js", "/[...slug].js"],
  ["/@babel/core", "/@babel/core"],
  ["/a%2525b%2f%zz%", "/a%2525b%2f%zz%"],
  ["/a\\b\\..\\c", "/a%5Cb%5C..%5Cc"],
  ["/a#b", "/a%23b"],
  ["/|^`{}<>\"'~!$&()*+,=:;", "/|^`{}<>\"'~!$&()*+,=:;"],
  ["/%ff%fe%C3%A4%00%20", "/%ff%fe%C3%A4%00%20"],
  ["/x//y///", "/x//y///"],
  ["/..;/...", "/..;/..."],
];
const QUERIES: readonly (readonly [string, string])[] = [
  ["?next=../y&p=a\\b&q=@", "?next=../y&p=a\\b&q=@&"],
  ["?a=?&b=/./../", "?a=?&b=/./../&"],
  ["?h=#x", "?h=%23x&"],
  ["?", "?"],
  ["?%=%zz&&", "?%=%zz&&&"],
];

test("a hooked path and query arrive as forward() writes them, on each of its ways", async () => {
  const faults = await startFaultEdge();
  const { edge, upstream } = faults;
  const client = await rawClient(edge.port);
  const expected: string[] = [];
  for (const way of ["/pass", "/piped", "/returned"]) {
    for (const [path, sent] of FORWARDED) {
      client.send(head(`GET ${way}${path} HTTP/1.1`, `Host: ${edge.host("terminal-3")}`));
      expected.push(`${way}${sent}?terminal_id=3`);
    }
    for (const [query, sent] of QUERIES) {
      client.send(head(`GET ${way}${query} HTTP/1.1`, `Host: ${edge.host("terminal-3")}`));
      expected.push(`${way}${sent}terminal_id=3`);
    }
    await upstream.waitForRequests(expected.length, 15_000);
  }
  expect(upstream.requests.map(({ target }) => target)).toEqual(expected);
}, 40_000);

test("raw bytes above ASCII in a target are 400 on every route, escaped ones travel", async () => {
  const faults = await startFaultEdge();
  for (const route of faults.routes) {
    for (const target of [`${route.path}/\xe4`, `${route.path}?x=\xff`, `${route.path}/\xc3\xa4`]) {
      const answer = await rawExchange(
        faults.edge.port,
        head(`GET ${target} HTTP/1.1`, `Host: ${route.host}`, "Connection: close"),
      );
      expect([route.name, answer.slice(0, 12)]).toEqual([route.name, "HTTP/1.1 400"]);
    }
    expect(serviceOf(faults, route).bytes).toEqual([]);
  }
});
