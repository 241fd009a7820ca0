import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { decodeHookInput } from "../../policy/documents/hook.ts";
import { CONTAINER, policyApi, PROJECT } from "../support/policy-api.ts";

/** Fenced blocks of a page whose info string begins with `kind`. */
function blocks(page: string, kind: string): { readonly info: string; readonly text: string }[] {
  const source = readFileSync(new URL(`../../docs/${page}`, import.meta.url), "utf8");
  return [...source.matchAll(/^```([^\n]*)\n(.*?)^```$/gms)]
    .map(([, info = "", text = ""]) => ({ info, text }))
    .filter(({ info }) => info.startsWith(kind));
}

test("every rule in hooks.md is one", () => {
  const rules = blocks("hooks.md", "json hook");
  expect(rules.length).toBeGreaterThan(2);
  for (const { text } of rules) {
    expect(decodeHookInput(JSON.parse(text), new Set(["staff"])), text).toMatchObject({ ok: true });
  }
});

test("every call in control-api.md answers as it says, one after the other", async () => {
  const { call } = policyApi();
  let hook = "";
  const calls = blocks("control-api.md", "http ");
  expect(calls.length).toBeGreaterThan(10);
  for (const { info, text } of calls) {
    const filled = text
      .replaceAll("{container}", CONTAINER)
      .replaceAll("{project}", PROJECT)
      .replaceAll("{hook}", hook);
    const [head = "", ...body] = filled.split("\n\n");
    const [request = "", ...fields] = head.trim().split("\n");
    const [method = "", path = ""] = request.split(" ");
    const headers = Object.fromEntries(
      fields.map((field) => field.split(": ") as [string, string]),
    );
    const raw = body.join("\n\n").trim();
    const answer = await call(method, path, { headers, ...(raw === "" ? {} : { raw }) });
    expect(`http ${answer.status}`, `${request}: ${JSON.stringify(answer.body)}`).toBe(info);
    hook = answer.body.data.hook?.id ?? hook;
  }
});

test("the example of an error in control-api.md is a real one", async () => {
  const { call } = policyApi();
  const body = { match: {}, script: { path: "/a" }, timeout: 0 };
  const answer = await call("POST", `/api/v1/containers/${CONTAINER}/proxy/hooks/terminal`, {
    ifMatch: "file:v0",
    body,
  });
  const [, example] = blocks("control-api.md", "json").map(
    ({ text }) => JSON.parse(text) as unknown,
  );
  expect(answer.body).toEqual(example);
});
