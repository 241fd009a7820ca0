import { accessSync, constants } from "node:fs";
import { dirname, join } from "node:path";

/**
 * What the platform offers to keep a worker apart, beyond Node's permission model. Found out once at start by
 * trying, because containers often have the programs but not the right to use them.
 */
export interface Confinement {
  /** `bubblewrap`: own mounts and process numbers. `namespace`: own process numbers. `none`: neither. */
  readonly kind: "bubblewrap" | "namespace" | "none";
  /** Absolute paths of the helpers that work; null where one does not. */
  readonly bwrap: string | null;
  readonly unshare: string | null;
  /** Arguments of `unshare` that worked: a user namespace is needed when we are not root. */
  readonly unshareArgs: readonly string[];
  readonly setpriv: string | null;
  readonly prlimit: string | null;
  /** Whether this process is root and so may switch users. */
  readonly root: boolean;
  /** What stays open on this platform, one sentence each, for readiness and the log. */
  readonly open: readonly string[];
}

/** Runs a program with a timeout; true when it exits 0. */
export type Probe = (command: string, args: readonly string[]) => Promise<boolean>;

/** Which helpers may be used, and where they are looked for. */
export interface ConfinementOptions {
  /** Folders searched for the helpers, in order; never the environment's PATH. */
  readonly searchFolders: readonly string[];
  /** Helpers that must not be used, for tests and for operators. */
  readonly without?: readonly ("bwrap" | "unshare" | "setpriv" | "prlimit")[];
}

/** Where the confining programs are looked for. */
export const DEFAULT_SEARCH_FOLDERS = ["/usr/bin", "/bin", "/usr/local/bin", "/usr/sbin", "/sbin"];

/** Processes and threads of a worker's own user. The engine itself has about a dozen threads. */
const MAX_PROCESSES = 256;

/** No helper at all: Node's own permission flags alone. */
export function bareConfinement(root: boolean): Confinement {
  return {
    kind: "none",
    bwrap: null,
    unshare: null,
    unshareArgs: [],
    setpriv: null,
    prlimit: null,
    root,
    open: describeOpen("none", null, root),
  };
}

/** Tries each helper and says what is left open. */
export async function detectConfinement(
  probe: Probe,
  root: boolean,
  options: ConfinementOptions = { searchFolders: DEFAULT_SEARCH_FOLDERS },
): Promise<Confinement> {
  const find = (name: "bwrap" | "unshare" | "setpriv" | "prlimit"): string | null =>
    options.without?.includes(name) ? null : findProgram(name, options.searchFolders);
  const yes = findProgram("true", options.searchFolders);
  if (yes === null) {
    return bareConfinement(root);
  }
  const works = async (path: string | null, args: readonly string[]): Promise<string | null> =>
    path !== null && (await probe(path, [...args, yes])) ? path : null;
  const unshareTries = [
    ["--pid", "--fork", "--kill-child"],
    ["--user", "--map-current-user", "--pid", "--fork", "--kill-child"],
  ].slice(root ? 0 : 1);
  const [bwrap, setpriv, prlimit, ...unshared] = await Promise.all([
    works(find("bwrap"), bwrapArgs({ readPaths: [], writePaths: [], cwd: "/", user: null }, root)),
    works(find("setpriv"), setprivArgs(root)),
    // Only where no lower limit is in the way: a worker that asks for more than it may would not start at all.
    works(find("prlimit"), ["--core=0", "--data=unlimited"]),
    ...unshareTries.map((args) => works(find("unshare"), args)),
  ]);
  const tried = unshared.findIndex((path) => path !== null);
  const unshare = tried === -1 ? null : (unshared[tried] ?? null);
  const kind = bwrap !== null ? "bubblewrap" : unshare !== null ? "namespace" : "none";
  return {
    kind,
    bwrap,
    unshare,
    unshareArgs: unshareTries[tried] ?? [],
    setpriv,
    prlimit,
    root,
    open: describeOpen(kind, setpriv, root),
  };
}

/** A command to be confined, with the folders it needs. */
export interface WrapRequest {
  readonly command: string;
  readonly args: readonly string[];
  readonly user: { readonly uid: number; readonly gid: number } | null;
  readonly readPaths: readonly string[];
  readonly writePaths: readonly string[];
  readonly cwd: string;
  /** Bytes of memory it may ask the kernel for, used or not. */
  readonly maxDataBytes: number;
}

/** The command that starts it confined. */
export interface WrappedCommand {
  readonly command: string;
  readonly args: readonly string[];
  /** Still to be switched by the spawn itself; null when a helper does it or nobody asked. */
  readonly user: { readonly uid: number; readonly gid: number } | null;
}

/**
 * The command behind its helpers, outermost first: die with the parent, own process numbers (and mounts), no core
 * files, own user without any privilege, die with the wrapper.
 */
