/** Where a checkpoint's files come from: a base URL, or an object of files. */

import { throwIfAborted, toError } from "./error.js";
import { fileSystem, inNode } from "./node.js";
import { called, invalid, show } from "./options.js";
import { corrupt, type FilePart } from "./safetensors.js";

/** The content of one checkpoint file. A `File` is a `Blob`. */
export type FileContent = Blob | ArrayBuffer | Uint8Array;

/** Checkpoint files by name, as `save()` returns them and as a file input can be turned into. */
export type CheckpointFiles = { readonly [name: string]: FileContent };

/** How far a long operation has come. */
export interface Progress {
  /** Units done: bytes, unless the operation says otherwise. */
  readonly loaded: number;
  /** Units in all; 0 while unknown. */
  readonly total: number;
  /** What is being done, such as `"download model.safetensors"` or `"upload"`. */
  readonly stage: string;
}

/** Options of operations that take long. */
export interface LongOptions {
  /** Called as the work goes on. An error it throws ends the operation. */
  onProgress?: (progress: Progress) => void;
  /** Ends the operation with code "aborted"; the object stays as it was. */
  signal?: AbortSignal;
}

/** Tells of progress; what the callback throws ends the operation. */
export function report(options: LongOptions, progress: Progress): void {
  called("onProgress", () => options.onProgress?.(progress));
}

/** Gives files by name; undefined when there is none of that name. */
export interface Source {
  find(name: string): Promise<FilePart | undefined>;
}

/** The files of `fromPretrained` and `resume`. */
export function openSource(where: string, source: unknown, options: LongOptions): Source {
  if (typeof source === "string" || source instanceof URL) {
    const base = baseUrl(where, source);
    return base.protocol === "file:" && inNode()
      ? new FileSource(base)
      : new UrlSource(base, options);
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
  const page = typeof location === "object" ? location.href : undefined;
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

/** The file, or an error that names it. */
export async function required(source: Source, name: string): Promise<FilePart> {
  const file = await source.find(name);
  if (!file) throw corrupt(`${name} is missing; a checkpoint needs it`);
  return file;
}

/** The text of a small file. */
export async function readText(file: FilePart): Promise<string> {
  return new TextDecoder().decode(await file.read(0, file.size));
}

/** The weight files: one, or the shards that an index names. */
export async function weightFiles(source: Source): Promise<FilePart[]> {
  const single = await source.find("model.safetensors");
  if (single) return [single];
  const index = await source.find("model.safetensors.index.json");
  if (!index) {
    throw corrupt(
      "there is neither model.safetensors nor model.safetensors.index.json; a checkpoint needs one of them",
    );
  }
  const names = shardNames(await readText(index));
  const files: FilePart[] = [];
  for (const name of names) files.push(await required(source, name));
  return files;
}

/** Names of the shards in an index, checked: they come from outside and become part of a URL. */
function shardNames(text: string): string[] {
  let map: unknown;
  try {
    map = (JSON.parse(text) as { weight_map?: unknown } | null)?.weight_map;
  } catch (cause) {
    throw corrupt(`model.safetensors.index.json is not JSON: ${toError(cause).message}`, cause);
  }
  if (typeof map !== "object" || map === null || Array.isArray(map)) {
    throw corrupt(
      'model.safetensors.index.json has no "weight_map" object of tensor to file names',
    );
  }
  const names = new Set<string>();
  for (const [tensor, name] of Object.entries(map)) {
    if (typeof name !== "string" || !/^[\w.-]+\.safetensors$/.test(name)) {
      throw corrupt(
        `model.safetensors.index.json maps ${tensor} to ${show(name)}; ` +
          "a shard is a plain file name that ends in .safetensors",
      );
    }
    names.add(name);
  }
  if (names.size === 0) throw corrupt("model.safetensors.index.json names no shard");
  return [...names].sort();
}

function isContent(value: unknown): value is FileContent {
  return value instanceof Blob || value instanceof ArrayBuffer || value instanceof Uint8Array;
}

class ObjectSource implements Source {
  readonly #where: string;
  readonly #files: CheckpointFiles;

  constructor(where: string, files: CheckpointFiles) {
    this.#where = where;
    this.#files = files;
  }

  async find(name: string): Promise<FilePart | undefined> {
    const content: unknown = Object.hasOwn(this.#files, name) ? this.#files[name] : undefined;
    if (content === undefined) return undefined;
    if (!isContent(content)) {
      throw invalid(
        `${this.#where}: "${name}" is ${show(content)}; give a Blob, File, ArrayBuffer or Uint8Array`,
      );
    }
    if (content instanceof Blob) return blobPart(name, content);
    return readable(name, () => bytesPart(name, content));
  }
}

/** Reads of a file of the caller's, which may have changed or gone since. */
async function readable<T>(name: string, read: () => T | Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (cause) {
    throw corrupt(`${name} could not be read: ${show(cause)}; give it anew`, cause);
  }
}

function bytesPart(name: string, content: ArrayBuffer | Uint8Array): FilePart {
  const bytes = content instanceof Uint8Array ? content : new Uint8Array(content);
  return { name, size: bytes.length, read: async (begin, end) => bytes.subarray(begin, end) };
}

function blobPart(name: string, blob: Blob): FilePart {
  return {
    name,
    size: blob.size,
    read: (begin, end) =>
      readable(name, async () => new Uint8Array(await blob.slice(begin, end).arrayBuffer())),
  };
}

/** A folder on Node's disk. Files are read piece by piece. */
class FileSource implements Source {
  readonly #base: URL;

  constructor(base: URL) {
    this.#base = base;
  }

  async find(name: string): Promise<FilePart | undefined> {
    const fs = await fileSystem();
    const url = new URL(encodeURIComponent(name), this.#base);
    try {
      const { size } = await fs.stat(url);
      return { name, size, read: (begin, end) => readPiece(fs, url, begin, end) };
    } catch (cause) {
      if ((cause as { code?: unknown }).code === "ENOENT") return undefined;
      throw corrupt(`${url.href} could not be read: ${toError(cause).message}`, cause);
    }
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

class UrlSource implements Source {
  readonly #base: URL;
  readonly #options: LongOptions;

  constructor(base: URL, options: LongOptions) {
    this.#base = base;
    this.#options = options;
  }

  /** Fetches into a Blob, which a browser may keep on disk. */
  async find(name: string): Promise<FilePart | undefined> {
    const { signal } = this.#options;
    throwIfAborted(signal, "loading");
    const url = new URL(this.#base);
    url.pathname += name;
    try {
      const response = await fetch(url, signal ? { signal } : {});
      if (response.status === 404) return undefined;
      if (!response.ok) {
        throw corrupt(`${url.href} answered ${response.status} ${response.statusText}`);
      }
      return blobPart(name, await this.#download(name, response));
    } catch (cause) {
      throwIfAborted(signal, "loading");
      const error = toError(cause);
      if (error.code !== "internal") throw error;
      throw corrupt(`${url.href} could not be fetched: ${error.message}`, cause);
    }
  }

  async #download(name: string, response: Response): Promise<Blob> {
    const options = this.#options;
    if (!options.onProgress || !response.body) return response.blob();
    // With a content encoding, the stated length is not that of the bytes that arrive.
    const encoded = response.headers.has("content-encoding");
    const total = encoded ? 0 : Number(response.headers.get("content-length") ?? 0);
    let loaded = 0;
    const counter = new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        loaded += chunk.length;
        report(options, { loaded, total, stage: `download ${name}` });
        controller.enqueue(chunk);
      },
    });
    return new Response(response.body.pipeThrough(counter)).blob();
  }
}
