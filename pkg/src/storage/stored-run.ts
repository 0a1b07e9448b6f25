import { TinyloomError } from "../error.js";
import { stored } from "../internal.js";
import { integer, invalid, show } from "../options.js";
import type { FilePart } from "../safetensors.js";
import type { Source } from "../source.js";
import {
  CheckpointTarget,
  checkpointsOf,
  pathIn,
  type StoredCheckpoint,
  verifyCheckpoint,
} from "./checkpoint.js";
import { type Disk, type Sums, storing, verify } from "./disk.js";
import { Log } from "./log.js";

/** A stored file of the caller's: where it lies, and its checksums. */
export interface StoredFile extends Sums {
  readonly file: string;
}

/** What is written of a run beside its checkpoints. */
export interface RunRecord {
  readonly format: 1;
  readonly name: string;
  /** Milliseconds since 1970. */
  readonly created: number;
  readonly options: unknown;
  readonly files: { readonly data?: StoredFile; readonly tokenizer?: StoredFile };
}

/** A sample of the model's text, or anything else that is JSON. */
export interface Sample {
  /** The step after which it was drawn. */
  readonly step: number;
  readonly [field: string]: unknown;
}

/** Makes an object of an open run. @internal */
export let makeRun: (...parts: Parts) => StoredRun;

type Parts = [disk: Disk, id: string, record: RunRecord, release: () => Promise<void>];

/**
 * A run in storage: checkpoints, and what a page needs to go on with them. No other tab has it open meanwhile.
 *
 * @example
 * ```ts
 * const runs = await Runs.open("my-app");
 * const run = await runs.create("first", { data: text });
 * for await (const m of trainer.run(dataset, { steps: 1000, checkpoint: { run, every: 100 } })) …
 * await run.close();
 * ```
 */
export class StoredRun {
  /** Stays the same when the run is renamed. */
  readonly id: string;
  readonly #disk: Disk;
  readonly #release: () => Promise<void>;
  readonly #metrics: Log;
  readonly #samples: Log;
  #record: RunRecord;
  #problems: string[] = [];
  #closed = false;

  static {
    makeRun = (...parts) => new StoredRun(...parts);
  }

  private constructor(...[disk, id, record, release]: Parts) {
    this.id = id;
    this.#disk = disk;
    this.#record = record;
    this.#release = release;
    this.#metrics = new Log(disk, [id, "metrics.jsonl"]);
    this.#samples = new Log(disk, [id, "samples.jsonl"]);
    stored.set(this, {
      target: (keep) => new CheckpointTarget(this.#opened(), id, keep, () => this.#flush()),
      source: () => this.#source(),
      note: (metrics) => this.#metrics.add(metrics),
      renamed: (changed) => {
        this.#record = changed as RunRecord;
      },
    });
  }

  /** The name, which `runs.rename` changes. */
  get name(): string {
    return this.#record.name;
  }

  /** What `runs.create` was given as options. */
  get options(): unknown {
    return this.#record.options;
  }

  /** Checkpoints that were found damaged when the run was last loaded, and why. */
  get problems(): readonly string[] {
    return [...this.#problems];
  }

  /** The whole checkpoints, the newest first. Their bytes are checked when they are loaded. */
  checkpoints(): Promise<StoredCheckpoint[]> {
    return checkpointsOf(this.#opened(), this.id);
  }

  /**
   * The data that `runs.create` was given, with its checksums verified.
   *
   * @throws {@link TinyloomError} `invalid-checkpoint` where it is damaged, `invalid-options` where there is none.
   */
  data(): Promise<Blob> {
    return this.#file("data");
  }

  /** The tokenizer's text that `runs.create` was given; throws as {@link StoredRun.data} does. */
  async tokenizer(): Promise<string> {
    return (await this.#file("tokenizer")).text();
  }

  /** The metrics of every step, which `trainer.run` notes. A step that was repeated is there once. */
  async metrics(): Promise<unknown[]> {
    this.#opened();
    return this.#metrics.read();
  }

  /** Keeps a sample. It is written with the next checkpoint, and by `close()`. */
  async addSample(sample: Sample): Promise<void> {
    this.#opened();
    const allowed = integer(0, 0xffff_ffff)(sample?.step);
    if (allowed) throw invalid(`addSample: step is ${show(sample?.step)}; give ${allowed}`);
    this.#samples.add(sample);
  }

  /** The samples kept. */
  async samples(): Promise<unknown[]> {
    this.#opened();
    return this.#samples.read();
  }

  /** Writes what is noted, and lets other tabs open the run. */
  async close(): Promise<void> {
    if (this.#closed) return;
    try {
      await this.#flush();
    } finally {
      this.#closed = true;
      await this.#release();
    }
  }

  #opened(): Disk {
    if (!this.#closed) return this.#disk;
    throw new TinyloomError("freed", `the run ${show(this.name)} was closed; open it again`);
  }

  async #flush(): Promise<void> {
    await storing(`the run ${show(this.name)}`, async () => {
      await this.#metrics.flush();
      await this.#samples.flush();
    });
  }

  async #file(kind: "data" | "tokenizer"): Promise<Blob> {
    const disk = this.#opened();
    const file = this.#record.files[kind];
    if (!file) throw invalid(`the run ${show(this.name)} has no ${kind}; give it to runs.create`);
    const path = [this.id, file.file];
    return storing(`the ${kind} of the run`, async () => {
      await verify(`the ${kind} of the run ${show(this.name)}`, await disk.find(path), file);
      return disk.blob(path);
    });
  }

  #source(): Source {
    const disk = this.#opened();
    let chosen: Promise<number> | undefined;
    return {
      place: (name) => `${this.name}/${name}`,
      find: async (name): Promise<FilePart | undefined> => {
        chosen ??= this.#newest();
        return disk.find(pathIn(this.id, await chosen, name));
      },
    };
  }

  /** The newest checkpoint whose files are as they were written. */
  async #newest(): Promise<number> {
    this.#problems = [];
    for (const { number } of await this.checkpoints()) {
      try {
        await verifyCheckpoint(this.#disk, this.id, number);
        return number;
      } catch (error) {
        this.#problems.push(`checkpoint ${number}: ${(error as Error).message}`);
      }
    }
    const why =
      this.#problems.length > 0 ? `no whole one: ${this.#problems.join("; ")}` : "none yet";
    throw new TinyloomError("invalid-checkpoint", `the run ${show(this.name)} has ${why}`);
  }
}
