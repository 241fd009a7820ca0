import { execFile } from "node:child_process";
import { closeSync, constants, openSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

/**
 * Output streams of a command as real pipes. Node makes sockets where one asks it for pipes, and on a socket `> /dev/stderr`, which is
 * how many hooks say their reason, fails in the child.
 */
export interface OutputPipes {
  /** Descriptors for `stdio` of the child; `release` them once it was started. */
  readonly childFds: readonly [stdout: number, stderr: number];
  readonly stdout: Socket;
  readonly stderr: Socket;
  /** Closes our copies of the child's ends. */
  release(): void;
  /** Ends everything at once. */
  destroy(): void;
}

const run = promisify(execFile);

/**
 * Makes the pipes as unlinked fifos.
 *
 * @throws when the platform has no fifos, no descriptors are left, or the temporary folder cannot be written.
 */
export async function openOutputPipes(): Promise<OutputPipes> {
  const folder = await mkdtemp(join(tmpdir(), "interpose-out-"));
  const fds: number[] = [];
  const opened = (path: string, flags: number): number => {
    const fd = openSync(path, flags);
    fds.push(fd);
    return fd;
  };
  try {
    const outPath = join(folder, "out");
    const errPath = join(folder, "err");
    await run("mkfifo", ["-m", "600", outPath, errPath], { timeout: 5000 });
    // our reading ends come first: opening a fifo for writing waits for a reader
    const ourOut = opened(outPath, constants.O_RDONLY | constants.O_NONBLOCK);
    const childOut = opened(outPath, constants.O_WRONLY);
    const ourErr = opened(errPath, constants.O_RDONLY | constants.O_NONBLOCK);
    const childErr = opened(errPath, constants.O_WRONLY);
    return toPipes([childOut, childErr], ourOut, ourErr);
  } catch (cause) {
    fds.forEach((fd) => closeSync(fd));
    throw cause;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

function toPipes(childFds: readonly [number, number], ourOut: number, ourErr: number): OutputPipes {
  const stdout = new Socket({ fd: ourOut, readable: true, writable: false });
  const stderr = new Socket({ fd: ourErr, readable: true, writable: false });
  for (const pipe of [stdout, stderr]) {
    pipe.on("error", () => pipe.destroy()); // what came so far is what there is
  }
  let released = false;
  const release = (): void => {
    if (!released) {
      released = true;
      childFds.forEach((fd) => closeSync(fd));
    }
  };
  return {
    childFds,
    stdout,
    stderr,
    release,
    destroy() {
      release();
      stdout.destroy();
      stderr.destroy();
    },
  };
}
