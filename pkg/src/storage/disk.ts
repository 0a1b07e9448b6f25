/** Where runs are kept: files by path, on whichever storage there is. */

import { crc32, hex } from "../crc32.js";
import { isTinyloomError, TinyloomError } from "../error.js";
import type { FilePart } from "../file-part.js";
import { show } from "../options.js";
import { damaged } from "../tensor-sum.js";

/** Names of the folders from the root on, and of the file. */
export type Path = readonly string[];

/** What keeps runs: the origin-private file system, a folder of the disk, or this page's memory. */
export type Where = "origin-private" | "folder" | "memory";

/** A file being written. */
export interface Writing {
  write(bytes: Uint8Array, at: number): Promise<void> | void;
  /** Settles when what was written is on the disk, as far as the storage can tell. */
  flush(): Promise<void> | void;
  close(): Promise<void> | void;
}

/** One kind of storage. */
export interface Disk {
  readonly where: Where;
  /** Names in a folder; none where it is absent. */
  names(path: Path): Promise<string[]>;
  /** A file to be read in parts; undefined where it is absent. */
  find(path: Path): Promise<FilePart | undefined>;
  /** A file's content, which is read from the storage when it is needed. */
  blob(path: Path): Promise<Blob>;
  /** Opens a file for writing: a new one, or with `keep` one whose bytes stay. */
  create(path: Path, keep?: boolean): Promise<Writing>;
  /** Removes a file, or a folder with all in it. */
  remove(path: Path): Promise<void>;
  /** Bytes that there is still room for; undefined where that is not known. */
  room(): Promise<number | undefined>;
  /** Keeps others off a run until the function that it gives is called; undefined where one has it. */
  lock(name: string): Promise<(() => Promise<void>) | undefined>;
}

/** Bytes that are read, or checked, at a time. */
export const PIECE = 8 << 20;

/** Words an error of the storage, and gives it the code that programs look for. */
export async function storing<T>(what: string, work: () => Promise<T> | T): Promise<T> {
  try {
    return await work();
  } catch (cause) {
    if (isTinyloomError(cause)) throw cause;
    const { name, code } = (cause ?? {}) as { name?: unknown; code?: unknown };
    if (name === "QuotaExceededError" || code === "ENOSPC" || code === "EDQUOT") {
      throw full(`${what}: there is no room left`, cause);
    }
    throw new TinyloomError(
      "invalid-options",
      `${what} could not be read or written: ${show(cause)}; it may have been deleted, or the page has lost ` +
        "its right to it: open the runs again",
      { cause },
    );
  }
}

/** Code "storage-full". */
export function full(message: string, cause?: unknown): TinyloomError {
  const cure = "delete other runs, or keep fewer checkpoints; what was stored before is unchanged";
  return new TinyloomError("storage-full", `${message}; ${cure}`, { cause });
}

/** Checksums of a file: of each {@link PIECE} of its bytes, CRC-32 in hexadecimal. */
export interface Sums {
  readonly size: number;
  readonly pieces: readonly string[];
}

/** Checksums of bytes that come one after the other. The first may come again. */
export class Summing {
  readonly #sums: number[] = [];
  #size = 0;

  add(bytes: Uint8Array): void {
    for (let done = 0; done < bytes.length; ) {
      const piece = Math.floor(this.#size / PIECE);
      const length = Math.min(bytes.length - done, (piece + 1) * PIECE - this.#size);
      this.#sums[piece] = crc32(bytes.subarray(done, done + length), this.#sums[piece]);
      this.#size += length;
      done += length;
    }
  }

  /** Takes the first piece's sum from its bytes. */
  restart(first: Uint8Array): void {
    this.#sums[0] = crc32(first);
  }

  get sums(): Sums {
    return { size: this.#size, pieces: this.#sums.map(hex) };
  }
}

/** Holds a file to its checksums; the error names the piece. */
export async function verify(what: string, file: FilePart | undefined, sums: Sums): Promise<void> {
  if (!file) throw new TinyloomError("invalid-checkpoint", `${what} is missing`);
  if (file.size !== sums.size) {
    const message = `${what} has ${file.size} bytes, and ${sums.size} were written; the file is damaged`;
    throw new TinyloomError("invalid-checkpoint", message);
  }
  for (const [at, stated] of sums.pieces.entries()) {
    const end = Math.min(sums.size, (at + 1) * PIECE);
    const found = hex(crc32(await file.read(at * PIECE, end)));
    if (found !== stated) throw damaged(`${what}, bytes ${at * PIECE} to ${end},`, found, stated);
  }
}

/** Writes a whole small file, flushed. */
export async function writeAll(disk: Disk, path: Path, bytes: Uint8Array): Promise<void> {
  const file = await disk.create(path);
  try {
    await file.write(bytes, 0);
    await file.flush();
  } finally {
    await file.close();
  }
}

/** Writes JSON with its checksum. */
export async function writeRecord(disk: Disk, path: Path, body: unknown): Promise<void> {
  const text = JSON.stringify(body);
  const sum = hex(crc32(new TextEncoder().encode(text)));
  await writeAll(disk, path, new TextEncoder().encode(`{"crc32":"${sum}","body":${text}}\n`));
}

/** JSON that was written with its checksum; undefined where it is absent or not whole. */
export async function readRecord<T>(disk: Disk, path: Path): Promise<T | undefined> {
  const file = await disk.find(path);
  if (!file) return undefined;
  const text = new TextDecoder().decode((await file.read(0, file.size)).slice());
  const [, sum, body] = /^\{"crc32":"([0-9a-f]{8})","body":(.*)\}\n$/s.exec(text) ?? [];
  if (body === undefined || hex(crc32(new TextEncoder().encode(body))) !== sum) return undefined;
  return JSON.parse(body) as T;
}
