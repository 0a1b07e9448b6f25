import { CallQueue } from "../call-queue.js";
import { TinyloomError } from "../error.js";
import type { FilePart, Source } from "../file-part.js";
import { expectMade, MADE } from "../inner.js";
import { invalid, show } from "../options.js";
import { stored } from "../stored-runs.js";
import type { StepMetrics } from "../trainer-types.js";
import {
  bestOf,
  CheckpointTarget,
  checkpointsOf,
  checkpointsWith,
  type Lines,
  linesOf,
  lostManifests,
  pathIn,
  type StoredCheckpoint,
  verifyCheckpoint,
} from "./checkpoint.js";
import { type Disk, storing, verify } from "./disk.js";
import { entryOf } from "./json.js";
import { byStep, type Entry, Log, withoutRepeated } from "./log.js";
import { describe, type RunRecord, updated } from "./record.js";
import { contentOf, type RunContent, type RunFiles } from "./types.js";

/** The metrics of a step, as far as they were given. A number that was not finite is null. */
export type NotedMetrics = { readonly step: number } & {
  readonly [K in Exclude<keyof StepMetrics, "step">]?:
    | StepMetrics[K]
    | (NonNullable<StepMetrics[K]> extends number ? null : never);
};

/** A sample of the model's text, or anything else that is JSON. */
export interface Sample {
  /** The step after which it was drawn. */
  readonly step: number;
  readonly [field: string]: unknown;
}

export const METRICS = "metrics.jsonl";
const SAMPLES = "samples.jsonl";

