/** Command shapes that no run performs without a person's word (section 13.3). */
export type DangerousShape =
  | "remove_root"
  | "download_to_shell"
  | "forced_push"
  | "destroy_device"
  | "fork_bomb";

const SHELL = String.raw`(?:[\w./-]*/)?(?:ba|da|z|k|a|fi|tc|c)?sh\b`;
const ROOT = String.raw`["']?(?:/+|~|\$\{?HOME\}?)(?:/*\.?/*\*?)["']?(?=[\s;&|)<>]|$)`;

// Every pattern runs on text of bounded length; each is a scan within one command, without nested repetition.
const REMOVE = /\brm\b([^\n;&|]*)/g;
const RECURSIVE = /\s(?:-[a-zA-Z]*[rR][a-zA-Z]*|--rec\w*)(?=\s|$)/;
const FORCED = /\s(?:-[a-zA-Z]*f[a-zA-Z]*|--forc?e?)(?=\s|$)/;
const ROOT_OPERAND = new RegExp(String.raw`\s${ROOT}`);
const PIPED = new RegExp(String.raw`\b(?:curl|wget)\b[^\n;]*\|[^\n;|]*?(?:^|[\s|/&(])${SHELL}`);
const SHELL_OF_DOWNLOAD = new RegExp(
  String.raw`(?:\b${SHELL}|\beval\b|\bsource\b|(?:^|\s)\.\s)[^\n;|]*(?:<\(|\$\(|${"`"})\s*(?:curl|wget)\b`,
);
const PUSH = /\bgit\b[^\n;&|]*\bpush\b([^\n;&|]*)/g;
const FORCE_PUSH =
  /\s["']?(?:--force(?:-with-lease|-if-includes)?(?:=\S*)?["']?(?=\s|$)|-[a-zA-Z]*f[a-zA-Z]*["']?(?=\s|$)|\+\S|--mirror\b)/;

const FORK_BOMB = /(\S{1,40})\s*\(\)\s*\{[^}]{0,40}\1\s*\|\s*\1/;
const RAW_DEVICE = /\bmkfs(?:\.\w+)?\s|(?:\bof=|>\s*)\/dev\/(?:sd|hd|vd|xvd|nvme|mmcblk|mapper\/)/;

/** Longest text the patterns look at; what is longer counts as not understood elsewhere. */
const MAX_TEXT = 65_536;

/**
 * The dangerous shape that a command line shows in its text, or null. A net under the shell gate, which judges parsed
 * commands: it also sees shapes inside quotes and inside languages the gate does not parse. Also used to rate hook
 * commands as high risk.
 */
export function dangerousShapeOf(command: string): DangerousShape | null {
  const text = command.slice(0, MAX_TEXT).replaceAll("\\\n", " ");
  for (const match of text.matchAll(REMOVE)) {
    const words = match[1] ?? "";
    if (RECURSIVE.test(words) && FORCED.test(words) && ROOT_OPERAND.test(words)) {
      return "remove_root";
    }
  }
  if (PIPED.test(text) || SHELL_OF_DOWNLOAD.test(text)) {
    return "download_to_shell";
  }
  for (const match of text.matchAll(PUSH)) {
    if (FORCE_PUSH.test(match[1] ?? "")) {
      return "forced_push";
    }
  }
  if (FORK_BOMB.test(text)) {
    return "fork_bomb";
  }
  return RAW_DEVICE.test(text) ? "destroy_device" : null;
}
