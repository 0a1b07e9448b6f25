/** Writes a checkpoint's files to a directory or to streams. */

import { isTinyloomError, TinyloomError } from "./error.js";
import { invalid, show } from "./options.js";
import { isDirectory, type Out, type SaveTarget, type Target } from "./save.js";

type Writers = Map<string, WritableStreamDefaultWriter<Uint8Array>>;

class Streams implements Target {
  readonly #writers: Writers;
  readonly #seekable: boolean;

  /** @param seekable - whether they are a directory's files. */
  constructor(writers: Writers, seekable: boolean) {
    this.#writers = writers;
    this.#seekable = seekable;
  }

  open(name: string): Out {
    const writer = this.#writers.get(name) as WritableStreamDefaultWriter<Uint8Array>;
    // Awaited, so that a slow disk holds back the reading.
    const write = (bytes: Uint8Array) => failing(name, () => writer.write(bytes));
    if (!this.#seekable) return { write };
    const command = (data: Uint8Array) => ({ type: "write", position: 0, data });
    return { write, rewrite: (bytes) => write(command(bytes) as unknown as Uint8Array) };
  }

  async close(): Promise<void> {
    for (const [name, writer] of this.#writers) await failing(name, () => writer.close());
  }

  async abort(cause: unknown): Promise<void> {
    await Promise.allSettled([...this.#writers.values()].map((writer) => writer.abort(cause)));
  }
}

/** Opens a stream for each file. */
export async function openStreams(to: SaveTarget, names: readonly string[]): Promise<Target> {
  const writers: Writers = new Map();
  try {
    for (const name of names) {
      const writer = await failing(name, async () =>
        (isDirectory(to)
          ? await fileIn(to, name)
          : ((to as { [name: string]: unknown })[name] as WritableStream)
        ).getWriter(),
      );
      if (typeof writer?.write !== "function" || typeof writer.abort !== "function") {
        throw invalid(
          `save: the stream of ${name} gave ${show(writer)} as its writer; give another`,
        );
      }
      writers.set(name, writer);
    }
    return new Streams(writers, isDirectory(to));
  } catch (cause) {
    await new Streams(writers, false).abort(cause);
    throw cause;
  }
}

async function fileIn(
  directory: FileSystemDirectoryHandle,
  name: string,
): Promise<WritableStream<Uint8Array>> {
  const handle = await directory.getFileHandle(name, { create: true });
  if (typeof handle.createWritable !== "function") {
    throw new TinyloomError(
      "invalid-options",
      "this browser cannot write to a directory handle as a stream; give save({ to }) WritableStreams, " +
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
