// When the demo pulls the plug: after at least ten steps that will be done twice, however slow they are.
// reads: www
import assert from "node:assert/strict";
import { test } from "node:test";
import { pageModule } from "./page-module.mjs";

const { BETWEEN, LossWait } = await pageModule("src/simulated-loss");

/**
 * Runs steps. A snapshot is taken every `every` steps, and the page hears of it `late` steps later. A visitor clicks
 * after step `clicked`.
 *
 * @returns the step after which the plug is pulled, and what the page said before.
 */
function pulled(every, clicked, late = 0) {
  const wait = new LossWait();
  wait.begin(0);
  const said = new Set();
  for (let step = 1; step <= 5000; step++) {
    const taken = step - late;
    if (taken > 0 && taken % every === 0) wait.snapshotted(taken);
    if (step === clicked) wait.start();
    const { waiting, words } = wait;
    if (wait.pulls(step)) {
      assert.ok(!wait.waiting, "it is pulled once");
      return { step, said: [...said] };
    }
    if (waiting) said.add(words);
  }
  return assert.fail(
    `not pulled, with a snapshot every ${every} steps and a click at step ${clicked}`,
  );
}

test("ten steps lie behind the snapshot, at once or soon", () => {
  for (const [every, clicked, step] of [
    [1000, 3, 10],
    [1000, 20, 20],
    [30, 32, 40],
    [20, 19, 19],
    [20, 20, 30],
  ]) {
    const { step: at, said } = pulled(every, clicked);
    assert.equal(at, step, `a snapshot every ${every} steps, a click at step ${clicked}`);
    const last = clicked < every ? "There is no snapshot yet" : `The last snapshot is of step`;
    for (const words of said) {
      assert.ok(words.startsWith(last), words);
      assert.match(words, /Waits until 10 steps can be done twice…$/);
    }
  }
});

test("with snapshots as close as the page asks for, ten steps are done twice wherever it is clicked", () => {
  assert.ok(BETWEEN >= 20);
  for (let every = BETWEEN; every <= 2 * BETWEEN; every++) {
    for (let clicked = 1; clicked <= 3 * every; clicked++) {
      for (let late = 0; late < 3; late++) {
        const { step } = pulled(every, clicked, late);
        assert.ok(step - clicked <= 12, `every ${every}, click ${clicked}: step ${step}`);
        // A snapshot of which the page has not heard is still being read: the lost GPU takes it along.
        const snapshot = Math.max(0, Math.floor((step - late) / every) * every);
        assert.ok(step - snapshot >= 10, `every ${every}, click ${clicked}: step ${step}`);
      }
    }
  }
});

test("a wait that ends, or a run that begins, pulls nothing", () => {
  const wait = new LossWait();
  wait.begin(0);
  wait.start();
  wait.stop();
  assert.ok(!wait.pulls(100));
  wait.start();
  wait.begin(200);
  assert.ok(!wait.pulls(300));
  assert.equal(wait.snapshot, 200);
});
