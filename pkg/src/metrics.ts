/** The metrics of a step, as the module reports them. */

import type { RawMetrics } from "./raw-types.js";
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
  cut?: number,
];

/** The numbers of a step over a dataset, of whose documents it has read `cut` in pieces. */
export const withCut = (numbers: RawMetrics, cut = 0): RawMetrics =>
  cut > 0 ? Float64Array.of(...numbers, cut) : numbers;

export function metricsOf(numbers: RawMetrics): StepMetrics {
  const [step, loss, gradNorm, learningRate, tokens, unfilled, milliseconds, skipped, cut = 0] =
    numbers as unknown as Numbers;
  return {
    step,
    loss,
    gradNorm,
    learningRate,
    tokens,
    unfilled,
    cut,
    milliseconds,
    skipped: skipped !== 0,
  };
}
