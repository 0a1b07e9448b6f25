/** A checkpoint as one file to download: a plain tar (ustar) archive, which any tool unpacks for transformers. */

import { TinyloomError } from "tinyloom/worker";

const BLOCK = 512;
const padded = (size: number): number => Math.ceil(size / BLOCK) * BLOCK;

function header(name: string, size: number): Uint8Array {
  const block = new Uint8Array(BLOCK);
  const put = (text: string, offset: number): void =>
    block.set(new TextEncoder().encode(text), offset);
  put(name, 0);
  put("0000644\0", 100);
  put("0000000\0", 108);
  put("0000000\0", 116);
  put(`${size.toString(8).padStart(11, "0")}\0`, 124);
  put("00000000000\0", 136);
  put(" ".repeat(8), 148);
  put("0", 156);
  put("ustar\0", 257);
  put("00", 263);
  const sum = block.reduce((total, byte) => total + byte, 0);
  put(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return block;
}

/** Packs files into an archive without copying their bytes. */
export function pack(files: Readonly<Record<string, Uint8Array<ArrayBuffer>>>): Blob {
  const parts: BlobPart[] = [];
  for (const [name, bytes] of Object.entries(files)) {
    parts.push(header(name, bytes.length).slice(), bytes);
    parts.push(new Uint8Array(padded(bytes.length) - bytes.length));
  }
  parts.push(new Uint8Array(2 * BLOCK));
  return new Blob(parts, { type: "application/x-tar" });
}

/** The files of an archive as slices of it. */
export async function unpack(archive: Blob): Promise<Record<string, Blob>> {
  const files: Record<string, Blob> = {};
  for (let offset = 0; offset + BLOCK <= archive.size; ) {
    const block = new Uint8Array(await archive.slice(offset, offset + BLOCK).arrayBuffer());
    const field = (from: number, length: number): string =>
      new TextDecoder().decode(block.subarray(from, from + length)).split("\0")[0]!;
    const name = field(0, 100);
    if (name === "") break;
    const size = Number.parseInt(field(124, 12), 8);
    if (field(257, 5) !== "ustar" || !(offset + BLOCK + size <= archive.size)) {
      throw new TinyloomError(
        "invalid-checkpoint",
        "this is no whole tar archive; load a checkpoint that this page saved",
      );
    }
    files[name] = archive.slice(offset + BLOCK, offset + BLOCK + size);
    offset += BLOCK + padded(size);
  }
  return files;
}
