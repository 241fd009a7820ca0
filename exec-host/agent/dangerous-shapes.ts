/** Command shapes that no run performs without a person's word (section 13.3). */
export type DangerousShape =
  | "remove_root"
  | "download_to_shell"
  | "forced_push"
  | "destroy_device"
  | "fork_bomb";

const SHELL = /^(?:ba|da|z|k|a|fi|tc|c|mk)?sh$/;
const DOWNLOAD = /^(?:curl|wget)$/;
const RUNS_TEXT = /^(?:eval|source|\.)$/;
const SUBSTITUTED_DOWNLOAD = /(?:<\(|\$\(|`)[ \t]{0,20}(?:curl|wget)\b/;
const ROOT = /^(?:\/+|~\/?|\$\{?HOME\}?\/?)(?:\.{0,2}\/?)\*?$/;
const FORK_BOMB = /(\S{1,40})\s{0,20}\(\)\s{0,20}\{[^}]{0,40}\1\s{0,20}\|\s{0,20}\1/;
const RAW_DEVICE =
  /\bmkfs(?:\.\w{1,20})?\s|(?:\bof=|>\s{0,20})\/dev\/(?:sd|hd|vd|xvd|nvme|mmcblk|mapper\/)/;

/** Longest text that is looked at; what is longer counts as not understood elsewhere. */
const MAX_TEXT = 65_536;

/**
 * The dangerous shape that a command line shows in its text, or null. A net under the shell gate, which judges parsed
 * commands: it also sees shapes inside quotes and inside languages the gate does not parse. Also used to rate hook
 * commands as high risk.
 *
 * The text is cut into pieces and words first; no pattern runs over more than a word or a bounded stretch, so that the
 * time stays proportional to the length.
 */
export function dangerousShapeOf(command: string): DangerousShape | null {
  const text = command.slice(0, MAX_TEXT).replaceAll("\\\n", " ");
  for (const sentence of text.split(/[\n;]/)) {
    if (pipesDownload(sentence.split("|"))) {
      return "download_to_shell";
    }
    for (const piece of sentence.split(/[|&]/)) {
      const shape = shapeOfPiece(piece);
      if (shape !== null) {
        return shape;
      }
    }
  }
  if (FORK_BOMB.test(text)) {
    return "fork_bomb";
  }
  return RAW_DEVICE.test(text) ? "destroy_device" : null;
}

/** True when a stage behind a download names a shell. */
function pipesDownload(stages: readonly string[]): boolean {
  let downloaded = false;
  for (const stage of stages) {
    const names = wordsOf(stage).map(baseName);
    if (downloaded && names.some((name) => SHELL.test(name))) {
      return true;
    }
    downloaded ||= names.some((name) => DOWNLOAD.test(name));
  }
  return false;
}

function shapeOfPiece(piece: string): DangerousShape | null {
  const words = wordsOf(piece);
  const names = words.map(baseName);
  const removes = names.indexOf("rm");
  if (removes !== -1) {
    const rest = words.slice(removes + 1);
    const recursive = rest.some((word) => /^-[a-zA-Z]*[rR]|^--rec/.test(word));
    const forced = rest.some((word) => /^-[a-zA-Z]*f|^--forc/.test(word));
    if (recursive && forced && rest.some((word) => ROOT.test(word))) {
      return "remove_root";
    }
  }
  const git = names.indexOf("git");
  const push = git === -1 ? -1 : words.indexOf("push", git + 1);
  if (
    push !== -1 &&
    words
      .slice(push + 1)
      .some((word) =>
        /^--force(?:$|=|-with-lease|-if-includes)|^-[a-zA-Z]*f[a-zA-Z]*$|^\+.|^--mirror$/.test(
          word,
        ),
      )
  ) {
    return "forced_push";
  }
  const found = SUBSTITUTED_DOWNLOAD.exec(piece);
  if (
    found !== null &&
    wordsOf(piece.slice(0, found.index)).some(
      (word) => SHELL.test(baseName(word)) || RUNS_TEXT.test(word),
    )
  ) {
    return "download_to_shell";
  }
  return null;
}

/** Words of a stretch of text, quotes, brackets and redirections taken for blanks. */
function wordsOf(text: string): string[] {
  return text.split(/[\s"'`()<>\\]+/).filter((word) => word !== "");
}

function baseName(word: string): string {
  return word.slice(word.lastIndexOf("/") + 1);
}
