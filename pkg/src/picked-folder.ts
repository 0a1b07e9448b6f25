/** Files that a page's visitor has picked: in a list, or in a folder that the page has a handle of. */

import { blobPart, corrupt, type FilePart, readable, type Source } from "./file-part.js";
import { noSource, ofFiles } from "./file-source.js";
import { inspect, show } from "./options.js";
import { byPath } from "./picked-files.js";

/**
 * The files as a checkpoint has them.
 *
 * @param source - what the caller gave, for the message.
 * @param given - a list, or the handle.
 */
export function openPicked(where: string, source: object, given: object): Source {
  if (!Array.isArray(given)) return folderOf(given as FileSystemDirectoryHandle);
  const files = inspect(where, () => byPath(given));
  if (!files) throw noSource(where, source);
  return ofFiles(where, files);
}

const folderOf = (folder: FileSystemDirectoryHandle): Source => ({
  place: (name) => `${folder.name}/${name}`,
  find: (name) => findIn(folder, name),
});

/** A file of the folder; undefined where there is none of that name. */
async function findIn(
  folder: FileSystemDirectoryHandle,
  name: string,
): Promise<FilePart | undefined> {
  const place = `${folder.name}/${name}`;
  try {
    const handle = await folder.getFileHandle(name);
    const file = await readable(place, () => handle.getFile());
    return blobPart(name, place, file);
  } catch (cause) {
    if ((cause as { name?: unknown } | null)?.name === "NotFoundError") return undefined;
    throw corrupt(`${place} could not be read: ${show(cause)}; pick the folder again`, cause);
  }
}
