/** Texts that are given as prompts, as tokens. */

import { given, type Until } from "./decoding.js";
import type { ModelConfig } from "./model-config.js";
import type { EncodeOptions, TextDecoding } from "./tokenizer.js";
import { type TokenIds, toSomeTokens, toTokens } from "./tokens.js";

/**
 * The tokens of a prompt. Before a text stands once what the tokenizer puts before one; what it puts behind one would
 * end the text.
 */
export async function promptTokens(
  prompt: Uint32Array | string,
  tokenizer: TextDecoding | undefined,
  config: ModelConfig,
  until: Until,
): Promise<Uint32Array> {
  if (typeof prompt !== "string") return prompt;
  const encode = async (text: string, options: EncodeOptions) => {
    const work = () => (tokenizer as Required<TextDecoding>).encode(text, options);
    const ids: TokenIds = await given("the tokenizer's encode()", work, until);
    return toTokens("prompt", ids);
  };
  const plain = await encode(prompt, PLAIN);
  if (plain.length > 0)
    return toSomeTokens("prompt", begun(plain, await encode(prompt, {})), config);
  // Nothing tells what stands before no text from what stands behind it.
  const other = await encode("a", PLAIN);
  const whole = begun(other, await encode("a", {}));
  return toSomeTokens("prompt", whole.subarray(0, whole.length - other.length), config);
}

const PLAIN = { addSpecialTokens: false };

/** The tokens of a text with the special tokens before it, and none behind it. */
function begun(plain: Uint32Array, whole: Uint32Array): Uint32Array {
  for (let at = 0; at + plain.length <= whole.length; at++) {
    if (!plain.every((id, index) => whole[at + index] === id)) continue;
    // A text that begins with them by itself has them once.
    const written = whole.subarray(0, at).every((id, index) => plain[index] === id);
    return written ? plain : whole.subarray(0, at + plain.length);
  }
  return whole;
}
