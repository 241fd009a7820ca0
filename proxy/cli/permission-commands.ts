import { Argument, Option, type Command } from "commander";
import type { PermissionsInput } from "../../client/client.ts";
import type { Owner } from "../../client/permissions-api.ts";
import { action, addGroup, ifMatchOf, ifMatchOption } from "./command-kit.ts";
import { parseAccess, readDocument, type DocumentFlags } from "./flags.ts";
import type { CommandIo } from "./io.ts";
import { registerPermissionGroupCommands } from "./permission-group-commands.ts";
import { createPermissionKit, type OwnerFlags, type PermissionKit } from "./permission-kit.ts";

const DEFAULTS = ["allow", "deny"] as const;

/** `--default allow|deny`. */
export const accessOption = () =>
  new Option("--default <access>", "what callers in no group may do").choices(DEFAULTS);

/** `… proxy permissions …`, of containers (`-c`) or of projects (`--project`). */
export function registerPermissionCommands(proxy: Command, io: CommandIo, owner: Owner): void {
  const kit = createPermissionKit(io, owner);
  const permissions = addGroup(
    proxy,
    "permissions",
    owner === "projects"
      ? "permissions that a project's containers share"
      : "permissions of a container",
  );
  registerDocument(permissions, kit);
  registerPermissionGroupCommands(permissions, kit);
  registerCells(permissions, kit);
}

function registerDocument(permissions: Command, { io, command, api, idOf }: PermissionKit): void {
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
}

function registerCells(parent: Command, { io, command, api, idOf }: PermissionKit): void {
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
