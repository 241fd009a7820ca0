import { Option, type Command } from "commander";
import { action, addGroup, ifMatchOf, ifMatchOption } from "./command-kit.ts";
import { collect, parsePairs, readSecret } from "./flags.ts";
import { UsageError } from "./io.ts";
import type { OwnerFlags, PermissionKit } from "./permission-kit.ts";

type Api = ReturnType<PermissionKit["api"]>;

/** The call that saves a group with a body of its kind. */
type Send<B> = (
  to: Api,
  id: string,
  name: string,
  body: B,
  options: ReturnType<typeof ifMatchOf>,
) => Promise<{ readonly data: { readonly etag: string } }>;

/** `… permissions group …`: one command per type of group, and their removal. */
export function registerPermissionGroupCommands(
  parent: Command,
  { io, command, api, idOf }: PermissionKit,
): void {
  const group = addGroup(parent, "group", "permission groups: who callers are");
  const kind = (name: string) => addGroup(group, name, `${name} groups`);
  const save = <F extends OwnerFlags, B>(bodyOf: (options: F) => B | Promise<B>, send: Send<B>) =>
    action<F>(io, async ({ client, args, options, done }) => {
      const [name = ""] = args;
      const body = await bodyOf(options);
      const { data } = await send(api(client), idOf(options), name, body, ifMatchOf(options));
      done(data, `Saved group ${name}; the version is now ${data.etag}.`);
    });

  command(
    kind("ip"),
    "set <group>",
    "a group of client addresses",
    "group ip set AT office --range 203.0.113.0/24 --if-match file:v4",
  )
    .requiredOption("--range <cidr>", "IPv4 range")
    .addOption(ifMatchOption())
    .action(
      save(
        ({ range }: OwnerFlags & { range: string }) => ({ range }),
        (to, ...call) => to.setIpGroup(...call),
      ),
    );

  command(
    kind("password"),
    "set <group>",
    "a group of callers with one user name and password",
    "group password set AT web --username webuser --password-file pw.txt --salt s1 --if-match file:v4",
  )
    .requiredOption("--username <name>", "user name")
    .option("--password <text>", "password, or its hash of 64 hex characters")
    .option("--password-file <file>", "file with the password")
    .requiredOption("--salt <text>", "salt of the stored hash")
    .addOption(new Option("--algorithm <name>", "hash of the password").choices(["sha256"]))
    .addOption(ifMatchOption())
    .action(
      save(
        async (
          options: OwnerFlags & {
            username: string;
            password?: string;
            passwordFile?: string;
            salt: string;
            algorithm?: "sha256";
          },
        ) => {
          return {
            username: options.username,
            password: await readSecret("password", options.password, options.passwordFile),
            salt: options.salt,
            ...(options.algorithm === undefined ? {} : { algorithm: options.algorithm }),
          };
        },
        (to, ...call) => to.setPasswordGroup(...call),
      ),
    );

  command(
    kind("token"),
    "set <group>",
    "a group of callers that present a fixed token",
    "group token set AT ci --header X-Api-Key --value-file key.txt --if-match file:v4",
  )
    .option("--header <name>", "header that carries the token")
    .option("--cookie <name>", "cookie that carries it")
    .option("--param <name>", "query parameter that carries it")
    .option("--value <text>", "the token")
    .option("--value-file <file>", "file with the token")
    .addOption(ifMatchOption())
    .action(
      save(
        async (
          options: OwnerFlags & {
            header?: string;
            cookie?: string;
            param?: string;
            value?: string;
            valueFile?: string;
          },
        ) => {
          const { header, cookie, param } = options;
          if ([header, cookie, param].filter((place) => place !== undefined).length !== 1) {
            throw new UsageError("exactly one of --header, --cookie and --param is needed");
          }
          return {
            ...(header === undefined ? {} : { header }),
            ...(cookie === undefined ? {} : { cookie }),
            ...(param === undefined ? {} : { param }),
            value: await readSecret("value", options.value, options.valueFile),
          };
        },
        (to, ...call) => to.setTokenGroup(...call),
      ),
    );

  command(
    kind("jwt"),
    "set <group>",
    "a group of callers with a signed token",
    "group jwt set AT app --algorithm HS256 --secret-file hs.key --source header:Authorization --claim role=admin --if-match file:v4",
  )
    .addOption(
      new Option("--algorithm <name>", "the one signature algorithm that is accepted")
        .choices(["HS256", "RS256", "ES256"])
        .makeOptionMandatory(),
    )
    .option("--secret <text>", "shared secret, or public key in PEM form")
    .option("--secret-file <file>", "file with the secret or key")
    .requiredOption("--source <place>", "header:<name> or cookie:<name>; may be repeated", collect)
    .option(
      "--claim <key=value>",
      "claim that must be equal; true, false and numbers are taken as such; may be repeated",
      collect,
    )
    .addOption(ifMatchOption())
    .action(
      save(
        async (
          options: OwnerFlags & {
            algorithm: "HS256" | "RS256" | "ES256";
            secret?: string;
            secretFile?: string;
            source: string[];
            claim?: string[];
          },
        ) => {
          return {
            algorithm: options.algorithm,
            secret: await readSecret("secret", options.secret, options.secretFile),
            sources: options.source,
            ...(options.claim === undefined ? {} : { claims: claimsOf(options.claim) }),
          };
        },
        (to, ...call) => to.setJwtGroup(...call),
      ),
    );

  command(
    group,
    "delete <group>",
    "remove a group and its cells",
    "group delete AT office --if-match file:v4",
  )
    .addOption(ifMatchOption())
    .action(
      action<OwnerFlags>(io, async ({ client, args, options, done }) => {
        const [name = ""] = args;
        const { data } = await api(client).deleteAuthGroup(idOf(options), name, ifMatchOf(options));
        done(data, `Deleted group ${name}; the version is now ${data.etag}.`);
      }),
    );
}

function claimsOf(texts: readonly string[]): Record<string, string | number | boolean> {
  const claims = Object.entries(parsePairs("--claim", texts)).map(([name, text]) => {
    if (text === "true" || text === "false") {
      return [name, text === "true"] as const;
    }
    if (/^"[^"\\]*"$/.test(text)) {
      return [name, text.slice(1, -1)] as const; // "42" in quotes is the text, not the number
    }
    return [name, /^-?\d{1,15}$/.test(text) ? Number(text) : text] as const;
  });
  return Object.fromEntries(claims);
}
