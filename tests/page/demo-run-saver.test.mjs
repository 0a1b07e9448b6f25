// What the demo page believes to be stored of a run: what its newest checkpoint says, not what the trainer has done.
// reads: www
import assert from "node:assert/strict";
import { test } from "node:test";
import { pageModule } from "./page-module.mjs";

const { RunSaver } = await pageModule("src/run-saver");

/** A run without files, and a trainer that saves its step into it; `lost` makes it save its snapshot's. */
async function parts({ outlives = true } = {}) {
  const checkpoints = [];
  const trainer = {
    steps: 0,
    lost: undefined,
    async save() {
      const step = trainer.lost ?? trainer.steps;
      checkpoints.unshift({ number: checkpoints.length + 1, step, created: 0, bytes: 1000 + step });
    },
  };
  const run = { checkpoints: async () => checkpoints };
  const saver = await RunSaver.of({ outlives: async () => outlives }, trainer, run);
  return { saver, trainer, checkpoints };
}

test("what is stored is the checkpoint's step, also where a lost GPU left an earlier one", async () => {
  const { saver, trainer, checkpoints } = await parts();
  assert.equal(saver.stored, undefined, "nothing is stored of a run that has just begun");
  trainer.steps = 25;
  trainer.lost = 18;
  await saver.save();
  assert.deepEqual(saver.stored, { step: 18, bytes: 1018 });
  await saver.rescue(18);
  assert.equal(checkpoints.length, 1, "the same snapshot is not kept twice");
  trainer.lost = 20;
  await saver.rescue(20);
  assert.deepEqual(saver.stored, { step: 20, bytes: 1020 }, "a later snapshot is kept");
});

test("a run without a checkpoint, and one in memory, keep the first snapshot that is left", async () => {
  for (const outlives of [true, false]) {
    const { saver, trainer } = await parts({ outlives });
    trainer.steps = 28;
    trainer.lost = 18;
    await saver.saveIfDue();
    assert.equal(saver.stored, undefined, "no checkpoint is due so early");
    await saver.rescue(18);
    assert.equal(saver.stored?.step, 18);
  }
});

test("a step that is stored is not stored again", async () => {
  const { saver, trainer, checkpoints } = await parts();
  trainer.steps = 7;
  await saver.save();
  await saver.save();
  assert.equal(checkpoints.length, 1);
  trainer.steps = 8;
  await saver.save();
  assert.deepEqual(saver.stored, { step: 8, bytes: 1008 });
});
