/** What a run of a trainer is asked for. */

import type { Dataset } from "./dataset.js";
import type { CheckpointOptions } from "./trainer-types.js";

/** Options of `Trainer.run`. */
export interface RunOptions {
  /**
   * How many steps this run does. A `step()` between them does not count. By default the run ends at
   * `until`, or else at the `totalSteps` that `Trainer.create` was given, or else never.
   */
  steps?: number;
  /** Ends when `trainer.steps` reaches this number. It cannot be combined with `steps`. */
  until?: number;
  /** Stops with code "aborted" between two steps or micro-steps. */
  signal?: AbortSignal;
  /** Evaluates at each multiple of this number of the trainer's steps, and at the run's last step. */
  evaluateEvery?: number;
  /** Evaluates on all of this dataset, and not on the validation split of the one that is trained on. */
  evaluateOn?: Dataset;
  /** Skipped steps in a row after which the run ends with code "non-finite"; default 3. */
  maxSkipped?: number;
  /**
   * How many further steps are submitted before the metrics of a step arrive; default 0, at most 16.
   * A short step then need not wait until its loss is read. No step is submitted past an evaluation.
   * The model is this many steps ahead of the metrics. Leaving the loop waits for the submitted steps.
   * It cannot be combined with `gradientAccumulation`.
   */
  stepsAhead?: number;
  /**
   * Lets the first run after a resume draw from other data than the run that was saved, or draw from the same
   * data in another way: with another `sequenceLength`, `validationFraction` or `seed` of the dataset. It also
   * allows any data where the state does not say from which it drew. Default false: such a run is refused.
   */
  dataChanged?: boolean;
  /**
   * Saves into storage. A step after which it saves is yielded when the checkpoint is whole. A run that is
   * left or stopped does not save at its end, but with `onAbort`. If a save fails, so does the run; earlier
   * checkpoints stay.
   */
  checkpoint?: CheckpointOptions;
}
