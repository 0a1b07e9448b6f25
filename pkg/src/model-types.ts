/** The options that a model's calls take, and the files that they give. */

import type { AdapterOption, WeightedAdapter } from "./adapter-types.js";
import type { KvCache, WeightFormat } from "./formats.js";
import type { Intervened } from "./interventions-types.js";
import type { LoadOptions, LongOptions } from "./progress.js";
import type { TextEncoding } from "./tokenizer-types.js";
import type { TokenIds } from "./tokens.js";

/** Options of {@link Model.create}. */
export interface ModelOptions extends LongOptions {
  /** Seed of the initial weights, an unsigned 32-bit number; default 0. */
  seed?: number;
}

/** Options of {@link Model.loss}, among those of {@link Model.logits}. `onProgress` counts tokens. */
export interface InferenceOptions extends LongOptions, Intervened {
  /**
   * The format of the keys and values that attention reads, as in {@link GenerateOptions}. The loss
   * shows what a packed cache costs a model. Default "f32".
   */
  kvCache?: KvCache;
  /** The format in which matrices are read, as in {@link GenerateOptions}. */
  weights?: WeightFormat;
  /** An {@link Adapter} of the model; without it the model alone is asked. */
  adapter?: AdapterOption;
  /** Several adapters of the model, summed up: each adds what it adds alone, times its `scale`. */
  adapters?: readonly WeightedAdapter[];
}

/** Options of {@link Model.score}. `onProgress` counts tokens. */
export interface ScoreOptions extends InferenceOptions {
  /**
   * The ids that log-probabilities are asked of, one for each token; 0xffffffff for none. Default: the next tokens of
   * each document.
   */
  targets?: TokenIds;
  /** The index at which each position's document starts; by default the tokens are one document. */
  documents?: TokenIds;
  /** Divides the logits, from 1e-6 to 1e6; default 1. */
  temperature?: number;
  /** Asks for the entropy of each position. */
  entropy?: boolean;
  /** Asks for this number of likeliest ids at each position, at most 64. */
  top?: number;
}

/** What {@link Model.score} gives. */
export interface Scores {
  /** The log-probability of each target in nats; 0 where there is none. */
  readonly logprobs: Float32Array;
  /** The entropy of each position in nats, where `entropy` asked for it. */
  readonly entropy?: Float32Array;
  /** `top` ids of each position, the likeliest first, with their probabilities. */
  readonly top?: { readonly ids: Uint32Array; readonly probabilities: Float32Array };
}

/** Options of {@link Model.logits}. */
export interface LogitsOptions extends InferenceOptions {
  /**
   * The first position whose logits are given, below `tokens.length`; default 0. Above 0 the text before is not
   * computed again where the last text with the same `kvCache` and `weights` began with it. To go back, give a text
   * that has less in common with the last one.
   */
  from?: number;
}

/** Options of {@link Model.embed}. `onProgress` counts texts. */
export interface EmbedOptions extends InferenceOptions {
  /** Makes tokens of texts, with what it puts around a text. Needed where a text is given. */
  tokenizer?: TextEncoding;
  /** Which hidden state stands for a text: that of its last token, of its first, or the mean of all. Default "last". */
  pooling?: "last" | "mean" | "first";
  /** Whether embeddings have length 1, so that products of two are cosines; default true. */
  normalize?: boolean;
  /**
   * What the search is for, in one sentence: each text is embedded as `Instruct: …\nQuery:…`, as Qwen3-Embedding has it
   * for queries. Documents take none.
   */
  instruction?: string;
}

/** Options of {@link Model.hiddenStates}. */
export interface HiddenStatesOptions extends InferenceOptions {
  /**
   * Which hidden state, counted as transformers counts `output_hidden_states`: 0 is the embedding, i the
   * output of the first i layers, and `num_hidden_layers` the output of the last layer after the final
   * norm.
   */
  layer: number;
}

/** Options of {@link Model.attention}. */
export interface ModelAttentionOptions extends InferenceOptions {
  /** The layer, from 0 to `num_hidden_layers - 1`. */
  layer: number;
  /** The head of queries, from 0 to `num_attention_heads - 1`. */
  head: number;
}

/** Files of {@link Model.save}. */
export interface ModelFiles {
  [name: string]: Uint8Array<ArrayBuffer>;
  "config.json": Uint8Array<ArrayBuffer>;
  "model.safetensors": Uint8Array<ArrayBuffer>;
}

/** Files of {@link Model.save} for llama.cpp. */
export interface GgufFiles {
  [name: string]: Uint8Array<ArrayBuffer>;
  "model.gguf": Uint8Array<ArrayBuffer>;
}

/** Options of {@link Model.fromPretrained}. */
export interface PretrainedOptions extends LoadOptions {
  /**
   * The format in which the model holds its matrices, embedding and head among them; default "f32". With "f16",
   * "int8" and "int4" they take 1/2, 9/32 and 5/32 of the memory. They are packed as they arrive, so that no
   * matrix is ever whole in f32; norms, biases and matrices whose rows are not a multiple of 32 stay f32. A packed
   * model generates, and adapters are trained on it. It has not the checkpoint's own numbers: it is neither
   * trained nor saved itself, no adapter is merged into it, and it is read in no other format.
   */
  weights?: WeightFormat;
}
