/** Writes a checkpoint's files as they are read back: into memory, a directory, or streams. */

import { TinyloomError, throwIfAborted } from "./error.js";
import { filesPart } from "./lazy.js";
import { check, inspect, invalid, type Rules } from "./options.js";
import type { RawWriter } from "./raw.js";
import { readAhead, tensorSizes } from "./safetensors.js";
import { LONG, type LongOptions, report } from "./source.js";

/** Bytes of a tensor that are read back at a time. */
const PIECE = 8 << 20;

/**
 * Where files go: a directory of the user's disk or of the origin's private file system, or a stream
 * for each file by its name. Streams are closed when all files are written; if the save fails, they are
 * aborted, and a directory keeps the files it had.
 */
export type SaveTarget =
  | FileSystemDirectoryHandle
  | { readonly [name: string]: WritableStream<Uint8Array> };

/** Options of `save`. */
export interface SaveOptions extends LongOptions {
  /** Where to write; without it the files are returned as bytes. */
  to?: SaveTarget;
}

const SAVE: Rules<SaveOptions> = {
  ...LONG,
  to: (value) =>
    typeof value === "object" && value !== null
      ? undefined
      : 'a directory handle, or an object of WritableStreams such as { "config.json": … }',
};

/** One file on its way. */
export interface Out {
  write(bytes: Uint8Array): Promise<void> | void;
}

/** What a save writes to. */
export interface Target {
  open(name: string, size: number): Promise<Out> | Out;
  /** Ends well: from here on the files are what was written. */
  close(): Promise<void>;
  abort(cause: unknown): Promise<void>;
}

/** The files of one save, to be written one after the other. */
export class Files {
  readonly #options: LongOptions;
  readonly #target: Target;

  constructor(options: LongOptions, target: Target) {
    this.#options = options;
    this.#target = target;
  }

  /** A small file. */
  async text(name: string, text: string): Promise<void> {
    const bytes = new TextEncoder().encode(text);
    const out = await this.#target.open(name, bytes.length);
    await out.write(bytes);
  }

  /** A safetensors file, in pieces: neither it nor a tensor is ever whole in the module's memory. */
  async tensors(name: string, writer: RawWriter): Promise<void> {
    const header = writer.saveHeader();
    const sizes = tensorSizes(header);
    const promised = `the header of ${sizes.length} tensors`;
    if (writer.tensorCount() !== sizes.length) {
      throw new TinyloomError("internal", `${writer.tensorCount()} tensors against ${promised}`);
    }
    const total = sizes.reduce((sum, size) => sum + size, header.length);
    const out = await this.#target.open(name, total);
    let loaded = 0;
    const put = async (bytes: Uint8Array) => {
      throwIfAborted(this.#options.signal, "save");
      report(this.#options, { loaded, total, stage: `read ${name}` });
      await out.write(bytes);
      loaded += bytes.length;
    };
    await put(header);
    const pieces = sizes.flatMap((size, index) => cut(size).map((range) => ({ index, ...range })));
    const lengths = pieces.map(({ begin, end }) => end - begin);
    const read = (at: number) => {
      const { index, begin, end } = pieces[at] as { index: number; begin: number; end: number };
      return writer.readPiece(index, begin, end);
    };
    let at = 0;
    for await (const bytes of readAhead(lengths, read)) {
      if (bytes.length !== lengths[at]) {
        const { index, begin } = pieces[at] as { index: number; begin: number };
        const what = `${bytes.length} bytes of tensor ${index} from ${begin} on against ${promised}`;
        throw new TinyloomError("internal", what);
      }
      await put(bytes);
      at += 1;
    }
    report(this.#options, { loaded, total, stage: `read ${name}` });
  }
}

/** The pieces of a tensor of so many bytes. */
function cut(size: number): { begin: number; end: number }[] {
  return Array.from({ length: Math.ceil(size / PIECE) }, (_, at) => ({
    begin: at * PIECE,
    end: Math.min(size, (at + 1) * PIECE),
  }));
}

/** The options of a save of these files, and its streams, before anything is read or taken. */
export function saveOptions(options: SaveOptions, names: readonly string[]): SaveOptions {
  return inspect("save: to", () => {
    const chosen = check("save", options, SAVE);
    const { to } = chosen;
    if (to === undefined || isDirectory(to)) return chosen;
    const given = check("save: to", to, streams(names)) as typeof to;
    const missing = names.filter((name) => given[name] === undefined);
    if (missing.length > 0) {
      throw invalid(`save: to has no stream for ${missing.join(", ")}; give one for each file`);
    }
    return { ...chosen, to: given };
  });
}

function isDirectory(to: SaveTarget): to is FileSystemDirectoryHandle {
  return typeof (to as FileSystemDirectoryHandle).getFileHandle === "function";
}

/** Runs a save; gives the files where they are wanted as bytes. */
export async function saving<T>(
  options: SaveOptions,
  names: readonly string[],
  write: (files: Files) => Promise<void>,
): Promise<T> {
  const { to } = options;
  const memory = new Memory();
  const target = to === undefined ? memory : await (await filesPart()).openStreams(to, names);
  try {
    await write(new Files(options, target));
    await target.close();
  } catch (cause) {
    await target.abort(cause);
    throw cause;
  }
  return (to === undefined ? memory.files : undefined) as T;
}

class Memory implements Target {
  readonly files: { [name: string]: Uint8Array<ArrayBuffer> } = {};

  open(name: string, size: number): Out {
    const file = allocate(size);
    this.files[name] = file;
    let at = 0;
    return {
      write(bytes) {
        file.set(bytes, at);
        at += bytes.length;
      },
    };
  }

  async close(): Promise<void> {}
  async abort(): Promise<void> {}
}

/** An array of so many bytes, or code "out-of-memory". */
function allocate(bytes: number): Uint8Array<ArrayBuffer> {
  try {
    return new Uint8Array(bytes);
  } catch (cause) {
    const message =
      `a file of ${bytes} bytes is more than this page can hold in one piece; ` +
      "give save({ to }) a directory or streams";
    throw new TinyloomError("out-of-memory", message, { cause });
  }
}

/** A rule for each file: a stream that nobody else writes to. */
function streams(names: readonly string[]): Rules<{ [name: string]: unknown }> {
  const rule = (value: unknown) =>
    value instanceof WritableStream && !value.locked
      ? undefined
      : "a WritableStream that is not locked";
  return Object.fromEntries(names.map((name) => [name, rule]));
}
