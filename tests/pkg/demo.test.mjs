// The demo page, used as a person would: by its controls, in a real browser.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { launch } from "../../scripts/browser.mjs";
import { root } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/server.mjs";
import { DESKTOP, Demo, number, PHONE, sleep } from "./demo-page.mjs";

/** Longest time, in ms, that the page did not get to run between two timers of 20 ms. */
function longestFreeze(page) {
  return page.evaluate(
    () =>
      new Promise((done) => {
        let last = performance.now();
        let longest = 0;
        const timer = setInterval(() => {
          const now = performance.now();
          longest = Math.max(longest, now - last);
          last = now;
        }, 20);
        setTimeout(() => {
          clearInterval(timer);
          done(longest);
        }, 3000);
      }),
  );
}

async function trainAndPause(demo) {
  assert.equal(await demo.state(), "idle");
  await demo.click("start");
  await demo.until("first step", async () => (await demo.step()) >= 1);
  const first = number(await demo.text("loss"));
  assert.ok(first > 0, `the first loss is "${await demo.text("loss")}"`);
  await demo.until("fall of the loss", async () => number(await demo.text("loss")) < first - 0.5);
  assert.equal(await demo.state(), "training");
  assert.ok(number(await demo.text("tokens-per-second")) > 0, "tokens per second");
  const freeze = await longestFreeze(demo.page);
  assert.ok(freeze < 1000, `training froze the page for ${freeze} ms`);
  await demo.click("pause");
  await demo.until("pause", async () => (await demo.state()) === "paused");
  const paused = await demo.step();
  await sleep(1000);
  assert.equal(await demo.step(), paused, "no step while paused");
  return paused;
}

async function generate(demo) {
  await demo.fill("prompt", "The ");
  const lengths = new Set();
  await demo.click("generate");
  await demo.until("streamed sample", async () => {
    lengths.add((await demo.text("output")).length);
    return Math.max(...lengths) >= 20;
  });
  await demo.until("growing text", async () => {
    lengths.add((await demo.text("output")).length);
    return lengths.size >= 2;
  });
}

/** At 1280 × 800 the controls, the curve and the newest sample are in view together. */
async function inView(demo) {
  await demo.page.setViewport({ width: 1280, height: 800 });
  await sleep(300);
  const bottoms = await demo.page.evaluate(() => {
    scrollTo(0, 0);
    const bottom = (one) => document.querySelector(one).getBoundingClientRect().bottom;
    return ["#start", "#status", "#loss-chart", "#samples li"].map(bottom);
  });
  for (const bottom of bottoms) assert.ok(bottom > 0 && bottom <= 800, `${bottoms}`);
  assert.equal(await demo.text("blind-key"), "guessing blindly among 256 bytes");
}

test("the demo page trains, pauses, resumes, streams and stops", {
  timeout: 900_000,
}, async (t) => {
  const server = await serve({ "/": join(root, "www", "dist") });
  t.after(() => server.close());
  const browser = await launch("chromium");
  t.after(() => browser.close());
  const demo = await Demo.open(browser, `${server.url}/`);
  await demo.until("capabilities", async () => (await demo.text("capabilities")).length > 0);
  const paused = await trainAndPause(demo);
  await generate(demo);
  assert.ok((await demo.text("output-step")).includes(`step ${paused} `), "the model's step");
  await demo.click("start");
  await demo.until("resumption", async () => (await demo.step()) > paused);
  await demo.until("kernel plan", async () => (await demo.text("plan")).length > 100);
  await demo.until("sample while training", async () => (await demo.text("samples")).length > 0);
  assert.ok(await demo.page.$("#loss-chart canvas, canvas#loss-chart"), "the loss is drawn");
  await inView(demo);
  await demo.shot("desktop", DESKTOP);
  await demo.shot("phone", PHONE);
  assert.match(await demo.text("ticker"), /^Step \d+ of 420, loss \d\.\d+$/);
  const ticker = await demo.page.$eval("#ticker", (line) => line.getBoundingClientRect().bottom);
  assert.equal(ticker, PHONE.height, "the status line is at the lower edge of a phone");
  await demo.click("stop");
  await demo.untilState("stopped");
  const newest = await demo.page.$eval("#samples li", (item) => item.value);
  assert.equal(newest, await demo.step(), "a run that is stopped ends with a sample");
  assert.deepEqual(demo.errors, [], "the page's console has errors");
});
