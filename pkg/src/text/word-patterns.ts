/** Expressions that split texts into words, which llama.cpp knows by names. */

/** Llama 3's and Qwen2's differ in the digits of a word. */
const words = (digits: string) =>
  String.raw`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}${digits}|` +
  String.raw` ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`;

export const LLAMA_3_WORDS = words("{1,3}");
export const QWEN_2_WORDS = words("");
