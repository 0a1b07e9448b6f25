// A real model on the stage: loaded from a checkpoint folder, its layers over a chat, before an adapter learns and
// while it does, and the way back. In a real browser.
// reads: www tests/reference tests/files/hub-tokenizer
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { launch } from "../../scripts/browser.mjs";
import { root } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/server.mjs";
import { DESKTOP, Demo, PHONE, within } from "./demo-page.mjs";
import { blobs, CHATS, checkpoint } from "./demo-tune-checkpoint.mjs";
import { Tune } from "./demo-tune-panel.mjs";

const CALL = 120;
const STEPS = 40;
const LINK = "#text-source=reverse&size=thimble&steps=24&tokens-per-step=128&seed=3";

const visible = (page, selector) => page.$eval(selector, (one) => one.checkVisibility());
const label = (page) => page.$eval("#tune-loom", (canvas) => canvas.ariaLabel);
const enabled = (page, id) =>
  page.$eval(`#${id}`, (one) => !one.matches(":disabled, [aria-disabled=true]"));

/** Opens the panel with a folder and chats. Nothing of them is loaded yet. */
async function ready(demo, tune) {
  await demo.page.click("#tune summary");
  await tune.until("waiting", 30);
  await tune.drop(blobs(checkpoint()));
  await tune.until("ready");
  const csv = CHATS.map(([asked, answer]) => `${asked.content},"${answer.content}"`);
  await demo.fill("tune-source", "paste");
  await demo.fill("tune-paste", ["prompt,completion", ...csv].join("\n"));
  await demo.until("the chats", async () => /^24 chats/.test(await tune.text("chats-note")));
  await tune.until("ready");
  await demo.fill("tune-steps", String(STEPS));
  await demo.fill("tune-rate", "0.02");
  await demo.until("the button", () => enabled(demo.page, "tune-look"));
}

/** The model takes the stage over as it came, and what stood there is not to be seen. */
async function takes(demo, tune) {
  const { page } = demo;
  assert.ok((await visible(page, "#loom-canvas")) && !(await visible(page, "#loom-real")));
  await page.click("#tune-look");
  await tune.said(/^Its layers are on the loom/);
  assert.ok(!(await visible(page, "#loom-canvas")) && (await visible(page, "#tune-loom")));
  assert.match(await demo.text("real-title"), /^Inside /);
  const story =
    /^A model of [\d,]+ weights reads your chat, and goes on: its 2 layers, as it came\.$/;
  assert.match(await demo.text("real-story"), story);
  assert.equal(await demo.text("real-prompt"), CHATS.at(-3)[0].content);
  assert.equal(await page.evaluate(() => document.activeElement.id), "real-prompt");
  const top = await page.$eval("#loom", (one) => Math.abs(one.getBoundingClientRect().top));
  assert.ok(top < 80, `the stage is ${top} pixels from the top`);
  assert.match(await label(page), /^Layers 1, 2 of the model, with 4 heads each/);
}

/** Keys go through its words, and up from a word through the heads of its layers. */
async function points(demo) {
  const { page } = demo;
  const note = () => demo.text("tune-loom-note");
  await page.focus("#tune-loom");
  await page.keyboard.press("End");
  assert.match(await note(), /^Behind “.*” it says “/);
  const told = [];
  for (let head = 0; head < 8; head++) {
    await page.keyboard.press("ArrowUp");
    told.push(/^(Layer \d, head \d): “.*” looks at “.*”, \d+ %\.$/.exec(await note())?.[1]);
  }
  const all = [1, 2].flatMap((layer) => [1, 2, 3, 4].map((head) => `Layer ${layer}, head ${head}`));
  assert.deepEqual(told, all);
  await page.keyboard.press("Home");
  assert.match(await note(), /^Behind /);
}

/** A chat of one's own is woven, also by Enter. */
async function says(demo) {
  const { page } = demo;
  const before = await label(page);
  await demo.fill("real-prompt", CHATS[0][0].content);
  await page.focus("#real-prompt");
  await page.keyboard.press("Enter");
  await demo.until("another chat", async () => (await label(page)) !== before, 60);
  await demo.until("its end", () => enabled(page, "real-weave"), 60);
}

