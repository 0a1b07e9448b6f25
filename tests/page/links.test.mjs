// Links to a moment of a run, and starts that fail, in real browsers: what a link trains, what it wins over, and what
// stays.
// reads: www
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Runs } from "tinyloom/storage";
import { launch } from "../../scripts/browser.mjs";
import { root } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/server.mjs";
import { Demo, number } from "./demo-page.mjs";

/** Seconds that a call of the page may take. */
const CALL = 120;
const SMALL = "size=thimble&tokens-per-step=128&sequence-length=32";
const OWN = `#text-source=reverse&${SMALL}&steps=14&seed=3`;
// Of the steps from 17 on the loom keeps every second one at most, and that at which the run stands.
const MOMENT = `#text-source=sort&${SMALL}&steps=40&learning-rate=0.005&seed=5&step=21&cut=1.6`;
const SECOND = `#text-source=brackets&${SMALL}&steps=30&seed=2&step=4`;
const LARGE =
  "#text-source=reverse&size=own&own-layers=24&own-width=2048&own-heads=8&steps=9&seed=2&step=4&cut=1";

const shownStep = (demo) => demo.page.$eval("#loom", (one) => Number(one.dataset.step));
const source = (demo) => demo.page.$eval("#loom", (one) => one.dataset.source);

async function start(t, kind = "chromium") {
  const server = await serve({ "/": join(root, "www", "dist") });
  t.after(() => server.close());
  const browser = await launch(kind, { seconds: CALL });
  t.after(() => browser.close());
  return { server, browser };
}

