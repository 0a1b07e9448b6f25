// A visit by keys alone, in a real browser: Tab reaches all of the page, and the stage is used without a mouse. At 200 %
// zoom the whole of the workshop is accessible, and nothing of it wider than the screen.
// reads: www tests/page/no-gpu.mjs tests/page/keys.mjs
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { launch } from "../../scripts/browser.mjs";
import { root } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/server.mjs";
import { CALL, Demo, number, PHONE, within } from "./demo-page.mjs";
import { tabTo, walk } from "./keys.mjs";
import { openWithoutGpu, untilHolds } from "./no-gpu.mjs";

const WIDE = { width: 1280, height: 800, deviceScaleFactor: 1 };
/** A window of 1280 × 800 at 200 % zoom has half as many CSS pixels each way. */
const ZOOMED = { width: 640, height: 400, deviceScaleFactor: 2 };
/** A run of seconds. */
const RUN =
  "#text-source=reverse&size=thimble&tokens-per-step=128&sequence-length=32&steps=14&seed=3";
/** What the stage has for those without a GPU, from the top to the bottom. */
const STAGE = [
  "share-open",
  "loom-canvas",
  "time-play",
  "time-speed",
  "time-range",
  "loom-word",
  "loom-weave",
  "squares",
  "card-cut",
];

const label = (demo) => demo.page.$eval("#loom-canvas", (one) => one.ariaLabel);
const says = (demo, pattern) =>
  untilHolds(`${pattern}`, async () => pattern.test(await label(demo)));
const focused = (demo) => demo.page.evaluate(() => document.activeElement.id);
const press = async (demo, ...keys) => {
  for (const key of keys) await demo.page.keyboard.press(key);
};

/** Heads that are cut, by what their buttons are called. */
const cut = (demo) =>
  demo.page.$$eval('.head[aria-pressed="false"]', (all) => all.map((one) => one.ariaLabel));
const cuts = (demo, ...heads) =>
  untilHolds(`cut: ${heads}`, async () => (await cut(demo)).join() === heads.join());

/** Time goes where keys say, and plays. */
async function time(demo) {
  await tabTo(demo.page, "#time-play");
  const offers = () => demo.page.$eval("#time-play", (one) => one.textContent);
  if ((await offers()) === "Pause") await press(demo, "Space");
  assert.equal(await offers(), "Play");
  await tabTo(demo.page, "#time-range");
  await press(demo, "Home");
  await says(demo, /at step 0:/);
  await press(demo, "ArrowRight", "ArrowRight");
  await says(demo, /at step 2:/);
  await tabTo(demo.page, "#time-play", "Shift+Tab");
  await press(demo, "Enter");
  const step = () => demo.page.$eval("#loom", (one) => Number(one.dataset.step));
  await untilHolds("play", async () => (await step()) > 3);
  await press(demo, "Enter");
  await tabTo(demo.page, "#time-range");
  await press(demo, "End");
  await says(demo, /at step 340:.* says tenalp/);
}

/** A word is typed, and woven by Enter; another one is that of a square. */
async function words(demo) {
  await tabTo(demo.page, "#loom-word");
  // Tab selects what stands there.
  await demo.page.keyboard.type("window");
  await press(demo, "Enter");
  await says(demo, /reads window→ and says wodniw\./);
  await tabTo(demo.page, "#squares");
  await press(demo, "ArrowRight", "ArrowDown");
  const asked = (await demo.text("square-note")).split(/[→ ]+/)[0];
  await press(demo, "Enter");
  await says(demo, new RegExp(`reads ${asked}→ and says`));
  await tabTo(demo.page, "#loom-word", "Shift+Tab");
  await demo.page.keyboard.type("planet");
  await press(demo, "Enter");
  await says(demo, /says tenalp/);
}

