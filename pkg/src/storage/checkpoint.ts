/** A run's checkpoints: each in a folder of its own, whole once its manifest is there. */

import type { Out, Target } from "../save.js";
import {
  type Disk,
  full,
  type Path,
  PIECE,
  readRecord,
  Summing,
  type Sums,
  storing,
  verify,
  type Writing,
  writeRecord,
} from "./disk.js";

/** What is written last of a checkpoint, and makes it whole. */
interface Manifest {
  readonly format: 1;
  /** Optimizer steps done; null where only a model was saved. */
  readonly step: number | null;
  readonly created: number;
  readonly files: { readonly [name: string]: Sums };
}

/** One whole checkpoint of a run. */
export interface StoredCheckpoint {
  /** Counts up with each checkpoint of the run. */
  readonly number: number;
  /** Optimizer steps done; null where only a model was saved. */
  readonly step: number | null;
  /** Milliseconds since 1970. */
  readonly created: number;
  /** Bytes of its files. */
  readonly bytes: number;
}

const MANIFEST = "manifest.json";
const folderOf = (number: number) => `c${String(number).padStart(8, "0")}`;

/** A file of a checkpoint. */
export const pathIn = (id: string, number: number, name: string): Path => [
  id,
  folderOf(number),
  name,
];

const manifestOf = (disk: Disk, id: string, number: number) =>
  readRecord<Manifest>(disk, [id, folderOf(number), MANIFEST]);

async function numbers(disk: Disk, id: string): Promise<number[]> {
  const names = await disk.names([id]);
  const found = names.flatMap((name) => (/^c\d{8}$/.test(name) ? [Number(name.slice(1))] : []));
  return found.sort((a, b) => b - a);
}

/** The checkpoints of a run that have a manifest, the newest first. */
export async function checkpointsOf(disk: Disk, id: string): Promise<StoredCheckpoint[]> {
  const found: StoredCheckpoint[] = [];
  for (const number of await numbers(disk, id)) {
    const manifest = await manifestOf(disk, id, number);
    if (!manifest) continue; // it was not finished, or its manifest is damaged
    const { step, created, files } = manifest;
    const bytes = Object.values(files).reduce((sum, { size }) => sum + size, 0);
    found.push({ number, step, created, bytes });
  }
  return found;
}

/** Holds a checkpoint's files to their checksums, and gives their paths by name. */
export async function verifyCheckpoint(
  disk: Disk,
  id: string,
  number: number,
): Promise<{ [name: string]: Path }> {
  const manifest = await manifestOf(disk, id, number);
  const paths: { [name: string]: Path } = {};
  for (const [name, sums] of Object.entries(manifest?.files ?? {})) {
    paths[name] = pathIn(id, number, name);
    await verify(name, await disk.find(paths[name]), sums);
  }
  return paths;
}

/** Writes one checkpoint into a folder of its own, and then removes what is older than the last `keep`. */
export class CheckpointTarget implements Target {
  readonly #disk: Disk;
  readonly #id: string;
  readonly #keep: number;
  readonly #before: () => Promise<void>;
  readonly #files: { [name: string]: Sums } = {};
  #number: number | undefined;
  #step: number | null = null;
  #finish: (() => Promise<void>) | undefined;
  #writing: Writing | undefined;

  /** @param before - does what has to be written before the manifest. */
  constructor(disk: Disk, id: string, keep: number, before: () => Promise<void>) {
    this.#disk = disk;
    this.#id = id;
    this.#keep = keep;
    this.#before = before;
  }

  /** Judges the room before anything is written. */
  async expect(bytes: number): Promise<void> {
    const room = await storing("the storage", () => this.#disk.room());
    if (room === undefined || room >= bytes) return;
    throw full(`a checkpoint of ${bytes} bytes does not fit: the storage has room for ${room}`);
  }

  async open(name: string, size: number): Promise<Out> {
    await this.#finish?.();
    this.#number ??= ((await numbers(this.#disk, this.#id))[0] ?? 0) + 1;
    const path = [this.#id, folderOf(this.#number), name];
    const writing = await storing(name, () => this.#disk.create(path));
    this.#writing = writing;
    const summing = new Summing();
    this.#finish = async () => {
      this.#finish = undefined;
      await storing(name, async () => {
        await writing.flush();
        this.#writing = undefined;
        await writing.close();
      });
      this.#files[name] = summing.sums;
    };
    let at = 0;
    // The first piece: its checksum is taken again where its beginning is written again.
    const first = new Uint8Array(Math.min(size, PIECE));
    return {
      write: async (bytes) => {
        await storing(name, () => writing.write(bytes, at));
        summing.add(bytes);
        if (name === "trainer_state.json") this.#step = stepOf(bytes);
        if (at < first.length) first.set(bytes.subarray(0, first.length - at), at);
        at += bytes.length;
      },
      rewrite: async (bytes) => {
        await storing(name, () => writing.write(bytes, 0));
        first.set(bytes.subarray(0, first.length));
        summing.restart(first);
      },
    };
  }

  async close(): Promise<void> {
    await this.#finish?.();
    await this.#before();
    const path = [this.#id, folderOf(this.#number as number), MANIFEST];
    const manifest: Manifest = {
      format: 1,
      step: this.#step,
      created: Date.now(),
      files: this.#files,
    };
    await storing("the checkpoint's manifest", () => writeRecord(this.#disk, path, manifest));
    await storing("older checkpoints", () => this.#prune());
  }

  async abort(): Promise<void> {
    const number = this.#number;
    if (number === undefined) return;
    const close = async () => this.#writing?.close();
    await close().catch(() => undefined);
    await this.#disk.remove([this.#id, folderOf(number)]).catch(() => undefined);
  }

  /** Removes what is older than the last `keep` whole checkpoints, and what was never finished. */
  async #prune(): Promise<void> {
    const whole = await checkpointsOf(this.#disk, this.#id);
    const kept = new Set(whole.slice(0, this.#keep).map(({ number }) => number));
    for (const number of await numbers(this.#disk, this.#id)) {
      if (kept.has(number)) continue;
      // The manifest first: what is half removed is no checkpoint.
      await this.#disk.remove([this.#id, folderOf(number), MANIFEST]);
      await this.#disk.remove([this.#id, folderOf(number)]);
    }
  }
}

function stepOf(bytes: Uint8Array): number | null {
  const state = JSON.parse(new TextDecoder().decode(bytes.slice())) as {
    progress: { step: number };
  };
  return state.progress.step;
}
