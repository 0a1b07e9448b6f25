/** When a run of a trainer saves into storage, and what of its checkpoints is the best. */

import { toError } from "./error.js";
import type { Best, Keeping, RunHandle } from "./save-types.js";
import { stored } from "./stored-runs.js";
import type { CheckpointOptions, StepMetrics } from "./trainer-types.js";

/** Saves into a stored run. */
type Save = (run: RunHandle, keeping: Keeping, signal?: AbortSignal) => Promise<void>;

/** What a run saves by. */
interface Parts {
  readonly save: Save;
  readonly signal: AbortSignal | undefined;
  /** What tells the data that losses are of. */
  readonly data: string;
  /** Whether a best checkpoint of before counts: its loss is of the same data. */
  readonly fresh: boolean;
}

export class RunSaver {
  readonly #options: CheckpointOptions;
  readonly #parts: Parts;
  #best: Best | undefined;
  /** The step of the newest checkpoint that it wrote, and that of the last step. */
  #saved: number;
  #seen: number;

  private constructor(options: CheckpointOptions, parts: Parts, step: number) {
    this.#options = options;
    this.#parts = parts;
    this.#saved = step;
    this.#seen = step;
  }

  /** @param step - the trainer's, before the run. */
  static async of(options: CheckpointOptions, parts: Parts, step: number): Promise<RunSaver> {
    const made = new RunSaver(options, parts, step);
    const before = options.keepBest ? await stored.of(options.run).best() : undefined;
    if (!parts.fresh && before?.data === parts.data) made.#best = before;
    return made;
  }

  /** Notes a step, and saves where that is due. The GPU has no later step yet. */
  async stepped(metrics: StepMetrics, due: boolean): Promise<void> {
    const { run, keep, keepBest } = this.#options;
    const { save, signal, data } = this.#parts;
    this.#note(metrics);
    const { validationLoss: loss = Number.NaN } = metrics;
    const better = keepBest && loss < (this.#best?.loss ?? Number.POSITIVE_INFINITY);
    if (!due && !better) return;
    await save(run, { keep, ...(better && { best: { loss, data } }) }, signal);
    if (better) this.#best = { loss, data };
    this.#saved = metrics.step;
  }

  /**
   * The run ends before its last step, by its signal or since its loop was left.
   *
   * @param queued - the metrics of steps that were on their way.
   */
  async stopped(queued: readonly StepMetrics[]): Promise<void> {
    const { run, keep, onAbort } = this.#options;
    if (!onAbort) return;
    for (const metrics of queued) this.#note(metrics);
    if (this.#seen <= this.#saved) return;
    try {
      await this.#parts.save(run, { keep }); // the signal would end the save too
    } catch (error) {
      if (toError(error).code !== "freed") throw error; // with the trainer went what was to be saved
    }
  }

  #note(metrics: StepMetrics): void {
    stored.of(this.#options.run).note(metrics);
    this.#seen = metrics.step;
  }
}
