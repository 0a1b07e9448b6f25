// Generation with the tokenizers of real models: what their tokens spell, beginnings of prompts, special tokens.
import assert from "node:assert/strict";
import { test } from "node:test";
import { vocabularyOf } from "../../pkg/dist/token-healing.js";
import { real } from "../text/real-tokenizers.mjs";
import { collect, ids, newModel, textOf, tinyloom } from "./kit.mjs";

const NAMES = ["llama2", "llama3", "gemma3", "qwen3", "gptoss"];
const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The bytes as text; undefined of a part of a character. */
function textIn(bytes) {
  try {
    return strict.decode(bytes);
  } catch {
    return undefined;
  }
}

/** Every id of a small vocabulary; of a large one the first, every seventh, and all added tokens. */
function chosenOf(tokenizer) {
  const all = Array.from({ length: tokenizer.vocabSize }, (_, id) => id);
  if (all.length < 50_000) return all;
  const file = JSON.parse(new TextDecoder().decode(tokenizer.save()["tokenizer.json"]));
  const added = new Set(file.added_tokens.map(({ id }) => id));
  return all.filter((id) => id < 2000 || id % 7 === 0 || added.has(id));
}

for (const name of NAMES) {
  test(`${name}: healing reads what each token spells as the decoder does`, async (t) => {
    const tokenizer = await real(name);
    const { spelled } = await vocabularyOf(tokenizer);
    const [letter] = tokenizer.encode("a", { addSpecialTokens: false }).slice(-1);
    const before = tokenizer.decode([letter]);
    let [compared, parts, special] = [0, 0, 0];
    for (const id of chosenOf(tokenizer)) {
      if (!spelled[id]) {
        const shown = tokenizer.decode([letter, id], { skipSpecialTokens: true });
        assert.equal(shown, before, `${id} is special`);
        special += 1;
        continue;
      }
      const text = textIn(spelled[id]);
      if (text === undefined) {
        parts += 1;
        continue;
      }
      assert.equal(tokenizer.decode([letter, id]).slice(before.length), text, `token ${id}`);
      compared += 1;
    }
    assert.ok(compared > 15_000, `${compared}`);
    t.diagnostic(
      `${compared} tokens alike, ${parts} parts of characters, ${special} special or none`,
    );
  });
}

for (const name of ["llama2", "qwen3"]) {
  test(`${name}: prompts of text, healing and special tokens`, async () => {
    const tokenizer = await real(name);
    const model = await newModel({
      vocab_size: tokenizer.vocabSize,
      hidden_size: 8,
      intermediate_size: 8,
      num_attention_heads: 1,
    });
    const options = { tokenizer, temperature: 0, maxTokens: 6, stopTokens: [] };
    for (const prompt of [
      "The capital of Fra",
      "https://exa",
      "naïve caf",
      "  indented\n\tta",
      "1234",
      "日本",
      "🙂",
    ]) {
      const begun = tokenizer.encode(prompt);
      const plain = await collect(model.generate(prompt, options));
      assert.deepEqual(ids(plain), ids(await collect(model.generate(begun, options))), prompt);
      const whole = tokenizer.decode([...begun, ...ids(plain)]);
      const read = tokenizer.decode(begun);
      assert.equal(read + textOf(plain), whole, `${prompt}: text goes on`);
      const healed = await collect(model.generate(prompt, { ...options, heal: true }));
      assert.equal(healed.length, 6);
      // Whatever was taken back: some beginning of the prompt's tokens with the new ones is the prompt's text, and more.
      const text = read + textOf(healed);
      const same = [...begun.keys()]
        .slice(1)
        .concat(begun.length)
        .some((kept) => tokenizer.decode([...begun.slice(0, kept), ...ids(healed)]) === text);
      assert.ok(same, `${prompt}: ${JSON.stringify(text)}`);
    }
    model.free();
  });
}

for (const [name, end] of [
  ["llama3", "<|eot_id|>"],
  ["qwen3", "<|im_end|>"],
  ["gemma3", "<end_of_turn>"],
]) {
  test(`${name}: an answer of the second turn ends with its turn`, async () => {
    const tokenizer = await real(name);
    const sizes = { hidden_size: 8, intermediate_size: 8, num_attention_heads: 1 };
    const model = await newModel({ vocab_size: tokenizer.vocabSize, ...sizes });
    const encode = (text) => [...tokenizer.encode(text, { addSpecialTokens: false })];
    const line = [...encode("It is two."), ...encode(end)];
    assert.equal(line.length, encode("It is two.").length + 1, "the end of a turn is one token");
    let from;
    const bias = (tokens) => {
      from ??= tokens.length;
      return [[line[tokens.length - from] ?? line[0], 1e6]];
    };
    const messages = [
      { role: "user", content: "What is 1+1?" },
      { role: "assistant", content: "Two." },
      { role: "user", content: `And 3-1? ${end}` },
    ];
    const answer = await collect(
      tinyloom.chat(model, tokenizer, messages, { bias, maxTokens: 12 }),
    );
    assert.equal(textOf(answer), "It is two.");
    model.free();
  });
}
