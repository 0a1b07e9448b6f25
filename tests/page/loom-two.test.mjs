// Two looms: both are at the step of the one handle, also where one run is longer, and each says how its own model did.
// reads: www
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { launch } from "../../scripts/browser.mjs";
import { root } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/server.mjs";
import { Demo, PHONE, slowWorker, within } from "./demo-page.mjs";

const CALL = 120;
/** A run that is much shorter than the recording. */
const STEPS = 12;
const LINK = `#text-source=reverse&size=thimble&steps=${STEPS}&tokens-per-step=128&seed=3`;

/** In the page: reads after each weave of the second loom, which comes after the first one's, the steps of both. */
function watch() {
  const [first, second] = ["loom-canvas", "loom-second"].map((id) => document.getElementById(id));
  globalThis.looks = [];
  const stepOf = ({ ariaLabel }) => Number(/at step (\d+)/.exec(ariaLabel)[1]);
  new MutationObserver(() => {
    globalThis.looks.push({ first: stepOf(first), second: stepOf(second) });
  }).observe(second, { attributeFilter: ["aria-label"] });
}

/** It plays from the beginning to the end of the longer one, and with one loom to its own. */
async function playsToEnds(demo, both, longer) {
  await demo.fill("time-speed", "4");
  await demo.page.evaluate(() => {
    globalThis.looks.length = 0;
  });
  await demo.click("time-play");
  await demo.until("a beginning", () =>
    demo.page.evaluate(() => globalThis.looks.some(({ second }) => second < 340)),
  );
  await both(STEPS, /^The recording at step 340, its last/);
  await demo.fill("loom-second-of", "");
  await demo.until("one loom", async () => (await longer()) === STEPS);
  assert.equal(await demo.page.$eval("#time-range", ({ value }) => Number(value)), STEPS);
}

/** A table says which of both got furthest, and with which settings. */
async function ranks(demo) {
  const rows = () =>
    demo.page.$$eval("#loom-furthest tbody tr", (all) =>
      all.map(({ cells }) => [...cells].map((cell) => cell.textContent)),
    );
  const asked = ([, own]) =>
    new RegExp(`^2nd of 2: \\d+ of 128 right at step ${STEPS}$`).test(own[1]);
  await demo.until("both places", async () => asked(await rows()));
  const [recording, own] = await rows();
  assert.equal(recording[0], "The recording");
  assert.match(recording[1], /^1st of 2: 12\d of 128 right at step 340$/);
  assert.equal(recording[2], "2 layers × 64, 512 per step, rate 0.005, seed 1");
  assert.deepEqual(
    [own[0], own[2]],
    ["Your model", "2 layers × 64, 128 per step, rate 0.005, seed 3"],
  );
}

/** What a run answered stays in the list of runs when the page comes back. */
async function remembers(demo) {
  const figure = new RegExp(`^\\d+ of 128 right at step ${STEPS}$`);
  const furthest = async () => (await demo.runs())[0]?.furthest;
  await demo.until("its figure in the list", async () => figure.test(await furthest()));
  const before = await furthest();
  await within(CALL, "reload", demo.page.reload());
  await demo.until("the list", async () => (await furthest()) !== undefined);
  assert.equal(await furthest(), before);
}

test("two looms follow one handle, each to its own end", { timeout: 300_000 }, async (t) => {
  // Answers that take longer than the run shows a step: threads wait for them.
  const server = await serve({ "/": join(root, "www", "dist"), ...slowWorker(400) });
  t.after(() => server.close());
  const browser = await launch("chromium", { seconds: CALL });
  t.after(() => browser.close());
  const demo = await within(CALL, "page", Demo.open(browser, `${server.url}/${LINK}`));
  const { page } = demo;
  await demo.untilState("idle");
  await demo.click("start");
  await demo.untilState("stopped");
  await demo.until("the own run on the loom", () =>
    page.$eval("#loom", (one) => one.dataset.source === "live"),
  );
  const beside = async () => (await page.$$("#loom-second-of option")).length > 1;
  await demo.until("something to be shown beside it", beside);
  await demo.fill("loom-second-of", "0");
  const label = () => page.$eval("#loom-canvas", (one) => one.getAttribute("aria-label"));
  const words = () => demo.text("loom-second-words");
  const both = (step, second) =>
    demo.until(`${step} and ${second}`, async () => {
      const first = (await label()).startsWith(`The loom at step ${step}:`);
      return first && second.test(await words());
    });

  await demo.fill("time-range", "4");
  await both(4, /^The recording at step 4: \d+ right$/);
  const longer = () => page.$eval("#time-range", ({ max }) => Number(max));
  await demo.until("the longer run's steps", async () => (await longer()) === 340);
  await demo.fill("time-range", "340");
  await both(STEPS, /^The recording at step 340, its last: 12\d right$/);
  assert.equal(await demo.text("loom-step"), `step ${STEPS}, its last`);
  await ranks(demo);
  const spoken = await page.$eval("#time-range", (one) => one.ariaValueText);
  assert.match(spoken, new RegExp(`^step ${STEPS}, its last, handle at 340, surprise \\d`));
  const count = new RegExp(`^\\d+ right at step ${STEPS}$`);
  await demo.until("answers", async () => count.test(await demo.text("squares-count")));
  for (const theme of ["dark", "light"]) await demo.axe(theme, "two looms");
  await demo.shot("loom-two-light", { width: 1440, height: 900 });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: "dark" }]);
  await demo.shot("loom-two-dark", { width: 1280, height: 800 });
  await demo.shot("loom-two-phone", PHONE);

  // While it plays, what the first one waits for the second one waits for, too: with a head less all is asked anew.
  await page.click('[aria-label="Head 1 of layer 1"]');
  await demo.fill("time-range", "0");
  await both(0, /^The recording at step 0: /);
  await page.evaluate(watch);
  await demo.click("time-play");
  await both(STEPS, /^The recording at step [1-9]\d/);
  const looks = await page.evaluate(() => globalThis.looks);
  const before = looks.filter(({ first }) => first < STEPS);
  for (const look of before) assert.ok(look.second <= look.first, JSON.stringify(look));
  t.diagnostic(
    `steps of both: ${before.map(({ first, second }) => `${first}, ${second}`).join("; ")}`,
  );
  assert.ok(before.length > 1, `${before.length} looks before the shorter run's end`);
  await demo.fill("time-range", "340");

  await playsToEnds(demo, both, longer);
  await remembers(demo);
  assert.deepEqual(demo.errors, [], "the page's console has errors");
});
