/** Adds to a trainer that its steps are in the log of its model, and what to save where they cannot be done again. */

import { configWithBase, noGood, save as saveFiles } from "../checkpoint-writer.js";
import type { Data } from "../data.js";
import { TinyloomError, throwIfAborted, toError } from "../error.js";
import { metricsOf } from "../metrics.js";
import { NO_NOTES } from "../notes.js";
import { show } from "../options.js";
import type { RawHandle } from "../raw-handle.js";
import type { RawMetrics, RawTrainer } from "../raw-types.js";
import {
  type Keeping,
  MODEL_FILES,
  type RunHandle,
  type SaveOptions,
  type TrainerSaveOptions,
} from "../save-types.js";
import { stored } from "../stored-runs.js";
import type { AddedState } from "../trainer-state.js";
import type { Recovered, StepMetrics, TrainerFiles } from "../trainer-types.js";
import { cut, type Entry, type RecoveredTrainer, Step } from "./action-log.js";
import type { ModelRecovery } from "./model-recovery.js";
import { type Snapshot, type StoredSnapshot, writerOf } from "./snapshot.js";

/** Nats per token that no weights give which are worth keeping: guessing among 150,000 words costs 12. */
const RUINED = 16;

/** How one trainer comes back with its model. */
export class TrainerRecovery implements RecoveredTrainer {
  readonly model: ModelRecovery;
  readonly handle: RawHandle<RawTrainer>;
  /** As JSON, of a trainer that was made; undefined of one that was resumed with its model. */
  readonly options: string | undefined;
  /** The largest loss that is sound. */
  #most: number | undefined;
  /** What the next metrics tell. */
  recovered: Recovered | undefined;
  /** Its steps when it was made, or when it was last saved into a run of storage. */
  #kept: number;
  /** Its steps as they were last read. */
  #steps: number;

  constructor(model: ModelRecovery, handle: RawHandle<RawTrainer>, options: string | undefined) {
    this.model = model;
    this.handle = handle;
    this.options = options;
    this.#steps = handle.raw.steps();
    this.#kept = this.#steps;
    handle.restorer = model.restorer(handle);
    model.trainers.push(this);
  }

  /** Its steps that no stored run has; those of a freed trainer are the model's. */
  unsaved(): number {
    return this.handle.freed ? 0 : this.#stepsNow() - this.#kept;
  }

  /** The trainer is about to be freed: the model alone has its steps from then on. */
  freed(): void {
    this.model.unsavedOfFreed += this.unsaved();
  }

