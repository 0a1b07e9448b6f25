/** What `tinyloom` loads beside the wasm module, and not before: files, adapters, recovery, and texts that are generated. */

export {
  adapterOptions,
  createAdapter,
  loadAdapter,
  mergeAdapter,
  resumeAdapter,
  sumOfAdapters,
} from "./adapter-lifecycle.js";
export { exchanged, saveAveraged } from "./averages.js";
export { attribute, capture, lens } from "./capture.js";
export { configIn, loadRun, loadWeights } from "./checkpoint-loader.js";
export { configWithBase, save, saveWeights } from "./checkpoint-writer.js";
export { embed } from "./embed.js";
export { tokensOfBatch } from "./generate-batch.js";
export { begun } from "./generate-prompt.js";
export { gradients } from "./gradients.js";
export { words } from "./hint-words.js";
export { prepareHost } from "./host.js";
export { interventionsOf } from "./interventions.js";
export { expectKnown } from "./known-tokens.js";
export { findLearningRate } from "./learning-rate.js";
export { saveMerged } from "./merged-checkpoint.js";
export { created, loaded } from "./model-making.js";
export { parameter, setParameter } from "./parameters.js";
export { openPicked } from "./picked-folder.js";
export { prepare, prepareTrainer } from "./prepare.js";
export { recovering } from "./recovery/index.js";
export { RunSaver } from "./run-saver.js";
export { scores } from "./score.js";
export { stepBy } from "./step-objective.js";
export { Tuning } from "./tuned-products.js";
export { findFile } from "./url-files.js";
