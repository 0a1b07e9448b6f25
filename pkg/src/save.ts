/** Writes a checkpoint's files as they are read back: into memory, a directory, or streams. */

import { crc32 } from "./crc32.js";
import { TinyloomError, throwIfAborted } from "./error.js";
import { stored } from "./internal.js";
import { morePart } from "./lazy.js";
import { check, inspect, invalid, type Rules } from "./options.js";
import type { RawWriter } from "./raw.js";
import { readAhead, tensorSizes, withChecksums } from "./safetensors.js";
import { LONG, type LongOptions, report } from "./source.js";

/** Bytes of a tensor that are read back at a time. */
const PIECE = 8 << 20;

/** An open run of `tinyloom/storage`. */
export interface RunHandle {
  readonly id: string;
  readonly name: string;
}

/**
 * Where files go: a run of `tinyloom/storage`, a directory of the user's disk or of the origin's private
 * file system, or a stream for each file by its name. Streams are closed when all files are written; if the
 * save fails, they are aborted, and a directory keeps the files it had.
 */
export type SaveTarget = FileSystemDirectoryHandle | RunHandle | OwnStreams;

type OwnStreams = { readonly [name: string]: WritableStream<Uint8Array> };

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
  /** Writes the file's first bytes again; absent where that cannot be. */
  rewrite?(bytes: Uint8Array): Promise<void> | void;
}

/** What a save writes to. */
export interface Target {
  /** Told of the bytes of all files before the first is opened. */
  expect?(bytes: number): Promise<void>;
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

  /**
   * A safetensors file, in pieces: neither it nor a tensor is ever whole in the module's memory. Its header
   * has the tensors' checksums, and is therefore written again at the end. Where the target cannot do that,
   * the tensors are read back twice.
   */
  async tensors(name: string, writer: RawWriter): Promise<void> {
    const plain = writer.saveHeader();
    const sizes = tensorSizes(plain);
    const promised = `the header of ${sizes.length} tensors`;
    if (writer.tensorCount() !== sizes.length) {
      throw new TinyloomError("internal", `${writer.tensorCount()} tensors against ${promised}`);
    }
    const sums = sizes.map(() => 0);
    const header = () => withChecksums(plain, sums);
    const total = sizes.reduce((sum, size) => sum + size, header().length);
    const out = await this.#target.open(name, total);
    const pass = (put: (bytes: Uint8Array) => Promise<void> | void) =>
      this.#pass(name, writer, sizes, (bytes, index, begin) => {
        sums[index] = crc32(bytes, begin === 0 ? 0 : sums[index]);
        return put(bytes);
      });
    if (!out.rewrite) await pass(() => {});
    await out.write(header());
    await pass((bytes) => out.write(bytes));
    await out.rewrite?.(header());
  }

  /** Reads every tensor back once, in order. */
  async #pass(
    name: string,
    writer: RawWriter,
    sizes: readonly number[],
    put: (bytes: Uint8Array, index: number, begin: number) => Promise<void> | void,
  ): Promise<void> {
    const total = sizes.reduce((sum, size) => sum + size, 0);
    let loaded = 0;
    const pieces = sizes.flatMap((size, index) => cut(size).map((range) => ({ index, ...range })));
    const lengths = pieces.map(({ begin, end }) => end - begin);
    const read = (at: number) => {
      const { index, begin, end } = pieces[at] as { index: number; begin: number; end: number };
      return writer.readPiece(index, begin, end);
    };
    let at = 0;
    for await (const bytes of readAhead(lengths, read)) {
      const { index, begin } = pieces[at] as { index: number; begin: number };
      if (bytes.length !== lengths[at]) {
        const what = `${bytes.length} bytes of tensor ${index} from ${begin} on, not ${lengths[at]}`;
        throw new TinyloomError("internal", what);
      }
      throwIfAborted(this.#options.signal, "save");
      report(this.#options, { loaded, total, stage: `read ${name}` });
      await put(bytes, index, begin);
      loaded += bytes.length;
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
    if (to === undefined || isDirectory(to) || stored.find(to)) return chosen;
    const given = check("save: to", to, streams(names)) as OwnStreams;
    const missing = names.filter((name) => given[name] === undefined);
    if (missing.length > 0) {
      throw invalid(`save: to has no stream for ${missing.join(", ")}; give one for each file`);
    }
    return { ...chosen, to: given };
  });
}

export function isDirectory(to: unknown): to is FileSystemDirectoryHandle {
  return typeof (to as FileSystemDirectoryHandle).getFileHandle === "function";
}

/** Bytes of the tensors that these write. */
export function bytesOf(...writers: RawWriter[]): number {
  const sizes = writers.flatMap((writer) => tensorSizes(writer.saveHeader()));
  return sizes.reduce((sum, size) => sum + size, 0);
}

/**
 * Runs a save; gives the files where they are wanted as bytes.
 *
 * @param expected - bytes of all tensors.
 * @param keep - checkpoints that a run keeps.
 */
export async function saving<T>(
  options: SaveOptions,
  names: readonly string[],
  write: (files: Files) => Promise<void>,
  { expected, keep }: { expected: number; keep?: number | undefined },
): Promise<T> {
  const { to } = options;
  const memory = new Memory();
  const run = stored.find(to)?.target(keep);
  const target: Target =
    to === undefined ? memory : (run ?? (await (await morePart()).openStreams(to, names)));
  try {
    await target.expect?.(expected);
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
      rewrite: (bytes) => file.set(bytes),
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
