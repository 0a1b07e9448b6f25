/** What is checked of the options of a model's calls, and how the module takes them. */

import { kvCache, type WeightFormat, weights } from "./formats.js";
import { adapter } from "./generate-options.js";
import type { Intervened } from "./interventions-types.js";
import type {
  HiddenStatesOptions,
  InferenceOptions,
  LogitsOptions,
  ModelAttentionOptions,
  ModelOptions,
  PretrainedOptions,
  ScoreOptions,
} from "./model-types.js";
import {
  anything,
  check,
  copied,
  flag,
  index,
  inspect,
  list,
  number,
  type Rules,
  seed,
} from "./options.js";
import { LOAD, LONG } from "./progress.js";

export const MODEL: Rules<ModelOptions> = { seed, ...LONG };
export const PRETRAINED: Rules<PretrainedOptions> = { ...LOAD, weights };

export const INFERENCE: Rules<InferenceOptions> = {
  kvCache,
  weights,
  adapter,
  adapters: list,
  interventions: list,
  ...LONG,
};
export const LOGITS: Rules<LogitsOptions> = { ...INFERENCE, from: index };
export const STATES: Rules<HiddenStatesOptions> = { ...INFERENCE, layer: index };
export const SCORE: Rules<ScoreOptions> = {
  ...INFERENCE,
  targets: anything,
  documents: anything,
  temperature: number(1e-6, 1e6), // JSON, which the module reads, has no NaN
  entropy: flag,
  top: index,
};
export const ATTENTION: Rules<ModelAttentionOptions> = { ...STATES, head: index };

/** Options whose interventions are those of the call, whatever becomes of the caller's. */
export function copiedInterventions<O extends Intervened>(options: O): O {
  const { interventions } = options;
  return interventions ? { ...options, interventions: copied(interventions) } : options;
}

/**
 * The checked options, and the module's own of them as JSON.
 *
 * @param held - the format in which the model holds its matrices.
 * @param look - what is read of the model, where that is not the loss.
 */
export function inference<O extends InferenceOptions>(
  where: string,
  options: O,
  rules: Rules<O>,
  held: WeightFormat,
  look?: string,
): [O, string] {
  const chosen = inspect(where, () => copiedInterventions(check(where, options, rules)));
  const others = {
    signal: undefined,
    adapter: undefined,
    adapters: undefined,
    interventions: undefined,
    targets: undefined,
    documents: undefined,
  };
  const own = { weights: held, ...chosen, ...others, look };
  return [chosen, JSON.stringify(own)];
}
