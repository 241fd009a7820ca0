import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Command, CommanderError } from "commander";
import { describe, onTestFinished, test } from "vitest";
import { parseClaim } from "../../proxy/claim.ts";
import { keygenText, mintText, registerClaimCommands } from "../../proxy/claim-command.ts";
import { fakeClock } from "../support/auth-clock.ts";
import { accessOf, principalOf, testAuthenticator } from "../support/auth-request.ts";

async function run(...args: string[]): Promise<string> {
  const printed: string[] = [];
  const program = new Command().exitOverride().configureOutput({ writeErr: () => {} });
  registerClaimCommands(program, {
    clock: fakeClock(),
    stdout: { write: (text: string) => printed.push(text) },
  });
  for (const command of program.commands.flatMap((parent) => [parent, ...parent.commands])) {
    command.exitOverride().configureOutput({ writeErr: () => {} });
  }
  await program.parseAsync(args, { from: "user" });
  return printed.join("");
}

async function keyFile(text = keygenText("v1")): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "claim-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  const path = join(folder, "key.json");
  await writeFile(path, text, { mode: 0o600 });
  return path;
}

const payloadOf = (claim: string) =>
  JSON.parse(
    Buffer.from(parseClaim(claim.trim())?.payload ?? "", "base64url").toString("utf8"),
  ) as Record<string, unknown>;

describe("interpose claim", () => {
  test("keygen prints a key file (decision 42)", async ({ expect }) => {
    const key = JSON.parse(await run("claim", "keygen")) as Record<string, string>;
    expect(Object.keys(key)).toEqual(["kid", "publicKeyHex", "privateKeyPem"]);
    expect(key["publicKeyHex"]).toMatch(/^[0-9a-f]{64}$/);
    expect(key["privateKeyPem"]).toContain("PRIVATE KEY");
    expect(JSON.parse(await run("claim", "keygen", "--kid", "v9"))).toMatchObject({ kid: "v9" });
  });

  test("mint prints a claim that a group accepts", async ({ expect }) => {
    const text = keygenText();
    const path = await keyFile(text);
    const args = ["claim", "mint", "--username", "Zoë", "--audience", "app"];
    const claim = await run(...args, "--expires-in", "60", "--key", path);
    expect(claim.endsWith("\n")).toBe(true);
    const key = JSON.parse(text) as { kid: string; publicKeyHex: string; privateKeyPem: string };
    const principal = principalOf(
      testAuthenticator([key]),
      accessOf({ staff: { type: "hoody-identity", audience: "app" } }),
      { fields: ["X-Hoody-Identity-Claim", claim.trim()] },
    );
    expect([...principal.groups]).toEqual(["staff"]);
    const payload = payloadOf(claim);
    expect(payload).toMatchObject({ username: "Zoë", type: "user", kid: key.kid, aud: "app" });
    expect(payload["sub"]).toMatch(/^[0-9a-f]{24}$/);
    expect(Number(payload["exp"]) - Number(payload["iat"])).toBe(60);
  });

  test("mint derives the same user id from the same name, and takes another", ({ expect }) => {
    const key = keygenText("v1");
    const options = { username: "ada", type: "user", expiresIn: 60 };
    const one = payloadOf(mintText(options, key, 0));
    const two = payloadOf(mintText(options, key, 5000));
    expect(one["sub"]).toBe(two["sub"]);
    expect(one).not.toHaveProperty("aud");
    expect(payloadOf(mintText({ ...options, sub: "x" }, key, 0))["sub"]).toBe("x");
  });

  test.for([
    ["--expires-in", "0"],
    ["--expires-in", "1.5"],
    ["--expires-in", "99999999"],
    ["--audience", 'a"b'],
    ["--username", "a\nb"],
    ["--type", "a b"],
  ])("mint refuses %s %j as wrong usage", async (option, { expect }) => {
    const path = await keyFile();
    const args = ["claim", "mint", "--username", "ada", "--key", path, ...option];
    await expect(run(...args)).rejects.toBeInstanceOf(CommanderError);
  });

  test("mint says in one sentence what is wrong with a key file, and quotes none", async ({
    expect,
  }) => {
    const mint = (path: string) => run("claim", "mint", "--username", "ada", "--key", path);
    await expect(mint(join(tmpdir(), "no-such-key.json"))).rejects.toThrow(
      /cannot be read \(ENOENT\)/,
    );
    await expect(mint(await keyFile("secret words"))).rejects.toThrow(/^The key file is not one/);
    const broken = JSON.parse(keygenText("v1")) as object;
    const path = await keyFile(JSON.stringify({ ...broken, privateKeyPem: "hush" }));
    await expect(mint(path)).rejects.toThrow(/^The key file has no Ed25519 private key\.$/);
  });
});
