/** Files that are read in parts. */

import { isTinyloomError, TinyloomError } from "./error.js";
import { arrived } from "./firefox.js";
import { show } from "./options.js";

/** A file, to be read in parts. */
export interface FilePart {
  readonly name: string;
  /** The name as messages have it: of a file from the network, its whole URL. */
  readonly place: string;
  /** Whether its bytes come from the network. */
  readonly remote: boolean;
  readonly size: number;
  /** Whether its bytes are in memory: reading them ahead gains nothing, and they may be gone when their turn comes. */
  readonly here?: true;
  /** The bytes from `begin` to `end`. Reading forward is cheapest. */
  read(begin: number, end: number): Promise<Uint8Array>;
  /** Takes bytes back that `read` gave: a later read may lie in their memory. */
  reuse?(bytes: Uint8Array): void;
  /** Gives back what reading holds, such as a connection; a later read opens it again. */
  rest?(): void;
  /**
   * The numbers of such bytes of one tensor, in f32, as they lie in blocks; undefined where its file has it in another
   * way. Absent where no tensor is in blocks.
   */
  blocks?(begin: number, end: number): Promise<Blocks | undefined>;
}

/** Blocks of ggml of 32 numbers, each its code times the block's factor. */
export interface Blocks {
  /** The number of their type in ggml. */
  readonly type: number;
  readonly bytes: Uint8Array;
}

/** A failure of a checkpoint's content. */
export function corrupt(message: string, cause?: unknown): TinyloomError {
  return new TinyloomError("invalid-checkpoint", message, { cause });
}

/** Bytes of a config at most, as in the module. */
export const CONFIG_BYTES = 1 << 20;

/**
 * The content of one checkpoint file. A `File` is a `Blob`; of a handle the file is read as it is at the call.
 * Bytes are not copied: they must not change until the call's promise settles.
 */
export type FileContent = Blob | ArrayBuffer | Uint8Array | FileSystemFileHandle;

/** Checkpoint files by name, as `save()` returns them and as a file input can be turned into. */
export type CheckpointFiles = { readonly [name: string]: FileContent };

/**
 * A folder's files as a page gets them: those of an `<input type="file" webkitdirectory>` or of a drop, by the path or name
 * of each, or the handle of `showDirectoryPicker()`.
 */
export type PickedFiles = ArrayLike<File> | FileSystemDirectoryHandle;

/**
 * Where a checkpoint is: a base URL, under which its files lie; an object of files by name; the files of a picked folder;
 * or one GGUF file, by its URL or as it is.
 */
export type CheckpointSource = string | URL | CheckpointFiles | PickedFiles | FileContent;

/** Gives files by name; undefined when there is none of that name. */
export interface Source {
  /** @param most - bytes beyond which the file will be refused anyway. */
  find(name: string, most?: number): Promise<FilePart | undefined>;
  /** A file's name as messages have it. */
  place(name: string): string;
  /** The address that the caller gave, where it is one. */
  readonly asked?: string | URL;
  /** Names of all files, where they are known. */
  names?(): readonly string[] | undefined;
}

/** Whether the value is a handle of a file, as pickers and the origin's private file system give. */
export function isFile(value: unknown): value is FileSystemFileHandle {
  return typeof (value as Partial<FileSystemFileHandle> | null)?.getFile === "function";
}

/** Reads of a file of the caller's, which may have changed or gone since. */
export async function readable<T>(place: string, read: () => T | Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (cause) {
    if (isTinyloomError(cause)) throw cause;
    throw corrupt(`${place} could not be read: ${show(cause)}; give it again`, cause);
  }
}

export function bytesPart(name: string, content: ArrayBuffer | Uint8Array): FilePart {
  const bytes = content instanceof Uint8Array ? content : new Uint8Array(content);
  const size = bytes.length;
  const part = (begin: number, end: number) => {
    if (bytes.length === size) return bytes.subarray(begin, end);
    throw corrupt(
      `${name} had ${size} bytes and now has ${bytes.length}: its buffer was transferred or resized; ` +
        "bytes must stay as they are until the promise settles",
    );
  };
  const read = (begin: number, end: number) => readable(name, () => part(begin, end));
  return { name, place: name, remote: false, here: true, size, read };
}

/** A Blob as a file. */
export function blobPart(name: string, place: string, blob: Blob): FilePart {
  let whole: Promise<Blob> | undefined;
  const read = (begin: number, end: number) =>
    readable(place, async () => {
      whole ??= arrived(blob);
      return new Uint8Array(await (await whole).slice(begin, end).arrayBuffer());
    });
  return { name, place, remote: false, size: blob.size, read };
}
