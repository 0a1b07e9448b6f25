/** Writes a checkpoint's files to a directory or to streams. */

import { isTinyloomError, TinyloomError } from "./error.js";
import { show } from "./options.js";
import type { Out, SaveTarget, Target } from "./save.js";

type Writers = Map<string, WritableStreamDefaultWriter<Uint8Array>>;

class Streams implements Target {
  readonly #writers: Writers;

  constructor(writers: Writers) {
    this.#writers = writers;
  }

  open(name: string): Out {
    const writer = this.#writers.get(name) as WritableStreamDefaultWriter<Uint8Array>;
    return {
      // Awaited, so that a slow disk holds back the reading.
      write: (bytes) => failing(name, () => writer.write(bytes)),
    };
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
        ("getFileHandle" in to && typeof to.getFileHandle === "function"
          ? await fileIn(to as FileSystemDirectoryHandle, name)
          : ((to as { [name: string]: unknown })[name] as WritableStream)
        ).getWriter(),
      );
      writers.set(name, writer);
    }
    return new Streams(writers);
  } catch (cause) {
    await new Streams(writers).abort(cause);
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
