/** What `model.prepare` takes. */

import type { GenerateOptions } from "./generate-types.js";
import type { LongOptions } from "./progress.js";

/**
 * A text that is to be written: the options of its `generate`. Kernels depend on `weights`, `kvCache`, adapters,
 * interventions, `alternatives`, `bias`, `heal` and `promptLookup`; of the others nothing is looked at.
 */
export interface PreparedText extends GenerateOptions {
  /** Texts of {@link Model.generateBatch}, 2 to 256. Default 1, a text of {@link Model.generate}. */
  sequences?: number;
  /** Tokens of the prompt and of what is generated; default 256. Large GPUs have kernels of their own for long texts. */
  tokens?: number;
}

/** Options of {@link Model.prepare}. `onProgress` counts kernels. */
export interface PrepareOptions extends LongOptions {
  /** What to prepare for: a text of {@link Model.generate} with default options, or one with these. */
  generate: true | PreparedText;
}
