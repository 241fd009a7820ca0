import { createHash } from "node:crypto";
import { AgentError } from "../errors.ts";
import { isChecked, MAX_RULES_PER_GROUP } from "../rules/rule.ts";
import type { LoadedRule } from "../rules/rule.ts";
import type { ExecTrust } from "../rules/exec-trust.ts";
import type { SettingsLayer, SettingsScope } from "../seams.ts";
import { canonicalJson, ownMember } from "./canonical-json.ts";
import { decodeSettings, EMPTY_DOCUMENT, parseSettings } from "./document.ts";
import type { SettingsDocument, StoredHook } from "./document.ts";
import { findPlaces } from "./places.ts";
import type { SettingsPlace, SettingsPlaces } from "./places.ts";
import { readWholeFile } from "./read-file.ts";

/** Budget of one rules check where no file says another. */
const DEFAULT_RULES_TIMEOUT_MS = 3000;

/** A hook with the file it came from. */
export interface LoadedHook extends StoredHook {
  readonly layer: SettingsLayer;
  readonly source: string;
}

/** An MCP server entry with the file it came from. */
export interface LoadedMcpServer {
  readonly layer: SettingsLayer;
  readonly source: string;
  readonly value: unknown;
}

/** What one read of one file gave. */
export interface LoadedFile {
  readonly place: SettingsPlace;
  /** Changes whenever the bytes or the readability change. */
  readonly digest: string;
  /** `unparsable` was read and holds no settings; `failed` could not be read. */
  readonly state: "missing" | "read" | "unparsable" | "failed";
  /** Revision of rules, timeout and grants; absent where the file could not be read or parsed. */
  readonly revision: string | undefined;
}

/** The merged settings of a scope: all parts come from the same single read of each file. */
export interface LoadedSettings {
  readonly places: SettingsPlaces;
  readonly files: readonly LoadedFile[];
  readonly hooks: readonly LoadedHook[];
  /** Ids of catalogue hooks that the first layer switched on. */
  readonly shippedHooks: ReadonlySet<string>;
  readonly disableAllHooks: boolean;
  readonly rules: readonly LoadedRule[];
  readonly rulesTimeoutMs: number;
  readonly execTrust: readonly ExecTrust[];
  readonly mcpServers: readonly LoadedMcpServer[];
  readonly denyList: readonly string[];
  readonly denyUrls: readonly string[];
  readonly disabledTools: readonly string[];
  /** False drops the prompt block of guidance and playbook rules. */
  readonly teamRules: boolean;
  readonly warnings: readonly string[];
  readonly ruleWarnings: readonly string[];
}

const FAILURE_WORDS = {
  symlink: "is a symbolic link, which is not followed",
  not_a_regular_file: "is not a regular file",
  too_large: "is larger than 4 MiB",
  not_utf8: "is not UTF-8 text",
  moved: "changed its place while it was read",
  unreadable: "cannot be read",
} as const;

/** How a failed read is said in warnings and refusals. */
export function failureWords(reason: keyof typeof FAILURE_WORDS): string {
  return FAILURE_WORDS[reason];
}

/**
 * Reads and merges the settings of a scope.
 *
 * @throws AgentError `not_found` when the profile, or a file under an overriding folder, really lies in another realm's profile.
 */
export async function loadSettings(scope: SettingsScope): Promise<LoadedSettings> {
  const places = await findPlaces(scope);
  const warnings: string[] = [];
  const ruleWarnings: string[] = [];
  const files: LoadedFile[] = [];
  const documents: { readonly place: SettingsPlace; readonly document: SettingsDocument }[] = [];
  for (const place of places.places) {
    if (place.foreign && (places.overridden || place.layer === "user")) {
      throw new AgentError("not_found");
    }
    const { file, document } = await loadFile(place, scope.realm);
    files.push(file);
    documents.push({ place, document });
    warnings.push(...document.warnings);
    ruleWarnings.push(...document.ruleWarnings);
  }
  const rules = capRules(documents, (line) => {
    warnings.push(line);
    ruleWarnings.push(line);
  });
  const all = documents.map(({ document }) => document);
  return {
    places,
    files,
    hooks: documents.flatMap(({ place, document }) =>
      document.hooks.map((hook) => ({ ...hook, layer: place.layer, source: place.path })),
    ),
    shippedHooks: all[0]?.shippedHooks ?? new Set(),
    disableAllHooks: all.some((document) => document.disableAllHooks),
    rules,
    rulesTimeoutMs:
      lastOf(all.map((document) => document.rulesTimeoutMs)) ?? DEFAULT_RULES_TIMEOUT_MS,
    // grants live in one file only: the user's, or the override's settings.json (decision 54)
    execTrust: all[0]?.execTrust ?? [],
    mcpServers: documents.flatMap(({ place, document }) =>
      document.mcpServers.map((value) => ({ layer: place.layer, source: place.path, value })),
    ),
    denyList: all.flatMap((document) => document.denyList),
    denyUrls: all.flatMap((document) => document.denyUrls),
    disabledTools: all.flatMap((document) => document.disabledTools),
    teamRules: lastOf(all.map((document) => document.teamRules)) ?? true,
    warnings,
    ruleWarnings,
  };
}