/** Letters and threads are chosen on the loom, what is chosen is said, and its head cut. */
async function threads(demo) {
  await tabTo(demo.page, "#loom-canvas", "Shift+Tab");
  assert.ok(await demo.page.$("#loom-note[role=status]:not([aria-hidden])"), "it is read out");
  const note = () => demo.text("loom-note");
  await press(demo, "End", "ArrowLeft", "ArrowLeft", "ArrowLeft");
  assert.match(await note(), /^After “ten” it says “a”, \d+\s% sure\.$/);
  const told = [];
  for (let head = 0; head < 8; head++) {
    await press(demo, "ArrowUp");
    told.push(await note());
  }
  const named = told.map((text) => /^(Head \d of layer \d)\. At /.exec(text)?.[1]);
  const all = [1, 2].flatMap((layer) =>
    [1, 2, 3, 4].map((head) => `Head ${head} of layer ${layer}`),
  );
  assert.deepEqual(named, all, "up through the heads of both layers");
  for (const text of told) assert.match(text, /, it reads .*: \d+\s% of its look\.$/);
  assert.equal(await demo.text("card-title"), "Head 4 of layer 2", "the card tells of it, too");
  await press(demo, "ArrowUp");
  assert.equal(await note(), told[7], "there is none above");
  await press(demo, "ArrowDown");
  assert.equal(await note(), told[6]);

  // Along the threads of a head that has several of them.
  await press(demo, "ArrowUp", "Home");
  await tabTo(demo.page, "#time-range");
  await press(demo, "Home");
  await says(demo, /at step 0:/);
  await tabTo(demo.page, "#loom-canvas", "Shift+Tab");
  await press(demo, "End", "ArrowUp");
  const along = new Set([await note()]);
  for (let left = 0; left < 20; left++) {
    await press(demo, "ArrowLeft");
    along.add(await note());
  }
  assert.ok(along.size > 3, `a model that has learned nothing looks everywhere: ${[...along]}`);
  for (const text of along) assert.match(text, /^Head 1 of layer 1\. At /);
  const leftmost = await note();
  await press(demo, "ArrowRight");
  assert.notEqual(await note(), leftmost);
  await press(demo, "ArrowDown");
  assert.doesNotMatch(await note(), /^Head/, "down to the letter");

  for (const [key, heads] of [
    ["Enter", ["Head 1 of layer 1"]],
    ["Space", []],
  ]) {
    await press(demo, "Home", "ArrowUp", key);
    await cuts(demo, ...heads);
    assert.equal(/It is cut\.$/.test(await note()), heads.length > 0, await note());
  }
  await demo.page.keyboard.press("Tab");
  assert.equal(await note(), "", "nothing is said of what has no focus");
}

/** Heads are cut and put back by their buttons and by those of the card. */
async function heads(demo) {
  await tabTo(demo.page, "#time-range");
  await press(demo, "End");
  await says(demo, /at step 340:.* says tenalp/);
  await tabTo(demo.page, '[aria-label="Head 1 of layer 2"]');
  await press(demo, "Space");
  await cuts(demo, "Head 1 of layer 2");
  await press(demo, "Space");
  await cuts(demo);
  await tabTo(demo.page, "#card-cut");
  await press(demo, "Enter");
  await untilHolds("cut heads", async () => (await cut(demo)).length > 0);
  await untilHolds("answers", async () => /cut$/.test(await demo.text("squares-count")));
  await tabTo(demo.page, "#card-mend");
  await press(demo, "Enter");
  await cuts(demo);
  await untilHolds("the first button", async () => (await focused(demo)) === "card-cut");
  await untilHolds("answers", async () => number(await demo.text("squares-count")) > 100);
}

