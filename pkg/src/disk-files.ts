/** Checkpoint files on Node's disk, which are read piece by piece. */

import { corrupt, type FilePart, readable } from "./file-part.js";
import { fileSystem } from "./node.js";
import { show } from "./options.js";

/** A file of the disk by its `file:` URL; undefined where there is none. */
export async function findOnDisk(name: string, url: URL): Promise<FilePart | undefined> {
  const fs = await fileSystem();
  try {
    const { size } = await fs.stat(url);
    const read = (begin: number, end: number) =>
      readable(url.href, () => readPiece(fs, url, begin, end));
    return { name, place: url.href, remote: false, size, read };
  } catch (cause) {
    if ((cause as { code?: unknown }).code === "ENOENT") return undefined;
    throw corrupt(`${url.href} could not be read: ${show(cause)}`, cause);
  }
}

async function readPiece(
  fs: Awaited<ReturnType<typeof fileSystem>>,
  url: URL,
  begin: number,
  end: number,
): Promise<Uint8Array> {
  const piece = new Uint8Array(end - begin);
  const file = await fs.open(url);
  try {
    for (let done = 0; done < piece.length; ) {
      const { bytesRead } = await file.read(piece, done, piece.length - done, begin + done);
      if (bytesRead === 0) throw corrupt(`${url.href} ended before byte ${end}`);
      done += bytesRead;
    }
    return piece;
  } finally {
    await file.close();
  }
}
