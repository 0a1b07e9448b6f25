/** This page's memory, where there is neither a private file system nor a folder. */

import { blobPart } from "../file-part.js";
import type { Disk, Path, Writing } from "./disk.js";

/** Files that end with the page. */
export class Memory implements Disk {
  readonly where = "memory";
  readonly #files = new Map<string, Blob>();
  readonly #locks = new Set<string>();

  async names(path: Path): Promise<string[]> {
    const prefix = path.map((one) => `${one}/`).join("");
    const below = [...this.#files.keys()].filter((key) => key.startsWith(prefix));
    return [...new Set(below.map((key) => key.slice(prefix.length).split("/")[0] as string))];
  }

  async find(path: Path) {
    const blob = this.#files.get(path.join("/"));
    return blob && blobPart(path.at(-1) as string, path.join("/"), blob);
  }

  async blob(path: Path): Promise<Blob> {
    return this.#files.get(path.join("/")) as Blob;
  }

  async create(path: Path, keep = false): Promise<Writing> {
    const key = path.join("/");
    let blob = (keep && this.#files.get(key)) || new Blob([]);
    const put = () => void this.#files.set(key, blob);
    put();
    return {
      write(bytes, at) {
        const after = blob.slice(at + bytes.length);
        blob = new Blob([blob.slice(0, at), bytes as Uint8Array<ArrayBuffer>, after]);
        put();
      },
      flush() {},
      close() {},
    };
  }

  async remove(path: Path): Promise<void> {
    const key = path.join("/");
    for (const one of [...this.#files.keys()]) {
      if (one === key || one.startsWith(`${key}/`)) this.#files.delete(one);
    }
  }

  async room(): Promise<undefined> {
    return undefined;
  }

  async lock(name: string): Promise<(() => Promise<void>) | undefined> {
    if (this.#locks.has(name)) return undefined;
    this.#locks.add(name);
    return async () => void this.#locks.delete(name);
  }
}
