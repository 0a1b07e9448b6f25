/** The metrics of a step, as the module reports them. */

import type { StepMetrics } from "./trainer-types.js";

/** The metrics of a step. JSON has no NaN: a number that is not finite arrives as null. */
export function metricsOf(json: string): StepMetrics {
  const metrics = JSON.parse(json) as { -readonly [K in keyof StepMetrics]: StepMetrics[K] };
  metrics.loss ??= NaN;
  metrics.gradNorm ??= NaN;
  return metrics;
}