/** The share dialog takes the focus, keeps it, and gives it back. */
async function share(demo) {
  await tabTo(demo.page, "#share-open", "Shift+Tab");
  await press(demo, "Enter");
  await demo.page.waitForSelector("#share-link:enabled");
  assert.equal(await focused(demo), "share");
  const order = ["close", "link", "picture", "clip", "svg", "curve", "answers", "close", "link"];
  const reached = [];
  for (const _ of order) {
    await press(demo, "Tab");
    reached.push(await focused(demo));
  }
  assert.deepEqual(
    reached,
    order.map((one) => `share-${one}`),
    "Tab stays in the dialog",
  );
  await press(demo, "Enter");
  await demo.page.waitForSelector("#share-address:not([hidden])");
  await demo.page.keyboard.down("Shift");
  for (const back of ["share-address", "share-close", "share-answers"]) {
    await press(demo, "Tab");
    assert.equal(await focused(demo), back);
  }
  await demo.page.keyboard.up("Shift");
  await press(demo, "Escape");
  assert.ok(!(await demo.page.$("#share:popover-open")), "Escape closes it");
  assert.equal(await focused(demo), "share-open");
  await press(demo, "Tab");
  assert.notEqual(await focused(demo), "share-close", "and it has no hold on the focus any more");
}

test("Tab goes through the stage as the screen does, and all of it is used by keys", {
  timeout: 300_000,
}, async (t) => {
  const { demo } = await openWithoutGpu(t);
  const all = async () => (await demo.page.$eval("#time-range", (one) => one.max)) === "340";
  await untilHolds("all of it", all);
  await demo.page.setViewport(WIDE);
  await time(demo);
  for (const [how, viewport] of [
    ["wide", WIDE],
    ["zoomed", ZOOMED],
    ["phone", PHONE],
  ]) {
    await demo.page.setViewport(viewport);
    const names = await walk(demo.page, how);
    const missed = STAGE.filter((id) => !names.includes(id));
    assert.deepEqual(missed, [], `${how}: controls of the stage`);
    assert.ok(names.filter((name) => /^Head/.test(name)).length === 8, names.join());
  }
  await demo.page.setViewport(WIDE);
  await words(demo);
  await threads(demo);
  await heads(demo);
  await share(demo);
  assert.deepEqual(demo.errors, [], "the page's console has errors");
});

/** Some of what the workshop has after a run, from the top to the bottom. */
const WORKSHOP = [
  "text-source",
  "steps",
  "start",
  "quantity",
  "loss-chart",
  "samples",
  "prompt",
  "generate",
  "inside-text",
  "Table of runs",
  "import",
  "teach-way",
  "tune-base",
  "prove",
  "measure",
  "benchmark",
];

test("Tab goes through the workshop, and a run is begun, halted and left by keys", {
  timeout: 600_000,
}, async (t) => {
  const server = await serve({ "/": join(root, "www", "dist") });
  t.after(() => server.close());
  const browser = await launch("chromium", { seconds: CALL });
  t.after(() => browser.close());
  const demo = await within(CALL, "page", Demo.open(browser, `${server.url}/${RUN}`));
  const { page } = demo;
  await demo.untilState("idle");
  await tabTo(page, "#start");
  await press(demo, "Enter");
  await demo.untilState("training", "stopped");
  await demo.untilState("stopped");
  assert.equal(await focused(demo), "start", "when it has ended another one can begin");

  await demo.unfold();
  await page.setViewport(WIDE);
  const names = await walk(page, "the workshop");
  t.diagnostic(`${names.length} controls`);
  assert.deepEqual(
    WORKSHOP.filter((id) => !names.includes(id)),
    [],
  );
  await page.setViewport(ZOOMED);
  await walk(page, "the workshop, zoomed");
  await demo.shot("workshop-zoomed", ZOOMED);
  await demo.axe("light", "the workshop, zoomed");

  await demo.unfold(false);
  await page.setViewport(WIDE);
  await tabTo(page, '[data-learns="sort"]', "Shift+Tab");
  await press(demo, "Enter");
  const sorts = async () => (await demo.text("learning-title")) === "Learning to sort digits";
  await demo.until("a run of sort", async () => (await sorts()) && (await demo.step()) > 0);
  await tabTo(page, "#pause");
  await press(demo, "Enter");
  await demo.untilState("paused");
  assert.equal(await focused(demo), "start", "where it says Resume");
  assert.deepEqual(demo.errors, [], "the page's console has errors");
});
