// The form, the list of runs and a second tab, in a real browser: what they say is so, and nothing leads astray.
// reads: www
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { launch } from "../../scripts/browser.mjs";
import { root } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/server.mjs";
import { CALL, Demo, number } from "./demo-page.mjs";

const dist = join(root, "www", "dist");
const LINK = "#text-source=reverse&size=thimble&steps=4000&tokens-per-step=128&seed=3";
const PASTED = "A loom makes cloth of threads. ".repeat(60);

const weights = async (demo) => {
  await demo.until("estimate", async () =>
    /weights, in number/.test(await demo.page.$eval("#estimate", (one) => one.textContent)),
  );
  return number(await demo.page.$eval("#estimate td", (one) => one.textContent));
};

/** Changes a field, on which the number of weights depends; gives the new one. */
async function weightsWith(demo, id, value) {
  const before = await weights(demo);
  await demo.fill(id, value);
  await demo.until("other weights", async () => (await weights(demo)) !== before);
  return weights(demo);
}

/** Letters never have a vocabulary of more than 256, and a model has heads of a width that there is. */
async function models(demo) {
  await demo.page.$eval("#estimate", (one) => {
    one.closest("details").open = true;
  });
  const ofLetters = await weightsWith(demo, "size", "mid");
  const ofTokens = await weightsWith(demo, "text-source", "stories"); // whose own size is the same
  assert.equal(ofTokens - ofLetters, (4096 - 256) * 384, "embeddings of 3,840 tokens");
  await weightsWith(demo, "text-source", "reverse"); // which brings its own size
  assert.equal(await weightsWith(demo, "size", "mid"), ofLetters);
  await demo.fill("size", "own");
  await demo.fill("own-heads", "2");
  await demo.fill("own-width", "11");
  assert.equal(await demo.text("own-width-value"), "2,048");
  assert.equal(await demo.text("own-heads-value"), "8", "four heads would be too wide");
  await demo.fill("own-width", "0");
  assert.equal(await demo.text("own-heads-value"), "8");
  await demo.fill("own-heads", "4");
  assert.equal(await demo.text("own-heads-value"), "8", "sixteen would be too narrow");
}

/** What the status says is of the form as it is. */
async function says(demo) {
  await demo.fill("text-source", "file");
  await demo.until("request", async () => /^Choose a file first/.test(await demo.text("status")));
  const field = await demo.page.$("#file");
  await field.uploadFile(join(root, "README.md"));
  await demo.until("ready", async () => (await demo.text("status")) === "Ready.", 30);
}

/** On a low window the form does not stick: its buttons could not be reached. */
async function low(demo) {
  await demo.page.setViewport({ width: 1366, height: 650 });
  const position = () => demo.page.$eval("#setup", (one) => getComputedStyle(one).position);
  assert.equal(await position(), "static");
  await demo.unfold(false);
  // Each pixel of scrolling brings Start as much nearer, and the end of the curve is in view with it.
  const { before, after, chart } = await demo.page.evaluate(() => {
    const box = (id) => document.getElementById(id).getBoundingClientRect();
    document.getElementById("workshop").scrollIntoView({ behavior: "instant" });
    const before = box("start").bottom - innerHeight;
    scrollBy({ top: before, behavior: "instant" });
    return { before, after: box("start").bottom - innerHeight, chart: box("loss-chart").bottom };
  });
  assert.ok(before > 100, "with the editor the form is higher than the window");
  assert.ok(Math.abs(after) < 2, `Start ends ${after} pixels below the window`);
  assert.ok(chart > 50, `the curve ends at ${chart}`);
  await demo.page.setViewport({ width: 1366, height: 900 });
  assert.equal(await position(), "static", "with the editor it is higher than the window");
  await demo.fill("text-source", "reverse");
  await demo.fill("size", "thimble");
  await demo.unfold(false);
  assert.equal(await position(), "sticky");
}

