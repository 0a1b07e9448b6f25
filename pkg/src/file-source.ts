/** Where a checkpoint's files come from: a base URL, or an object of files. */

import { isTinyloomError } from "./error.js";
import { corrupt, type FilePart } from "./file-part.js";
import { arrived } from "./firefox.js";
import { stored } from "./internal.js";
import { morePart } from "./lazy.js";
import {
  abortSignal,
  callback,
  called,
  flag,
  inspect,
  invalid,
  isA,
  type Rules,
  show,
} from "./options.js";
import { baseAddress } from "./page-address.js";

/** Bytes of a config at most, as in the module. */
export const CONFIG_BYTES = 1 << 20;

/**
 * The content of one checkpoint file. A `File` is a `Blob`; of a handle the file is read as it is at the call.
 * Bytes are not copied: they must not change until the call's promise settles.
 */
export type FileContent = Blob | ArrayBuffer | Uint8Array | FileSystemFileHandle;

/** Checkpoint files by name, as `save()` returns them and as a file input can be turned into. */
export type CheckpointFiles = { readonly [name: string]: FileContent };

/** How far a long operation has come. */
export interface Progress {
  /** Units done: bytes, unless the operation says otherwise. */
  readonly loaded: number;
  /** Units in all; 0 while unknown. */
  readonly total: number;
  /** What is being done, such as `"download model.safetensors"`, which includes the upload, or `"upload"`. */
  readonly stage: string;
}

/** Options of operations that take long. */
export interface LongOptions {
  /**
   * Called as the work goes on. An error it throws ends the operation, and so does a promise of it that fails before the
   * end. In a worker the operation also waits for these promises.
   */
  onProgress?: (progress: Progress) => void;
  /** Ends the operation with code "aborted"; the object stays as it was. */
  signal?: AbortSignal;
}

/** Options of what loads files from the web. */
export interface LoadOptions extends LongOptions {
  /**
   * Keeps files of a URL in the browser's cache storage, under the name `tinyloom`, and takes them from
   * there the next time. Default false. Without such a storage, as in Node, files are loaded each time.
   */
  cache?: boolean;
}

/** Rules of {@link LongOptions}. */
export const LONG: Rules<LongOptions> = { onProgress: callback, signal: abortSignal };
/** Rules of {@link LoadOptions}. */
export const LOAD: Rules<LoadOptions> = { ...LONG, cache: flag };

/** What a promise of `onProgress` has failed with, by the call's options. */
const failures = new WeakMap<LongOptions, () => never>();

/** Tells of progress; what the callback throws ends the operation, and so does a promise of it that fails. */
export function report(options: LongOptions, progress: Progress): void {
  called("onProgress", () => {
    failures.get(options)?.();
    const given = options.onProgress?.(progress) as Promise<void> | undefined;
    given?.catch?.((cause) => {
      failures.set(options, () => {
        throw cause;
      });
    });
  });
}

/** Ends an operation that has told of its last progress: in a page it does not wait for a promise that goes on. */
export async function reported(options: LongOptions): Promise<void> {
  await undefined;
  called("onProgress", () => failures.get(options)?.());
}

/** Gives files by name; undefined when there is none of that name. */
export interface Source {
  /** @param most - bytes beyond which the file will be refused anyway. */
  find(name: string, most?: number): Promise<FilePart | undefined>;
  /** A file's name as messages have it. */
  place(name: string): string;
}

/** The files of `fromPretrained` and `resume`. */
export function openSource(where: string, source: unknown, options: LoadOptions): Source {
  return inspect(where, () => opened(where, source, options));
}

function opened(where: string, source: unknown, options: LoadOptions): Source {
  const run = stored.find(source);
  if (run) return run.source();
  if (typeof source === "string" || source instanceof URL) {
    return new UrlFiles(baseUrl(where, source), options);
  }
  if (typeof source === "object" && source !== null && !isContent(source)) {
    return new ObjectSource(where, source as CheckpointFiles);
  }
  throw invalid(
    `${where} takes a base URL (in Node also of a folder, file:…), or an object of files such as { "config.json": …, ` +
      `"model.safetensors": … }, not ${show(source)}`,
  );
}

/** A URL made whole by the page's. */
export function wholeUrl(where: string, source: string | URL, otherwise = ""): URL {
  const page = baseAddress();
  try {
    return new URL(source, page);
  } catch {
    throw invalid(
      `${where}: ${show(String(source))} is not a URL, and outside a page it has to be a whole one: ` +
        `https:…, in Node also file:… (pathToFileURL makes one of a path)${otherwise}`,
    );
  }
}

/** The folder that a URL names. */
function baseUrl(where: string, source: string | URL): URL {
  const base = wholeUrl(where, source, "; or give an object of files");
  if (!base.pathname.endsWith("/")) base.pathname += "/";
  return base;
}

function isContent(value: unknown): value is FileContent {
  return (
    value instanceof Blob ||
    value instanceof ArrayBuffer ||
    value instanceof Uint8Array ||
    isFile(value)
  );
}

/** Whether the value is a handle of a file, as pickers and the origin's private file system give. */
export function isFile(value: unknown): value is FileSystemFileHandle {
  return typeof (value as Partial<FileSystemFileHandle> | null)?.getFile === "function";
}

class ObjectSource implements Source {
  readonly #where: string;
  readonly #files: CheckpointFiles;

  constructor(where: string, files: CheckpointFiles) {
    this.#where = where;
    this.#files = files;
  }

  place(name: string): string {
    return name;
  }

  async find(name: string): Promise<FilePart | undefined> {
    const content = inspect(`${this.#where}: "${name}"`, () => this.#content(name));
    if (content === undefined) return undefined;
    if (isFile(content)) {
      const file: unknown = await readable(name, () => content.getFile());
      if (isA(file, Blob)) return blobPart(name, name, file);
      throw corrupt(`${name} is a handle that gave ${show(file)}, and no File; give another`);
    }
    if (content instanceof Blob) return blobPart(name, name, content);
    return readable(name, () => bytesPart(name, content));
  }

  #content(name: string): FileContent | undefined {
    const content: unknown = Object.hasOwn(this.#files, name) ? this.#files[name] : undefined;
    if (content === undefined || isContent(content)) return content;
    throw invalid(
      `${this.#where}: "${name}" is ${show(content)}; give a Blob, File, file handle, ArrayBuffer or Uint8Array`,
    );
  }
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

function bytesPart(name: string, content: ArrayBuffer | Uint8Array): FilePart {
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
  return { name, place: name, remote: false, size, read };
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

/** A folder on the web, or on Node's disk. What reads it is loaded with the first file. */
class UrlFiles implements Source {
  readonly #base: URL;
  readonly #options: LoadOptions;

  constructor(base: URL, options: LoadOptions) {
    this.#base = base;
    this.#options = options;
  }

  place(name: string): string {
    return this.#url(name).href;
  }

  #url(name: string): URL {
    const url = new URL(this.#base);
    url.pathname += name;
    return url;
  }

  async find(name: string, most?: number): Promise<FilePart | undefined> {
    const { findFile } = await morePart();
    return findFile(name, this.#url(name), this.#options, most);
  }
}
