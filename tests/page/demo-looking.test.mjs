// What the demo reads off a model: the tokens whose embeddings are alike, whatever the model adds to them for their
// places, and its guess of the next token.
// reads: www
import assert from "node:assert/strict";
import { test } from "node:test";
import { mulberry32 } from "../random.mjs";
import { pageModule } from "./page-module.mjs";

const { Embeddings, likeliestNext } = await pageModule("src/looking");

const WIDTH = 6;
/** So few that the tokens of the text are asked in several parts. */
const POSITIONS = 8;
const TEXT = "the quick brown fox jumps over the lazy dog";

const codec = {
  encode: async (text) => Uint32Array.from(Buffer.from(text)),
  name: async (id) => String.fromCharCode(id),
};

/** Numbers between -1 and 1. */
function table(rows, seed) {
  const random = mulberry32(seed);
  return Array.from({ length: rows }, () =>
    Float32Array.from({ length: WIDTH }, () => 2 * random() - 1),
  );
}

/** A model whose first hidden states are its embeddings, and where `places` are given those of places too. */
function model(config, embeddings, places) {
  return {
    config,
    async hiddenStates(ids, { layer }) {
      assert.equal(layer, 0);
      assert.ok(ids.length <= POSITIONS, `${ids.length} positions`);
      const rows = [...ids].map((id, at) =>
        embeddings[id].map((value, column) => value + (places?.[at][column] ?? 0)),
      );
      return Float32Array.from(rows.flatMap((row) => [...row]));
    },
  };
}

/** Cosines of all tokens of the text with one of them, the largest first. */
function expected(embeddings, id, middle) {
  const ids = [...new Set(Buffer.from(TEXT))];
  const mean = (column) => ids.reduce((sum, one) => sum + embeddings[one][column], 0) / ids.length;
  const row = (one) => embeddings[one].map((value, column) => value - (middle ? mean(column) : 0));
  const dot = (a, b) => a.reduce((sum, value, at) => sum + value * b[at], 0);
  const cosine = (a, b) => dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));
  return ids
    .filter((one) => one !== id)
    .map((one) => ({ name: String.fromCharCode(one), cosine: cosine(row(id), row(one)) }))
    .sort((a, b) => b.cosine - a.cosine);
}

const LLAMA = { model_type: "llama", hidden_size: WIDTH, max_position_embeddings: POSITIONS };
const GPT2 = { model_type: "gpt2", n_embd: WIDTH, n_positions: POSITIONS };

test("neighbours are those of the embeddings alone, in either family", async () => {
  const embeddings = table(128, 1);
  for (const [made, middle] of [
    [model(LLAMA, embeddings), false],
    [model(GPT2, embeddings, table(POSITIONS, 2)), true],
  ]) {
    const looked = await Embeddings.of(made, codec, new Blob([TEXT]));
    for (const letter of "fox") {
      const id = letter.codePointAt(0);
      const near = await looked.nearest(id, 5);
      const wanted = expected(embeddings, id, middle).slice(0, 5);
      assert.deepEqual(
        near.map(({ name }) => name),
        wanted.map(({ name }) => name),
        `${made.config.model_type}, ${letter}`,
      );
      for (const [at, { cosine }] of near.entries()) {
        assert.ok(Math.abs(cosine - wanted[at].cosine) < 1e-5, `${cosine}, ${wanted[at].cosine}`);
      }
    }
    assert.deepEqual(await looked.nearest(1, 5), [], "a token that the text does not have");
  }
});

test("the guess of the next token has the probabilities of a softmax", async () => {
  const logits = new Float32Array(128);
  logits[97] = Math.log(200);
  logits[98] = Math.log(100);
  const sum = 126 + 200 + 100;
  const guessed = await likeliestNext(codec, logits, 2);
  assert.deepEqual(
    guessed.map(([name, share]) => [name, share.toFixed(5)]),
    [
      ["a", (200 / sum).toFixed(5)],
      ["b", (100 / sum).toFixed(5)],
    ],
  );
});