  /** Its steps, or where it was freed or its module has panicked, as many as it had when they were last read. */
  #stepsNow(): number {
    const { handle, model } = this;
    if (!handle.freed && !model.device.module.panic) this.#steps = handle.raw.steps();
    return this.#steps;
  }

  /** Notes a change of an option, which has just been made. */
  changed(change: (raw: RawTrainer) => void): void {
    const { log } = this.model;
    const steps = log.filter((entry) => entry instanceof Step);
    const after = steps[steps.length - 1];
    log.push({ trainer: this, change, after, calls: after?.calls ?? 0 });
  }

  /** In the model's turn: a step, or a part of one. After a loss it is done again among the others. */
  async step(
    begin: Step["begin"],
    stop: () => boolean,
    signal: AbortSignal | undefined,
    data: Data | undefined,
    own = false,
  ): Promise<StepMetrics> {
    throwIfAborted(signal, "run"); // while it waited for its turn
    const step = this.#begun(begin, stop, data);
    const { raw } = this.handle;
    try {
      return this.#arrived(step, await begin(raw, step.asked), own);
    } catch (error) {
      return await this.#failed(step, raw, error, (done) => this.model.restored(done, signal));
    }
  }

  /** In the model's turn: queues a step, whose metrics arrive later. */
  queue(begin: (raw: RawTrainer) => Promise<RawMetrics>, data: Data): Promise<StepMetrics> {
    const { model } = this;
    const step = this.#begun(begin, () => false, data);
    const { raw } = this.handle;
    const inTurn = (done: () => boolean) => model.queue.run(() => model.restored(done));
    return begin(raw).then(
      (numbers) => this.#arrived(step, numbers),
      (error: unknown) => this.#failed(step, raw, error, inTurn),
    );
  }

  /** Adds what there is to tell. */
  told(metrics: StepMetrics): StepMetrics {
    const { recovered } = this;
    this.recovered = undefined;
    return recovered ? { ...metrics, recovered } : metrics;
  }

  /** Where good weights are to be had after a run that diverged, as advice. */
  good(): string | undefined {
    const { good } = this.model.snapshots;
    if (good && "run" in good) return `resume from ${placeOf(good)}`;
    const own = good?.trainers.get(this);
    return (
      own &&
      `trainer.save({ good: true }) gives those of step ${own.steps}, from before that; resume from them`
    );
  }

  /**
   * The save, or the good snapshot if it is asked for, or where no device comes any more, or the model does not
   * come back, the last snapshot.
   */
  async saveOrSnapshot(
    save: (kept?: (number: number) => void) => Promise<TrainerFiles | undefined>,
    options: TrainerSaveOptions,
    added: AddedState,
    keep: number | undefined,
  ): Promise<TrainerFiles | undefined> {
    const { model } = this;
    const { device } = model;
    const files = { added, keeping: { keep } };
    const { good, ...where } = options;
    if (good) {
      void this.handle.raw;
      const snapshot = model.snapshots.good;
      if (snapshot && "run" in snapshot) {
        const message = `save: good is true, and the good weights are ${placeOf(snapshot)}: resume from there`;
        throw new TinyloomError("invalid-options", message);
      }
      const saved = snapshot && this.#saved(snapshot, where, files);
      if (!saved) throw noGood();
      return saved;
    }
    // Those that begin before the save's turn are in it too.
    const steps = this.#stepsNow();
    try {
      if (!device.failed) {
        const run = stored.find(options.to) && (options.to as RunHandle);
        const files = await save(run && ((number) => this.#keptIn(run, number)));
        if (run) {
          this.#kept = Math.max(this.#kept, steps);
          model.unsavedOfFreed = 0;
        }
        return files;
      }
    } catch (error) {
      if (!device.failed && !model.gone) throw error;
    }
    void this.handle.raw;
    const snapshot = model.snapshots.newest;
    if (snapshot && "run" in snapshot) throw this.#inRun(snapshot);
    // Its error says what there is not.
    return (snapshot && this.#saved(snapshot, where, files)) ?? save();
  }

  /** Writes the files of a snapshot; undefined where it has nothing of this trainer. */
  #saved(
    snapshot: Snapshot,
    options: SaveOptions,
    files: { added: AddedState; keeping: Keeping },
  ): Promise<TrainerFiles | undefined> | undefined {
    const own = snapshot.trainers.get(this);
    if (!own) return undefined;
    return saveFiles<TrainerFiles | undefined>(
      options,
      {
        names: this.model.origin.adapted?.names ?? MODEL_FILES,
        config: configWithBase(snapshot.config, this.model.origin.notes ?? NO_NOTES),
        weights: writerOf(snapshot.weights),
        generation: this.model.origin.notes?.generation,
      },
      { moments: writerOf(own.moments), state: async () => own.state, ...files },
    );
  }

  /** In the model's turn: what it is now is a checkpoint of a run. */
  #keptIn(run: RunHandle, number: number): void {
    const { model } = this;
    if (this.handle.freed || model.handle.freed) return; // while it was saved
    const alive = model.trainers.filter(({ handle }) => !handle.freed);
    if (alive.length > 1) return; // the run has nothing of the others
    const config = model.handle.raw.config();
    const steps = this.handle.raw.steps();
    model.snapshots.kept({ config, run, number, trainer: this, steps });
  }

  #inRun(snapshot: StoredSnapshot): TinyloomError {
    const why = this.model.gone?.message ?? "no device comes any more";
    const message =
      `${why}; the trainer's last snapshot, of step ${snapshot.steps}, is ${placeOf(snapshot)}: ` +
      "resume from there, or export the run";
    return new TinyloomError("device-lost", message);
  }

  #begun(begin: Step["begin"], stop: () => boolean, data: Data | undefined): Step {
    const { model } = this;
    model.snapshots.maybe();
    const { off } = model.snapshots;
    const step = new Step(this, begin, stop, off ? undefined : data);
    if (!off) model.log.push(step);
    return step;
  }

  /** @param own - whether its loss is of an objective of its own: of its size nothing is known. */
  #arrived(step: Step, numbers: RawMetrics, own = false): StepMetrics {
    const metrics = metricsOf(numbers);
    step.metrics = numbers;
    step.sound = own ? !metrics.skipped && Number.isFinite(metrics.loss) : this.#sound(metrics);
    this.model.snapshots.stepped();
    return metrics;
  }

  /** Whether weights gave this that are not ruined. */
  #sound({ loss, skipped }: StepMetrics): boolean {
    if (skipped || Number.isNaN(loss)) return false;
    this.#most ??= Math.max(RUINED, 2 * loss);
    return loss <= this.#most;
  }

  async #failed(
    step: Step,
    raw: RawTrainer,
    thrown: unknown,
    restored: (done: () => boolean) => Promise<void>,
  ): Promise<StepMetrics> {
    const error = toError(thrown);
    if (this.handle.freed || error.code !== "device-lost") {
      const parts = this.#accumulated();
      const done = (thrown as { unread?: boolean } | undefined)?.unread === true;
      this.#gaveUp(step, done);
      if (!(await beginsAgain(raw))) throw thrown;
      if (done) step.unread = true;
      else this.#forget(parts);
      throw thrown;
    }
    try {
      await restored(() => this.handle.raw !== raw);
    } catch (failure) {
      step.cancelled = step.waiting; // else the weights have it
      throw failure;
    }
    if (step.error) throw step.error;
    return metricsOf(step.metrics as RawMetrics);
  }

  /** The entries of the accumulation in progress. */
  #accumulated(): Entry[] {
    const { log } = this.model;
    const updates = (entry: Entry) => {
      if (!(entry instanceof Step && entry.trainer === this)) return false;
      if (entry.unread || !entry.metrics) return entry.unread;
      const { gradNorm, skipped } = metricsOf(entry.metrics);
      return skipped || !Number.isNaN(gradNorm);
    };
    return log.slice(log.map(updates).lastIndexOf(true) + 1);
  }

  /** Steps are not done again. */
  #forget(entries: readonly Entry[]): void {
    const { log } = this.model;
    for (const entry of entries) {
      const at = entry instanceof Step && entry.trainer === this ? log.indexOf(entry) : -1;
      if (at >= 0) cut(log, at, 1);
    }
  }

  /**
   * A step that failed is as if it had not been, but for the parts of an accumulation that are done.
   *
   * @param done - whether the part that failed is done too: its result alone did not arrive.
   */
  #gaveUp(step: Step, done: boolean): void {
    if (done || step.calls > 0) {
      step.limit = step.calls + (done ? 1 : 0);
      return;
    }
    const { log, snapshots, restoring } = this.model;
    const at = log.indexOf(step);
    if (restoring)
      step.cancelled = step.waiting; // the log is being done again
    else if (at >= 0) cut(log, at, 1);
    snapshots.spoil();
  }
}

/** Whether the accumulation begins again after a step that failed: the GPU may have refused a piece of it alone. */
async function beginsAgain(raw: RawTrainer): Promise<boolean> {
  try {
    if (JSON.parse(raw.options()).gradientAccumulation === 1) return false;
    return JSON.parse(await raw.state()).progress.microStep === 0;
  } catch {
    return false; // freed, or lost meanwhile
  }
}

/** Where a snapshot in a run is. */
const placeOf = ({ run, number }: StoredSnapshot) =>
  `checkpoint ${number} of the run ${show(run.name)}`;
