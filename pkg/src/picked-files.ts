/** Files as pickers and drops give them: in a list, each with its name or its path. */

import type { CheckpointFiles, FileContent } from "./file-part.js";

/**
 * The files by name, or by their paths below the folder in which all lie. Hidden ones are left out.
 *
 * @returns undefined for anything else than a list of files.
 */
export function byPath(given: object): CheckpointFiles | undefined {
  const all = Array.from(given as Iterable<File>, (file) => {
    const { webkitRelativePath: path, name } = Object(file) as File;
    return [path || name, file] as const;
  });
  if (all.some(([path]) => typeof path !== "string")) return undefined;
  const files = all.filter(([path]) => !/(^|\/)\./.test(path));
  let folder = files[0]?.[0].replace(/[^/]*$/, "") ?? "";
  for (const [path] of files) {
    while (!path.startsWith(folder)) folder = folder.replace(/[^/]*\/$/, "");
  }
  return Object.fromEntries(
    files.map(([path, file]) => [path.slice(folder.length), file as FileContent]),
  );
}
