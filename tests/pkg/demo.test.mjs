// The demo page, used as a person would: by its controls, in a real browser.
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { launch, openPage } from "../../scripts/browser.mjs";
import { root, target } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/server.mjs";

const shots = join(target, "screenshots");
const DESKTOP = { width: 1280, height: 900 };
const PHONE = { width: 390, height: 844, deviceScaleFactor: 2, isMobile: false, hasTouch: false };

const number = (text) => Number.parseFloat(text.replaceAll(",", ""));

/** Everything the test does to the page and reads from it. */
class Demo {
  constructor(page) {
    this.page = page;
  }

  text(id) {
    return this.page.$eval(`#${id}`, (element) => (element.value ?? element.textContent).trim());
  }

  state() {
    return this.page.$eval("body", (body) => body.dataset.state);
  }

  async step() {
    return number((await this.text("step")) || "0") || 0;
  }

  async click(id) {
    await this.page.$eval(`#${id}`, (element) => element.click());
  }

  /** Waits until the condition holds; says what it waited for and what the page showed. */
  async until(what, condition, seconds = 180) {
    const end = Date.now() + seconds * 1000;
    while (!(await condition())) {
      const [state, error] = [await this.state(), await this.text("error")];
      assert.notEqual(state, "error", `the page failed while waiting for ${what}: ${error}`);
      assert.ok(
        Date.now() < end,
        `no ${what} within ${seconds} s; state ${state}, step ${await this.step()}`,
      );
      await new Promise((done) => setTimeout(done, 200));
    }
  }

  async shot(name, viewport) {
    await this.page.setViewport(viewport);
    await new Promise((done) => setTimeout(done, 500));
    const wide = await this.page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(wide <= 0, `the page is ${wide} px wider than the ${name} screen`);
    await this.page.screenshot({ path: join(shots, `${name}.png`), fullPage: true });
  }
}

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
  await new Promise((done) => setTimeout(done, 2000));
  assert.equal(await demo.step(), paused, "no step while paused");
  return paused;
}

async function generate(demo) {
  await demo.page.$eval("#prompt", (element) => {
    element.value = "The ";
    element.dispatchEvent(new Event("input", { bubbles: true }));
  });
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

/** Saves a checkpoint, hands it back to the page's file input, and trains on from it. */
async function saveAndLoad(demo) {
  const saved = await demo.step();
  // A headless browser has no download to look at: the link's Blob goes straight to the input.
  const bytes = await demo.page.evaluate(async () => {
    const link = await new Promise((done) => {
      HTMLAnchorElement.prototype.click = function () {
        done(this);
      };
      document.querySelector("#save").click();
    });
    const archive = await (await fetch(link.href)).blob();
    const files = new DataTransfer();
    files.items.add(new File([archive], link.download));
    const input = document.querySelector("#checkpoint");
    input.files = files.files;
    input.dispatchEvent(new Event("change"));
    return archive.size;
  });
  assert.ok(bytes > 100_000, `the checkpoint has ${bytes} bytes`);
  const said = `Loaded at step ${saved} of `;
  await demo.until("loading", async () => (await demo.text("status")).startsWith(said));
  assert.equal(await demo.state(), "paused");
  assert.equal(await demo.step(), saved, "the step shown after loading");
  await demo.click("start");
  await demo.until("a step after loading", async () => (await demo.step()) > saved);
}

test("the demo page trains, pauses, resumes, streams, stops, saves and loads", {
  timeout: 900_000,
}, async (t) => {
  mkdirSync(shots, { recursive: true });
  const server = await serve({ "/": join(root, "www", "dist") });
  t.after(() => server.close());
  const browser = await launch("chromium");
  t.after(() => browser.close());
  const errors = [];
  const page = await openPage(browser, `${server.url}/`, (type, text) => {
    if (type === "error") errors.push(text);
  });
  const demo = new Demo(page);
  await page.setViewport(DESKTOP);
  await demo.until("capabilities", async () => (await demo.text("capabilities")).length > 0);
  const paused = await trainAndPause(demo);
  await generate(demo);
  await demo.click("start");
  await demo.until("resumption", async () => (await demo.step()) > paused);
  await demo.until("kernel plan", async () => (await demo.text("plan")).length > 100);
  await demo.until("sample while training", async () => (await demo.text("samples")).length > 0);
  assert.ok(await page.$("#loss-chart canvas, canvas#loss-chart"), "the loss is drawn");
  await demo.shot("desktop", DESKTOP);
  await demo.shot("phone", PHONE);
  await demo.click("stop");
  await demo.until("stop", async () => ["stopped", "idle"].includes(await demo.state()));
  await saveAndLoad(demo);
  await demo.click("stop");
  assert.deepEqual(errors, [], "the page's console has errors");
});
