/** What datasets and generation need of a tokenizer. */

import type { TokenIds } from "./tokens.js";

/** Options of `encode`. */
export interface EncodeOptions {
  /** Whether the special tokens come along that the tokenizer puts around a text; default true. */
  addSpecialTokens?: boolean;
  /**
   * What the text of a special token becomes, such as `<|im_end|>` in a text. `"parse"`: its id, as in
   * transformers. `"text"`: the tokens of its characters, so that a user's text cannot end a turn. Added tokens
   * that are not special, such as `<think>`, have their ids with both. Default `"parse"`.
   */
  specialTokens?: "parse" | "text";
}

/** Options of `decode` and `decoder`. */
export interface DecodeOptions {
  /** Whether special tokens are left out of the text, such as `<|im_end|>`; default false. */
  skipSpecialTokens?: boolean;
}

/** What a dataset needs of a tokenizer. */
export interface TextEncoding {
  /** How many ids there are; ids run from 0 to `vocabSize - 1`. */
  readonly vocabSize: number;
  /** The ids of a text, or a promise of them. */
  encode(text: string, options?: EncodeOptions): TokenIds | Promise<TokenIds>;
}

/** What `generate` needs of a tokenizer. */
export interface TextDecoding {
  /** What turns ids into text as they arrive; of a tokenizer in a worker, a promise of it. */
  decoder(options?: DecodeOptions): TokenDecoder | Promise<TokenDecoder>;
  /** The id that ends a text, if there is one. */
  readonly endToken?: number | undefined;
  /** The ids of a prompt that is given as text, or a promise of them. */
  encode?(text: string, options?: EncodeOptions): TokenIds | Promise<TokenIds>;
}

/** A special token by its text and its id. */
export interface SpecialToken {
  readonly text: string;
  /** Undefined where the vocabulary lacks it. */
  readonly id: number | undefined;
}

/** The special tokens that a tokenizer's files name. */
export type SpecialTokens = {
  readonly [name in "bos" | "eos" | "unk" | "pad" | "sep" | "cls" | "mask"]?: SpecialToken;
};

/** Turns a stream of ids into text; see {@link Tokenizer.decoder}. */
export interface TokenDecoder {
  /** The text that one more id completes; often empty. */
  push(token: number): string;
  /** The rest at the end: U+FFFD for a character that was cut off, otherwise nothing. */
  end(): string;
}
