import { Option, type Command } from "commander";
import type { InterposeClient } from "../../client/client.ts";
import type { Owner, PermissionsApi } from "../../client/permissions-api.ts";
import { addCommand, containerOption } from "./command-kit.ts";
import type { CommandIo } from "./io.ts";

/** Flags of every permission command. */
export interface OwnerFlags {
  readonly container?: string;
  readonly project?: string;
  readonly ifMatch?: string;
}

/** What differs between the permission commands of containers (`-c`) and of projects (`--project`). */
export interface PermissionKit {
  readonly io: CommandIo;
  /** Adds a command that takes the owner's id; in its examples `AT` stands for that flag. */
  readonly command: (
    parent: Command,
    usage: string,
    summary: string,
    ...examples: string[]
  ) => Command;
  readonly api: (client: InterposeClient) => PermissionsApi<"containers">;
  readonly idOf: (flags: OwnerFlags) => string;
}

/** The kit of one kind of owner. */
export function createPermissionKit(io: CommandIo, owner: Owner): PermissionKit {
  const ofProject = owner === "projects";
  const at = ofProject ? "--project 67e89abc123def456789abcd" : "-c 890abcdef12345678901cdef";
  return {
    io,
    command: (parent, usage, summary, ...examples) =>
      addCommand(parent, {
        usage,
        summary,
        examples: examples.map((line) => `${owner} proxy permissions ${line.replace("AT", at)}`),
      }).addOption(
        ofProject
          ? new Option("--project <id>", "project id").makeOptionMandatory()
          : containerOption(),
      ),
    // Both owners have the same methods; the commands use only what they share.
    api: (client) =>
      (ofProject
        ? client.api.proxy.projectPermissions
        : client.api.proxy.containerPermissions) as PermissionsApi<"containers">,
    idOf: ({ container, project }) => container ?? project ?? "",
  };
}
