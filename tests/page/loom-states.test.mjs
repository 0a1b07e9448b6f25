// The stage while it plays, scrubbed, pointed at and with a head cut: axe finds nothing, in light and dark, and nothing is wider than the screen, also at
// 200 % zoom. Without WebGPU, where all of them are there within seconds; two looms are in loom-two.test.mjs, lessons in
// lessons.test.mjs.
// reads: www tests/page/no-gpu.mjs
import assert from "node:assert/strict";
import { test } from "node:test";
import { PHONE, sleep } from "./demo-page.mjs";
import { openWithoutGpu, untilHolds } from "./no-gpu.mjs";

/** A window of 1280 × 800 at 200 % zoom has half as many CSS pixels each way. */
const ZOOMED = { width: 640, height: 400, deviceScaleFactor: 2 };
const WIDE = { width: 1280, height: 800, deviceScaleFactor: 1 };

/** @param holds - asserts before each look that the stage is still in this state. */
async function held(demo, name, holds = () => undefined) {
  for (const [how, viewport, theme] of [
    ["light", WIDE, "light"],
    ["zoomed", ZOOMED, "dark"],
    ["phone", PHONE, "light"],
  ]) {
    await demo.page.setViewport(viewport);
    await sleep(100);
    await holds();
    await demo.axe(theme, `${name}, ${how}`);
    await demo.shot(`stage-${name}-${how}`, viewport);
  }
  await demo.page.setViewport(WIDE);
}

test("the stage is accessible while it plays, scrubbed, pointed at and cut", {
  timeout: 300_000,
}, async (t) => {
  const { demo } = await openWithoutGpu(t);
  const { page } = demo;
  await untilHolds(
    "a weave",
    async () => (await page.$eval("#loom", (one) => one.dataset.step)) !== undefined,
  );
  await demo.fill("time-speed", "0.25"); // three looks of axe may take longer than the show
  await held(demo, "playing", async () => {
    assert.equal(await page.$eval("#time-play", (one) => one.textContent), "Pause");
  });
  await page.setViewport(PHONE);
  await sleep(100);
  const below = await page.$$eval("#sentence, #loom-canvas, #loom-word", (all) =>
    all.filter((one) => one.getBoundingClientRect().bottom > innerHeight).map(({ id }) => id),
  );
  assert.deepEqual(below, [], "a phone's first screen has the sentence, the weave and the word");
  await page.setViewport(WIDE);
  await untilHolds(
    "all of it",
    async () => (await page.$eval("#time-range", (one) => one.max)) === "340",
  );
  await demo.fill("time-range", "64");
  await untilHolds("step 64", async () => /step 64$/.test(await demo.text("loom-step")));
  await held(demo, "scrubbed");
  await page.focus("#loom-canvas");
  await page.keyboard.press("Home");
  await page.focus("#squares");
  await page.keyboard.press("ArrowRight");
  assert.notEqual(await demo.text("square-note"), "");
  await held(demo, "pointed");
  await demo.click("card-cut");
  await untilHolds("answers", async () => /cut$/.test(await demo.text("squares-count")));
  await held(demo, "cut");
  assert.deepEqual(demo.errors, [], "the page's console has errors");
});
