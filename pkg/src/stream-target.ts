/** Writes a checkpoint's files to a directory or to streams. */

import { either, sleep } from "./abortable.js";
import { isTinyloomError, TinyloomError, throwIfAborted } from "./error.js";
import { isFile } from "./file-part.js";
import { invalid, show } from "./options.js";
import { isDirectory } from "./save-options.js";
import type { Out, SaveTarget, Target } from "./save-types.js";

interface Writer {
  readonly writer: WritableStreamDefaultWriter<Uint8Array>;
  /** Whether it writes to a file system's file, which can be written again at its beginning. */
  readonly seekable: boolean;
}

type Writers = Map<string, Writer>;
type Signal = AbortSignal | undefined;

/** Milliseconds for which streams may end after the signal. One that takes nothing more may never do so. */
const PATIENCE = 1000;

class Streams implements Target {
  readonly #writers: Writers;
  readonly #signal: Signal;

  constructor(writers: Writers, signal: Signal) {
    this.#writers = writers;
    this.#signal = signal;
  }

  open(name: string): Out {
    const { writer, seekable } = this.#writers.get(name) as Writer;
    // Awaited, so that a slow disk holds back the reading.
    const write = (bytes: Uint8Array) => failing(name, () => writer.write(bytes), this.#signal);
    if (!seekable) return { write };
    const command = (data: Uint8Array) => ({ type: "write", position: 0, data });
    return { write, rewrite: (bytes) => write(command(bytes) as unknown as Uint8Array) };
  }

  async close(): Promise<void> {
    throwIfAborted(this.#signal, "save");
    // A signal that fires from here on would leave some files closed and others aborted.
    for (const [name, { writer }] of this.#writers)
      await failing(name, () => soon(writer.close(), this.#signal));
  }

  async abort(cause: unknown): Promise<void> {
    const aborted = [...this.#writers.values()].map(async ({ writer }) => writer.abort(cause));
    // A file can be written to and removed again when its stream has ended.
    await soon(Promise.allSettled(aborted), this.#signal).catch(() => undefined);
  }
}

/** What the promise gives. When the signal fires it has a second left. */
function soon<T>(promise: Promise<T>, signal: Signal): Promise<T> {
  return either(promise, signal, undefined, "save").catch((cause: unknown) => {
    const late = sleep(PATIENCE).then(() => Promise.reject(cause));
    return Promise.race([promise, late]);
  });
}

/** Opens a stream for each file. */
export async function openStreams(
  to: SaveTarget,
  names: readonly string[],
  signal: Signal,
): Promise<Target> {
  const writers: Writers = new Map();
  const streams = new Streams(writers, signal);
  try {
    for (const name of names) {
      writers.set(name, await failing(name, () => openWriter(to, name, signal)));
    }
    return streams;
  } catch (cause) {
    await streams.abort(cause);
    throw cause;
  }
}

async function openWriter(to: SaveTarget, name: string, signal: Signal): Promise<Writer> {
  const given = isDirectory(to)
    ? await failing(name, () => to.getFileHandle(name, { create: true }), signal)
    : (to as { readonly [name: string]: WritableStream<Uint8Array> | FileSystemFileHandle })[name];
  const seekable = isDirectory(to) || isFile(given);
  const stream = seekable ? await opened(name, given as FileSystemFileHandle, signal) : given;
  const writer = (stream as WritableStream<Uint8Array>).getWriter();
  if (typeof writer?.write !== "function" || typeof writer.abort !== "function") {
    throw invalid(`save: the stream of ${name} gave ${show(writer)} as its writer; give another`);
  }
  return { writer, seekable };
}

/** The stream into a file. One that comes after the signal is aborted. */
async function opened(name: string, handle: FileSystemFileHandle, signal: Signal) {
  const opening = streamInto(handle);
  try {
    return await failing(name, () => opening, signal);
  } catch (cause) {
    opening.then((stream) => stream.abort(cause)).catch(() => undefined);
    throw cause;
  }
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

/** What the caller's stream or directory does, until the signal fires. */
async function failing<T>(
  name: string,
  work: () => T | Promise<T>,
  signal?: AbortSignal,
): Promise<T> {
  try {
    return await either((async () => work())(), signal, undefined, "save");
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
