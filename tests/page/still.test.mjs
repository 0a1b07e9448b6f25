// With reduced motion nothing on the stage moves: a picture of the loom fades into the next one, with no threads between
// and no tile that turns, also while a run is shown weave by weave; squares and heads change at once. By a clock that the
// test sets.
// reads: www tests/page/panel-page.mjs
import assert from "node:assert/strict";
import { test } from "node:test";
import { openPanels } from "./panel-page.mjs";

const WIDE = { width: 1280, height: 800 };
const LONG = { timeout: 60_000 };
/** Milliseconds in which one picture fades into the next. */
const FADE = 240;
/** Milliseconds between two pictures, and between two weaves of a run that is shown. */
const [FRAME, NEXT] = [40, 120];
/** Steps of a colour that rounding may make. */
const ROUNDS = 4;

/** A weave with threads and letters of its own. */
function weaveOf(seed) {
  const [layers, heads, columns] = [2, 2, 6];
  const places = Array.from({ length: columns }, (_, at) => at);
  const tokenOf = (number) => 97 + (number % 26);
  const guesses = places.map((at) => ({ token: tokenOf(at + 5 * seed), share: 0.2 + 0.25 * seed }));
  const rows = places.map((at) =>
    places.slice(0, at + 1).map((from) => ((from * 7 + seed * 3) % 5 === 0 ? 0.9 : 0)),
  );
  return {
    shape: { layers, heads },
    tokens: places.map((at) => tokenOf(at + 3 * seed)),
    given: 2,
    answers: true,
    columns,
    shares: Array(layers).fill(Array(heads).fill(rows)),
    guesses,
    lens: Array(layers).fill(guesses),
    changes: Array(layers).fill(Array(columns).fill(seed)),
  };
}

/**
 * In the page: shows the first weave, then two more as the show does, with all pictures up to a second after the last
 * one. What each looks like in the end is kept beside them.
 */
async function shows({ weaves, FRAME, NEXT }) {
  let now = 1000;
  const asked = [];
  performance.now = () => now;
  globalThis.requestAnimationFrame = (draw) => asked.push(draw);
  const { Drawing } = await import("/panels.js");
  const canvas = document.getElementById("loom-canvas");
  const drawing = new Drawing(canvas);
  await new Promise((laidOut) => {
    new ResizeObserver(laidOut).observe(canvas);
  });
  const copy = () => {
    const made = document.createElement("canvas");
    [made.width, made.height] = [canvas.width, canvas.height];
    made.getContext("2d").drawImage(canvas, 0, 0);
    return made;
  };
  /** All pictures of so many milliseconds. */
  const pictures = (weave, milliseconds) => {
    drawing.show(weave, { wanted: undefined, ghost: [] }, new Set());
    const all = [];
    for (let at = FRAME; at <= milliseconds; at += FRAME) {
      now += FRAME;
      for (const draw of asked.splice(0)) draw(now);
      all.push({ at, picture: copy() });
    }
    return all;
  };
  const last = (all) => all.at(-1).picture;
  const [first, second, third] = weaves;
  const begin = last(pictures(first, 1000));
  const quick = pictures(second, NEXT);
  const slow = pictures(third, 1000);
  const still = asked.length === 0;
  const end = last(pictures(second, 1000));
  globalThis.fades = [
    { from: begin, pictures: quick, to: end },
    { from: last(quick), pictures: slow, to: last(slow) },
  ];
  return still;
}

/** In the page: by how much each picture differs from what a fade makes of those before and after. */
function compares(FADE) {
  const pixels = (picture) =>
    picture.getContext("2d").getImageData(0, 0, picture.width, picture.height).data;
  const differ = (one, other) => {
    const [a, b] = [pixels(one), pixels(other)];
    let most = 0;
    for (let at = 0; at < a.length; at++) {
      // Colours count as much as they cover: others are rounded coarsely.
      const alpha = at - (at % 4) + 3;
      most = Math.max(most, Math.abs(a[at] * a[alpha] - b[at] * b[alpha]) / 255);
    }
    return Math.round(most);
  };
  return globalThis.fades.map(({ from, pictures, to }) =>
    pictures.map(({ at, picture }) => {
      const faded = document.createElement("canvas");
      [faded.width, faded.height] = [to.width, to.height];
      const context = faded.getContext("2d");
      context.drawImage(to, 0, 0);
      context.globalAlpha = Math.max(0, 1 - at / FADE);
      context.drawImage(from, 0, 0);
      return { at, differs: differ(picture, faded), moved: differ(from, to) };
    }),
  );
}

async function pictures(t, value) {
  const page = await openPanels(t, ["loom/drawing"], WIDE);
  await page.emulateMediaFeatures([{ name: "prefers-reduced-motion", value }]);
  const weaves = [0, 1, 2].map(weaveOf);
  assert.ok(await page.evaluate(shows, { weaves, FRAME, NEXT }), "in the end nothing is drawn");
  const told = await page.evaluate(compares, FADE);
  const counts = told.map((all) => all.length);
  assert.deepEqual(counts, [NEXT / FRAME, 1000 / FRAME]);
  for (const [{ moved }] of told) assert.ok(moved > 100, "the weaves differ");
  return told;
}

test(
  "with reduced motion pictures of the loom fade, and nothing in them moves",
  LONG,
  async (t) => {
    for (const { at, differs } of (await pictures(t, "reduce")).flat()) {
      assert.ok(differs <= ROUNDS, `after ${at} ms a picture differs from a fade by ${differs}`);
    }
  },
);

test("without it threads glide and tiles turn", LONG, async (t) => {
  for (const [{ differs }] of await pictures(t, "no-preference")) {
    assert.ok(differs > 10 * ROUNDS, `the first picture differs from a fade by ${differs}`);
  }
});

test("with reduced motion squares and heads change at once", LONG, async (t) => {
  const page = await openPanels(t, ["loom/squares"], WIDE);
  await page.evaluate(async () => {
    const { Squares } = await import("/panels.js");
    const nothing = () => undefined;
    new Squares(nothing, nothing).start([{}, {}]);
    const head = document.createElement("button");
    head.className = "head";
    document.getElementById("card-heads").append(head);
  });
  const turns = () =>
    page.evaluate(() => {
      const seconds = ([selector, part]) => {
        const style = getComputedStyle(document.querySelector(selector), part);
        return style.transitionProperty === "none"
          ? 0
          : Number.parseFloat(style.transitionDuration);
      };
      return [["#squares i"], [".head", "::before"]].map(seconds);
    });
  assert.deepEqual(await turns(), [0.35, 0.2]);
  await page.emulateMediaFeatures([{ name: "prefers-reduced-motion", value: "reduce" }]);
  assert.deepEqual(await turns(), [0, 0]);
});
