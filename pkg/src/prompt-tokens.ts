/** Texts that are given as prompts, as tokens. */

import { given, type Until } from "./caller-functions.js";
import { startOf, startsWith } from "./dataset-options.js";
import { expectKnown } from "./known-tokens.js";
import type { ResolvedConfig } from "./resolved-config.js";
import type { TextDecoding } from "./tokenizer-types.js";
import { type TokenIds, toSomeTokens, toTokens } from "./tokens.js";

/**
 * The tokens of a prompt. Before a text stands once what stands before those of a dataset; what the tokenizer puts
 * after one would end the text.
 */
export async function promptTokens(
  prompt: Uint32Array | string,
  tokenizer: TextDecoding | undefined,
  config: ResolvedConfig,
  until: Until,
): Promise<Uint32Array> {
  if (typeof prompt !== "string") return expectKnown("prompt", prompt, config);
  const by = tokenizer as Required<TextDecoding>;
  const encode = () => by.encode(prompt, { addSpecialTokens: false });
  const ids: TokenIds = await given("the tokenizer's encode()", encode, until);
  const plain = toTokens("prompt", ids);
  const start = await given("the tokenizer's encode()", () => startOf(by), until);
  const whole = startsWith(plain, start) ? plain : toTokens("prompt", [...start, ...plain]);
  return expectKnown("the tokenizer's prompt", toSomeTokens("prompt", whole, config), config);
}