export function wrapCommand(confinement: Confinement, request: WrapRequest): WrappedCommand {
  const { bwrap, unshare, setpriv, prlimit, root } = confinement;
  let args = [request.command, ...request.args];
  let user = request.user;
  const namespaced = confinement.kind !== "none";
  if (setpriv !== null) {
    const priv = setprivArgs(root);
    if (user !== null) {
      priv.push("--reuid", String(user.uid), "--regid", String(user.gid), "--clear-groups");
      user = null;
    }
    args = [setpriv, ...priv, ...args];
  }
  if (prlimit !== null) {
    const limits = ["--core=0", `--data=${request.maxDataBytes}`];
    if (request.user !== null && user === null) {
      limits.push(`--nproc=${MAX_PROCESSES}`); // counts per user: of use only where the user is the worker's own
    }
    args = [prlimit, ...limits, ...args];
  }
  // Without setpriv the spawn itself switches users, which must happen outside everything that needs root.
  if (user !== null && root) {
    return { command: args[0] ?? request.command, args: args.slice(1), user };
  }
  if (confinement.kind === "bubblewrap" && bwrap !== null) {
    args = [bwrap, ...bwrapArgs(request, root), ...args];
  } else if (confinement.kind === "namespace" && unshare !== null) {
    args = [unshare, ...confinement.unshareArgs, ...args];
  }
  if (namespaced && setpriv !== null) {
    args = [setpriv, "--pdeathsig", "KILL", ...args];
  }
  return { command: args[0] ?? request.command, args: args.slice(1), user };
}

/** Dies with its parent, gains nothing by a set-user-id program, and as root holds no capability. */
function setprivArgs(root: boolean): string[] {
  const args = ["--pdeathsig", "KILL", "--no-new-privs"];
  return root ? [...args, "--bounding-set", "-all", "--inh-caps", "-all"] : args;
}

/** What the engine, its helpers and name resolution need of the system; read only. */
const SYSTEM_PATHS = [
  "/usr",
  "/bin",
  "/sbin",
  "/lib",
  "/lib64",
  "/etc/ssl",
  "/etc/ca-certificates",
  "/etc/resolv.conf",
  "/etc/hosts",
  "/etc/nsswitch.conf",
  "/etc/localtime",
];

/**
 * Settings of the kernel that root may write by its number alone, without any capability: `core_pattern` there names
 * a program that the kernel starts outside every namespace. bubblewrap covers them only where it takes them to be
 * writable, which it does not for `/proc/sys`.
 */
const KERNEL_SETTINGS = ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"];

/** Options that make the kernel's settings read-only in a sandbox of root; anybody else cannot write them anyway. */
export function coverKernelSettings(root: boolean): string[] {
  return root ? KERNEL_SETTINGS.flatMap((path) => ["--ro-bind-try", path, path]) : [];
}

function bwrapArgs(
  request: {
    readonly readPaths: readonly string[];
    readonly writePaths: readonly string[];
    readonly cwd: string;
    readonly user: { readonly uid: number; readonly gid: number } | null;
  },
  root: boolean,
): string[] {
  const args = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"];
  args.push(
    "--die-with-parent",
    "--new-session",
    "--dev",
    "/dev",
    "--proc",
    "/proc",
    ...coverKernelSettings(root),
    "--tmpfs",
    "/tmp",
  );
  // Folders on the way to a mount point would be closed to any user but root.
  const bound = [...SYSTEM_PATHS, ...request.readPaths, ...request.writePaths];
  for (const folder of [...new Set(bound.flatMap(ancestors))].sort()) {
    args.push("--perms", "0711", "--dir", folder);
  }
  for (const path of SYSTEM_PATHS) {
    args.push("--ro-bind-try", path, path);
  }
  for (const path of request.readPaths) {
    args.push("--ro-bind-try", path, path);
  }
  for (const path of request.writePaths) {
    args.push("--bind-try", path, path);
  }
  if (request.user !== null) {
    args.push("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_SETPCAP");
  }
  args.push("--chdir", request.cwd, "--");
  return args;
}

/** The folders above a path, without the root and those that are mounted anyway. */
function ancestors(path: string): string[] {
  const found: string[] = [];
  for (let at = dirname(path); at !== "/" && at !== "."; at = dirname(at)) {
    if (!/^\/(?:usr|bin|sbin|lib|lib64|tmp|dev|proc)$/.test(at)) {
      found.push(at);
    }
  }
  return found;
}

function describeOpen(
  kind: Confinement["kind"],
  setpriv: string | null,
  root: boolean,
): readonly string[] {
  const open = ["scripts may open network connections to any address this machine reaches"];
  if (kind === "none") {
    open.push(
      "no process namespace is available: workers share process numbers and, without exec.user, the user of the edge",
    );
  }
  if (kind !== "bubblewrap") {
    open.push(
      "no mount namespace: reads and writes are bounded by the permission model of the runtime alone",
    );
  }
  if (setpriv === null && root) {
    open.push("privileges of root are not dropped unless exec.user is set");
  }
  return open;
}

function findProgram(name: string, folders: readonly string[]): string | null {
  for (const folder of folders) {
    const path = join(folder, name);
    try {
      accessSync(path, constants.X_OK);
      return path;
    } catch {
      // not here
    }
  }
  return null;
}
