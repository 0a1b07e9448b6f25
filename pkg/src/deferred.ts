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
} from "./adapter-lifecycle.js";
export { withAdvice } from "./advice.js";
export { exchanged, saveAveraged } from "./averages.js";
export { loadRun, loadWeights } from "./checkpoint-loader.js";
export { save, saveWeights } from "./checkpoint-writer.js";
export { generatedBatch } from "./generate-batch.js";
export { begun } from "./generate-prompt.js";
export { gradients } from "./gradients.js";
export { prepareHost } from "./host.js";
export { findLearningRate } from "./learning-rate.js";
export { saveMerged } from "./merged-checkpoint.js";
export { nonFinite } from "./non-finite.js";
export { Tuning } from "./tuned-products.js";
export { findFile } from "./url-files.js";