/** In the page: what is said of the time that is left after each step, and when. */
function timesLeft() {
  globalThis.told = [];
  document.addEventListener("tinyloom:training", ({ detail: { type, step } }) => {
    if (type !== "step") return;
    const now = performance.now();
    // The panels hear it after this.
    queueMicrotask(() => {
      const text = document.getElementById("time-left").textContent;
      globalThis.told.push({ step, now, text });
    });
  });
}

/** The time left is that of the clock, from when all has been compiled: for the first step, and for the first sample. */
async function timeLeft(demo) {
  const told = await demo.page.evaluate(() => globalThis.told);
  assert.deepEqual(
    told.slice(0, 2).map(({ step }) => step),
    [1, 2],
  );
  const [first, second, ...rest] = told;
  assert.deepEqual([first.text, second.text], ["–", "–"]);
  assert.ok(rest.length >= 4);
  for (const { step, now, text } of rest) {
    const wanted = (((now - second.now) / (step - 2)) * (4000 - step)) / 1000;
    // A machine that does much else may take hours, which are said without their minutes.
    const [, hours] = /^([\d,]+) h$/.exec(text) ?? [];
    const [, minutes, seconds] = /^(\d+):(\d\d)$/.exec(text) ?? [0, 60 * number(hours ?? ""), 0];
    const off = Math.abs(60 * Number(minutes) + Number(seconds) - wanted);
    assert.ok(off < 0.1 * wanted + (hours ? 1800 : 1), `step ${step}: ${text}, not ${wanted} s`);
  }
}

/** After a reload the form has what the run learns, a pasted text too. */
async function reload(demo) {
  await demo.fill("text-source", "paste");
  await demo.fill("paste", PASTED);
  await demo.fill("size", "thimble");
  await demo.fill("steps", "4000");
  await demo.fill("tokens-per-step", "64");
  await demo.page.evaluate(timesLeft);
  await demo.pauseFrom(6);
  await demo.click("start");
  await demo.untilState("paused");
  await timeLeft(demo);
  // The address that the page has given itself is no link of another's.
  await demo.click("link");
  await demo.page.reload();
  await demo.untilState("paused");
  assert.equal(await demo.text("text-source"), "paste");
  assert.equal(await demo.text("paste"), PASTED.trim());
  assert.equal(await demo.text("steps"), "4000");
}

/** The clipboard is said to have a link or a program only where the browser has let it. */
async function clipboard(demo) {
  const said = async (id, allowed) => {
    await demo.clipboard(allowed);
    await demo.page.$eval("#status", (status) => status.replaceChildren());
    await demo.click(id);
    await demo.until(`word of ${id}`, async () => (await demo.text("status")) !== "");
    return demo.text("status");
  };
  const own = "Your own text is not in it.";
  assert.equal(
    await said("link", true),
    `The address bar has the link, and so has the clipboard. ${own}`,
  );
  assert.equal(
    await said("link", false),
    `The address bar has the link: copy it from there. ${own}`,
  );
  const reads = "It reads the text from text.txt.";
  assert.equal(await said("code", true), `The program is below, and in the clipboard. ${reads}`);
  assert.equal(await said("code", false), `The program is below: copy it from there. ${reads}`);
}

/** A run keeps its name where it is given none. */
async function names(demo) {
  await demo.appears('#runs [aria-label^="Name of the run"]');
  const [{ name }] = await demo.runs();
  await demo.page.$eval(`#runs [aria-label="Name of the run ${name}"]`, (input) => {
    input.value = "  ";
    input.dispatchEvent(new Event("change"));
  });
  assert.equal((await demo.runs())[0].name, name);
  assert.ok(await demo.page.$("#error[hidden]"), "that is no failure");
}

