/** What is checked of the options of a model's calls, and how the module takes them. */

import { kvCache, type WeightFormat, weights } from "./formats.js";
import { adapter } from "./generate-options.js";
import type {
  HiddenStatesOptions,
  InferenceOptions,
  LogitsOptions,
  ModelAttentionOptions,
  ModelOptions,
  PretrainedOptions,
  ScoreOptions,
} from "./model-types.js";
import { anything, check, flag, index, list, numeric, type Rules, seed } from "./options.js";
import { LOAD, LONG } from "./progress.js";

export const MODEL: Rules<ModelOptions> = { seed, ...LONG };
export const PRETRAINED: Rules<PretrainedOptions> = { ...LOAD, weights };

export const INFERENCE: Rules<InferenceOptions> = {
  kvCache,
  weights,
  adapter,
  adapters: list,
  ...LONG,
};
export const LOGITS: Rules<LogitsOptions> = { ...INFERENCE, from: index };
export const STATES: Rules<HiddenStatesOptions> = { ...INFERENCE, layer: index };
export const SCORE: Rules<ScoreOptions> = {
  ...INFERENCE,
  targets: anything,
  documents: anything,
  temperature: numeric,
  entropy: flag,
  top: index,
};
export const ATTENTION: Rules<ModelAttentionOptions> = { ...STATES, head: index };

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
  const chosen = check(where, options, rules);
  const others = {
    signal: undefined,
    adapter: undefined,
    adapters: undefined,
    targets: undefined,
    documents: undefined,
  };
  const own = { weights: held, ...chosen, ...others, look };
  return [chosen, JSON.stringify(own)];
}
