/**
 * What is loaded when something comes from the web, or from or to a disk or a stream, and when `generate`
 * does more than draw tokens. One part: each further one costs every app some hundred bytes.
 */

export {
  adapterOptions,
  createAdapter,
  loadAdapter,
  mergeAdapter,
  resumeAdapter,
} from "./adapting.js";
export { withAdvice } from "./advice.js";
export { exchanged, saveAveraged } from "./averages.js";
export { generatedBatch } from "./batch.js";
export { begun } from "./begin.js";
export { nonFinite } from "./diverged.js";
export { gradients } from "./gradients.js";
export { prepareHost } from "./host.js";
export { findLearningRate } from "./learning-rate.js";
export { loadRun, loadWeights } from "./loading.js";
export { saveMerged } from "./merging.js";
export { save, saveWeights } from "./saving.js";
export { Tuning } from "./tuned-products.js";
export { findFile } from "./url-source.js";
