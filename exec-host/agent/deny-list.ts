import { compileGlob, matchesGlob } from "../tools/glob-match.ts";
import { parseShell } from "./shell/parser.ts";

/** What the settings forbid, whatever is confirmed (section 13, step 4). */
export interface DenyLists {
  /** Globs of paths (with a slash or a leading `~`) and of command lines (`*` stands for anything). */
  readonly denyList: readonly string[];
  /** Globs of URLs. */
  readonly denyUrls: readonly string[];
}

/** The entry that forbids a use of these physical paths, or null. */
export function deniedPath(
  lists: DenyLists,
  paths: readonly string[],
  home: string,
  cwd: string,
): string | null {
  for (const entry of lists.denyList) {
    const glob = pathGlob(entry, home, cwd);
    if (glob !== null && paths.some((path) => matchesGlob(glob, path) || underDenied(glob, path))) {
      return entry;
    }
  }
  return null;
}

/** The entry that forbids a command line, or null: its text, every simple command in it, every path and URL it names. */
export async function deniedCommand(
  lists: DenyLists,
  command: string,
  home: string,
  cwd: string,
): Promise<string | null> {
  if (lists.denyList.length === 0 && lists.denyUrls.length === 0) {
    return null;
  }
  const line = await parseShell(command);
  const words =
    line?.commands.flatMap((one) =>
      [...one.words, ...one.redirects.map((redirect) => redirect.target)].map((word) => word.text),
    ) ?? [];
  const texts = [
    command.trim(),
    ...(line?.commands.map((one) => one.words.map((word) => word.text).join(" ")) ?? []),
  ];
  for (const entry of lists.denyList) {
    if (texts.some((text) => matchesText(entry, text))) {
      return entry;
    }
  }
  const paths = words
    .filter((word) => word !== "" && !/\s/.test(word))
    .map((word) => absolute(word, home, cwd));
  return deniedPath(lists, paths, home, cwd) ?? deniedUrl(lists, words);
}

/** The entry that forbids one of these texts as a URL, or null. */
export function deniedUrl(lists: DenyLists, texts: readonly string[]): string | null {
  const urls = texts.flatMap((text) => text.match(/https?:\/\/[^\s"'`<>]+/gi) ?? []);
  return (
    lists.denyUrls.find((entry) =>
      urls.some((url) => matchesText(entry, url) || matchesText(`${entry}*`, url)),
    ) ?? null
  );
}

function pathGlob(entry: string, home: string, cwd: string) {
  if (!entry.includes("/") && !entry.startsWith("~")) {
    // a bare name is meant wherever it occurs
    return /\s/.test(entry) ? null : compileGlob(`/**/${entry}`);
  }
  return /\s/.test(entry) ? null : compileGlob(absolute(entry, home, cwd));
}

/** A denied folder denies what is below it. */
function underDenied(glob: NonNullable<ReturnType<typeof compileGlob>>, path: string): boolean {
  for (let end = path.lastIndexOf("/"); end > 0; end = path.lastIndexOf("/", end - 1)) {
    if (matchesGlob(glob, path.slice(0, end))) {
      return true;
    }
  }
  return false;
}

function absolute(path: string, home: string, cwd: string): string {
  if (path === "~" || path.startsWith("~/")) {
    return home + path.slice(1);
  }
  return path.startsWith("/") ? path : `${cwd}/${path.replace(/^\.\//, "")}`;
}

/** `*` stands for any run of characters; everything else for itself. Linear: greedy with one point to come back to. */
function matchesText(pattern: string, text: string): boolean {
  let p = 0;
  let t = 0;
  let backP = -1;
  let backT = 0;
  while (t < text.length) {
    if (pattern.charAt(p) === "*") {
      backP = p;
      backT = t;
      p += 1;
    } else if (p < pattern.length && pattern.charAt(p) === text.charAt(t)) {
      p += 1;
      t += 1;
    } else if (backP !== -1) {
      backT += 1;
      p = backP + 1;
      t = backT;
    } else {
      return false;
    }
  }
  while (pattern.charAt(p) === "*") {
    p += 1;
  }
  return p === pattern.length;
}
