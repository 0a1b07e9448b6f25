/** What `generate` and `generateBatch` take and give. */

import type { AdapterOption, WeightedAdapter } from "./adapter-types.js";
import type { KvCache, WeightFormat } from "./formats.js";
import type { Intervened } from "./interventions-types.js";
import type { TextDecoding } from "./tokenizer-types.js";
import type { TokenIds } from "./tokens.js";

/** Options of `model.generate`. */
export interface GenerateOptions extends Intervened {
  /**
   * The most tokens to generate; default 128. Prompt and generated tokens together never exceed
   * `max_position_embeddings`, so a prompt of that length gets no token.
   */
  maxTokens?: number;
  /** 0 takes the likeliest token each time. Other values are at least 0.001. Default 0.8. */
  temperature?: number;
  /** Keep only the k likeliest tokens; 0 keeps all. */
  topK?: number;
  /** Keep the likeliest tokens that together reach this probability; from 1.2e-38 to 1. */
  topP?: number;
  /** Keep tokens of at least this share of the likeliest one's probability; 0 up to below 1. */
  minP?: number;
  /** Above 1 makes tokens that occurred less likely; default 1. */
  repetitionPenalty?: number;
  /**
   * Seed of the sampling, an unsigned 32-bit number. Default: drawn once per call, of `generateBatch` once per text.
   * `seed` of what `generate` returns, and `seeds` of what `generateBatch` returns, tell it. The same seed gives the
   * same text.
   */
  seed?: number;
  /**
   * The text ends before one of these tokens. Default: the ends that the model and the tokenizer name, all of them:
   * `eos_token_id` of `generation_config.json` and of `config.json`, and the tokenizer's `endToken`. `[]` for none.
   */
  stopTokens?: readonly number[] | Uint32Array;
  /**
   * The text ends before the first of these strings, wherever tokens begin and end. It needs `tokenizer`.
   * The prompt is not searched. Text that may begin such a string is held back, with its tokens, until the
   * next tokens decide. The last token that is given may have more text of its own than its `text`.
   */
  stop?: readonly string[];
  /**
   * The tokenizer that turns the tokens into text: each one then comes with its `text`. With it the prompt may be a
   * text, which is encoded with the special tokens that the tokenizer puts before one, such as `<bos>`.
   */
  tokenizer?: TextDecoding;
  /** Leaves special tokens out of each token's `text`, such as `<|im_end|>`; default false. It needs `tokenizer`. */
  skipSpecialTokens?: boolean;
  /**
   * The format in which keys and values of the text are kept. "f32", the default, is exact. "f16" takes
   * half the memory. "int8", with a scale per head and token, takes a little over a quarter. A longer
   * text spends more time on reading them. Neither needs a feature of the adapter. "f16" changes the
   * output of attention by less than 0.2 %, "int8" by less than 2 %, so tokens of nearly equal
   * probability may change places. A key or value beyond 65504, which f16 cannot hold, ends a text with code
   * "non-finite"; the other two hold it. Reading a prompt also takes one layer's keys and values in f32.
   * The cache grows with the text. Each pair of `kvCache` and `weights`, also of `logits` and `loss`,
   * has a cache of its own. A cache stays until the model is freed or another pair needs its memory.
   */
  kvCache?: KvCache;
  /**
   * The format in which matrices are read; default "f32". A model that was loaded packed is read in its own
   * format, the default there, and any other is refused. Per token, "f16" reads half the bytes. "int8"
   * and "int4", with one scale per 32 weights, read 9/32 and 5/32 of them. The packed copies take that
   * much memory besides the f32 weights, and the GPU packs them again after each training step. Norms,
   * embeddings and matrices whose rows are not a multiple of 32 stay f32. To read a prompt, each matrix
   * is unpacked once per chunk of tokens. `loss` measures what a format costs a model.
   */
  weights?: WeightFormat;
  /**
   * How many of the likeliest tokens come with each token, as its `alternatives`: 1 to 32, and at most
   * `vocab_size`. They take no further submit.
   */
  alternatives?: number;
  /**
   * What is added to the logits of tokens before the temperature, after the repetition penalty: pairs of a
   * token and a number, a `Float32Array` of `vocab_size` numbers, or a function of the tokens so far,
   * prompt and all, that gives one of these or undefined. Numbers are from -1e9 to 1e9; `-Infinity` keeps
   * a token out. The function is called before each token, which then takes a submit of its own. It may
   * give a promise, and must not await this generation.
   */
  bias?:
    | TokenBias
    | ((tokens: Uint32Array) => TokenBias | undefined | Promise<TokenBias | undefined>);
  /**
   * Prompt lookup: where the last tokens occurred before in prompt or text, what followed there is checked, up to 15
   * tokens in one pass. The text is the same as without it, up to the rounding of sums in another order. It is
   * faster where a text repeats itself or its prompt, as edits, code and answers from a document do. Elsewhere checks
   * do not begin: that is decided by how often they would have been right. Not with `alternatives`, `bias` and
   * `repetitionPenalty`. Default false.
   */
  promptLookup?: boolean;
  /**
   * Token healing: a prompt may end within a word. Its last tokens are taken back where a longer token begins with
   * their text, and the first tokens that are drawn have to spell that text anew. `text` goes on where the prompt
   * ended; tokens and `maxTokens` count from what was taken back. It needs a `tokenizer` of byte-pair encoding, with
   * `tokenizer.json`. Default false.
   */
  heal?: boolean;
  /**
   * An {@link Adapter} of the model, which is read with it; without it the model alone generates. Adapters may take turns,
   * also while one is trained.
   */
  adapter?: AdapterOption;
  /** Several adapters of the model, summed up: each adds what it adds alone, times its `scale`. */
  adapters?: readonly WeightedAdapter[];
  /** Ends with code "aborted". */
  signal?: AbortSignal;
}

