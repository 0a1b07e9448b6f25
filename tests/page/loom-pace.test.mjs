// Threads, sentence and squares are of the same weights, or the sentence says of which: on a clock of its own, with
// answers that are quicker and slower than the run, and on the page with a worker that is slow.
// reads: www tests/page/no-gpu.mjs tests/page/page-module.mjs
import assert from "node:assert/strict";
import { test } from "node:test";
import { asset, slowWorker } from "./demo-page.mjs";
import { openWithoutGpu, untilHolds } from "./no-gpu.mjs";
import { pageModule } from "./page-module.mjs";

const { Player } = await pageModule("src/loom/player");
const { besideAt, toAsk, toShow } = await pageModule("src/loom/pace");
const { captionOf } = await pageModule("src/loom/story");
const { Snapshot, Track } = await pageModule("src/loom/track");
const { sizeOf, weavable } = await pageModule("src/loom/weights");

const SHAPE = weavable({
  hidden_size: 32,
  intermediate_size: 64,
  num_hidden_layers: 1,
  num_attention_heads: 2,
});
/** Steps of the run, and milliseconds between two looks of the stage. */
const [STEPS, TICK] = [302, 50];
const MARKS = { right: [true, false], stops: 0 };

/** A run that was trained in a moment, with snapshots as the page keeps them. */
function quickRun() {
  const about = { task: "reverse", name: "reverse", steps: STEPS, questions: [1, 2], example: "" };
  const track = new Track(about);
  const numbers = new Uint16Array(sizeOf(SHAPE));
  for (let step = 0; step <= STEPS; step++) {
    if (track.due(step)) track.add(new Snapshot(step, SHAPE, numbers));
  }
  track.end();
  return track;
}

/**
 * Plays a run to its end, where each model takes so many milliseconds to answer.
 *
 * @returns of each look the step of the threads, that of the answers, and the time.
 */
function played(t, answering) {
  t.mock.timers.enable({ apis: ["setInterval", "Date"] });
  globalThis.document = { hidden: false };
  t.after(() => delete globalThis.document);
  const track = quickRun();
  const seen = [];
  let shown;
  let [now, since] = [0, 0];
  let exam;
  const player = new Player(
    () => {
      now += TICK;
      if (exam && now >= exam.until) {
        exam.snapshot.marks.set("", MARKS);
        exam = undefined;
      }
      const { at, playing } = player;
      const stand = { track, at, playing, key: "" };
      if (!exam) {
        const snapshot = toAsk(stand, player.after(answering));
        if (snapshot) exam = { snapshot, until: now + answering };
      }
      const next = toShow(stand, shown, now - since);
      if (next !== shown) [shown, since] = [next, now];
      seen.push({ now, at, step: shown.step, asked: track.asked(shown.step, "")?.snapshot.step });
    },
    () => undefined,
  );
  player.go(track, 0);
  for (let tick = 0; tick < (13_000 + 4 * answering) / TICK; tick++) t.mock.timers.tick(TICK);
  t.mock.timers.reset();
  return seen;
}

for (const [answering, same] of [
  [50, 1],
  [150, 0.99],
  [200, 0.8],
  [600, 0.2],
  [2500, 0.05],
]) {
  test(`answers that take ${answering} ms: threads move, and answers are of theirs or just before`, (t) => {
    const seen = played(t, answering).filter(({ now }) => now > answering + TICK);
    const running = seen.filter(({ at }) => at < STEPS);
    const equal = running.filter(({ step, asked }) => step === asked).length / running.length;
    t.diagnostic(`of ${Math.round(100 * equal)} % of all looks threads and answers are the same`);
    assert.ok(equal >= same, `of ${equal} of all looks threads and answers are the same`);
    // At least four different weaves a second, once steps are so quick.
    let still = running[0].now;
    for (const [index, { now, step, at }] of running.entries()) {
      if (index > 0 && running[index - 1].step !== step) still = now;
      if (at > 20) assert.ok(now - still <= 250, `the same weave for ${now - still} ms`);
      assert.ok(step <= at, "threads are not ahead of the handle");
    }
    // An answer is no older than it takes to get two.
    for (const { now, asked } of running) {
      const before = running.find((one) => one.now >= now - 2 * answering - 300) ?? running[0];
      assert.ok((asked ?? 0) >= before.step, `${asked} at ${now} ms`);
    }
    const last = seen.at(-1);
    assert.deepEqual([last.step, last.asked], [STEPS, STEPS], "at the end all are of the end");
  });
}

