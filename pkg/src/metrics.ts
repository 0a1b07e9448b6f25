/** The metrics of a step, as the module reports them. */

import type { RawMetrics } from "./raw.js";
import type { StepMetrics } from "./trainer-types.js";

/** What the numbers are. */
type Numbers = readonly [
  step: number,
  loss: number,
  gradNorm: number,
  learningRate: number,
  tokens: number,
  unfilled: number,
  milliseconds: number,
  skipped: number,
];

export function metricsOf(numbers: RawMetrics): StepMetrics {
  const [step, loss, gradNorm, learningRate, tokens, unfilled, milliseconds, skipped] =
    numbers as unknown as Numbers;
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
