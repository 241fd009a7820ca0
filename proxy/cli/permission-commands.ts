import { Argument, Option, type Command } from "commander";
import type { InterposeClient, PermissionsInput } from "../../client/client.ts";
import type { PermissionsApi } from "../../client/permissions-api.ts";
import {
  action,
  addCommand,
  addGroup,
  containerOption,
  ifMatchOf,
  ifMatchOption,
} from "./command-kit.ts";
import {
  collect,
  parseAccess,
  parsePairs,
  readDocument,
  readSecret,
  type DocumentFlags,
} from "./flags.ts";
import { UsageError, type CommandIo } from "./io.ts";

type Owner = "containers" | "projects";

interface OwnerFlags {
  readonly container?: string;
  readonly project?: string;
  readonly ifMatch?: string;
}

const DEFAULTS = ["allow", "deny"] as const;

/** `--default allow|deny`. */
export const accessOption = () =>
  new Option("--default <access>", "what callers in no group may do").choices(DEFAULTS);

/** `… proxy permissions …`, of containers (`-c`) or of projects (`--project`). */
export function registerPermissionCommands(proxy: Command, io: CommandIo, owner: Owner): void {
  const ofProject = owner === "projects";
  const at = ofProject ? "--project 67e89abc123def456789abcd" : "-c 890abcdef12345678901cdef";
  const words = `${owner} proxy permissions`;
  const permissions = addGroup(
    proxy,
    "permissions",
    ofProject ? "permissions that a project's containers share" : "permissions of a container",
  );
  const ownerOption = () =>
    ofProject
      ? new Option("--project <id>", "project id").makeOptionMandatory()
      : containerOption();
  // Both owners have the same methods; the calls below use only what they share.
  const api = (client: InterposeClient) =>
    (ofProject
      ? client.api.proxy.projectPermissions
      : client.api.proxy.containerPermissions) as PermissionsApi<"containers">;
  const idOf = (options: OwnerFlags) => options.container ?? options.project ?? "";
  const command = (parent: Command, usage: string, summary: string, ...examples: string[]) =>
    addCommand(parent, {
      usage,
      summary,
      examples: examples.map((line) => `${words} ${line.replace("AT", at)}`),
    }).addOption(ownerOption());

  command(
    permissions,
    "get",
    "show the whole permissions document",
    "get AT",
    "get AT -o json",
  ).action(
    action<OwnerFlags>(io, async ({ client, options, show }) => {
      const { data } = await api(client).get(idOf(options));
      show(data);
    }),
  );

  command(
    permissions,
    "set",
    "replace settings, groups and permissions by a document; hooks stay",
    "set AT --file permissions.yaml --if-match file:v0",
    `set AT --json '{"groups":{},"permissions":{},"default":"allow"}' --if-match file:v4`,
  )
    .option("--file <file>", "JSON or YAML file, - for standard input")
    .option("--json <text>", "the document itself, as JSON")
    .addOption(ifMatchOption())
    .action(
      action<OwnerFlags & DocumentFlags>(io, async ({ client, options, done }) => {
        const document = await readDocument(io, options);
        const { data } = await api(client).set(
          idOf(options),
          document as unknown as PermissionsInput,
          ifMatchOf(options),
        );
        done(data, `Replaced the permissions; the version is now ${data.etag}.`);
      }),
    );

  command(
    permissions,
    "delete",
    "reset settings, groups and permissions; hooks stay",
    "delete AT --if-match file:v4",
  )
    .addOption(ifMatchOption())
    .action(
      action<OwnerFlags>(io, async ({ client, options, done }) => {
        const { data } = await api(client).delete(idOf(options), ifMatchOf(options));
        done(data, `Reset the permissions; the version is now ${data.etag}.`);
      }),
    );

  command(
    permissions,
    "default",
    "set what callers in no group may do",
    "default AT deny --if-match file:v4",
  )
    .addArgument(new Argument("<access>", "allow or deny").choices(DEFAULTS))
    .addOption(ifMatchOption())
    .action(
      action<OwnerFlags>(io, async ({ client, args, options, done }) => {
        const access = args[0] === "allow" ? "allow" : "deny";
        const { data } = await api(client).setDefault(
          idOf(options),
          { default: access },
          ifMatchOf(options),
        );
        done(data, `The default is ${access}; the version is now ${data.etag}.`);
      }),
    );

  for (const verb of ["enable", "disable"] as const) {
    command(
      permissions,
      verb,
      verb === "enable"
        ? "open the address again: groups and default decide"
        : "close the address for everybody",
      `${verb} AT --if-match file:v4`,
    )
      .addOption(ifMatchOption())
      .action(
        action<OwnerFlags>(io, async ({ client, options, done }) => {
          const { data } = await api(client)[verb](idOf(options), ifMatchOf(options));
          done(data, `The address is ${verb}d; the version is now ${data.etag}.`);
        }),
      );
  }

  registerGroups(permissions);
  registerCells(permissions);

  function registerGroups(parent: Command): void {
    const group = addGroup(parent, "group", "permission groups: who callers are");
    const kind = (name: string) => addGroup(group, name, `${name} groups`);
    const saved = (name: string, etag: string) =>
      `Saved group ${name}; the version is now ${etag}.`;

    command(
      kind("ip"),
      "set <group>",
      "a group of client addresses",
      "group ip set AT office --range 203.0.113.0/24 --if-match file:v4",
    )
      .requiredOption("--range <cidr>", "IPv4 range")
      .addOption(ifMatchOption())
      .action(
        action<OwnerFlags & { range: string }>(io, async ({ client, args, options, done }) => {
          const [name = ""] = args;
          const body = { range: options.range };
          const { data } = await api(client).setIpGroup(
            idOf(options),
            name,
            body,
            ifMatchOf(options),
          );
          done(data, saved(name, data.etag));
        }),
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
        action<
          OwnerFlags & {
            username: string;
            password?: string;
            passwordFile?: string;
            salt: string;
            algorithm?: "sha256";
          }
        >(io, async ({ client, args, options, done }) => {
          const [name = ""] = args;
          const body = {
            username: options.username,
            password: await readSecret("password", options.password, options.passwordFile),
            salt: options.salt,
            ...(options.algorithm === undefined ? {} : { algorithm: options.algorithm }),
          };
          const { data } = await api(client).setPasswordGroup(
            idOf(options),
            name,
            body,
            ifMatchOf(options),
          );
          done(data, saved(name, data.etag));
        }),
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
        action<
          OwnerFlags & {
            header?: string;
            cookie?: string;
            param?: string;
            value?: string;
            valueFile?: string;
          }
        >(io, async ({ client, args, options, done }) => {
          const [name = ""] = args;
          const { header, cookie, param } = options;
          if ([header, cookie, param].filter((place) => place !== undefined).length !== 1) {
            throw new UsageError("exactly one of --header, --cookie and --param is needed");
          }
          const body = {
            ...(header === undefined ? {} : { header }),
            ...(cookie === undefined ? {} : { cookie }),
            ...(param === undefined ? {} : { param }),
            value: await readSecret("value", options.value, options.valueFile),
          };
          const { data } = await api(client).setTokenGroup(
            idOf(options),
            name,
            body,
            ifMatchOf(options),
          );
          done(data, saved(name, data.etag));
        }),
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
      .requiredOption(
        "--source <place>",
        "header:<name> or cookie:<name>; may be repeated",
        collect,
      )
      .option(
        "--claim <key=value>",
        "claim that must be equal; true, false and numbers are taken as such; may be repeated",
        collect,
      )
      .addOption(ifMatchOption())
      .action(
        action<
          OwnerFlags & {
            algorithm: "HS256" | "RS256" | "ES256";
            secret?: string;
            secretFile?: string;
            source: string[];
            claim?: string[];
          }
        >(io, async ({ client, args, options, done }) => {
          const [name = ""] = args;
          const body = {
            algorithm: options.algorithm,
            secret: await readSecret("secret", options.secret, options.secretFile),
            sources: options.source,
            ...(options.claim === undefined ? {} : { claims: claimsOf(options.claim) }),
          };
          const { data } = await api(client).setJwtGroup(
            idOf(options),
            name,
            body,
            ifMatchOf(options),
          );
          done(data, saved(name, data.etag));
        }),
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
          const { data } = await api(client).deleteAuthGroup(
            idOf(options),
            name,
            ifMatchOf(options),
          );
          done(data, `Deleted group ${name}; the version is now ${data.etag}.`);
        }),
      );
  }

  function registerCells(parent: Command): void {
    const cell = addGroup(parent, "cell", "permission cells: what groups may use");

    command(
      cell,
      "set <group> <program>",
      "say which instances of a program a group may use",
      "cell set AT staff terminal --access true --if-match file:v4",
      `cell set AT staff http --access '"8000-8100"' --if-match file:v5`,
    )
      .requiredOption(
        "--access <json>",
        "true, false, a number, a list of numbers, or a range in quotes",
      )
      .addOption(ifMatchOption())
      .action(
        action<OwnerFlags & { access: string }>(io, async ({ client, args, options, done }) => {
          const [group = "", program = ""] = args;
          const { data } = await api(client).setGroupPermission(
            idOf(options),
            group,
            { program, access: parseAccess(options.access) },
            ifMatchOf(options),
          );
          done(data, `Set ${program} for group ${group}; the version is now ${data.etag}.`);
        }),
      );

    command(
      cell,
      "delete <group> [program]",
      "remove one cell, or without a program all cells of a group",
      "cell delete AT staff terminal --if-match file:v4",
      "cell delete AT staff --if-match file:v5",
    )
      .addOption(ifMatchOption())
      .action(
        action<OwnerFlags>(io, async ({ client, args, options, done }) => {
          const [group = "", program] = args;
          const { data } =
            program === undefined
              ? await api(client).clearGroupPermissions(idOf(options), group, ifMatchOf(options))
              : await api(client).deleteGroupPermission(
                  idOf(options),
                  group,
                  program,
                  ifMatchOf(options),
                );
          done(
            data,
            `Removed ${program ?? "every cell"} of group ${group}; the version is now ${data.etag}.`,
          );
        }),
      );
  }
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