test("a handle that stands is shown and asked at once", () => {
  const track = quickRun();
  const stand = { track, at: 112, playing: false, key: "" };
  const here = track.upTo(112);
  assert.equal(toShow(stand, track.upTo(40), 0), here);
  assert.equal(toAsk(stand, 200), here);
  here.marks.set("", MARKS);
  assert.equal(toAsk(stand, 200), undefined, "nothing else is asked");
  assert.equal(toShow({ ...stand, playing: true, at: 10 }, here, 0).step, 10, "back in time");
});

test("a second loom is at the step of the first, and past its end at that of the handle", () => {
  const track = quickRun();
  assert.equal(besideAt(track, track.upTo(16), 112), 16, "threads that wait for their answers");
  assert.equal(besideAt(track, track.upTo(STEPS), 340), 340, "a longer run beside");
  assert.equal(besideAt(track, track.upTo(STEPS), 4), STEPS, "the handle was moved back meanwhile");
  const alive = { ended: false, newest: 16 };
  assert.equal(besideAt(alive, track.upTo(16), 18), 16, "a run that still trains");
});

test("threads wait no longer for answers that take longer in any case", () => {
  const track = quickRun();
  const stand = { track, at: 16, playing: true, key: "" };
  const shown = track.upTo(14);
  const steps = [100, 150, 190].flatMap((still) =>
    [150, 700].map((took) => toShow({ ...stand, took }, shown, still).step),
  );
  assert.deepEqual(steps, [14, 14, 14, 16, 16, 16]);
});

test("a sentence of earlier weights says so", () => {
  const track = quickRun();
  const asked = { snapshot: track.upTo(16), marks: MARKS };
  const told = { shown: track, live: track, cut: 0, show: 12 };
  globalThis.document = { body: { dataset: { state: "training" } } };
  const said = (at, cut = 0) => captionOf({ ...told, asked, at, cut });
  try {
    assert.match(said(16), /^After 16 steps it answers 1 of 2 words it has never seen\. /);
    const late = /^After 16 steps it answered 1 of 2 words it has never seen; step 112 is being/;
    assert.match(said(112), late);
    assert.match(said(16, 2), /^With 2 of its heads cut it answers 1 of 2 words\. /);
    assert.match(said(112, 2), /^With 2 .* it answered 1 of 2 words after 16 steps; step 112 is/);
    assert.match(
      said(STEPS),
      /step 302 is being asked\. /,
      "the end says nothing of an earlier one",
    );
  } finally {
    delete globalThis.document;
  }
});

test("a run that is over is not called paused, wherever the handle stands", () => {
  const over = quickRun();
  over.milliseconds = 60_000;
  const told = { shown: over, live: over, cut: 0, show: 12 };
  globalThis.document = { body: { dataset: { state: "stopped" } } };
  const said = (shown, at, asked) =>
    captionOf({ ...told, shown, at, asked: { snapshot: over.upTo(asked), marks: MARKS } });
  try {
    assert.match(said(over, 16, 16), / never seen\. Its training is over\.$/, "back in time");
    assert.match(said(over, STEPS, 16), / is being asked\. Its training is over\.$/);
    assert.match(said(over, STEPS, STEPS), /^302 steps ago this model was noise\. It now answers /);
    const alive = new Track({ task: "reverse", name: "reverse", steps: STEPS, questions: [1, 2] });
    const aliveIn = (state) => {
      globalThis.document.body.dataset.state = state;
      return said(alive, 16, 16);
    };
    assert.match(aliveIn("paused"), / It is paused\.$/);
    assert.match(aliveIn("training"), / It learns now, in this tab\.$/);
    assert.match(aliveIn("loading"), / It is paused\.$/, "another run is opened");
    globalThis.document.body.dataset.ending = "";
    assert.match(aliveIn("loading"), / It learns now, in this tab\.$/, "its end is scored");
  } finally {
    delete globalThis.document;
  }
});

