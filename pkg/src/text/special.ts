/** Options of `encode` and `decode` that say what becomes of special tokens. */

import { check, flag, oneOf, type Rules } from "../options.js";
import type { DecodeOptions, EncodeOptions } from "../tokenizer-types.js";

const ENCODE: Rules<EncodeOptions> = {
  addSpecialTokens: flag,
  specialTokens: oneOf("parse", "text"),
};
const DECODE: Rules<DecodeOptions> = { skipSpecialTokens: flag };

/** Whether special tokens in a text are tokens. */
export const parsesSpecial = (options: EncodeOptions | undefined): boolean =>
  check("encode", options ?? {}, ENCODE).specialTokens !== "text";

/** Whether special tokens are decoded. */
export const decodesSpecial = (options: DecodeOptions | undefined): boolean =>
  check("decode", options ?? {}, DECODE).skipSpecialTokens !== true;