/** A link trains up to its step, says so, and plays that with the heads cut. */
async function moment(demo) {
  await demo.untilState("paused");
  assert.equal(await demo.step(), 21);
  assert.match(await demo.text("status"), /^This is the link's moment, step 21\./);
  const said = await demo.text("loom-said");
  assert.match(said, /^A link: sort digits, 40 steps, seed 5, trained here up to step 21\./);
  assert.match(said, /On another GPU details may differ/);
  assert.equal(await demo.text("text-source"), "sort", "the form has the link's settings");
  await demo.until("the moment on the loom", async () => (await shownStep(demo)) === 21);
  assert.equal(await source(demo), "live");
  const cut = await demo.page.$$eval('.head[aria-pressed="false"]', (all) =>
    all.map((one) => one.getAttribute("aria-label")),
  );
  assert.deepEqual(cut.sort(), ["Head 2 of layer 1", "Head 3 of layer 2"]);
}

/** The panel gives the same link again, for the moment that is shown. */
async function sameLink(demo) {
  await demo.page.click("#share-open");
  await demo.appears("#share-link:enabled");
  // The clipboard is said to have it only where the browser has let it.
  for (const [allowed, words] of [
    [true, "The link is in the clipboard."],
    [false, "Copy the link from the field."],
  ]) {
    await demo.clipboard(allowed);
    await demo.page.click("#share-link");
    await demo.until(words, async () => (await demo.text("share-note")) === words, 20);
  }
  await demo.appears("#share-address:not([hidden])");
  const given = new URLSearchParams(new URL(await demo.text("share-address")).hash.slice(1));
  for (const [name, value] of new URLSearchParams(MOMENT.slice(1))) {
    assert.equal(given.get(name), value, name);
  }
  await demo.page.click("#share-close");
}

test("a link to a moment trains up to it, wins over the run of before, and leaves that one click away", {
  timeout: 900_000,
}, async (t) => {
  const { server, browser } = await start(t);
  const demo = await Demo.open(browser, `${server.url}/${OWN}`);
  await demo.untilState("idle");
  await demo.pauseFrom(2);
  await demo.click("start");
  await demo.untilState("paused");
  const stood = await demo.step();
  const [{ name }] = await demo.runs();

  await demo.page.goto(`${server.url}/?link${MOMENT}`);
  await moment(demo);
  await sameLink(demo);

  // A second link in the same tab.
  await demo.page.evaluate((hash) => {
    location.hash = hash;
  }, SECOND);
  await demo.until("the second link", async () => (await demo.text("text-source")) === "brackets");
  await demo.untilState("paused");
  assert.equal(await demo.step(), 4);
  await demo.page.evaluate(() => {
    location.hash = "#workshop";
  });
  assert.equal(await demo.state(), "paused", "a place of the page is no link");

  const back = `Back to my run “${name}”`;
  assert.ok((await demo.text("loom-said")).includes(back), await demo.text("loom-said"));
  await demo.page.$$eval(
    "#loom-said button",
    (all, back) => all.find((one) => one.textContent === back).focus(),
    back,
  );
  await demo.page.keyboard.press("Enter");
  const focused = await demo.page.evaluate(() => document.activeElement.id);
  assert.equal(focused, "loom-canvas", "what was offered is gone, and the focus is not");
  await demo.until("the run of before", async () => (await demo.step()) === stood);
  await demo.untilState("paused");
  assert.equal(await demo.text("text-source"), "reverse", "the form has its settings");
  assert.equal((await demo.runs()).find((one) => one.name === name).name, name);

  // The same link comes back to the run that was begun with it.
  await demo.page.goto(`${server.url}/?again`);
  await demo.untilState("paused");
  assert.equal(await demo.step(), stood);
  assert.deepEqual(demo.errors, [], "the page's console has errors");
});

/** A link whose model does not fit leaves the stage as it is, and the next run without its cut heads. */
async function tooLarge(demo) {
  const follow = (link) =>
    demo.page.evaluate((hash) => {
      location.hash = hash;
    }, link);
  await follow(LARGE);
  await demo.until("refusal", async () => /does not fit/.test(await demo.text("status")), 60);
  assert.equal(await demo.state(), "stopped");
  await follow(OWN);
  await demo.until("its settings", async () => (await demo.text("size")) === "thimble");
  const { length } = await demo.runs();
  await demo.click("start");
  await demo.until("the next run", async () => (await demo.runs()).length > length);
  await demo.untilState("stopped");
  await demo.until("it on the loom", async () => (await source(demo)) === "live");
  assert.equal((await demo.page.$$('.head[aria-pressed="false"]')).length, 0, "no head is cut");
}

/** In the page: asks for a proof, and for all that would take its text away. */
async function asksMeanwhile() {
  const [prove, start] = ["prove", "start"].map((id) => document.getElementById(id));
  const button = (what, more = "") => `#runs tr${more} [aria-label^="${what} "]`;
  const present = document.querySelector(button("Delete", "[aria-current]"));
  const other = document.querySelector(button("Open", ":not([aria-current])"));
  const held = [prove.disabled, start.disabled, present.disabled, other.disabled];
  prove.click();
  held.push(prove.disabled, start.disabled);
  // The table is written anew a moment later.
  for (const one of [present, other]) one.click();
  const all = () => [...document.querySelectorAll(`${button("Open")}, ${button("Resume")}`)];
  while (start.disabled && !all().every(({ disabled }) => disabled))
    await new Promise((turn) => setTimeout(turn));
  const opens = all().map(({ disabled, title }) => `${disabled}: ${title}`);
  const { disabled, title } = document.querySelector(button("Delete", "[aria-current]"));
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(new File(["PK"], "a run.zip"));
  document.body.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true }));
  const status = document.getElementById("status");
  while (start.disabled && !/^Bring/.test(status.textContent))
    await new Promise((turn) => setTimeout(turn));
  const said = status.textContent;
  return { held, opens, deletes: `${disabled}: ${title}`, said, proving: start.disabled };
}

