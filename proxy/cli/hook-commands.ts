import type { Command } from "commander";
import type { Hook, HookInput } from "../../client/client.ts";
import {
  action,
  addCommand,
  addGroup,
  containerOption,
  ifMatchOf,
  ifMatchOption,
  type Invocation,
} from "./command-kit.ts";
import { collect, collectList, parseInteger, parsePairs } from "./flags.ts";
import { askYesNo, CommandFailure, type CommandIo } from "./io.ts";
import type { TableView } from "./output.ts";
import { scriptText } from "./script-text.ts";

interface ContainerFlags {
  readonly container: string;
}

interface WriteFlags extends ContainerFlags {
  readonly ifMatch?: string;
}

interface RuleFlags extends WriteFlags {
  readonly matchMethod?: string[];
  readonly matchPath?: string;
  readonly matchHeaders?: string[];
  readonly scriptSubdomain?: string;
  readonly scriptExecId?: string;
  readonly scriptPath: string;
  readonly timeout?: number;
  readonly appliesToGroups?: string[];
  readonly position?: number;
}

const ID = "890abcdef12345678901cdef";
const HOOK = "01k5x0q8w3zr7v2m9n4p6t1a0b";

/** `containers proxy hooks …`. */
export function registerHookCommands(proxy: Command, io: CommandIo): void {
  const hooks = addGroup(proxy, "hooks", "hook rules of a container");

  ruleOptions(
    addCommand(hooks, {
      usage: "create <service>",
      summary: "add a hook rule to a service",
      examples: [
        `containers proxy hooks create -c ${ID} terminal --match-method POST --match-path '/api/login*' --script-path /login-audit --timeout 500 --if-match file:v1`,
        `containers proxy hooks create -c ${ID} files --match-path '*' --script-path /gate --applies-to-groups staff --position 0 --if-match file:v2`,
      ],
    }),
  )
    .option("--position <n>", "insert before this index instead of appending", parseInteger)
    .action(
      action<RuleFlags>(io, async ({ client, args, options, done }) => {
        const [service = ""] = args;
        const rule = {
          ...ruleOf(options),
          ...(options.position === undefined ? {} : { position: options.position }),
        };
        const { data } = await client.api.proxy.hooks.create(
          options.container,
          service,
          rule,
          ifMatchOf(options),
        );
        done(
          data,
          `Created hook ${data.hook.id} of ${service} at position ${data.hook.position}; the version is now ${data.etag}.`,
        );
      }),
    );

  addCommand(hooks, {
    usage: "get <service> <hookId>",
    summary: "show one hook rule",
    examples: [`containers proxy hooks get -c ${ID} terminal ${HOOK}`],
  })
    .addOption(containerOption())
    .action(
      action<ContainerFlags>(io, async ({ client, args, options, show }) => {
        const [service = "", hookId = ""] = args;
        const { data } = await client.api.proxy.hooks.get(options.container, service, hookId);
        show(data, () => hookTable([[service, data.hook]], data.etag));
      }),
    );

  addCommand(hooks, {
    usage: "list",
    summary: "list the hook rules of all services, in order",
    examples: [
      `containers proxy hooks list -c ${ID}`,
      `containers proxy hooks list -c ${ID} -o json`,
    ],
  })
    .addOption(containerOption())
    .action(
      action<ContainerFlags>(io, async ({ client, options, show }) => {
        const { data } = await client.api.proxy.hooks.list(options.container);
        show(data, () =>
          hookTable(
            Object.entries(data.hooks).flatMap(([service, list]) =>
              list.map((hook) => [service, hook] as const),
            ),
            data.etag,
          ),
        );
      }),
    );

  ruleOptions(
    addCommand(hooks, {
      usage: "set <service> <hookId>",
      summary: "replace a hook rule whole; its id and position stay",
      examples: [
        `containers proxy hooks set -c ${ID} terminal ${HOOK} --match-method POST,PUT --match-path '/api/login*' --script-path /login-audit --timeout 1000 --if-match file:v2`,
      ],
    }),
  ).action(
    action<RuleFlags>(io, async ({ client, args, options, done }) => {
      const [service = "", hookId = ""] = args;
      const { data } = await client.api.proxy.hooks.set(
        options.container,
        service,
        hookId,
        ruleOf(options),
        ifMatchOf(options),
      );
      done(data, `Replaced hook ${hookId} of ${service}; the version is now ${data.etag}.`);
    }),
  );

  addCommand(hooks, {
    usage: "move <service> <hookId>",
    summary: "move a hook rule to another place in its service's order",
    examples: [
      `containers proxy hooks move -c ${ID} terminal ${HOOK} --position 0 --if-match file:v3`,
    ],
  })
    .addOption(containerOption())
    .requiredOption("--position <n>", "new index, 0 is first", parseInteger)
    .addOption(ifMatchOption())
    .action(
      action<WriteFlags & { position: number }>(io, async ({ client, args, options, done }) => {
        const [service = "", hookId = ""] = args;
        const { data } = await client.api.proxy.hooks.move(
          options.container,
          service,
          hookId,
          { position: options.position },
          ifMatchOf(options),
        );
        done(
          data,
          `Moved hook ${hookId} of ${service} to position ${data.hook.position}; the version is now ${data.etag}.`,
        );
      }),
    );

  addCommand(hooks, {
    usage: "delete <service> <hookId>",
    summary: "remove a hook rule; asks first unless -y is given",
    examples: [`containers proxy hooks delete -c ${ID} terminal ${HOOK} --if-match file:v4 -y`],
  })
    .addOption(containerOption())
    .addOption(ifMatchOption())
    .action(
      action<WriteFlags>(io, async (call) => {
        const { client, args, options, done } = call;
        const [service = "", hookId = ""] = args;
        await confirmed(call, `Delete hook ${hookId} of ${service}?`);
        const { data } = await client.api.proxy.hooks.delete(
          options.container,
          service,
          hookId,
          ifMatchOf(options),
        );
        done(data, `Deleted hook ${hookId} of ${service}; the version is now ${data.etag}.`);
      }),
    );
}

