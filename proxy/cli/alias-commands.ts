import { Option, type Command } from "commander";
import type { ProxyApi } from "../../client/proxy-api.ts";
import { action, addCommand, addGroup } from "./command-kit.ts";
import { parseBoolean, parseInteger } from "./flags.ts";
import { UsageError, type CommandIo } from "./io.ts";

interface AliasFlags {
  readonly container?: string;
  readonly alias?: string;
  readonly program?: string;
  readonly port?: number;
  readonly index?: number;
  readonly targetPath?: string;
  readonly allowPathOverride?: boolean;
  readonly expiresAt?: string;
  readonly enabled?: boolean;
}

const ID = "890abcdef12345678901cdef";
const ALIAS = "6710ab34cd56ef7890123456";

/** `proxy aliases …`. */
export function registerAliasCommands(program: Command, io: CommandIo): void {
  const proxy = addGroup(program, "proxy", "what the edge serves beside the containers' own names");
  const aliases = addGroup(proxy, "aliases", "short names for container services");

  addCommand(aliases, {
    usage: "list",
    summary: "list aliases",
    examples: ["proxy aliases list", `proxy aliases list -c ${ID} --enabled true`],
  })
    .addOption(new Option("-c, --container <id>", "only those of a container"))
    .option("--project <id>", "only those of a project")
    .option("--enabled <bool>", "only enabled or only disabled ones", parseBoolean)
    .option("--expired <bool>", "only expired or only unexpired ones", parseBoolean)
    .action(
      action<{ container?: string; project?: string; enabled?: boolean; expired?: boolean }>(
        io,
        async ({ client, options, show }) => {
          const { data } = await client.api.proxy.aliases.list({
            ...(options.container === undefined ? {} : { container_id: options.container }),
            ...(options.project === undefined ? {} : { project_id: options.project }),
            ...(options.enabled === undefined ? {} : { enabled: options.enabled }),
            ...(options.expired === undefined ? {} : { expired: options.expired }),
          });
          show(data, () => ({
            columns: ["id", "alias", "enabled", "url"],
            rows: data.aliases.map((one) => [one.id, one.alias, one.enabled, one.url]),
            empty: "No aliases.",
          }));
        },
      ),
    );

  addCommand(aliases, {
    usage: "get <aliasId>",
    summary: "show one alias",
    examples: [`proxy aliases get ${ALIAS}`],
  }).action(
    action(io, async ({ client, args, show }) => {
      const { data } = await client.api.proxy.aliases.get(args[0] ?? "");
      show(data);
    }),
  );

  aliasOptions(
    addCommand(aliases, {
      usage: "create",
      summary: "give a container's service a name of its own",
      examples: [
        `proxy aliases create -c ${ID} --alias my-app --program terminal --index 2`,
        `proxy aliases create -c ${ID} --alias site --program http --port 8080 --target-path /start --allow-path-override false`,
      ],
    })
      .requiredOption("-c, --container <id>", "container id")
      .requiredOption("--program <name>", "service, or http or https with a port"),
  ).action(
    action<AliasFlags>(io, async ({ client, options, done }) => {
      type Body = Parameters<ProxyApi["aliases"]["create"]>[0];
      const body = { container_id: options.container, ...aliasBody(options) } as Body;
      const { data } = await client.api.proxy.aliases.create(body);
      done(data, `Created alias ${data.alias} (${data.id}): ${data.url}`);
    }),
  );

  aliasOptions(
    addCommand(aliases, {
      usage: "update <aliasId>",
      summary: "change what is given of an alias",
      examples: [
        `proxy aliases update ${ALIAS} --target-path /new`,
        `proxy aliases update ${ALIAS} --target-path null --expires-at null`,
      ],
    })
      .option("-c, --container <id>", "container id")
      .option("--program <name>", "service, or http or https with a port"),
  ).action(
    action<AliasFlags>(io, async ({ client, args, options, done }) => {
      type Body = Parameters<ProxyApi["aliases"]["update"]>[1];
      const body = {
        ...(options.container === undefined ? {} : { container_id: options.container }),
        ...aliasBody(options),
      } as Body;
      if (Object.keys(body).length === 0) {
        throw new UsageError("nothing to change was given");
      }
      const { data } = await client.api.proxy.aliases.update(args[0] ?? "", body);
      done(data, `Updated alias ${data.alias} (${data.id}): ${data.url}`);
    }),
  );

  for (const verb of ["enable", "disable"] as const) {
    addCommand(aliases, {
      usage: `${verb} <aliasId>`,
      summary: verb === "enable" ? "serve an alias again" : "answer 404 at an alias, but keep it",
      examples: [`proxy aliases ${verb} ${ALIAS}`],
    }).action(
      action(io, async ({ client, args, done }) => {
        const { data } = await client.api.proxy.aliases[verb](args[0] ?? "");
        done(data, `The alias is ${verb}d.`);
      }),
    );
  }

  addCommand(aliases, {
    usage: "delete <aliasId>",
    summary: "give up an alias",
    examples: [`proxy aliases delete ${ALIAS}`],
  }).action(
    action(io, async ({ client, args, done }) => {
      const { data } = await client.api.proxy.aliases.delete(args[0] ?? "");
      done(data, "The alias is deleted.");
    }),
  );
}

function aliasOptions(command: Command): Command {
  return command
    .option("--alias <name>", "the name; left out on create: a random one")
    .option("--port <n>", "port, for http and https", parseInteger)
    .option("--index <n>", "instance of the service, by default 1", parseInteger)
    .option("--target-path <path>", "where a request for / lands; null removes it")
    .option(
      "--allow-path-override <bool>",
      "false: the target path is all that is served",
      parseBoolean,
    )
    .option("--expires-at <time>", "ISO 8601 time after which it ends; null removes it")
    .option("--enabled <bool>", "false: kept, but not served", parseBoolean);
}

function aliasBody(options: AliasFlags): Record<string, unknown> {
  const orNull = (text: string) => (text === "null" ? null : text);
  return {
    ...(options.alias === undefined ? {} : { alias: options.alias }),
    ...(options.program === undefined ? {} : { program: options.program }),
    ...(options.port === undefined ? {} : { port: options.port }),
    ...(options.index === undefined ? {} : { index: options.index }),
    ...(options.targetPath === undefined ? {} : { target_path: orNull(options.targetPath) }),
    ...(options.allowPathOverride === undefined
      ? {}
      : { allow_path_override: options.allowPathOverride }),
    ...(options.expiresAt === undefined ? {} : { expires_at: orNull(options.expiresAt) }),
    ...(options.enabled === undefined ? {} : { enabled: options.enabled }),
  };
}
