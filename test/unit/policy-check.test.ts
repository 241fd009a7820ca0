import { mkdirSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { expect, test } from "vitest";
import { checkStoredDocuments } from "../../policy/store/check.ts";
import {
  CONTAINER,
  OTHER_CONTAINER,
  policyApi,
  policyTempDir,
  PROJECT,
} from "../support/policy-api.ts";

function folder(files: Readonly<Record<string, unknown>>): string {
  const dataDir = policyTempDir();
  for (const kind of ["containers", "projects"]) {
    mkdirSync(join(dataDir, "policy", kind), { recursive: true });
  }
  for (const [name, content] of Object.entries(files)) {
    writeFileSync(
      join(dataDir, "policy", name),
      typeof content === "string" ? content : JSON.stringify(content),
    );
  }
  return dataDir;
}

test("checkStoredDocuments() has nothing to say about a missing or sound folder", async () => {
  expect(await checkStoredDocuments("/nonexistent")).toEqual([]);
  const sound = folder({
    [`containers/${CONTAINER}.json`]: {
      project: PROJECT,
      file_version: 1,
      permissions: { staff: { terminal: true } },
    },
    [`projects/${PROJECT}.json`]: { groups: { staff: { type: "ip", range: "10.0.0.0/8" } } },
    [`containers/.${CONTAINER}.json.aa.tmp`]: "",
    [`containers/${CONTAINER}.json.lock`]: "",
  });
  expect(await checkStoredDocuments(sound)).toEqual([]);
});

test("checkStoredDocuments() names file and pointer of every problem", async () => {
  const problems = await checkStoredDocuments(
    folder({
      [`containers/${CONTAINER}.json`]: {
        note: 1,
        groups: { a: { type: "ip", range: "x" } },
        permissions: { a: { nope: true }, b: { files: true } },
        hooks: { terminal: [{ match: {} }], files: 3, t: [] },
      },
      [`containers/${OTHER_CONTAINER}.json`]: "{",
      [`projects/${PROJECT}.json`]: { default: "maybe", hooks: {} },
      "containers/readme.json": {},
      "aliases.json": { aliases: [{ alias: "x" }] },
    }),
  );
  const found = problems.map(({ file, path }) => `${basename(file)} ${path}`);
  for (const expected of [
    `${CONTAINER}.json /note`,
    `${CONTAINER}.json /groups/a/range`,
    `${CONTAINER}.json /permissions/a/nope`,
    `${CONTAINER}.json /permissions/b`,
    `${CONTAINER}.json /hooks/terminal/0`,
    `${CONTAINER}.json /hooks/files`,
    `${CONTAINER}.json /hooks/t`,
    `${OTHER_CONTAINER}.json `,
    `${PROJECT}.json /default`,
    `${PROJECT}.json /hooks`,
    "readme.json ",
    "aliases.json /aliases/0/id",
  ]) {
    expect(found).toContain(expected);
  }
});

test("/readyz turns red for an invalid document, with the reason, and green again", async () => {
  const { call, dataDir } = policyApi();
  expect((await call("GET", "/readyz", { token: null })).status).toBe(200);
  const path = join(dataDir, "policy/containers", `${CONTAINER}.json`);
  writeFileSync(path, JSON.stringify({ hooks: { terminal: 1 } }));
  await expect
    .poll(async () => (await call("GET", "/readyz")).status, { timeout: 10_000 })
    .toBe(503);
  const { parts } = (await call("GET", "/readyz")).body;
  expect(parts["policy documents"]).toMatchObject({ ok: false });
  expect(parts["policy documents"].reason).toContain(`containers/${CONTAINER}: /hooks/terminal: `);
  writeFileSync(path, JSON.stringify({ hooks: {} }));
  await expect
    .poll(async () => (await call("GET", "/readyz")).status, { timeout: 10_000 })
    .toBe(200);
});
