// The chips of the stage, the way between the recording and the own model, and the offer of a link's moment. In a real
// browser.
// reads: www
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { launch } from "../../scripts/browser.mjs";
import { root } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/server.mjs";
import { Demo, within } from "./demo-page.mjs";

const dist = join(root, "www", "dist");
/** Seconds that a call of the page may take. */
const CALL = 120;
const MOMENT =
  "#text-source=sort&size=thimble&tokens-per-step=128&sequence-length=32&steps=40&seed=5&step=5";

/** Each chip begins a run of what it says, and ends the one before. */
async function chips(demo) {
  const learns = {
    sort: /^Learning to sort digits$/,
    add: /^Learning to add numbers$/,
    brackets: /^Learning to close brackets$/,
    stories: /^Learning from built-in stories$/,
    shakespeare: /^Learning from Shakespeare$/,
    reverse: /^Learning to reverse a word$/,
  };
  const named = await demo.page.$$eval("#chips button", (all) =>
    all.map((one) => one.dataset["learns"]),
  );
  assert.deepEqual(named.toSorted(), [...Object.keys(learns), "paste"].sort());
  for (const [name, title] of Object.entries(learns)) {
    const chip = await demo.page.$eval(`[data-learns="${name}"]`, (one) => one.textContent);
    if (/^Learning to/.test(title.source.slice(1)))
      assert.match(`Learning to ${chip.toLowerCase()}`, title);
    await demo.page.click(`[data-learns="${name}"]`);
    await demo.until(name, async () => title.test(await demo.text("learning-title")));
    await demo.until("its first step", async () => {
      const trains = (await demo.state()) === "training";
      return trains && title.test(await demo.text("learning-title")) && (await demo.step()) >= 1;
    });
    assert.equal(await demo.text("text-source"), name);
    const pressed = await demo.page.$$eval('#chips [aria-pressed="true"]', (all) =>
      all.map((one) => one.dataset["learns"]),
    );
    assert.deepEqual(pressed, [name]);
    const map = await demo.page.$eval("#number-line", (one) => one.checkVisibility());
    if (name !== "sort") assert.equal(map, false, `${name} has no map of digits`);
    else await demo.until("the map of digits", () => shownMap(demo));
    if (name === "sort") await demo.axe("light", "the map of digits");
    if (name === "stories") await demo.axe("dark", "stories on the stage");
  }
}

const shownMap = (demo) => demo.page.$eval("#number-line", (one) => one.checkVisibility());

/** Between the recording and the own model goes a button, and each says which it is. */
async function switches(demo) {
  const source = () => demo.page.$eval("#loom", (one) => one.dataset.source);
  const offered = () => demo.page.$eval("#loom-switch:not([hidden])", (one) => one.textContent);
  await demo.until("the own model", async () => (await source()) === "live");
  assert.equal(await offered(), "See the recording");
  await demo.click("loom-switch");
  await demo.until("the recording", async () => (await source()) === "recording");
  assert.match(await demo.text("story"), /^Recorded earlier/);
  assert.equal(await offered(), "See your own model");
  await demo.click("loom-switch");
  await demo.until("the own model again", async () => (await source()) === "live");
}

/** A link's moment can be trained on from, by keys, too. */
async function trainsOn(demo) {
  await demo.page.evaluate((hash) => {
    location.hash = hash;
  }, MOMENT);
  const there = async () => (await demo.state()) === "paused" && (await demo.step()) === 5;
  await demo.until("the link's moment", there);
  for (const theme of ["light", "dark"]) await demo.axe(theme, "a link's moment");
  await demo.page.$$eval("#loom-said button", (all) =>
    all.find((one) => one.textContent === "Train on").focus(),
  );
  await demo.page.keyboard.press("Enter");
  const focused = await demo.page.evaluate(() => document.activeElement.id);
  assert.equal(focused, "loom-canvas", "what was offered is gone, and the focus is not");
  await demo.until("further steps", async () => (await demo.step()) > 5);
  assert.doesNotMatch(await demo.text("loom-said"), /Train on/, "the offer is taken");
}

test("the chips teach what they say, a button goes to the recording and back, a link's moment is trained on", {
  timeout: 600_000,
}, async (t) => {
  const server = await serve({ "/": dist });
  t.after(() => server.close());
  const browser = await launch("chromium", { seconds: CALL });
  t.after(() => browser.close());
  const link = `${server.url}/#text-source=reverse&seed=3`;
  const demo = await within(CALL, "page", Demo.open(browser, link));
  await demo.untilState("idle");
  await chips(demo);
  await switches(demo);
  await trainsOn(demo);
  assert.deepEqual(demo.errors, [], "the page's console has errors");
});
