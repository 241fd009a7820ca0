import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished, test } from "vitest";
import { resolveConnection, type ConnectionFlags } from "../../proxy/cli/connection.ts";
import { CommandFailure, UsageError } from "../../proxy/cli/io.ts";

const ENV = {
  INTERPOSE_BASE_URL: "http://plain",
  INTERPOSE_TOKEN: "plain-token",
  INTERPOSE_PROD_BASE_URL: "https://prod",
  INTERPOSE_PROD_TOKEN: "prod-token",
  INTERPOSE_EU_WEST_BASE_URL: "https://eu",
};

test.for<[string, ConnectionFlags, Record<string, string>, string, string | undefined]>([
  ["nothing at all", {}, {}, "http://127.0.0.1:8081", undefined],
  ["the environment", {}, ENV, "http://plain", "plain-token"],
  [
    "empty variables count as absent",
    {},
    { INTERPOSE_BASE_URL: "", INTERPOSE_TOKEN: "" },
    "http://127.0.0.1:8081",
    undefined,
  ],
  ["flags first", { baseUrl: "http://flag", token: "t" }, ENV, "http://flag", "t"],
  ["a profile by flag", { profile: "prod" }, ENV, "https://prod", "prod-token"],
  [
    "a profile by variable",
    {},
    { ...ENV, INTERPOSE_PROFILE: "prod" },
    "https://prod",
    "prod-token",
  ],
  ["a profile never gets the plain token", { profile: "eu-west" }, ENV, "https://eu", undefined],
  ["a flag beside a profile", { profile: "prod", token: "t" }, ENV, "https://prod", "t"],
])("resolveConnection() takes %s", async ([, flags, env, baseURL, token], { expect }) => {
  expect(await resolveConnection(flags, env)).toEqual({ baseURL, token });
});

test("resolveConnection() reads a token file only when it is named", async ({ expect }) => {
  const folder = mkdtempSync(join(tmpdir(), "interpose-cli-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const tokenFile = join(folder, "control-token");
  writeFileSync(tokenFile, "from-file\n", { mode: 0o600 });
  expect((await resolveConnection({ tokenFile }, ENV)).token).toBe("from-file");
  writeFileSync(tokenFile, "\n");
  await expect(resolveConnection({ tokenFile }, {})).rejects.toThrow(CommandFailure);
  writeFileSync(tokenFile, "x".repeat(10_000));
  await expect(resolveConnection({ tokenFile }, {})).rejects.toThrow(CommandFailure);
  await expect(resolveConnection({ tokenFile: join(folder, "none") }, {})).rejects.toThrow(
    "no such file",
  );
});

test.for(["", "a b", "1st", "x".repeat(65), "a$b"])(
  "a profile cannot be called %j",
  async (profile, { expect }) => {
    await expect(resolveConnection({ profile }, ENV)).rejects.toThrow(UsageError);
  },
);
