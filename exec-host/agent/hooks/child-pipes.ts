import { execFile } from "node:child_process";
import { closeSync, constants, openSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

/**
 * The three standard streams of a hook as real pipes. Node makes sockets where one asks it for pipes; a shell then takes itself
 * for a remote one, and `> /dev/stderr` or `cat /dev/stdin` fail in the child.
 */
export interface ChildPipes {
  /** Descriptors for `stdio` of the child; `release` them once it was started. */
  readonly childFds: readonly [stdin: number, stdout: number, stderr: number];
  readonly stdin: Socket;
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
export async function openChildPipes(): Promise<ChildPipes> {
  const folder = await mkdtemp(join(tmpdir(), "interpose-hook-"));
  const fds: number[] = [];
  const opened = (fd: number): number => {
    fds.push(fd);
    return fd;
  };
  try {
    const paths = ["in", "out", "err"].map((name) => join(folder, name));
    const [inPath = "", outPath = "", errPath = ""] = paths;
    await run("mkfifo", ["-m", "600", ...paths], { timeout: 5000 });
    // opening one end waits for the other: a first descriptor for both ends lets the two real ones open at once
    const holder = openSync(inPath, constants.O_RDWR | constants.O_NONBLOCK);
    const childIn = opened(openSync(inPath, constants.O_RDONLY));
    const ourIn = opened(openSync(inPath, constants.O_WRONLY));
    closeSync(holder);
    const ourOut = opened(openSync(outPath, constants.O_RDONLY | constants.O_NONBLOCK));
    const childOut = opened(openSync(outPath, constants.O_WRONLY));
    const ourErr = opened(openSync(errPath, constants.O_RDONLY | constants.O_NONBLOCK));
    const childErr = opened(openSync(errPath, constants.O_WRONLY));
    return toPipes([childIn, childOut, childErr], ourIn, ourOut, ourErr);
  } catch (cause) {
    for (const fd of fds) {
      closeSync(fd);
    }
    throw cause;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

function toPipes(
  childFds: readonly [number, number, number],
  ourIn: number,
  ourOut: number,
  ourErr: number,
): ChildPipes {
  const stdin = new Socket({ fd: ourIn, readable: false, writable: true });
  const stdout = new Socket({ fd: ourOut, readable: true, writable: false });
  const stderr = new Socket({ fd: ourErr, readable: true, writable: false });
  for (const pipe of [stdin, stdout, stderr]) {
    pipe.on("error", () => pipe.destroy()); // a child that does not read its input is no failure of ours
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
    stdin,
    stdout,
    stderr,
    release,
    destroy() {
      release();
      stdin.destroy();
      stdout.destroy();
      stderr.destroy();
    },
  };
}
