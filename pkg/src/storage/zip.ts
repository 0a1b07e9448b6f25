/** Zip archives without compression, which weights do not need, and without zip64 (APPNOTE.TXT 6.3.10). */

import { crc32 } from "../crc32.js";
import { arrived } from "../firefox.js";
import { awaited, inspect, invalid, isA, object, show } from "../options.js";
import { Zip, type ZipInputFile } from "./fflate.js";

const CENTRAL = 0x02014b50;
const END = 0x06054b50;
const PIECE = 8 << 20;
/** What 32 bits hold. */
const MOST = 0xffff_ffff;
/** What 16 bits hold, of a name's bytes; as a number of files it means a zip64 archive. */
const MOST_SHORT = 0xffff;
/** Bytes of a file beside its content and its name, which comes twice: header, descriptor, entry of the list. */
const HEADERS = 30 + 16 + 46;
/** Bytes after the list. */
const END_BYTES = 22;
/** The earliest time that an archive can have: one of the same files has the same bytes. */
const MTIME = new Date(1980, 0, 1);

async function sumOf(blob: Blob): Promise<number> {
  let sum = 0;
  for (let at = 0; at < blob.size; at += PIECE) {
    sum = crc32(new Uint8Array(await blob.slice(at, at + PIECE).arrayBuffer()), sum);
  }
  return sum;
}

/** How many bytes a file's name takes. */
function pathBytes(name: string): number {
  const path = new TextEncoder().encode(name);
  const whole = !/\p{Surrogate}|\/$/u.test(name);
  if (whole && path.length > 0 && path.length <= MOST_SHORT) return path.length;
  throw invalid(
    `zip: ${show(name)}, a name of ${path.length} bytes, cannot be a file's; give 1 to ${MOST_SHORT} bytes of whole ` +
      "characters that do not end with /",
  );
}

/**
 * A zip archive of files, without compression: weights have nothing to compress.
 *
 * @param files - Blobs or bytes by name, such as those of `adapter.save()`; at most 4 GiB in all, and 65,534 files.
 * @throws {@link TinyloomError} `invalid-options`, also of a name that no archive can have, and of a file that cannot be read.
 *
 * @example
 * ```ts
 * const blob = await zip(await adapter.save());
 * ```
 */
export async function zip(files: { readonly [name: string]: Blob | Uint8Array }): Promise<Blob> {
  const given: [string, unknown][] = inspect("zip", () => {
    if (object(files)) throw invalid(`zip takes a plain object of files, not ${show(files)}`);
    return Object.entries(files);
  });
  const blobs = given.map(([name, content]): [string, Blob] => [
    name,
    inspect(`zip: ${name}`, () => blobOf(name, content)),
  ]);
  return writeZip(Object.fromEntries(blobs));
}

/** A file's content as a Blob of the platform's own; what only looks like a Blob or bytes throws. */
function blobOf(name: string, content: unknown): Blob {
  if (isA(content, Blob)) return Blob.prototype.slice.call(content.slice());
  // A view of an array that others may write is copied.
  if (isA(content, Uint8Array)) return new Blob([Uint8Array.from(content)]);
  throw invalid(`zip: ${name} is ${show(content)}; give a Blob or a Uint8Array`);
}

/** An archive of these files. Their bytes are read once for the checksums, and not kept. */
export async function writeZip(files: { readonly [name: string]: Blob }): Promise<Blob> {
  const given = Object.entries(files);
  if (given.length >= MOST_SHORT) {
    throw invalid(
      `zip: ${given.length} files are given, and an archive holds at most ${MOST_SHORT - 1}`,
    );
  }
  const sizes = given.map(([name, { size }]) => HEADERS + 2 * pathBytes(name) + size);
  const total = sizes.reduce((sum, size) => sum + size, END_BYTES);
  if (total > MOST) {
    throw invalid(
      `a zip holds at most 4 GiB, and these files have ${total} bytes; export the files instead`,
    );
  }
  const parts: BlobPart[] = [];
  /** The file's own bytes that are on their way through the writer, and the part of its Blob that has them. */
  let passing: { readonly bytes: Uint8Array; readonly part: Blob } | undefined;
  const writer = new Zip((error, bytes) => {
    if (error) throw error;
    parts.push(bytes === passing?.bytes ? passing.part : (bytes as Uint8Array<ArrayBuffer>));
  });
  for (const [filename, blob] of given) {
    const file: ZipInputFile = { filename, size: blob.size, crc: 0, compression: 0, mtime: MTIME };
    writer.add(file);
    const pass = (bytes: Uint8Array<ArrayBuffer>, final: boolean) =>
      file.ondata?.(null, bytes, final);
    await awaited(`zip: reading ${filename}`, async () => {
      for (let at = 0; at < blob.size; at += PIECE) {
        const part = blob.slice(at, at + PIECE);
        const bytes = new Uint8Array(await part.arrayBuffer());
        file.crc = crc32(bytes, file.crc);
        passing = { bytes, part };
        pass(bytes, false);
      }
    });
    pass(new Uint8Array(0), true);
  }
  writer.end();
  return new Blob(parts, { type: "application/zip" });
}

/** The files of an archive that {@link writeZip} made, or another program without compression. */
export async function readZip(given: Blob): Promise<{ [name: string]: Blob }> {
  const zip = await arrived(given);
  const view = async (begin: number, length: number) =>
    new DataView(await zip.slice(begin, begin + length).arrayBuffer());
  const tailAt = Math.max(0, zip.size - 65_557);
  const tail = await view(tailAt, 65_557);
  let end = tail.byteLength - END_BYTES;
  while (end >= 0 && tail.getUint32(end, true) !== END) end -= 1;
  if (end < 0) throw invalid("runs.import: this is no zip archive, or its end is missing");
  const [count, same] = [tail.getUint16(end + 10, true), tail.getUint16(end + 8, true)];
  const central = await view(tail.getUint32(end + 16, true), tail.getUint32(end + 12, true));
  const files: { [name: string]: Blob } = {};
  const damaged = (cause?: unknown) =>
    invalid("runs.import: the zip's list of files is damaged", "invalid-checkpoint", cause);
  try {
    let at = 0;
    for (let index = 0; index < count; index++) {
      if (central.getUint32(at, true) !== CENTRAL) throw damaged();
      const [method, sum] = [central.getUint16(at + 10, true), central.getUint32(at + 16, true)];
      const size = central.getUint32(at + 24, true);
      const [name, extra, comment] = [28, 30, 32].map((one) =>
        central.getUint16(at + one, true),
      ) as [number, number, number];
      const path = new TextDecoder().decode(new Uint8Array(central.buffer, at + 46, name));
      const local = central.getUint32(at + 42, true);
      at += 46 + name + extra + comment;
      if (path.endsWith("/")) continue;
      if (method !== 0) throw invalid(`runs.import: ${path} is compressed; store it uncompressed`);
      const head = await view(local, 30);
      const begin = local + 30 + head.getUint16(26, true) + head.getUint16(28, true);
      const blob = zip.slice(begin, begin + size);
      if ((await sumOf(blob)) !== sum) throw invalid(`runs.import: ${path} is damaged in the zip`);
      const own = path.split("/").at(-1) as string;
      if (files[own]) throw invalid(`runs.import: the zip has ${show(own)} twice`);
      files[own] = blob;
    }
    if (at !== central.byteLength || count !== same) throw damaged();
  } catch (error) {
    throw error instanceof RangeError ? damaged(error) : error;
  }
  return files;
}