/** `containers proxy services hooks …`. */
export function registerServiceHookCommands(services: Command, io: CommandIo): void {
  const hooks = addGroup(services, "hooks", "hook rules of one service");

  addCommand(hooks, {
    usage: "list <service>",
    summary: "list the hook rules of one service, in order",
    examples: [`containers proxy services hooks list -c ${ID} terminal`],
  })
    .addOption(containerOption())
    .action(
      action<ContainerFlags>(io, async ({ client, args, options, show }) => {
        const [service = ""] = args;
        const { data } = await client.api.proxy.hooks.listByService(options.container, service);
        show(data, () =>
          hookTable(
            data.hooks.map((hook) => [data.service, hook] as const),
            data.etag,
          ),
        );
      }),
    );

  addCommand(hooks, {
    usage: "clear <service>",
    summary: "remove every hook rule of a service",
    examples: [`containers proxy services hooks clear -c ${ID} terminal --if-match file:v5`],
  })
    .addOption(containerOption())
    .addOption(ifMatchOption())
    .action(
      action<WriteFlags>(io, async ({ client, args, options, done }) => {
        const [service = ""] = args;
        const { data } = await client.api.proxy.hooks.clear(
          options.container,
          service,
          ifMatchOf(options),
        );
        done(
          data,
          `Removed ${data.removed} hook${data.removed === 1 ? "" : "s"} of ${service}; the version is now ${data.etag}.`,
        );
      }),
    );
}

function ruleOptions(command: Command): Command {
  return command
    .addOption(containerOption())
    .option(
      "--match-method <methods>",
      "methods, as a comma list or repeated; left out: any but OPTIONS",
      collectList,
    )
    .option("--match-path <glob>", "path glob; '*' fits every path")
    .option("--match-headers <key=value>", "header that must be equal; may be repeated", collect)
    .option("--script-subdomain <name>", "subdomain of the script")
    .option("--script-exec-id <id>", "exec id of the script")
    .requiredOption("--script-path <path>", "path of the script")
    .option(
      "--timeout <ms>",
      "deadline of the script in milliseconds, by default 500",
      parseInteger,
    )
    .option(
      "--applies-to-groups <groups>",
      "only callers that these groups let in, as a comma list or repeated",
      collectList,
    )
    .addOption(ifMatchOption());
}

/**
 * The rule that the flags describe. Without any `--match-…` flag it has no `match`, which the server refuses:
 * a rule for everything has to be asked for, with `--match-path '*'`.
 */
function ruleOf(flags: RuleFlags): HookInput {
  const match = {
    ...(flags.matchMethod === undefined ? {} : { method: flags.matchMethod }),
    ...(flags.matchPath === undefined ? {} : { path: flags.matchPath }),
    ...(flags.matchHeaders === undefined
      ? {}
      : { headers: parsePairs("--match-headers", flags.matchHeaders) }),
  };
  const rule = {
    ...(Object.keys(match).length === 0 ? {} : { match }),
    script: {
      ...(flags.scriptSubdomain === undefined ? {} : { subdomain: flags.scriptSubdomain }),
      ...(flags.scriptExecId === undefined ? {} : { execId: flags.scriptExecId }),
      path: flags.scriptPath,
    },
    ...(flags.timeout === undefined ? {} : { timeout: flags.timeout }),
    ...(flags.appliesToGroups === undefined
      ? {}
      : { applies_to: { groups: flags.appliesToGroups } }),
  };
  return rule as HookInput;
}

/** Goes on only after `-y` or a yes on a terminal. Without a terminal nobody can be asked, and nothing is sent. */
async function confirmed(call: Invocation<unknown>, question: string): Promise<void> {
  if (call.options.yes === true) {
    return;
  }
  if (call.io.stdin.isTTY !== true) {
    throw new CommandFailure("there is no terminal to ask on, so nothing was sent; -y confirms");
  }
  if (!(await askYesNo(call.io, question))) {
    throw new CommandFailure("not confirmed, so nothing was sent");
  }
}

/** A stored rule that is no longer valid is listed as it is, so any part of it may be missing. */
type ListedHook = Partial<Omit<Hook, "match" | "script" | "applies_to">> & {
  readonly match?: Partial<Hook["match"]>;
  readonly script?: Partial<Hook["script"]>;
  readonly applies_to?: { readonly groups?: unknown };
};

function hookTable(hooks: readonly (readonly [string, ListedHook])[], etag: string): TableView {
  return {
    columns: ["service", "pos", "id", "method", "path", "headers", "script", "timeout", "groups"],
    rows: hooks.map(([service, hook]) => [
      service,
      hook.position,
      hook.id,
      hook.match?.method ?? "*",
      hook.match?.path ?? "*",
      Object.entries(hook.match?.headers ?? {}).map(([name, value]) => `${name}=${value}`),
      scriptText(hook.script),
      hook.timeout,
      hook.applies_to?.groups,
    ]),
    empty: "No hooks.",
    footer: `Version ${etag}`,
  };
}
