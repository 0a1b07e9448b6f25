// A slow device trains over the recording: its own run comes before the recording, passes its end, and the recording
// stays in grey all the time. Nothing is blank on the way.
// reads: www
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { launch } from "../../scripts/browser.mjs";
import { root } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/server.mjs";
import { Demo, within } from "./demo-page.mjs";

const CALL = 120;
/** Steps of the recording, and of a run that is longer and has small steps. */
const [RECORDED, STEPS] = [340, 370];
const LINK = `#text-source=reverse&size=thimble&steps=${STEPS}&sequence-length=32&tokens-per-step=64&seed=3`;

/** In the page: notes after each drawing of the time line what of both runs is to be seen. */
function watch() {
  const canvas = document.getElementById("loom-canvas");
  const figure = document.getElementById("time-curve");
  const range = document.getElementById("time-range");
  const pointsOf = (name) =>
    (figure.querySelector(`.${name}`)?.getAttribute("d") ?? "").split("L").filter(Boolean).length;
  const count = (selector) => document.querySelectorAll(selector).length;
  const inked = () => {
    const { width, height } = canvas;
    const row = canvas.getContext("2d").getImageData(0, Math.round(height / 2), width, 1).data;
    return row.some((value, at) => at % 4 === 3 && value > 0);
  };
  globalThis.looks = [];
  const look = () => {
    globalThis.looks.push({
      source: document.getElementById("loom").dataset.source,
      at: range.valueAsNumber,
      curve: pointsOf("curve"),
      ghost: pointsOf("ghost"),
      squares: count("#squares i"),
      grey: count("#squares .ghost"),
      inked: inked(),
      said: document.getElementById("story").textContent !== "",
    });
  };
  look();
  new MutationObserver(look).observe(figure, { childList: true });
}

/** In the page: the curves as they are seen at the end. */
function curves() {
  const [ghost, curve, floor] = ["ghost", "curve", "floor"].map((name) =>
    document.querySelector(`#time-curve .${name}`),
  );
  const { stroke, opacity, visibility } = getComputedStyle(ghost);
  return {
    share: ghost.getBBox().width / floor.getBBox().width,
    dim: stroke !== "none" && stroke !== getComputedStyle(curve).stroke,
    shown: Number(opacity) > 0 && visibility === "visible",
    key: document.getElementById("time-key").textContent,
  };
}

test("a recording that is overtaken stays in grey, and nothing is blank on the way", {
  timeout: 900_000,
}, async (t) => {
  const server = await serve({ "/": join(root, "www", "dist") });
  t.after(() => server.close());
  const browser = await launch("chromium", { seconds: CALL });
  t.after(() => browser.close());
  const demo = await within(CALL, "page", Demo.open(browser, `${server.url}/${LINK}`));
  const { page } = demo;
  const range = (what) => page.$eval("#time-range", (one, what) => Number(one[what]), what);
  await demo.untilState("idle");
  await demo.until("all of the recording", async () => (await range("max")) === RECORDED);
  await demo.until("its threads", async () => (await page.$("#loom[data-step]")) !== null);
  // The machine computes for both; the show takes its time.
  await demo.fill("time-speed", "0.25");
  await page.evaluate(watch);
  await demo.click("start");
  await demo.until("the end of the run", async () => (await demo.state()) === "stopped", 600);
  await demo.until("the end on the loom", async () => (await range("value")) === STEPS);

  const looks = await page.evaluate(() => globalThis.looks);
  const first = looks.findIndex(({ ghost }) => ghost > 0);
  const [before, live] = [looks.slice(0, first), looks.slice(first)];
  t.diagnostic(`${before.length} looks before the own run is seen, ${live.length} looks at it`);
  assert.ok(first > 0 && before.every(({ source }) => source === "recording"));
  const { curve: points } = before.at(-1);
  for (const look of looks) {
    const what = JSON.stringify(look);
    assert.ok(look.inked && look.said && look.curve > 0 && look.squares === 128, what);
  }
  // A point stands for two of the recording's steps at most.
  assert.ok(points >= RECORDED / 2, `${points} points of the recording`);
  const grey = new Set(live.map((look) => look.ghost));
  assert.deepEqual([...grey], [points], "points of the recording behind the own run");
  // Words and squares follow once the own run's threads are woven.
  const own = live.filter(({ source }) => source === "live");
  const tinted = new Set(own.map((look) => look.grey));
  assert.equal(tinted.size, 1, `squares that the recording had right: ${[...tinted]}`);
  assert.ok([...tinted][0] >= 120);
  const overtaken = live.filter(({ at }) => at > RECORDED).length;
  assert.ok(overtaken > 1, "looks at the own run beyond the recording's end");

  const { share, ...rest } = await page.evaluate(curves);
  assert.deepEqual([rest.dim, rest.shown], [true, true], JSON.stringify(rest));
  assert.match(rest.key, /^Grey: a recording of /);
  assert.ok(
    Math.abs(share - RECORDED / STEPS) < 0.01,
    `the grey curve takes ${share} of the width`,
  );
  assert.deepEqual(demo.errors, [], "the page's console has errors");
});
