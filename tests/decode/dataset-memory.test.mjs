// A dataset that is freed gives its tokens' memory back, though the trainer that drew from it goes on.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { internal, newModel, tinyloom } from "./kit.mjs";

setFlagsFromString("--expose-gc");
const gc = runInNewContext("gc");

test("documents that are cut are given back too", async () => {
  const { Dataset, Trainer, ByteTokenizer } = tinyloom;
  const model = await newModel();
  const trainer = await Trainer.create(model, { tokensPerStep: 16 });
  /** A step of documents, and what holds on to their tokens. */
  const trained = async (sequenceLength) => {
    const texts = Array.from({ length: 4 }, () => "the world is wide");
    const options = { sequenceLength, validationFraction: 0 };
    const dataset = await Dataset.fromDocuments(texts, new ByteTokenizer(), options);
    const store = new WeakRef(internal.datasets.of(dataset).store());
    await trainer.run(dataset, { steps: 1 });
    dataset.free();
    return store;
  };
  const stores = [await trained(8), await trained(16)];
  for (let i = 0; i < 20 && stores.some((one) => one.deref()); i++) {
    await new Promise((turn) => setTimeout(turn, 20));
    gc();
  }
  for (const [at, store] of stores.entries()) assert.equal(store.deref(), undefined, `${at}`);
  trainer.free();
});