/** What a run notes of its steps, and of what its model writes. */
export const logsOf = (disk: Disk, id: string) => ({
  [METRICS]: new Log(disk, [id, METRICS], withoutRepeated),
  [SAMPLES]: new Log(disk, [id, SAMPLES], byStep),
});

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
  readonly #logs: ReturnType<typeof logsOf>;
  #record: RunRecord;
  #problems: string[] = [];
  /** Whether a checkpoint is being written. */
  #saving = false;
  /** What is written into the run, one after the other. */
  readonly #writes = new CallQueue();
  #closed = false;
  #closing: Promise<void> | undefined;

  static {
    makeRun = (...parts) => new StoredRun(MADE, ...parts);
  }

  private constructor(made: typeof MADE, ...[disk, id, record, release]: Parts) {
    expectMade(made, "StoredRun", "await runs.create(…)");
    this.id = id;
    this.#disk = disk;
    this.#record = record;
    this.#release = release;
    this.#logs = logsOf(disk, id);
    stored.set(this, {
      target: (keeping = {}) =>
        new CheckpointTarget(this.#opened(), id, keeping, {
          take: () => this.#turn(),
          flush: () => this.#logged(),
        }),
      source: (number) => this.#source(number),
      best: async () => (await bestOf(this.#opened(), id))?.best,
      note: (metrics) => this.#logs[METRICS].add(metrics),
      rename: (to) =>
        this.#writes.run(async () => {
          const changed = { ...this.#record, name: to };
          await describe(this.#opened(), id, changed);
          this.#record = changed;
        }),
    });
  }

  /** The name, which `runs.rename` changes. */
  get name(): string {
    return this.#record.name;
  }

  /**
   * What {@link Runs.create}, or later {@link StoredRun.update}, was given as `options`: a copy of any value that JSON can
   * hold. It is for the app alone, such as a title or what it gave to `Trainer.create`; tinyloom reads nothing of it, and
   * a checkpoint has the trainer's own options. `null` where none was given. Its type is `unknown`: a program in
   * TypeScript says what it kept.
   */
  get options(): unknown {
    return this.#record.options;
  }

  /**
   * Checkpoints, metrics and samples that were found damaged or lost when the run was last loaded, and why. A run is
   * loaded by `Trainer.resume`, `Model.fromPretrained` and the like.
   */
  get problems(): readonly string[] {
    return [...this.#problems];
  }

  /** The whole checkpoints, the newest first. Their bytes are checked when they are loaded. */
  checkpoints(): Promise<StoredCheckpoint[]> {
    return checkpointsOf(this.#opened(), this.id);
  }

  /**
   * The data that `runs.create`, or {@link StoredRun.update}, was given, with its checksums verified. The bytes stay in
   * storage until they are read: read them before an update.
   *
   * @throws {@link TinyloomError} `invalid-checkpoint` where it is damaged, `invalid-options` where there is none.
   */
  data(): Promise<Blob> {
    return this.#file("data");
  }

  /** The tokenizer's text that the run was given; throws as {@link StoredRun.data} does. */
  async tokenizer(): Promise<string> {
    return (await this.#file("tokenizer")).text();
  }

  /**
   * Gives the run other data, options or another tokenizer: for a text that grows. What is left out stays. It is all
   * there when the promise settles, and where it fails, or the page ends meanwhile, nothing of it is. Checkpoints,
   * metrics and samples stay. A trainer that goes on with the new data takes `run(dataset, { dataChanged: true })`.
   *
   * @throws {@link TinyloomError} `invalid-options`, which names the field, `storage-full`, `freed`.
   *
   * @example
   * ```ts
   * await run.update({ data: new Blob([await run.data(), "what was written since"]) });
   * ```
   */
  async update(content: RunContent): Promise<void> {
    const change = contentOf("run.update", content);
    await this.#writes.run(async () => {
      const disk = this.#opened();
      const make = () => updated(disk, this.id, this.#record, change);
      this.#record = await storing(`the run ${show(this.name)}`, make);
    });
  }

  /**
   * The files of the checkpoint with the least loss on validation data, which `keepBest` of `trainer.run` keeps. Its
   * checksums are verified. `Trainer.resume` and `Model.fromPretrained` take them. The bytes stay in storage until
   * they are read: a better checkpoint removes them.
   *
   * @throws {@link TinyloomError} `invalid-options` where there is none, `invalid-checkpoint`.
   */
  async best(): Promise<RunFiles> {
    const disk = this.#opened();
    return storing(`the run ${show(this.name)}`, async () => {
      const best = await bestOf(disk, this.id);
      if (!best) {
        throw invalid(
          `the run ${show(this.name)} has no best checkpoint; trainer.run(data, { evaluateEvery, checkpoint: { run, ` +
            "keepBest: true } }) keeps one",
        );
      }
      const files: { [name: string]: Blob } = {};
      const paths = await verifyCheckpoint(disk, this.id, best.number);
      for (const [name, path] of Object.entries(paths)) files[name] = await disk.blob(path);
      return files;
    });
  }

  /** The metrics of every step, which `trainer.run` notes. A step that was repeated is there once. */
  async metrics(): Promise<NotedMetrics[]> {
    return (await this.#read(this.#logs[METRICS])) as NotedMetrics[];
  }

  /**
   * Notes a step's metrics, as `trainer.run` does with `checkpoint`: for a loop that calls `trainer.save` itself.
   * They are written with the next checkpoint, and by `close()`. Numbers that are not finite are kept as null.
   *
   * @throws {@link TinyloomError} `invalid-options`.
   */
  async addMetrics(metrics: NotedMetrics): Promise<void> {
    this.#opened();
    this.#logs[METRICS].add(entryOf("addMetrics", metrics, true));
  }

  /**
   * Keeps a copy of a sample, as JSON has it; a field that is undefined counts as absent. It is written with the next checkpoint, and by `close()`.
   *
   * @throws {@link TinyloomError} `invalid-options`, also for what JSON cannot hold, such as NaN.
   */
  async addSample(sample: Sample): Promise<void> {
    this.#opened();
    this.#logs[SAMPLES].add(entryOf("addSample", sample));
  }

  /** The samples kept, by their step; those of one step in the order in which they were added. */
  async samples(): Promise<Sample[]> {
    return (await this.#read(this.#logs[SAMPLES])) as Sample[];
  }

  #read(log: Log): Promise<Entry[]> {
    this.#opened();
    return storing(`the run ${show(this.name)}`, () => log.read());
  }

  /** Waits for the checkpoint being written, writes what is noted, and lets other tabs open the run. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closing ??= this.#writes.run(async () => {
      try {
        await this.#flush();
      } finally {
        this.#closed = true;
        await this.#release();
      }
    });
    return this.#closing;
  }

  /** Waits until nobody else writes; gives what ends this turn. */
  #turn(): Promise<() => void> {
    return new Promise((begin, fail) => {
      this.#writes
        .run(() => {
          this.#opened(); // it may have been closed meanwhile
          this.#saving = true;
          return new Promise<void>((end) =>
            begin(() => {
              this.#saving = false;
              end();
            }),
          );
        })
        .catch(fail);
    });
  }

  #opened(): Disk {
    if (!this.#closed) return this.#disk;
    throw new TinyloomError("freed", `the run ${show(this.name)} was closed; open it again`);
  }

  async #flush(): Promise<void> {
    await storing(`the run ${show(this.name)}`, async () => {
      await this.#logs[METRICS].flush();
      await this.#logs[SAMPLES].flush();
    });
  }

  /** Writes the logs; gives how many lines they have. */
  async #logged(): Promise<Lines> {
    await this.#flush();
    return storing(`the run ${show(this.name)}`, async () => {
      const lines: { [log: string]: number } = {};
      for (const [name, log] of Object.entries(this.#logs)) lines[name] = await log.count();
      return lines;
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

  #source(number?: number): Source {
    const disk = this.#opened();
    let chosen: Promise<number> | undefined;
    return {
      place: (name) => `${this.name}/${name}`,
      find: async (name): Promise<FilePart | undefined> => {
        chosen ??= number === undefined ? this.#newest(name) : this.#verified(number);
        return disk.find(pathIn(this.id, await chosen, name));
      },
    };
  }

  async #verified(number: number): Promise<number> {
    await verifyCheckpoint(this.#opened(), this.id, number);
    return number;
  }

  /**
   * The newest checkpoint that has a file, and whose files are as they were written: a trainer resumes from
   * what a trainer saved, whatever models were saved since.
   */
  async #newest(name: string): Promise<number> {
    const problems: string[] = [];
    const numbers = await checkpointsWith(this.#opened(), this.id, name);
    let whole = 0;
    for (const number of numbers) {
      try {
        await verifyCheckpoint(this.#disk, this.id, number);
        whole = number;
        break;
      } catch (error) {
        problems.push(`checkpoint ${number}: ${(error as Error).message}`);
      }
    }
    // What is being saved now has no manifest yet.
    const after = this.#saving ? Number.POSITIVE_INFINITY : whole;
    problems.push(...(await lostManifests(this.#disk, this.id, after)));
    const checkpoints = problems.length;
    const lines = await linesOf(this.#disk, this.id);
    for (const [log, of] of Object.entries(this.#logs)) {
      const problem = await of.problem(lines[log] ?? 0);
      if (problem) problems.push(problem);
    }
    this.#problems = problems;
    if (whole > 0) return whole;
    const why =
      checkpoints > 0
        ? `no whole checkpoint: ${problems.slice(0, checkpoints).join("; ")}`
        : (await this.checkpoints()).length > 0
          ? `no checkpoint with ${name}; a trainer resumes from what trainer.save or trainer.run wrote`
          : "no checkpoint: none yet was written whole";
    throw new TinyloomError("invalid-checkpoint", `the run ${show(this.name)} has ${why}`);
  }
}
