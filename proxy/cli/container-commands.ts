import type { Command } from "commander";
import {
  action,
  addCommand,
  addGroup,
  containerOption,
  ifMatchOf,
  ifMatchOption,
} from "./command-kit.ts";
import { parseBoolean } from "./flags.ts";
import { registerHookCommands, registerServiceHookCommands } from "./hook-commands.ts";
import { UsageError, type CommandIo } from "./io.ts";
import { accessOption, registerPermissionCommands } from "./permission-commands.ts";

interface ContainerFlags {
  readonly container: string;
}

const ID = "890abcdef12345678901cdef";

/** `containers …`. */
export function registerContainerCommands(program: Command, io: CommandIo): void {
  const containers = addGroup(program, "containers", "containers and how the edge treats them");

  addCommand(containers, {
    usage: "list",
    summary: "list the configured containers",
    examples: ["containers list", "containers list -o json"],
  }).action(
    action(io, async ({ client, show }) => {
      const { data } = await client.api.containers.list();
      show(data, () => ({
        columns: ["id", "project", "server", "status"],
        rows: data.containers.map((one) => [one.id, one.project_id, one.server_name, one.status]),
        empty: "No containers.",
      }));
    }),
  );

  addCommand(containers, {
    usage: "get <containerId>",
    summary: "show one container",
    examples: [`containers get ${ID}`],
  }).action(
    action(io, async ({ client, args, show }) => {
      const { data } = await client.api.containers.get(args[0] ?? "");
      show(data);
    }),
  );

  const proxy = addGroup(containers, "proxy", "access, hooks and services of a container");
  registerHookCommands(proxy, io);
  registerServiceCommands(proxy, io);
  registerPermissionCommands(proxy, io, "containers");
  registerGroupAndSettingCommands(proxy, io);
}

/** `projects …`. */
export function registerProjectCommands(program: Command, io: CommandIo): void {
  const projects = addGroup(program, "projects", "what all containers of a project share");
  const proxy = addGroup(projects, "proxy", "access to the containers of a project");
  registerPermissionCommands(proxy, io, "projects");
}

function registerServiceCommands(proxy: Command, io: CommandIo): void {
  const services = addGroup(proxy, "services", "services that permissions or hooks name");

  addCommand(services, {
    usage: "list",
    summary: "list the services that a permission or a hook names",
    examples: [`containers proxy services list -c ${ID}`],
  })
    .addOption(containerOption())
    .action(
      action<ContainerFlags>(io, async ({ client, options, show }) => {
        const { data } = await client.api.proxy.services.list(options.container);
        show(data, () => ({
          columns: ["service"],
          rows: data.services.map((name) => [name]),
          empty: "No services are named.",
          footer: `Version ${data.etag}`,
        }));
      }),
    );

  addCommand(services, {
    usage: "get <service>",
    summary: "show what is set for one service",
    examples: [`containers proxy services get -c ${ID} terminal`],
  })
    .addOption(containerOption())
    .action(
      action<ContainerFlags>(io, async ({ client, args, options, show }) => {
        const { data } = await client.api.proxy.services.get(options.container, args[0] ?? "");
        show(data);
      }),
    );

  registerServiceHookCommands(services, io);
}

function registerGroupAndSettingCommands(proxy: Command, io: CommandIo): void {
  const groups = addGroup(proxy, "groups", "permission groups");

  addCommand(groups, {
    usage: "list",
    summary: "list the permission groups with their number of rules",
    examples: [`containers proxy groups list -c ${ID}`],
  })
    .addOption(containerOption())
    .action(
      action<ContainerFlags>(io, async ({ client, options, show }) => {
        const { data } = await client.api.proxy.groups.list(options.container);
        show(data, () => ({
          columns: ["group", "rules"],
          rows: data.groups.map((group) => [group.name, group.auth_rule_count]),
          empty: "No groups.",
          footer: `Version ${data.etag}`,
        }));
      }),
    );

  const settings = addGroup(proxy, "settings", "whether and how the address is open");

  addCommand(settings, {
    usage: "get",
    summary: "show whether the address is open, and for whom by default",
    examples: [`containers proxy settings get -c ${ID}`],
  })
    .addOption(containerOption())
    .action(
      action<ContainerFlags>(io, async ({ client, options, show }) => {
        const { data } = await client.api.proxy.settings.get(options.container);
        show(data);
      }),
    );

  addCommand(settings, {
    usage: "update",
    summary: "change the settings that are given",
    examples: [
      `containers proxy settings update -c ${ID} --enable-proxy false --if-match file:v3`,
      `containers proxy settings update -c ${ID} --default deny --if-match file:v4`,
    ],
  })
    .addOption(containerOption())
    .option("--enable-proxy <bool>", "false closes the address for everybody", parseBoolean)
    .addOption(accessOption())
    .addOption(ifMatchOption())
    .action(
      action<
        ContainerFlags & { enableProxy?: boolean; default?: "allow" | "deny"; ifMatch?: string }
      >(io, async ({ client, options, done }) => {
        if (options.enableProxy === undefined && options.default === undefined) {
          throw new UsageError("give --enable-proxy, --default or both");
        }
        const { data } = await client.api.proxy.settings.update(
          options.container,
          {
            ...(options.enableProxy === undefined ? {} : { enable_proxy: options.enableProxy }),
            ...(options.default === undefined ? {} : { default: options.default }),
          },
          ifMatchOf(options),
        );
        done(data, `Updated the settings; the version is now ${data.etag}.`);
      }),
    );
}
