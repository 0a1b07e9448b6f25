/** What a run that diverged ends with. */

import { TinyloomError } from "./error.js";
import type { StepMetrics } from "./trainer-types.js";

/**
 * The error of a run whose loss was not finite for several steps in a row.
 *
 * @param good - the last step that was not skipped.
 * @param advice - where good weights are to be had.
 */
export function nonFinite(
  metrics: StepMetrics,
  skipped: number,
  good: number | undefined,
  advice = "go back to files saved earlier, or to a new model",
): TinyloomError {
  const left = good === undefined ? "those that this run began with" : `what step ${good} left`;
  return new TinyloomError(
    "non-finite",
    `the loss or gradient norm was not finite in ${skipped} steps in a row, up to step ` +
      `${metrics.step} (loss ${metrics.loss}). These steps changed nothing; the weights are ${left}. Do not keep them: ` +
      `${advice}, and train with a lower learningRate`,
  );
}
