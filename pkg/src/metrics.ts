/** The metrics of a step, as the module reports them. */

import type { RawMetrics } from "./raw.js";
import type { StepMetrics } from "./trainer-types.js";

export function metricsOf(numbers: RawMetrics): StepMetrics {
  const [step, loss, gradNorm, learningRate, tokens, unfilled, milliseconds, skipped] = numbers;
  return {
    step,
    loss,
    gradNorm,
    learningRate,
    tokens,
    unfilled,
    milliseconds,
    skipped: skipped !== 0,
  };
}
