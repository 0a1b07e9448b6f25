/** Options of datasets, and what a trainer notes of one. */

import type { TokenIds } from "./tokens.js";

/** Options of a {@link Dataset}. */
export interface DatasetOptions {
  /**
   * Tokens per document. Of one text by default 128, or fewer for a shorter text or a smaller
   * `tokensPerStep`. A document or conversation that is longer is cut into pieces of at most this length. All
   * pieces are trained on, and none sees another: an answer may be trained without its question. So give at
   * least the longest. `cut` in a step's metrics counts what was cut. Of documents it is by default 1024, or as many as
   * the longest has, and at most `tokensPerStep`. Of conversations it is as many as the longest has: only a length that
   * is given here cuts them. A trainer refuses a length beyond its `tokensPerStep`, unless it is a default that may be
   * less.
   */
  sequenceLength?: number;
  /** Share of the tokens kept for validation: the last part of the text. Default 0.1; 0 keeps none. */
  validationFraction?: number;
  /** Seed of the order in which documents are drawn, an unsigned 32-bit number; default 0. */
  seed?: number;
}

/** Options of a dataset of text. */
export interface TextOptions extends DatasetOptions {
  /**
   * What stands before a text, so that the model reads it as it has read all texts before. True, the default: the
   * tokens that the tokenizer puts before a text, such as `<bos>` of Gemma, Llama 3 and Mistral; most others put none.
   * False: nothing. Or these ids. Each document has them once, and so has a prompt with its completion. Of one text,
   * they take the place of the first tokens of each window. They are never learned.
   */
  startTokens?: boolean | TokenIds;
}

/** The options of a dataset that say what it draws in which step, every default filled in. */
export interface DrawOptions {
  readonly sequenceLength: number;
  readonly validationFraction: number;
  readonly seed: number;
}

/** What a trainer's state says of its data. Absent where no data was drawn. */
export interface DrawnData {
  /** Absent in states of version 0.1.0 too. */
  readonly dataHash?: string | undefined;
  /** Absent in states that were saved before it was noted. */
  readonly dataOptions?: DrawOptions | undefined;
}
