/** A folder of the disk, in Node, Deno and Bun. */

import type { FilePart } from "../file-part.js";
import { fileSystem, host, threads } from "../node.js";
import { inspect, invalid, show } from "../options.js";
import type { Disk, Path, Writing } from "./disk.js";
import { absent, takeLock } from "./lock.js";

type Fs = Awaited<ReturnType<typeof fileSystem>>;

/** A folder of the disk. */
export class Folder implements Disk {
  readonly where = "folder";
  readonly #fs: Fs;
  readonly #root: string;

  constructor(fs: Fs, root: string) {
    this.#fs = fs;
    this.#root = root;
  }

  async names(path: Path): Promise<string[]> {
    return (await this.#fs.readdir(this.#at(path)).catch(absent)) ?? [];
  }

  async find(path: Path): Promise<FilePart | undefined> {
    const place = this.#at(path);
    const stat = await this.#fs.stat(place).catch(absent);
    if (!stat) return undefined;
    const read = async (begin: number, end: number) => {
      const bytes = new Uint8Array(end - begin);
      const file = await this.#fs.open(place);
      try {
        for (let done = 0; done < bytes.length; ) {
          const { bytesRead } = await file.read(bytes, done, bytes.length - done, begin + done);
          if (bytesRead === 0) throw new Error(`${place} ended before byte ${end}`);
          done += bytesRead;
        }
        return bytes;
      } finally {
        await file.close();
      }
    };
    return { name: path.at(-1) as string, place, remote: false, size: stat.size, read };
  }

  async blob(path: Path): Promise<Blob> {
    const specifier = ["node", "fs"].join(":"); // put together, so that bundlers for the web leave it alone
    const fs = (await import(/* @vite-ignore */ /* webpackIgnore: true */ specifier)) as {
      openAsBlob?(path: string): Promise<Blob>;
    };
    const place = this.#at(path);
    // Of a thread the caller may be tinyloom/worker: no message carries a Blob that lies on the disk.
    if (fs.openAsBlob && (await threads()).isMainThread) return fs.openAsBlob(place);
    return new Blob([(await this.#fs.readFile(place)) as Uint8Array<ArrayBuffer>]);
  }

  async create(path: Path, keep = false): Promise<Writing> {
    const place = this.#at(path);
    await this.#fs.mkdir(this.#at(path.slice(0, -1)), { recursive: true });
    const flags = keep && (await this.#fs.stat(place).catch(absent)) ? "r+" : "w";
    const file = await this.#fs.open(place, flags);
    return {
      async write(bytes, at) {
        for (let done = 0; done < bytes.length; ) {
          done += (await file.write(bytes, done, bytes.length - done, at + done)).bytesWritten;
        }
      },
      flush: () => file.sync(),
      close: () => file.close(),
    };
  }

  async remove(path: Path): Promise<void> {
    await this.#fs.rm(this.#at(path), { recursive: true, force: true });
  }

  async room(): Promise<number | undefined> {
    const stat = await this.#fs.statfs?.(this.#root).catch(() => undefined);
    return stat && Number(stat.bavail) * Number(stat.bsize);
  }

  lock(name: string): Promise<(() => Promise<void>) | undefined> {
    return takeLock(this.#fs, this.#at([`${name}.lock`]));
  }

  #at(path: Path): string {
    return [this.#root, ...path].join("/");
  }
}

/** The folder for an app's runs: that of data, by XDG's rules or Windows'. */
export async function openFolder(name: string, given: string | URL | undefined): Promise<Folder> {
  const fs = await fileSystem();
  const { XDG_DATA_HOME, LOCALAPPDATA, HOME } = host()?.env ?? {};
  const data = XDG_DATA_HOME || LOCALAPPDATA || `${HOME || "."}/.local/share`;
  const text = given === undefined ? undefined : pathOf(given);
  const root = (text ?? `${data}/tinyloom/${name}`).replace(/^\/(?=[A-Za-z]:)/, "");
  await fs.mkdir(root, { recursive: true });
  // One name for each folder: a thread looks up its own locks by their paths.
  return new Folder(fs, await fs.realpath(root));
}

/** The path of a folder that was given as a path or a file: URL. */
function pathOf(given: string | URL): string {
  if (typeof given === "string" && !/^[a-z][\w+.-]+:/i.test(given)) return given;
  const url = inspect("Runs.open: folder", () => new URL(given));
  if (url.protocol === "file:" && url.host === "") return decodeURIComponent(url.pathname);
  throw invalid(
    `Runs.open: folder is ${show(String(url))}; give a path or a file: URL without a host`,
  );
}
