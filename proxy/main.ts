import { Command, CommanderError } from "commander";
import { systemClock } from "../policy/kernel/clock.ts";

/**
 * The `interpose` binary: reads the command line, starts what it names. No logic lives here.
 * Exit codes: 0 fine, 1 failure, 2 wrong usage (contract.md 1).
 */
const program = new Command("interpose")
  .description("Edge reverse proxy with hook dispatch")
  .exitOverride()
  .showHelpAfterError("(interpose --help lists the commands)")
  .configureHelp({ sortSubcommands: true });

program
  .command("serve")
  .description("run the edge, the control API and the embedded hosts; without a file: the demo")
  .option("--config <file>", "configuration file, YAML or JSON")
  .action(async (options: { config?: string }) => {
    const { runServe } = await import("./serve-command.ts");
    process.exit(await runServe(options.config ?? null, process.env)); // nothing left over may keep it alive
  });

program
  .command("check")
  .description("validate the configuration and every stored document")
  .requiredOption("--config <file>", "configuration file, YAML or JSON")
  .action(async (options: { config: string }) => {
    const { runCheck } = await import("./check-command.ts");
    process.exitCode = await runCheck(options.config, process.env, (line) =>
      process.stdout.write(`${line}\n`),
    );
  });

program
  .command("exec-host")
  .description("run only an exec host, inside a container, for an edge elsewhere")
  .requiredOption("--config <file>", "configuration file of the exec host")
  .action(async (options: { config: string }) => {
    const { runExecHost } = await import("../exec-host/run.ts");
    process.exit(await runExecHost(options.config, process.env));
  });

program
  .command("agent-host")
  .description("run only an agent gateway, inside a container, for an edge elsewhere")
  .requiredOption("--config <file>", "configuration file of the agent gateway")
  .action(async (options: { config: string }) => {
    const { runAgentHost } = await import("../exec-host/agent/standalone.ts");
    process.exit(await runAgentHost(options.config, process.env));
  });

// The client commands load the API client; the servers start faster without it.
if (!["serve", "check", "exec-host", "agent-host"].includes(process.argv[2] ?? "")) {
  const { registerClientCommands } = await import("./client-commands.ts");
  registerClientCommands(program);
  const { registerHookRunCommand } = await import("../exec-host/offline-command.ts");
  registerHookRunCommand(program, {
    clock: systemClock,
    stdout: process.stdout,
    setExitCode: (code) => {
      process.exitCode = code;
    },
  });
}

try {
  await program.parseAsync();
} catch (cause) {
  if (cause instanceof CommanderError) {
    process.exitCode = cause.exitCode === 0 ? 0 : 2;
  } else {
    process.stderr.write(`${cause instanceof Error ? cause.message : String(cause)}\n`);
    process.exitCode = 1;
  }
}
