/** What datasets are made of: options, a tokenizer, tokens. */

import { awaited, fraction, inspect, integer, invalid, type Rules, seed, show } from "./options.js";
import type { TokenStore } from "./text/store.js";
import type { TextEncoding } from "./tokenizer.js";
import { asTokens, IGNORE_INDEX } from "./tokens.js";

/** Options of a {@link Dataset}. */
export interface DatasetOptions {
  /**
   * Tokens per document. Of one text by default 128, or fewer for a shorter text or a smaller
   * `tokensPerStep`. A document or conversation that is longer is cut into pieces of at most so many tokens. All
   * pieces are trained on, and none sees another: an answer may be trained without its question. So give at
   * least the longest. By default it is 1024, or as many as the longest has, and at most `tokensPerStep`. A trainer
   * refuses a dataset whose length is given here and exceeds its `tokensPerStep`.
   */
  sequenceLength?: number;
  /** Share of the tokens kept for validation: the last part of the text. Default 0.1; 0 keeps none. */
  validationFraction?: number;
  /** Seed of the order in which documents are drawn, an unsigned 32-bit number; default 0. */
  seed?: number;
}

/** Rules of {@link DatasetOptions}. */
export const DATASET: Rules<DatasetOptions> = {
  sequenceLength: integer(1, 0x7fff_ffff),
  validationFraction: fraction(),
  seed,
};

/** What a dataset is made of. */
export interface Prepared {
  readonly store: TokenStore;
  readonly options: DatasetOptions;
  readonly tokenizer?: TextEncoding;
}

/** What has `encode`, from whichever realm. */
export function expectTokenizer(where: string, tokenizer: unknown): TextEncoding {
  const given = tokenizer as TextEncoding;
  if (inspect(where, () => typeof given?.encode !== "function")) {
    throw invalid(
      `${where} takes a tokenizer, such as new ByteTokenizer(), not ${show(tokenizer)}`,
    );
  }
  return given;
}

/**
 * The ids of a text, without special tokens around it.
 *
 * @param specialTokens - what special tokens in the text are.
 */
export async function encoded(
  tokenizer: TextEncoding,
  text: string,
  specialTokens: "parse" | "text" = "parse",
): Promise<Uint32Array> {
  const special = specialTokens === "text" ? { specialTokens } : {};
  const encode = () => tokenizer.encode(text, { addSpecialTokens: false, ...special });
  const name = "encode(text)";
  const ids = asTokens(name, await awaited("the tokenizer's encode", encode));
  // So unsigned numbers hold the -1 of `indexOf`, which is refused by its place.
  return ids.includes(IGNORE_INDEX) ? asTokens(name, [...new Int32Array(ids)]) : ids;
}
