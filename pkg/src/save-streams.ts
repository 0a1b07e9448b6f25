/** Writes a checkpoint's files to a directory or to streams. */

import { isTinyloomError, TinyloomError } from "./error.js";
import { invalid, show } from "./options.js";
import { isDirectory, type Out, type SaveTarget, type Target } from "./save.js";
import { isFile } from "./source.js";

interface Writer {
  readonly writer: WritableStreamDefaultWriter<Uint8Array>;
  /** Whether it writes to a file system's file, which can be written again at its beginning. */
  readonly seekable: boolean;
}

type Writers = Map<string, Writer>;

class Streams implements Target {
  readonly #writers: Writers;

  constructor(writers: Writers) {
    this.#writers = writers;
  }

  open(name: string): Out {
    const { writer, seekable } = this.#writers.get(name) as Writer;
    // Awaited, so that a slow disk holds back the reading.
    const write = (bytes: Uint8Array) => failing(name, () => writer.write(bytes));
    if (!seekable) return { write };
    const command = (data: Uint8Array) => ({ type: "write", position: 0, data });
    return { write, rewrite: (bytes) => write(command(bytes) as unknown as Uint8Array) };
  }

  async close(): Promise<void> {
    for (const [name, { writer }] of this.#writers) await failing(name, () => writer.close());
  }

  async abort(cause: unknown): Promise<void> {
    await Promise.allSettled([...this.#writers.values()].map(({ writer }) => writer.abort(cause)));
  }
}

/** Opens a stream for each file. */
export async function openStreams(to: SaveTarget, names: readonly string[]): Promise<Target> {
  const writers: Writers = new Map();
  try {
    for (const name of names) writers.set(name, await failing(name, () => openWriter(to, name)));
    return new Streams(writers);
  } catch (cause) {
    await new Streams(writers).abort(cause);
    throw cause;
  }
}

async function openWriter(to: SaveTarget, name: string): Promise<Writer> {
  const given = isDirectory(to)
    ? await to.getFileHandle(name, { create: true })
    : (to as { readonly [name: string]: WritableStream<Uint8Array> | FileSystemFileHandle })[name];
  const seekable = isDirectory(to) || isFile(given);
  const stream = seekable ? await streamInto(given as FileSystemFileHandle) : given;
  const writer = (stream as WritableStream<Uint8Array>).getWriter();
  if (typeof writer?.write !== "function" || typeof writer.abort !== "function") {
    throw invalid(`save: the stream of ${name} gave ${show(writer)} as its writer; give another`);
  }
  return { writer, seekable };
}

async function streamInto(handle: FileSystemFileHandle): Promise<WritableStream<Uint8Array>> {
  if (typeof handle.createWritable !== "function") {
    throw new TinyloomError(
      "invalid-options",
      "this browser cannot write to a directory or file handle as a stream; give save({ to }) WritableStreams, " +
        "or save without to",
    );
  }
  return handle.createWritable();
}

/** What fails in the caller's stream or directory. */
async function failing<T>(name: string, work: () => T | Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (cause) {
    if (isTinyloomError(cause)) throw cause;
    const full = (cause as { name?: unknown } | null)?.name === "QuotaExceededError";
    throw new TinyloomError(
      full ? "storage-full" : "invalid-options",
      full
        ? `save: there is no room left for ${name}; delete other files, or save elsewhere`
        : `save: ${name} could not be written: ${show(cause)}`,
      { cause },
    );
  }
}