/** A proof lets no run begin, come or go until it is over: it uses the text of the present one. */
async function proves(demo) {
  const step = await demo.step();
  // The table of a run that has just ended is written a moment later.
  await demo.appears("#runs tr[aria-current] [aria-label^=Delete]:enabled");
  await demo.appears("#runs tr:not([aria-current]) [aria-label^=Open]:enabled");
  // In one go: the proof may be over before another call comes.
  const found = await demo.page.evaluate(asksMeanwhile);
  assert.deepEqual(found.held, [false, false, false, false, true, true], "before it and in it");
  assert.ok(found.opens.length > 1);
  for (const one of [...found.opens, found.deletes]) {
    assert.equal(one, "true: Wait until the proof is over.");
  }
  assert.equal(found.said, "Bring the file again once this run has stopped, or its proof is over.");
  assert.equal(found.proving, true, "all this was asked while the proof was on its way");
  assert.equal(await demo.state(), "stopped");
  await demo.appears("#start:enabled", 300);
  assert.match(await demo.text("proof-note"), /^The same: /);
  assert.ok(await demo.page.$("#error[hidden]"), await demo.text("error"));
  assert.equal(await demo.step(), step, "the run is the same");
  await demo.appears("#runs tr:not([aria-current]) [aria-label^=Open]:enabled");
}

/** What a run that has just ended hands out has the score of its last step, in its samples and for the list. */
async function exportsScore(t, demo) {
  const [{ name }] = await demo.runs();
  const zip = await demo.export(name);
  const folder = mkdtempSync(join(tmpdir(), "tinyloom-score-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const run = await (await Runs.open("score", { folder })).import(zip, name);
  const last = (await run.samples()).findLast(({ score }) => score);
  assert.deepEqual([last.step, last.score.of], [14, 128]);
  assert.equal(await demo.text("score-count"), `${last.score.right} of 128 problems`);
  assert.deepEqual(run.options.score, { ...last.score, step: 14 });
  await run.close();
}

test("a start that fails leaves the run of before as it was, and a proof lets none begin", {
  timeout: 900_000,
}, async (t) => {
  const { server, browser } = await start(t);
  const demo = await Demo.open(browser, `${server.url}/${OWN}`);
  await demo.untilState("idle");
  await demo.page.focus("#start");
  await demo.page.keyboard.press("Enter");
  await demo.untilState("training");
  const focused = () => demo.page.evaluate(() => document.activeElement.id);
  assert.equal(await focused(), "pause", "the keyboard goes on at the button that does something");
  await demo.untilState("stopped");
  await exportsScore(t, demo);
  const step = await demo.step();
  const before = await demo.likeliest("weave", 8);

  await demo.fill("text-source", "paste");
  await demo.fill("paste", "eleven char");
  await demo.click("start");
  await demo.appears("#error:not([hidden])");
  assert.match(await demo.text("error"), /^The text has 11 letters;/);
  assert.equal(await demo.state(), "stopped");
  assert.match(await demo.text("status"), /^That did not work\. “.*” is as it was\.$/);
  assert.equal(await demo.step(), step);
  assert.equal(await demo.likeliest("weave", 8), before, "the model still answers");
  assert.ok(await demo.page.$('#runs [aria-current="true"]'), "its row is the current one");
  for (const theme of ["dark", "light"]) await demo.axe(theme, "a start that has failed");

  const picture = new File(
    [Buffer.from([0x89, 0x50, 0x4e, 0x47, 0, 0, 0, 13, 0, 1, 2, 3])],
    "a.png",
  );
  await demo.drop({ "a.png": picture });
  await demo.until("file", async () => (await demo.text("text-source")) === "file");
  await demo.click("start");
  await demo.until("refusal", async () => /no text/.test(await demo.text("error")));
  assert.equal(await demo.state(), "stopped");

  await tooLarge(demo);
  await proves(demo);
  assert.equal((await demo.page.$$("#hashes code")).length, 2);
  assert.deepEqual(demo.errors, [], "the page's console has errors");
});

test("in Firefox a link to a moment trains up to it", { timeout: 600_000 }, async (t) => {
  const { server, browser } = await start(t, "firefox");
  const demo = await Demo.open(browser, `${server.url}/${MOMENT}`);
  await moment(demo);
  assert.ok(number(await demo.text("loss")) > 0);
});