/** What `model.generate` gives: the tokens as they are drawn. */
export interface Generation<Token extends GeneratedToken = GeneratedToken>
  extends AsyncGenerator<Token, void, undefined> {
  /** The seed in use, given or drawn: with it the text repeats. */
  readonly seed: number;
}

/** What `model.generateBatch` gives: the tokens of all texts as they are drawn. */
export interface BatchGeneration<Token extends BatchToken = BatchToken>
  extends AsyncGenerator<Token, void, undefined> {
  /** The seed of each text, given or drawn. */
  readonly seeds: readonly number[];
}

/** Options of `model.generateBatch`: those of `generate` but for `alternatives`, `bias`, `promptLookup` and `heal`. */
export interface BatchOptions
  extends Omit<GenerateOptions, "alternatives" | "bias" | "promptLookup" | "heal"> {}

/**
 * A prompt of `model.generateBatch` with options of its own, before those of the call. Its `adapter` or `adapters` stand
 * in place of the call's. The texts of each adapter take passes of their own.
 */
export interface BatchPrompt
  extends Omit<
    BatchOptions,
    "tokenizer" | "skipSpecialTokens" | "kvCache" | "weights" | "interventions" | "signal"
  > {
  /** At least one token, or a text for the call's tokenizer. */
  prompt: TokenIds | string;
}

/** A token that was sampled for one of several prompts. */
export interface BatchToken extends Omit<GeneratedToken, "alternatives"> {
  /** The number of its prompt in the list, from 0. */
  readonly index: number;
}

/** What is added to logits: pairs of a token and a number, or `vocab_size` numbers. */
export type TokenBias = readonly (readonly [token: number, bias: number])[] | Float32Array;

/** A token, and the natural logarithm of its probability under the model. */
export interface TokenChoice {
  readonly token: number;
  readonly logprob: number;
}

/** A sampled token. */
export interface GeneratedToken extends TokenChoice {
  /** Natural logarithm of its probability under the model, before penalty, bias, temperature and filters. */
  readonly logprob: number;
  /**
   * With {@link GenerateOptions.alternatives}, the likeliest tokens of this step, the likeliest first and
   * of equal ones the lowest. Their probabilities are on the scale of `logprob`, whatever the bias keeps
   * out. The drawn token is one of them where it is likely enough.
   */
  readonly alternatives?: readonly TokenChoice[];
  /**
   * With {@link GenerateOptions.tokenizer}, the text that this token completes, up to a stop string. A
   * character of several tokens comes with its last one.
   */
  readonly text?: string;
}
