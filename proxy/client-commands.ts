import type { Command } from "commander";
import { systemClock } from "../policy/kernel/clock.ts";
import { registerClaimCommands } from "./claim-command.ts";
import { createProcessIo } from "./cli/io.ts";
import { registerApiCommands } from "./cli/register.ts";

/** The commands that are clients of a running edge, or of nothing. */
export function registerClientCommands(program: Command): void {
  registerApiCommands(program, createProcessIo(process));
  registerClaimCommands(program, { stdout: process.stdout, clock: systemClock });
}
