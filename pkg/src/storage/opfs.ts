/** The origin-private file system of browsers. */

import { blobPart } from "../file-part.js";
import type { Disk, Path, Writing } from "./disk.js";

/** What only dedicated workers have. */
interface SyncHandle {
  write(bytes: Uint8Array, options: { at: number }): number;
  truncate(size: number): void;
  flush(): void;
  close(): void;
}

type WithSync = { createSyncAccessHandle?(): Promise<SyncHandle> };

/** A tab that closes or reloads keeps its locks for a moment. */
const LOCK_MILLISECONDS = 1000;

const isMissing = (error: unknown) =>
  (error as { name?: unknown } | null)?.name === "NotFoundError";

/** The origin's private file system, from one of its folders on. */
export class OriginPrivate implements Disk {
  readonly where = "origin-private";
  readonly #root: FileSystemDirectoryHandle;
  readonly #name: string;

  constructor(root: FileSystemDirectoryHandle, name: string) {
    this.#root = root;
    this.#name = name;
  }

  async names(path: Path): Promise<string[]> {
    const folder = await this.#folder(path).catch(absent);
    const names: string[] = [];
    if (folder) for await (const name of (folder as unknown as Listing).keys()) names.push(name);
    return names;
  }

  async find(path: Path) {
    const file = await this.#file(path).catch(absent);
    return file && blobPart(path.at(-1) as string, path.join("/"), await file.getFile());
  }

  async blob(path: Path): Promise<Blob> {
    return (await this.#file(path)).getFile();
  }

  /** Writes by a sync access handle in a worker, which can flush; elsewhere by a stream. */
  async create(path: Path, keep = false): Promise<Writing> {
    const folder = await this.#folder(path.slice(0, -1), true);
    const handle = await folder.getFileHandle(path.at(-1) as string, { create: true });
    const { createSyncAccessHandle } = handle as WithSync;
    if (!createSyncAccessHandle) {
      const stream = await handle.createWritable({ keepExistingData: keep });
      const write = (data: Uint8Array, position: number) =>
        stream.write({ type: "write", position, data: data as Uint8Array<ArrayBuffer> });
      return { write, flush() {}, close: () => stream.close() };
    }
    const file = await createSyncAccessHandle.call(handle);
    if (!keep) file.truncate(0);
    return {
      write(bytes, at) {
        for (let done = 0; done < bytes.length; ) {
          const count = file.write(bytes.subarray(done), { at: at + done });
          if (count === 0) throw new DOMException("nothing more was written", "QuotaExceededError");
          done += count;
        }
      },
      flush: () => file.flush(),
      close: () => file.close(),
    };
  }

  async remove(path: Path): Promise<void> {
    const folder = await this.#folder(path.slice(0, -1)).catch(absent);
    await folder?.removeEntry(path.at(-1) as string, { recursive: true }).catch(absent);
  }

  async room(): Promise<number | undefined> {
    const { usage, quota } = await navigator.storage.estimate();
    return quota === undefined ? undefined : quota - (usage ?? 0);
  }

  lock(name: string): Promise<(() => Promise<void>) | undefined> {
    const signal = AbortSignal.timeout(LOCK_MILLISECONDS);
    return new Promise((done, fail) => {
      const held = () =>
        new Promise<void>((release) => {
          done(async () => {
            release();
            await asked;
          });
        });
      const asked = navigator.locks
        .request(`tinyloom ${this.#name}/${name}`, { signal }, held)
        .then(
          () => undefined,
          (error: unknown) => (signal.aborted ? done(undefined) : fail(error)),
        );
    });
  }

  async #folder(path: Path, create = false): Promise<FileSystemDirectoryHandle> {
    let folder = this.#root;
    for (const name of path) folder = await folder.getDirectoryHandle(name, { create });
    return folder;
  }

  async #file(path: Path): Promise<FileSystemFileHandle> {
    return (await this.#folder(path.slice(0, -1))).getFileHandle(path.at(-1) as string);
  }
}

/** Undefined for what is not there; any other failure stays one. */
function absent(error: unknown): undefined {
  if (!isMissing(error)) throw error;
}

/** TypeScript's DOM library lacks the handle's iterators where only ES2022 is asked for. */
interface Listing {
  keys(): AsyncIterable<string>;
}
