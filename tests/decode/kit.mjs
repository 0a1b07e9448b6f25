// What the tests of generation share: a runtime in this Node process, a tiny model, tokenizers.
import assert from "node:assert/strict";
import { after } from "node:test";
import { dawnEnv } from "../../scripts/machine.mjs";

// Before Dawn is loaded, which reads them.
Object.assign(process.env, dawnEnv());
const { create } = await import("webgpu");

export const tinyloom = await import("tinyloom");
/** What the package's modules share, which users cannot import. */
export const internal = await import("../../pkg/dist/internal.js");

export const gpu = create([]);
export const runtime = await tinyloom.Runtime.create({ gpu });

// Dawn's threads would keep the process alive.
after(() => setTimeout(() => process.exit(), 100));

/** A model that a software adapter runs in milliseconds per token. */
export const config = {
  model_type: "llama",
  vocab_size: 256,
  hidden_size: 32,
  intermediate_size: 64,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  max_position_embeddings: 256,
  tie_word_embeddings: true,
  // So large that greedy tokens are not all the same one.
  initializer_range: 0.5,
};

export const newModel = (more = {}, seed = 11) =>
  tinyloom.Model.create(runtime, { ...config, ...more }, { seed });

/** Everything an async iterable gives. */
export async function collect(iterable) {
  const all = [];
  for await (const one of iterable) all.push(one);
  return all;
}

export const ids = (tokens) => tokens.map(({ token }) => token);
export const textOf = (tokens) => tokens.map(({ text }) => text).join("");

/** Twelve greedy tokens, whatever would end the text. */
export const greedy = { maxTokens: 12, temperature: 0, stopTokens: [] };

/** Holds the work to be refused with that code, and with these words in the message. */
export async function refuses(code, words, work) {
  const thrown = await (async () => {
    const made = await work();
    return made?.[Symbol.asyncIterator] ? collect(made) : made;
  })().then(
    () => assert.fail("it was not refused"),
    (error) => error,
  );
  assert.equal(thrown.code, code, thrown.stack);
  for (const word of words) assert.ok(thrown.message.includes(word), thrown.message);
}

export const json = (value) => new TextEncoder().encode(JSON.stringify(value));
export const parsed = (bytes) => JSON.parse(new TextDecoder().decode(bytes));
