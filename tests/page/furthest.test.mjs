// Who got furthest: how runs are ranked, and the column of the list of runs that says so, in the page's own markup.
// reads: www
import assert from "node:assert/strict";
import { test } from "node:test";
import { DESKTOP } from "./demo-page.mjs";
import { pageModule } from "./page-module.mjs";
import { openPanels } from "./panel-page.mjs";

const { furthestFirst, rankingOf, reachedBy, reachedOn } = await pageModule("src/furthest");
const { Snapshot, Track } = await pageModule("src/loom/track");
const { sizeOf, weavable } = await pageModule("src/loom/weights");

const settings = {
  config: { num_hidden_layers: 2, hidden_size: 64 },
  learningRate: 0.005,
  tokensPerStep: 128,
  seed: 3,
  steps: 340,
};
const kept = (text, config = settings.config) => ({ text, settings: { ...settings, config } });
const answered = (right, step) => ({ right, of: 128, step });

test("runs of a task are ranked by right answers, those of a text by validation loss", () => {
  const task = kept({ task: "reverse" });
  const text = kept({ hash: "a" });
  const runs = [
    reachedBy(task, answered(41, 90), 0.1),
    reachedBy(text, undefined, 2.5),
    reachedBy(task, answered(123, 340), 0.9),
    reachedBy(task, undefined, 0.2),
    reachedBy(kept({ hash: "a" }, { vocab_size: 4096 }), undefined, 6.5),
    reachedBy(task, answered(123, 500), 0.2),
    reachedBy(text, { right: 1, of: 2, step: 3 }, 1.25),
    reachedBy(text, undefined, undefined),
    reachedBy(undefined, undefined, undefined),
    reachedBy(kept({ task: "sort" }), answered(7, 30), 0.2),
  ];
  assert.deepEqual(rankingOf(runs), [
    "3rd of 3: 41 of 128 right at step 90",
    "2nd of 2: validation loss 2.500",
    "1st of 3: 123 of 128 right at step 340",
    "–",
    "validation loss 6.500",
    "1st of 3: 123 of 128 right at step 500",
    "1st of 2: validation loss 1.250",
    "–",
    "–",
    "7 of 128 right at step 30",
  ]);
  assert.deepEqual(furthestFirst(runs), [2, 5, 0, 3, 6, 1, 7, 4, 8, 9]);
  const stories = [1, 2].map((seed) => kept({ stories: true, hash: `${seed}` }));
  const both = stories.map((one, at) => reachedBy(one, undefined, at + 1));
  assert.match(rankingOf(both).join(), /^1st of 2: .*,2nd of 2: /, "stories of any seed are alike");
});

test("two looms are compared at the steps that they show", () => {
  const SHAPE = weavable({
    hidden_size: 32,
    intermediate_size: 64,
    num_hidden_layers: 1,
    num_attention_heads: 2,
  });
  const track = new Track({ task: "reverse", name: "reverse a word", steps: 9, questions: [1, 2] });
  for (const [step, right] of [
    [0, [false, false]],
    [4, [true, false]],
    [8, undefined],
  ]) {
    const snapshot = new Snapshot(step, SHAPE, new Uint16Array(sizeOf(SHAPE)));
    if (right) snapshot.marks.set("", { right, stops: 0 });
    track.add(snapshot);
  }
  const said = (step, key = "") => reachedOn(track, step, key).said;
  assert.equal(said(2), "0 of 2 right at step 0");
  assert.equal(said(9), "1 of 2 right at step 4");
  assert.equal(said(9, "1"), "not asked yet", "with a head cut");
  const text = new Track({ name: "Shakespeare", steps: 9, questions: [] });
  text.validate(3, 2.25);
  text.validate(6, 1.5);
  assert.equal(reachedOn(text, 5, "").said, "validation loss 2.250");
  assert.equal(reachedOn(text, 1, "").said, "–");
});

/** In the page: five runs, one of them in training; what the column says, and in which order. */
async function listed() {
  const { RunsPanel } = await import("/panels.js");
  const names = ["resume", "export", "rename", "delete", "compare"];
  const panel = new RunsPanel(Object.fromEntries(names.map((name) => [name, () => undefined])));
  const run = (name, text, score) => ({
    id: name,
    name,
    created: 0,
    checkpoints: [{ number: 1, step: 20, bytes: 9 }],
    options: {
      settings: {
        config: { num_hidden_layers: 1, hidden_size: 8 },
        learningRate: 1,
        tokensPerStep: 8,
        seed: 1,
        steps: 20,
      },
      text: { name: text, task: text === "words" ? "reverse" : undefined, hash: text },
      ...(score && { score: { of: 128, ...score } }),
    },
  });
  const losses = { tale: 2, novel: 1.5 };
  const store = {
    lasting: true,
    full: false,
    list: async () => [
      run("now", "words", { right: 5, step: 10 }),
      run("tale", "text"),
      run("old", "words"),
      run("best", "words", { right: 120, step: 20 }),
      run("novel", "text"),
    ],
    metrics: async (name) => [{ step: 20, validationLoss: losses[name] }],
  };
  const seen = () =>
    [...document.querySelectorAll("#runs tbody tr")].map(({ cells }) => [
      cells[1].querySelector("input").value,
      cells[5].textContent,
    ]);
  await panel.show(store, { id: "now", step: 12 }, { busy: true, proving: false, ready: false });
  const head = document.querySelectorAll("#runs thead th")[5].textContent;
  const before = seen();
  panel.scored("now", { right: 128, of: 128, step: 12 });
  const scored = seen();
  const button = document.getElementById("furthest-first");
  button.click();
  await panel.show(store, { id: "now", step: 12 }, { busy: true, proving: false, ready: false });
  return { head, before, scored, pressed: button.ariaPressed, sorted: seen() };
}

test("the list of runs says who got furthest, and can begin with who did", {
  timeout: 120_000,
}, async (t) => {
  const page = await openPanels(t, ["panels/runs"], DESKTOP);
  const { head, before, scored, pressed, sorted } = await page.evaluate(listed);
  assert.equal(head, "Furthest");
  assert.deepEqual(before, [
    ["now", "2nd of 2: 5 of 128 right at step 10"],
    ["tale", "2nd of 2: validation loss 2.000"],
    ["old", "–"],
    ["best", "1st of 2: 120 of 128 right at step 20"],
    ["novel", "1st of 2: validation loss 1.500"],
  ]);
  assert.deepEqual(
    [scored[0][1], scored[3][1]],
    ["1st of 2: 128 of 128 right at step 12", "2nd of 2: 120 of 128 right at step 20"],
    "what the page's run has just answered counts at once",
  );
  assert.equal(pressed, "true");
  const order = sorted.map(([name]) => name);
  assert.deepEqual(order, ["now", "best", "old", "novel", "tale"]);
});
