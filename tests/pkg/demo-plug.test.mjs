// When the demo pulls the plug: after ten steps that will be done twice where so many fit between two snapshots, and
// after a few snapshots in any case.
import assert from "node:assert/strict";
import { test } from "node:test";
import { pageModule } from "./page-module.mjs";

const { PlugWait } = await pageModule("src/plug");

/**
 * Steps of a run with a snapshot after each `every`th of them, and a click after one. Gives the step after which the
 * plug is pulled, and how many lie behind the snapshot then.
 */
function pulled(every, clicked, { late = false } = {}) {
  const wait = new PlugWait();
  wait.begin(0);
  const said = new Set();
  for (let step = 1; step <= 500; step++) {
    const snapshot = () => step % every === 0 && wait.snapshotted(step);
    if (!late) snapshot();
    if (step === clicked) wait.start();
    const { waiting, words } = wait;
    if (waiting) said.add(words);
    if (wait.pulls(step)) {
      assert.ok(!wait.waiting, "it is pulled once");
      return { step, twice: step - wait.snapshot, said: [...said] };
    }
    if (late) snapshot();
  }
  return assert.fail(
    `not pulled, with a snapshot every ${every} steps and a click at step ${clicked}`,
  );
}

test("ten steps lie behind the snapshot where so many fit", () => {
  for (const [every, clicked, step] of [
    [1000, 3, 10],
    [1000, 20, 20],
    [30, 32, 40],
    [11, 21, 21],
    [11, 22, 32],
  ]) {
    const { step: at, twice, said } = pulled(every, clicked);
    assert.equal(at, step, `a snapshot every ${every} steps, a click at step ${clicked}`);
    assert.ok(twice >= 10);
    for (const words of said) assert.match(words, /Waits until 10 steps lie behind it…$/);
  }
});

test("where fewer fit it waits for those, and says so", () => {
  const { step, twice, said } = pulled(7, 4);
  assert.deepEqual([step, twice], [20, 6]);
  assert.equal(
    said.at(-1),
    "The last snapshot is of step 14. Waits until 6 steps lie behind it: 10 take longer here than the time between two…",
  );
});

test("it never waits for more than three snapshots", () => {
  for (let every = 1; every <= 12; every++) {
    for (let clicked = 1; clicked <= 40; clicked++) {
      for (const late of [false, true]) {
        const { step, twice } = pulled(every, clicked, { late });
        const least = Math.min(every - 1, 10);
        assert.ok(
          step - clicked <= 3 * every + 1,
          `every ${every}, click ${clicked}: step ${step}`,
        );
        assert.ok(twice >= Math.min(least, 1), `every ${every}, click ${clicked}: ${twice} twice`);
      }
    }
  }
  // Where snapshots come in no order at all.
  const wait = new PlugWait();
  wait.begin(0);
  wait.start();
  for (const step of [9, 13, 14]) {
    wait.snapshotted(step);
    assert.ok(step === 14 || !wait.pulls(step), `pulled at step ${step}`);
  }
  assert.ok(wait.pulls(15));
});

test("a wait that ends, or a run that begins, pulls nothing", () => {
  const wait = new PlugWait();
  wait.begin(0);
  wait.start();
  wait.stop();
  assert.ok(!wait.pulls(100));
  wait.start();
  wait.begin(200);
  assert.ok(!wait.pulls(300));
  assert.equal(wait.snapshot, 200);
});
