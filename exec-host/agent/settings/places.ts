import { readdir, realpath } from "node:fs/promises";
import { basename, dirname, join, sep } from "node:path";
import type { SettingsLayer, SettingsScope } from "../seams.ts";

/** Name of the settings folder in a home or a project. */
const FOLDER = ".hoody";
const MAX_PROFILES = 1000;
const LAYERS_OF_A_FOLDER = [
  ["project", "settings.json"],
  ["local", "settings.local.json"],
] as const;

/** One settings file of a scope. */
export interface SettingsPlace {
  readonly layer: SettingsLayer;
  /** As it is shown to callers. */
  readonly path: string;
  /** Where it is opened: the folders resolved, the file itself not, so that a link in its place is seen as one. */
  readonly realPath: string;
  /** The real location, the file itself resolved too, belongs to another realm's profile: the file is never read. */
  readonly foreign: boolean;
}

/** Where the settings of a scope are. */
export interface SettingsPlaces {
  /** In load order. Layers that the scope does not have are absent. */
  readonly places: readonly SettingsPlace[];
  /** The realm's profile folder: acknowledgements live there, outside every repository. */
  readonly profile: string;
  /** Real folder whose files trust speaks of; null where only the profile counts. */
  readonly trustFolder: string | null;
  /** Where `exec_trust` is kept: the `user` file, or the override's settings.json (decision 54). */
  readonly execTrust: SettingsPlace | undefined;
  readonly overridden: boolean;
}

/** The profile folder of a realm. */
function profileFolder(home: string, realm: string): string {
  return realm === "global" ? join(home, FOLDER) : join(home, FOLDER, "realms", realm);
}

/**
 * Finds the settings files of a scope and resolves their real locations.
 *
 * A working directory that is the home has no project layers (decision 54), and neither has one whose settings folder is
 * the realm's own profile in disguise.
 */
export async function findPlaces(scope: SettingsScope): Promise<SettingsPlaces> {
  const profile = profileFolder(scope.home, scope.realm);
  const isForeign = await foreignTest(scope);
  const place = async (layer: SettingsLayer, path: string): Promise<SettingsPlace> => {
    const realPath = await openLocation(path);
    const foreign = isForeign(realPath) || isForeign(await realLocation(path));
    return { layer, path, realPath, foreign };
  };
  if (scope.configDir !== null) {
    const project = await place("project", join(scope.configDir, "settings.json"));
    const local = await place("local", join(scope.configDir, "settings.local.json"));
    return {
      places: [project, local],
      profile,
      trustFolder: await realLocation(scope.configDir),
      execTrust: { ...project, layer: "user" },
      overridden: true,
    };
  }
  const user = await place("user", join(profile, "settings.json"));
  const places = [user];
  let trustFolder: string | null = null;
  if (scope.cwd !== null) {
    const folder = join(scope.cwd, FOLDER);
    const [realFolder, realProfile, realCwd, realHome] = await Promise.all([
      realLocation(folder),
      realLocation(profile),
      realLocation(scope.cwd),
      realLocation(scope.home),
    ]);
    const atHome = scope.realm === "global" && realCwd === realHome;
    if (!atHome && realFolder !== realProfile) {
      // a folder that holds the home holds the global profile: for a scoped realm its settings are another realm's
      const holdsGlobal = scope.realm !== "global" && isWithin(realHome, realCwd);
      for (const [layer, name] of LAYERS_OF_A_FOLDER) {
        const found = await place(layer, join(folder, name));
        places.push({ ...found, foreign: found.foreign || holdsGlobal });
      }
      trustFolder = realFolder;
    }
  }
  return { places, profile, trustFolder, execTrust: user, overridden: false };
}

/**
 * Resolves as much of a path as exists. A dangling link stays unresolved: opening it without following links then
 * fails.
 */
async function realLocation(path: string): Promise<string> {
  let head = path;
  let tail = "";
  for (;;) {
    try {
      return tail === "" ? await realpath(head) : join(await realpath(head), tail);
    } catch {
      const parent = dirname(head);
      if (parent === head) {
        return path;
      }
      tail = tail === "" ? basename(head) : join(basename(head), tail);
      head = parent;
    }
  }
}

/** A file's path with its folder resolved and its own name left as it is: what is opened without following links. */
export async function openLocation(path: string): Promise<string> {
  return join(await realLocation(dirname(path)), basename(path));
}

function isWithin(path: string, folder: string): boolean {
  return path === folder || path.startsWith(folder.endsWith(sep) ? folder : folder + sep);
}

/** A test for real locations in a profile other than the scope's own. */
async function foreignTest(scope: SettingsScope): Promise<(path: string) => boolean> {
  const root = await realLocation(join(scope.home, FOLDER));
  const realms = await realLocation(join(scope.home, FOLDER, "realms"));
  const names = await readdir(realms).catch(() => []); // no profiles of realms, or nothing we may list
  const others = await Promise.all(
    names
      .slice(0, MAX_PROFILES)
      .filter((name) => name !== scope.realm)
      .map((name) => realLocation(join(realms, name))),
  );
  const own = join(realms, scope.realm);
  return (path) => {
    if (others.some((folder) => isWithin(path, folder))) {
      return true;
    }
    if (scope.realm === "global") {
      return isWithin(path, realms);
    }
    return (isWithin(path, root) || isWithin(path, realms)) && !isWithin(path, own);
  };
}
