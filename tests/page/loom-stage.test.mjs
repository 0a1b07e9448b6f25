// The stage as a visitor uses it, without WebGPU: the recording plays, and its forward pass answers. By its controls,
// in a real browser.
// reads: www tests/page/no-gpu.mjs
import assert from "node:assert/strict";
import { test } from "node:test";
import { number, PHONE } from "./demo-page.mjs";
import { openWithoutGpu, untilHolds as until } from "./no-gpu.mjs";

const DARK = { width: 1280, height: 800 };
const WIDE = { width: 1440, height: 900 };

const label = (demo) => demo.page.$eval("#loom-canvas", (one) => one.getAttribute("aria-label"));
const says = (demo, pattern) => until(`${pattern}`, async () => pattern.test(await label(demo)));
const right = async (demo) => number(await demo.text("squares-count"));

/** Time: the handle moves everything, and the run plays on from there. */
async function time(demo) {
  await demo.fill("time-range", "340");
  await says(demo, /at step 340: the model reads planet→ and says tenalp\./);
  assert.ok((await right(demo)) >= 125, await demo.text("squares-count"));
  assert.match(await demo.text("story"), /after 340 steps it answers 12\d of 128 words/i);
  assert.equal(
    await demo.page.$eval("#time-play", (one) => one.textContent),
    "Play",
    "a handle that is held stands still",
  );
  const moments = await demo.page.$$eval(".moment-name", (all) =>
    all.map((one) => one.textContent),
  );
  assert.deepEqual(moments.slice(0, 2), ["noise", "first right"]);
  await demo.page.focus("#time-range");
  await demo.page.keyboard.press("Home");
  await says(demo, /at step 0:/);
  assert.equal(await right(demo), 0);
  assert.doesNotMatch(await label(demo), /says tenalp/);
  await demo.click("time-play");
  await until(
    "play",
    async () => Number(await demo.page.$eval("#loom", (one) => one.dataset.step)) > 3,
  );
  await demo.fill("time-range", "340");
  await says(demo, /at step 340/);
}

/** A word of the visitor's is woven at once. */
async function words(demo) {
  await demo.page.click("#loom-word", { clickCount: 3 });
  await demo.page.keyboard.type("window");
  await says(demo, /reads window→ and says wodniw\./);
  await demo.page.focus("#squares");
  await demo.page.keyboard.press("ArrowRight");
  const [asked, said] = (await demo.text("square-note")).split(/[→ ]+/);
  assert.equal(said, [...asked].reverse().join(""), await demo.text("square-note"));
  await demo.page.keyboard.press("Enter");
  await says(demo, new RegExp(`reads ${asked}→ and says ${said}\\.`));
  await demo.fill("loom-word", "planet");
}

/** What is chosen is explained, and cut. */
async function card(demo) {
  await demo.page.focus("#loom-canvas");
  await demo.page.keyboard.press("End");
  await until("the end", async () =>
    /^After “tenalp” it says the end/.test(await demo.text("card-title")),
  );
  for (let left = 0; left < 3; left++) await demo.page.keyboard.press("ArrowLeft");
  await until("a letter", async () =>
    /^After “ten” it says “a”/.test(await demo.text("card-title")),
  );
  assert.match(
    await demo.text("card-words"),
    /Layer 2: .*the 3rd letter, “a”.*After layer 1 alone/s,
  );
  const before = await right(demo);
  await demo.click("card-cut");
  const cut = async () => /^\d+ right.*threads cut$/.test(await demo.text("squares-count"));
  await until("other answers", cut);
  assert.ok(
    (await right(demo)) < before / 2,
    `${await right(demo)} of ${before} without these heads`,
  );
  assert.match(await demo.text("story"), /with \d of its heads cut it answers/i);
  assert.doesNotMatch(await label(demo), /says tenalp/);
  await demo.click("card-mend");
  await says(demo, /says tenalp\./);
  assert.equal(await right(demo), before, "put back, it answers as before");
  await demo.page.click('[aria-label="Head 1 of layer 2"]');
  await until("one head's answers", cut);
  assert.ok(await demo.page.$('[aria-label="Head 1 of layer 2"][aria-pressed="false"]'));
  await demo.page.click('[aria-label="Head 1 of layer 2"]');
  await says(demo, /says tenalp\./);
}

test("without WebGPU the loom weaves, explains, cuts and goes back in time", {
  timeout: 300_000,
}, async (t) => {
  const { demo } = await openWithoutGpu(t);
  await says(demo, /^The loom at step \d+: the model reads planet→ and says/);
  await until(
    "all of it",
    async () => (await demo.page.$eval("#time-range", (one) => one.max)) === "340",
  );
  await time(demo);
  await words(demo);
  await card(demo);
  await demo.page.emulateMediaFeatures([{ name: "prefers-reduced-motion", value: "reduce" }]);
  await demo.fill("time-range", "64");
  await says(demo, /at step 64/);
  await demo.axe("light", "loom");
  await demo.shot("loom-light", WIDE);
  await demo.axe("dark", "loom");
  await demo.shot("loom-dark", DARK);
  await demo.shot("loom-phone", PHONE);
  assert.deepEqual(demo.errors, [], "the page's console has errors");
});