/** While the adapter learns the threads are those of its steps. It is paused and goes on from here. */
async function learns(t, demo, tune) {
  const { page } = demo;
  const train = () => page.$eval("#real-train", (one) => one.textContent);
  await page.evaluate(() => {
    globalThis.told = [];
    const story = document.getElementById("real-story");
    new MutationObserver(() => globalThis.told.push(story.textContent)).observe(story, {
      childList: true,
    });
    // Pressed by the page, which hears of each step.
    const step = document.getElementById("tune-step");
    const watch = new MutationObserver(() => {
      if (Number(step.dataset.value) < 5) return;
      watch.disconnect();
      document.getElementById("real-pause").click();
    });
    watch.observe(step, { attributeFilter: ["data-value"] });
  });
  assert.equal(await train(), "Train the adapter");
  await page.click("#real-train");
  await tune.until("paused");
  await tune.said(/^Paused after \d+ steps/);
  const paused = Number(await page.$eval("#tune-step", ({ dataset }) => dataset.value));
  assert.ok(paused < STEPS, `paused at ${paused}`);
  assert.equal(await train(), "Go on");
  await page.click("#real-train");
  await tune.until("done");
  await tune.said(new RegExp(`^Done after ${STEPS} steps`));
  const told = await page.evaluate(() => globalThis.told);
  const steps = [...new Set(told.map((one) => Number(/learned for (\d+) step/.exec(one)?.[1])))];
  t.diagnostic(`woven after ${steps.join(", ")} steps`);
  assert.ok(steps.length >= 6 && steps[0] === 1, "the first step and later ones");
  assert.deepEqual(
    steps,
    steps.toSorted((a, b) => a - b),
  );
  assert.equal(steps.at(-1), STEPS);
}

/** The most layers that are shown fit a window, with what is read below them and what is said above. */
async function fits({ page }) {
  for (const viewport of [{ width: 1280, height: 800 }, PHONE]) {
    await page.setViewport(viewport);
    const bottom = await page.$eval("#tune-loom", (canvas) => {
      const layers = canvas.style.getPropertyValue("--layers");
      canvas.style.setProperty("--layers", "6");
      document.getElementById("loom").scrollIntoView();
      const box = canvas.getBoundingClientRect();
      canvas.style.setProperty("--layers", layers);
      return box.bottom;
    });
    assert.ok(bottom <= viewport.height, `its lower edge is at ${bottom} of ${viewport.height}`);
  }
}

/** The stage is given back, by its button and by whoever chooses what is learned here. */
async function goes(demo, tune) {
  const { page } = demo;
  await page.click("#real-back");
  assert.ok((await visible(page, "#loom-canvas")) && !(await visible(page, "#loom-real")));
  assert.equal(await page.evaluate(() => document.activeElement.id), "loom-canvas");
  await page.click("#tune-look");
  await tune.said(/^Its layers are on the loom/);
  assert.ok(await visible(page, "#tune-loom"));
  await page.click('[data-learns="sort"]');
  assert.ok((await visible(page, "#loom-canvas")) && !(await visible(page, "#loom-real")));
  await demo.untilState("training");
  await demo.click("stop");
  await demo.untilState("stopped");
}

test("a model from a folder takes the stage over, is fine-tuned there, and gives it back", {
  timeout: 400_000,
}, async (t) => {
  const server = await serve({ "/": join(root, "www", "dist") });
  t.after(() => server.close());
  const browser = await launch("chromium", { seconds: CALL });
  t.after(() => browser.close());
  const demo = await within(CALL, "page", Demo.open(browser, `${server.url}/${LINK}`));
  const tune = new Tune(demo);
  await demo.untilState("idle");
  await ready(demo, tune);
  await takes(demo, tune);
  await points(demo);
  await says(demo);
  await learns(t, demo, tune);
  await fits(demo);
  for (const [how, viewport, theme] of [
    ["light", { width: 1440, height: 900 }, "light"],
    ["dark", { width: 1280, height: 800 }, "dark"],
    ["phone", PHONE, "light"],
  ]) {
    await demo.page.setViewport(viewport);
    await demo.axe(theme, `a real model, ${how}`);
    await demo.shot(`real-${how}`, viewport, "#loom");
  }
  await demo.page.setViewport(DESKTOP);
  await goes(demo, tune);
  assert.deepEqual(demo.errors, [], "the page's console has errors");
});