/** A second tab says what the first one does, and begins nothing. */
async function secondTab(demo, browser, url) {
  await demo.click("start");
  await demo.untilState("training");
  await demo.appears('#runs [aria-label^="Export"]:disabled');
  const disabled = await demo.page.$eval(
    '#runs [aria-label^="Export"]:disabled',
    (one) => one.title,
  );
  assert.equal(disabled, "It trains: pause it first.");
  const second = await Demo.open(browser, url);
  await second.untilState("idle");
  assert.match(
    await second.text("loom-said"),
    /^“.*” is open in another tab, and goes on there\.$/,
  );
  assert.ok(await second.page.$("#error[hidden]"));
  await second.until("the recording", async () =>
    /^Recorded earlier/.test(await second.text("story")),
  );
  assert.deepEqual(second.errors, [], "the second tab's console has errors");
  await second.page.close();
  await demo.page.bringToFront();
  // The chips end a run of the visitor's own only if they say so.
  demo.dialogs.length = 0;
  demo.accepts = false;
  await demo.page.click('[data-learns="paste"]');
  const stood = await demo.step();
  await demo.until("its next step", async () => (await demo.step()) > stood);
  assert.equal(await demo.state(), "training", "who says no goes on");
  demo.accepts = true;
  await demo.page.click('[data-learns="paste"]');
  await demo.untilState("stopped");
  assert.deepEqual(demo.dialogs, ["confirm", "confirm"]);
}

/** Of a text of one's own a large size learns tokens, and is known again by their number. */
async function learnsTokens(demo) {
  const { length } = await demo.runs();
  assert.equal(await demo.text("text-source"), "paste");
  await demo.fill("size", "mid");
  for (const id of ["sequence-length", "tokens-per-step"]) await demo.fill(id, "32");
  await demo.fill("steps", "1");
  await demo.click("start");
  await demo.until("its run", async () => (await demo.runs()).length > length);
  await demo.untilState("stopped");
  const [, words] = /among ([\d,]+) tokens/.exec(await demo.text("blind-key"));
  assert.ok(number(words) > 256 && number(words) < 320, `${words} tokens of seven words`);
  assert.doesNotMatch(await demo.text("samples"), /\ufffd/);
  await demo.fill("size", "thimble");
  const { name } = (await demo.runs()).find((one) => /^Mid on /.test(one.name));
  await demo.press("Open", name);
  await demo.until("its size", async () => (await demo.text("size")) === "mid");
  await demo.untilState("stopped");
}

/** What is asked for while a run is read is done, and that run is not paused first. */
async function asksMeanwhile(demo) {
  const { name } = (await demo.runs()).find(({ buttons }) => buttons.Resume);
  await demo.page.evaluate((name) => {
    document.querySelector(`#runs [aria-label="Resume ${name}"]`).click();
    document.getElementById("own-text").click();
  }, name);
  const words = "Paste your text, then press Start.";
  await demo.until(words, async () => (await demo.text("status")) === words, 60);
  assert.equal(await demo.state(), "stopped");
}

/** A measurement that takes long can be ended. */
async function measures(demo) {
  await demo.appears("#benchmark:enabled");
  await demo.click("benchmark");
  // The clock goes on while the first row is measured.
  await demo.until("its place", async () =>
    /^Measuring: train \w+, 1 of 6, \d+:\d\d min so far…$/.test(await demo.text("benchmark-note")),
  );
  await demo.click("benchmark");
  await demo.until("its end", async () => /^Stopped\./.test(await demo.text("benchmark-note")));
  const label = await demo.page.$eval("#benchmark", (one) => one.textContent);
  assert.equal(label, "Measure this GPU");
}

test("the form says what is so, before and after a reload, and in two tabs", {
  timeout: 600_000,
}, async (t) => {
  // What is seen before the script runs is what it then shows.
  const html = readFileSync(join(dist, "index.html"), "utf8");
  assert.match(html, /<option value="reverse" selected/);
  assert.doesNotMatch(html, /<select id="size"><\/select>/);
  const server = await serve({ "/": dist });
  t.after(() => server.close());
  const browser = await launch("chromium", { seconds: CALL });
  t.after(() => browser.close());
  const demo = await Demo.open(browser, `${server.url}/${LINK}`);
  await demo.untilState("idle");
  await models(demo);
  await says(demo);
  await low(demo);
  await measures(demo);
  await reload(demo);
  await names(demo);
  await clipboard(demo);
  await secondTab(demo, browser, `${server.url}/?second`);
  await learnsTokens(demo);
  await asksMeanwhile(demo);
  assert.deepEqual(demo.errors, [], "the page's console has errors");
});