/** In the page: reads after each change what threads, sentence and squares are of. */
function watch() {
  const text = (id) => document.getElementById(id).textContent;
  globalThis.looks = [];
  const look = () => {
    const [, threads] = /at step (\d+):/.exec(document.getElementById("loom-canvas").ariaLabel);
    const story = text("story");
    const [, being] = /step (\d+) is being asked/.exec(story) ?? [];
    const [, after] = /after (\d+) steps?/i.exec(story) ?? [];
    const of = /before its first step/i.test(story) ? "0" : after;
    const [, right, count] = /^(\d+) right at step (\d+)/.exec(text("squares-count")) ?? [];
    const filled = document.querySelectorAll("#squares .right").length;
    const [, said] = /(?:answers|answered) (\d+) of/.exec(story) ?? [];
    globalThis.looks.push({
      threads,
      being,
      of,
      right,
      count,
      filled,
      said,
      step: text("loom-step"),
    });
  };
  new MutationObserver(look).observe(document.getElementById("loom"), {
    subtree: true,
    childList: true,
    characterData: true,
    attributeFilter: ["aria-label", "class"],
  });
}

test("on the page threads, sentence and squares are of one step, or the sentence says of which", {
  timeout: 200_000,
}, async (t) => {
  const { demo } = await openWithoutGpu(t, "", slowWorker(700));
  const { page } = demo;
  const all = async () => (await page.$eval("#time-range", (one) => one.max)) === "340";
  await untilHolds("all of it", all);
  await demo.fill("time-range", "0");
  // A cut head makes the recording's own answers useless: all of them have to be asked anew.
  await page.click('[aria-label="Head 1 of layer 1"]');
  await untilHolds("answers", async () => /cut$/.test(await demo.text("squares-count")));
  await page.evaluate(watch);
  await demo.click("time-play");
  const ended = async () => (await page.$eval("#time-play", (one) => one.textContent)) === "Play";
  await untilHolds("the end", ended);
  const end = async () => /^\d+ right at step 340,/.test(await demo.text("squares-count"));
  await untilHolds("answers of the end", end);
  const looks = await page.evaluate(() => globalThis.looks);
  let [same, before] = [0, 0];
  for (const look of looks) {
    const { threads, being, of, right, count, filled, said, step } = look;
    const what = JSON.stringify(look);
    assert.equal(step, `step ${threads}`, what);
    if (right !== undefined) assert.deepEqual([filled, said], [Number(right), right], what);
    if (being === undefined) {
      if (count !== undefined) assert.equal(count, threads, what);
      same++;
    } else {
      assert.deepEqual([being, of], [threads, count], what);
      before++;
    }
  }
  t.diagnostic(`${same} looks of one step, ${before} of two that are named`);
  assert.ok(before > 0, "the run was quicker than its answers");
  const steps = new Set(looks.map(({ threads }) => threads));
  assert.ok(steps.size > 20, `${steps.size} of the 38 snapshots were shown`);
  assert.deepEqual(demo.errors, [], "the page's console has errors");
});

test("where the worker that asks does not load, the page asks one model after another", {
  timeout: 200_000,
}, async (t) => {
  const broken = { [asset("asking-worker")]: Buffer.from("throw 1") };
  const { demo } = await openWithoutGpu(t, "", broken);
  const all = async () => (await demo.page.$eval("#time-range", (one) => one.max)) === "340";
  await untilHolds("all of it", all);
  await demo.fill("time-range", "32");
  // The recording has its own answers, but none of a model with a head less.
  await demo.page.click('[aria-label="Head 1 of layer 1"]');
  for (const step of [32, 340, 64]) {
    await demo.fill("time-range", `${step}`);
    const answers = new RegExp(`^\\d+ right at step ${step}, `);
    const here = async () => answers.test(await demo.text("squares-count"));
    await untilHolds(`answers of step ${step}`, here, 30);
  }
});
