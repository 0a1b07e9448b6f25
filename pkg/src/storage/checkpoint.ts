/** A run's checkpoints: each in a folder of its own, whole once its manifest is there. */

import { TinyloomError } from "../error.js";
import { show } from "../options.js";
import type { Best, Keeping, Out, Target } from "../save-types.js";
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
  /** How many checkpoints of a kind the run keeps, as it was last asked. */
  readonly keep?: number;
  /** The loss for which it is kept, where it was the best so far. */
  readonly best?: Best;
  /** How many lines each log of the run had; absent in what earlier builds saved. */
  readonly logs?: Lines;
}

/** How many lines each log of a run has, by its file's name. */
export interface Lines {
  readonly [log: string]: number;
}

/** Checkpoints of a kind that a run keeps before it is told otherwise. */
const KEEP = 2;

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
  /** The loss on validation data, where `keepBest` kept it as the best so far: the newest of these stays. */
  readonly validationLoss?: number;
}

const MANIFEST = "manifest.json";
const STATE = "trainer_state.json";
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

/** The manifests that are whole, the newest first. */
async function manifestsOf(disk: Disk, id: string) {
  const found: (Manifest & { readonly number: number })[] = [];
  for (const number of await numbers(disk, id)) {
    const manifest = await manifestOf(disk, id, number);
    // Without one it was not finished, or the manifest is damaged.
    if (manifest) found.push({ ...manifest, number });
  }
  return found;
}

/** The checkpoints of a run that have a manifest, the newest first. */
export async function checkpointsOf(disk: Disk, id: string): Promise<StoredCheckpoint[]> {
  return (await manifestsOf(disk, id)).map(({ number, step, created, files, best }) => {
    const bytes = Object.values(files).reduce((sum, { size }) => sum + size, 0);
    return { number, step, created, bytes, ...(best && { validationLoss: best.loss }) };
  });
}

/** The best checkpoint: each that was better than the one before is marked, so it is the newest of these. */
export async function bestOf(disk: Disk, id: string) {
  return (await manifestsOf(disk, id)).find(({ best }) => best);
}

/** Numbers of the checkpoints that have this file, the newest first. */
export async function checkpointsWith(disk: Disk, id: string, name: string): Promise<number[]> {
  const all = await manifestsOf(disk, id);
  return all.filter(({ files }) => Object.hasOwn(files, name)).map(({ number }) => number);
}

/** How many lines each log had at the newest checkpoint that has a whole manifest. */
export async function linesOf(disk: Disk, id: string): Promise<Lines> {
  const [newest] = await manifestsOf(disk, id);
  return newest?.logs ?? {};
}

/**
 * Which manifests are damaged, and which after a checkpoint are lost. A tab that ends while it saves leaves a
 * checkpoint that never had one. The state is the last file before it: where that is whole, the manifest was lost.
 */
export async function lostManifests(disk: Disk, id: string, after: number): Promise<string[]> {
  const lost: string[] = [];
  for (const number of await numbers(disk, id)) {
    if (await manifestOf(disk, id, number)) continue;
    const what = `checkpoint ${number}: its ${MANIFEST}`;
    if (await disk.find(pathIn(id, number, MANIFEST))) lost.push(`${what} is damaged`);
    else if (number > after && (await hasState(disk, id, number))) lost.push(`${what} is missing`);
  }
  return lost;
}

async function hasState(disk: Disk, id: string, number: number): Promise<boolean> {
  const file = await disk.find(pathIn(id, number, STATE));
  if (!file) return false;
  try {
    return stepOf(await file.read(0, file.size)) !== undefined;
  } catch {
    return false;
  }
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

/** A run, as a checkpoint is written into it. */
export interface Turns {
  /** Waits until nobody else writes into the run; gives what ends this turn. */
  take(): Promise<() => void>;
  /** Writes the logs, which have to be there before the manifest. */
  flush(): Promise<Lines>;
}

/**
 * Writes one checkpoint into a folder of its own, and then removes what is older than the last `keep` of its
 * kind: those of trainers and those of models alone count apart. Two checkpoints of a run are written one
 * after the other.
 */
export class CheckpointTarget implements Target {
  readonly #disk: Disk;
  readonly #id: string;
  readonly #keeping: Keeping;
  readonly #turns: Turns;
  readonly #files: { [name: string]: Sums } = {};
  #number: number | undefined;
  #step: number | null = null;
  #finish: (() => Promise<void>) | undefined;
  #writing: Writing | undefined;
  #end: (() => void) | undefined;

  /** @param keeping - by default as many are kept as the checkpoint before says. */
  constructor(disk: Disk, id: string, keeping: Keeping, turns: Turns) {
    this.#disk = disk;
    this.#id = id;
    this.#keeping = keeping;
    this.#turns = turns;
  }

  /** Waits for its turn, and judges the room before anything is written. */
  async expect(bytes: number): Promise<void> {
    this.#end = await this.#turns.take();
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
        if (name === STATE) this.#step = stepOf(bytes);
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
    const logs = await this.#turns.flush();
    const before = await manifestsOf(this.#disk, this.#id);
    const { best, kept } = this.#keeping;
    const keep = this.#keeping.keep ?? before.find((one) => one.keep !== undefined)?.keep ?? KEEP;
    const path = [this.#id, folderOf(this.#number as number), MANIFEST];
    const manifest: Manifest = {
      format: 1,
      step: this.#step,
      created: Date.now(),
      files: this.#files,
      keep,
      ...(best && { best }),
      logs,
    };
    await storing("the checkpoint's manifest", () => writeRecord(this.#disk, path, manifest));
    // From here on it is whole: whatever fails now, `abort` must not remove it.
    const number = this.#number as number;
    this.#number = undefined;
    // This comes before the removal: a trainer may use an older checkpoint as its snapshot.
    kept?.(number);
    await storing("older checkpoints", () => this.#prune(keep));
    this.#end?.();
  }

  async abort(): Promise<void> {
    const number = this.#number;
    if (number !== undefined) {
      const close = async () => this.#writing?.close();
      await close().catch(() => undefined);
      await this.#disk.remove([this.#id, folderOf(number)]).catch(() => undefined);
    }
    this.#end?.();
  }

  /** Removes what is older than the last `keep` whole checkpoints of a kind, but for the best, and what was never finished. */
  async #prune(keep: number): Promise<void> {
    const whole = await manifestsOf(this.#disk, this.#id);
    const trained = whole.filter(({ step }) => step !== null).slice(0, keep);
    const models = whole.filter(({ step }) => step === null).slice(0, keep);
    const best = whole.filter((one) => one.best).slice(0, 1);
    const kept = new Set([...trained, ...models, ...best].map(({ number }) => number));
    for (const number of await numbers(this.#disk, this.#id)) {
      if (kept.has(number)) continue;
      // The manifest first: what is half removed is no checkpoint.
      await this.#disk.remove([this.#id, folderOf(number), MANIFEST]);
      await this.#disk.remove([this.#id, folderOf(number)]);
    }
  }
}

function stepOf(bytes: Uint8Array): number | null {
  try {
    const state = JSON.parse(new TextDecoder().decode(bytes.slice())) as {
      progress: { step: number };
    };
    return state.progress.step;
  } catch (cause) {
    const message = `trainer_state.json is damaged: ${show(cause)}`;
    throw new TinyloomError("invalid-checkpoint", message, { cause });
  }
}
