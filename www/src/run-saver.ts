import type { StepMetrics, StoredRun, Trainer } from "tinyloom/worker";
import { isFull, type KeptSample, type KeptScore, type RunStore } from "./run-store.ts";

/** A checkpoint of the run. */
export interface Stored {
  readonly step: number;
  readonly bytes: number;
}

/** Between two checkpoints lie PAUSE milliseconds at least, and at least SHARE times as long as one takes. */
const [PAUSE, SHARE] = [2000, 20];

/** Keeps a run while it trains: curve and samples as they come, the model every few seconds. */
export class RunSaver {
  readonly #store: RunStore;
  readonly #trainer: Trainer;
  #run: StoredRun;
  /** When the next checkpoint is due; without storage none is, until the run stops. */
  #due: number;
  #stored: Stored | undefined;
  /** Whether curve or samples have grown since. */
  #grown = false;
  /** A score that the run's description does not have yet. */
  #score: KeptScore | undefined;

  private constructor(store: RunStore, trainer: Trainer, run: StoredRun, outlives: boolean) {
    this.#store = store;
    this.#trainer = trainer;
    this.#run = run;
    this.#due = outlives ? performance.now() + PAUSE : Number.POSITIVE_INFINITY;
  }

  static async of(store: RunStore, trainer: Trainer, run: StoredRun): Promise<RunSaver> {
    return new RunSaver(store, trainer, run, await store.outlives(run));
  }

  /** The run, which is another once the storage was full. */
  get run(): StoredRun {
    return this.#run;
  }

  /** The newest checkpoint since the page has the run. */
  get stored(): Stored | undefined {
    return this.#stored;
  }

  /** Whether the run ends with the page. */
  get inMemory(): boolean {
    return this.#due === Number.POSITIVE_INFINITY;
  }

  note(metrics: StepMetrics): Promise<void> {
    this.#grown = true;
    return this.#run.addMetrics(metrics);
  }

  sample(sample: KeptSample): Promise<void> {
    this.#grown = true;
    const { step, score } = sample;
    if (score) this.#score = { ...score, step };
    return this.#run.addSample(sample);
  }

  /** Makes the next `saveIfDue` save: the page may be about to end. */
  hurry(): void {
    if (!this.inMemory) this.#due = 0;
  }

  /** A checkpoint, where one is due. */
  async saveIfDue(): Promise<void> {
    if (performance.now() >= this.#due) await this.save();
  }

  /** A checkpoint of this step, with all that was noted. If the storage is full, the run goes on in memory. */
  async save(): Promise<void> {
    if (this.#stored?.step !== this.#trainer.steps || this.#grown) await this.#save();
  }

  /** A checkpoint of the last snapshot, which is all that a GPU leaves that is lost for good; of no earlier step. */
  async rescue(snapshot: number): Promise<void> {
    if (snapshot > (this.#stored?.step ?? -1)) await this.#save();
  }

  async #save(): Promise<void> {
    const began = performance.now();
    this.#grown = false;
    try {
      await this.#write();
    } catch (error) {
      if (!isFull(error)) throw error;
      this.#run = await this.#store.moveToMemory(this.#run);
      this.#due = Number.POSITIVE_INFINITY;
      await this.#write();
    }
    const now = performance.now();
    if (!this.inMemory) this.#due = now + Math.max(PAUSE, SHARE * (now - began));
  }

  /** Writes model, curve and samples, and into the run's description the score: the list of runs opens none. */
  async #write(): Promise<void> {
    await this.#trainer.save({ to: this.#run });
    // Not the trainer's step: a GPU that is lost for good leaves a snapshot of an earlier one.
    const [newest] = await this.#run.checkpoints();
    this.#stored = newest && { step: newest.step ?? 0, bytes: newest.bytes };
    const score = this.#score;
    if (!score || score.step > (this.#stored?.step ?? -1)) return;
    await this.#run.update({ options: { ...(this.#run.options as object), score } });
    if (this.#score === score) this.#score = undefined;
  }
}