async function loadFile(
  place: SettingsPlace,
  realm: string,
): Promise<{ file: LoadedFile; document: SettingsDocument }> {
  const leftOut = (state: "unparsable" | "failed", digest: string, words: string) => {
    const line = `${place.path}: left out, the file ${words}`;
    return {
      file: { place, digest, state, revision: undefined },
      document: { ...EMPTY_DOCUMENT, warnings: [line], ruleWarnings: [line] },
    };
  };
  if (place.foreign) {
    return leftOut("failed", "foreign", "belongs to another realm");
  }
  const read = await readSettled(place.realPath);
  if (read.kind === "missing") {
    return {
      file: { place, digest: "missing", state: "missing", revision: revisionOf(realm, place, {}) },
      document: EMPTY_DOCUMENT,
    };
  }
  if (read.kind === "failed") {
    return leftOut("failed", `failed:${read.reason}`, failureWords(read.reason));
  }
  const parsed = parseSettings(read.text);
  if (!parsed.ok) {
    return leftOut("unparsable", read.digest, parsed.reason);
  }
  return {
    file: {
      place,
      digest: read.digest,
      state: "read",
      revision: revisionOf(realm, place, parsed.value),
    },
    document: decodeSettings(parsed.value, place.path),
  };
}

/** A file that was moved under the read is read again: a writer may just have replaced it. */
async function readSettled(path: string) {
  let read = await readWholeFile(path);
  for (let i = 0; i < 3 && read.kind === "failed" && read.reason === "moved"; i++) {
    read = await readWholeFile(path);
  }
  return read;
}

/**
 * Revision of what `setRules` writes: opaque, bound to the realm and the real file, moved by hand edits too.
 *
 * @param value the parsed file, `{}` where it is missing.
 */
export function revisionOf(
  realm: string,
  place: SettingsPlace,
  value: Record<string, unknown>,
): string {
  const content = canonicalJson([
    realm,
    place.realPath,
    ownMember(value, "rules") ?? null,
    ownMember(value, "rules_timeout_ms") ?? null,
    ownMember(value, "exec_trust") ?? null,
  ]);
  return `r1:${createHash("sha256").update(content).digest("hex")}`;
}

/** One digest over the state of every file of a scope: moves when any of them changes. */
export function digestOfFiles(files: readonly LoadedFile[]): string {
  const hash = createHash("sha256");
  for (const file of files) {
    hash.update(`${file.place.layer} ${file.place.realPath} ${file.digest}\n`);
  }
  return hash.digest("hex").slice(0, 32);
}

function capRules(
  documents: readonly { readonly place: SettingsPlace; readonly document: SettingsDocument }[],
  warn: (line: string) => void,
): readonly LoadedRule[] {
  const counts = { checked: 0, prompt: 0 };
  const rules: LoadedRule[] = [];
  for (const { place, document } of documents) {
    for (const rule of document.rules) {
      const group = isChecked(rule.kind) ? "checked" : "prompt";
      counts[group] += 1;
      if (counts[group] > MAX_RULES_PER_GROUP) {
        warn(
          `${place.path}: rule ${rule.id} is left out, it is past the first ${MAX_RULES_PER_GROUP} ${group} rules`,
        );
      } else {
        rules.push({ ...rule, layer: place.layer, source: place.path });
      }
    }
  }
  return rules;
}

function lastOf<T>(values: readonly (T | undefined)[]): T | undefined {
  return values.findLast((value) => value !== undefined);
}
