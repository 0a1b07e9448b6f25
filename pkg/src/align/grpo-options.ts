/** The options of `grpo`, and what it refuses before it begins. */

import { TinyloomError } from "../error.js";
import type { Model } from "../model.js";
import {
  abortSignal,
  callback,
  inspect,
  integer,
  invalid,
  number,
  oneOf,
  orNull,
  type Rules,
  tokenizer,
} from "../options.js";
import type { TextDecoding } from "../tokenizer-types.js";
import type { TokenIds } from "../tokens.js";
import type { Trainer } from "../trainer.js";
import { type Anywhere, expectReference, modelRule, scale } from "./checks.js";
import type { Bounds } from "./policy.js";
import type { Reward, Source } from "./rollouts.js";
import { type AlignCheckpoint, checkpointRule } from "./stored.js";

/** Options of {@link grpo}. */
export interface GrpoOptions {
  /** What a text is worth. It may give a promise; all texts of a step are asked for at once. */
  reward: Reward;
  /** Gives the reward each text as a string. Without it `text` is empty, and there are the tokens. */
  tokenizer?: TextDecoding;
  /** Texts for each prompt, at least 2; default 8. */
  group?: number;
  /** Prompts in a micro-step; default 1. */
  promptsPerStep?: number;
  /** The most tokens of a text; default 256. */
  maxTokens?: number;
  /** Of the sampling and of all log-probabilities; default 1. */
  temperature?: number;
  /** Optimizer steps on the same texts; default 1. */
  updates?: number;
  /** How far the ratio of a token's probabilities, new to old, counts from 1 downwards, and upwards; default 0.2. */
  clip?: number;
  /** How far it counts upwards; default `clip`. */
  clipHigh?: number;
  /** The weight of the divergence from the reference; default 0: none. */
  klCoefficient?: number;
  /**
   * Another model. Default, where `klCoefficient` is above 0: of an adapter's trainer the model without the adapter. Another
   * trainer has to be given a model.
   */
  reference?: Anywhere<Model>;
  /**
   * What the rewards less the mean of their group are divided by, to be advantages: the standard deviation of the `"group"`,
   * the default, or of all texts of the step (`"batch"`), each plus 1e-4, or nothing (`"none"`).
   */
  advantages?: "group" | "batch" | "none";
  /**
   * The mean over tokens: `"dapo"`, the default, over all tokens of the step (Yu et al., arXiv:2503.14476); `"grpo"` over
   * those of each text, and then over texts (Shao et al., arXiv:2402.03300); `"dr_grpo"` the sum over texts × `maxTokens`
   * (Liu et al., arXiv:2503.20783).
   */
  loss?: "dapo" | "grpo" | "dr_grpo";
  /** The one token that ends a text; null for none. Default: the tokenizer's `endToken`, else the model's first one. */
  stopToken?: number | null;
  /** Optimizer steps, a multiple of `updates`; default as many as go over all prompts once. */
  steps?: number;
  /** Saves into storage. A trainer that is resumed from it goes on, to the bit where the reward always gives the same. */
  checkpoint?: AlignCheckpoint;
  signal?: AbortSignal;
}

export const GRPO: Rules<GrpoOptions> = {
  reward: callback,
  tokenizer,
  group: integer(2),
  promptsPerStep: integer(1),
  maxTokens: integer(1),
  temperature: number(1e-3, 1e6),
  updates: integer(1),
  clip: number(0, 1),
  clipHigh: number(0),
  klCoefficient: scale(0),
  reference: modelRule,
  advantages: oneOf("group", "batch", "none"),
  loss: oneOf("dapo", "grpo", "dr_grpo"),
  stopToken: orNull(integer(0)),
  steps: integer(1),
  checkpoint: checkpointRule,
  signal: abortSignal,
};

/** The options in force. */
export interface Settings extends Bounds {
  readonly trainer: Trainer;
  readonly source: Source;
  readonly reward: Reward;
  readonly reference: Model | undefined;
  readonly group: number;
  readonly promptsPerStep: number;
  /** Prompts of a step. */
  readonly perStep: number;
  readonly advantages: "group" | "batch" | "none";
  readonly loss: "dapo" | "grpo" | "dr_grpo";
}

/** The tokens of the longest prompt. Refuses one that leaves the model no position for a text. */
function longestOf(prompts: readonly TokenIds[], positions: number): number {
  const longest = prompts.reduce((most, prompt) => Math.max(most, prompt.length), 0);
  if (longest < positions) return longest;
  const at = prompts.findIndex((prompt) => prompt.length === longest);
  throw new TinyloomError(
    "invalid-tokens",
    `grpo: prompts[${at}] has ${longest} tokens, and the model has ${positions} positions: no text fits after it; shorten it`,
  );
}

/** The options in force. Refuses those that the trainer, its model or the prompts rule out. */
export function settingsOf(
  trainer: Trainer,
  prompts: readonly TokenIds[],
  given: GrpoOptions,
): Settings {
  const { group = 8, promptsPerStep = 1, maxTokens = 256, temperature = 1 } = given;
  const { clip = 0.2, clipHigh = clip, klCoefficient = 0, loss = "dapo", signal } = given;
  const { advantages = "group", tokenizer, reward } = given;
  const { model, adapter, options } = trainer;
  const { reference = klCoefficient > 0 ? adapter && model : undefined } = given;
  const { eos_token_id: ends } = model.config;
  const endToken = inspect("grpo: tokenizer", () => tokenizer?.endToken);
  const { stopToken = endToken ?? (Array.isArray(ends) ? ends[0] : ends) } = given;
  if (prompts.length === 0) throw invalid("grpo: there are no prompts; give at least one");
  if (klCoefficient > 0 || reference) {
    expectReference("grpo", trainer, reference, ", or klCoefficient 0");
  }
  const longest = longestOf(prompts, model.config.max_position_embeddings);
  const texts = promptsPerStep * group;
  const length = Math.min(longest + maxTokens, model.config.max_position_embeddings);
  if (texts * length > options.tokensPerStep) {
    throw invalid(
      `grpo: a micro-step may have ${texts} texts of ${length} tokens, ${texts * length} in all, and tokensPerStep is ` +
        `${options.tokensPerStep}; lower promptsPerStep, group or maxTokens, or make the trainer with a larger tokensPerStep`,
    );
  }
  const ending = typeof stopToken === "number" ? stopToken : undefined;
  const vocabulary = model.config.vocab_size;
  if (ending !== undefined && ending >= vocabulary) {
    throw invalid(`grpo: stopToken is ${ending}; it must be below vocab_size, ${vocabulary}`);
  }
  const source = { model, adapter, temperature, maxTokens, tokenizer, signal, stopToken: ending };
  const bounds = { clip, clipHigh, klCoefficient };
  const perStep = promptsPerStep * options.gradientAccumulation;
  const numbers = { group, promptsPerStep, perStep, advantages, loss, ...bounds };
  return { trainer, source, reward, reference, ...numbers };
}
