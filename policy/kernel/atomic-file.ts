import { open, rename, unlink } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { newHex } from "./ids.ts";

/**
 * Writes a whole file or nothing: temp file in the same folder, fsync, rename, fsync of the folder.
 * Readers see the old bytes or the new ones. On failure the temp file is removed and the old file stands.
 *
 * @param mode permission bits; 0o600 where the file holds secrets.
 */
export async function writeFileAtomic(
  path: string,
  data: string | Uint8Array,
  mode = 0o600,
): Promise<void> {
  const folder = dirname(path);
  const temp = join(folder, `.${basename(path)}.${newHex(6)}.tmp`);
  const file = await open(temp, "wx", mode);
  try {
    try {
      await file.writeFile(data);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(temp, path);
  } catch (cause) {
    await unlink(temp).catch(() => {}); // the temp file may be what failed; the first error is the one to report
    throw cause;
  }
  const directory = await open(folder, "r");
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}
