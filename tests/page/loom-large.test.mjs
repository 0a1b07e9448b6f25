// The largest loom: 4 layers of 8 heads over 32 letters. It is woven in a worker and painted without an object for each
// thread, its curve is drawn a few times a second, and threads move on while a run stands still to be asked.
// reads: www tests/page/panel-page.mjs tests/page/page-module.mjs
import assert from "node:assert/strict";
import { test } from "node:test";
import { pageModule } from "./page-module.mjs";
import { openPanels } from "./panel-page.mjs";

const WINDOW = { width: 1440, height: 900 };
const LONG = { timeout: 60_000 };

/**
 * In the page: weaves a model of random weights.
 *
 * @param worker - where the worker lies.
 */
async function woven(worker) {
  const { Snapshot, Weaver, narrowed, weavable, weaving, sizeOf } = await import("/panels.js");
  const Before = globalThis.Worker;
  let workers = 0;
  globalThis.Worker = class extends Before {
    constructor(_, options) {
      super(worker, options);
      workers++;
    }
  };
  let seed = 1;
  const random = () => {
    seed = (seed * 16807) % 2147483647;
    return seed / 2147483647 - 0.5;
  };
  const made = (width, layers, heads) => {
    const shape = weavable({
      hidden_size: width,
      intermediate_size: 3 * width,
      num_hidden_layers: layers,
      num_attention_heads: heads,
    });
    const numbers = new Float32Array(sizeOf(shape)).map(random);
    const snapshot = new Snapshot(7, shape, narrowed(numbers));
    const of = Object.getOwnPropertyDescriptor(Snapshot.prototype, "weights").get;
    let looks = 0;
    Object.defineProperty(snapshot, "weights", {
      get() {
        looks++;
        return of.call(this);
      },
    });
    return { snapshot, looks: () => looks };
  };
  const given = new TextEncoder().encode("Once upon a time t");
  const cloth = { given, adds: 14, off: new Set([3]), answers: false };
  const weaver = new Weaver();
  const large = made(128, 4, 8);
  const first = await weaver.weave(large.snapshot, { ...cloth, wanted: [1] }, () => false);
  const [looks, begun] = [large.looks(), workers];
  const own = [...weaving(large.snapshot.weights, cloth)].at(-1);
  const stale = await weaver.weave(large.snapshot, cloth, () => true);
  const small = made(32, 1, 2);
  const before = workers;
  const there = await weaver.weave(small.snapshot, cloth, () => false);
  const flat = (weave) => JSON.stringify(weave, (_, one) => (one?.buffer ? [...one] : one));
  return {
    looks,
    begun,
    same: flat(first) === flat(own),
    letters: first.tokens.length,
    stale: stale === undefined,
    here: small.looks() > 0 && workers === before && there.tokens.length === 32,
  };
}

const MODULES = ["loom/weaver", "loom/weave", "loom/track", "loom/weights"];

test("a large model is woven in a worker, and a small one at once", LONG, async (t) => {
  const page = await openPanels(t, MODULES, WINDOW, "loom/asking-worker");
  const found = await page.evaluate(woven, "/worker.js");
  const wanted = { looks: 0, begun: 1, same: true, letters: 32, stale: true, here: true };
  assert.deepEqual(found, wanted);
});

test("where that worker does not load, the page weaves the same", LONG, async (t) => {
  const page = await openPanels(t, MODULES, WINDOW, "loom/asking-worker");
  const found = await page.evaluate(woven, "/no-such-worker.js");
  const wanted = { looks: 1, begun: 1, same: true, letters: 32, stale: true, here: true };
  assert.deepEqual(found, wanted);
});

test("threads of one head and strength are one path, of the curves that the mouse finds", async () => {
  const { paint, threadsOf, headOffset } = await pageModule("src/loom/painting");
  const { geometryOf, curveOf } = await pageModule("src/loom/geometry");
  const { Tiles } = await pageModule("src/loom/tiles");
  const [layers, heads, columns] = [4, 8, 32];
  const tokens = Array.from({ length: columns }, (_, at) => 97 + (at % 26));
  const guesses = tokens.map((token) => ({ token, share: 0.5 }));
  const weave = {
    shape: { layers, heads },
    tokens,
    given: 18,
    answers: false,
    columns,
    guesses,
    lens: Array.from({ length: layers }, () => guesses),
    changes: Array.from({ length: layers }, () => tokens.map(() => 1)),
  };
  const shares = new Float32Array(layers * heads * columns * columns);
  for (let row = 0; row < layers * heads * columns; row++) {
    const at = row % columns;
    shares.fill(1 / (at + 1), row * columns, row * columns + at + 1);
  }
  const geometry = geometryOf({ width: 1000, height: 560, columns, layers, named: true });
  const ink = { heads: Array.from({ length: 8 }, (_, head) => `head ${head}`) };
  const pen = new Proxy({}, { get: () => () => undefined, set: () => true });
  const paths = [];
  const kit = {
    pen,
    path: () => {
      const path = [];
      paths.push(path);
      return {
        moveTo: (...point) => path.push(point),
        bezierCurveTo: (...points) => path.push([...path.pop(), ...points]),
      };
    },
    stroke: () => undefined,
  };
  const beside = { wanted: undefined, ghost: [] };
  const scene = { weave, beside, shares, geometry, ink, pointed: undefined, chosen: undefined };
  paint(kit, new Tiles(), { ...scene, layers: [0, 1, 2, 3], elapsed: 16 });
  assert.ok(paths.length <= 2 * 16 * heads, `${paths.length} paths`);
  const near = (curve) => curve.map((one) => one.toFixed(3)).join(" ");
  const wanted = [...threadsOf(scene)].map(({ layer, head, at, from }) =>
    near(curveOf(geometry, layer, [from, at], headOffset(geometry, head, heads))),
  );
  assert.equal(wanted.length, layers * heads * ((columns * (columns + 1)) / 2));
  assert.deepEqual(paths.flat().map(near).toSorted(), wanted.toSorted());
});

test("layers take turns where threads are many or pictures late, and few are painted at once", async () => {
  const { LayerTurns } = await pageModule("src/loom/layer-turns");
  const made = (layers, threads) => {
    const turns = new LayerTurns(layers);
    turns.changed(threads);
    return turns;
  };
  const times = (n, gap, turns) => Array.from({ length: n }, () => turns.next(gap));
  const small = made(2, 700);
  assert.deepEqual(times(2, 17, small), [
    [0, 1],
    [0, 1],
  ]);
  const large = made(4, 16_000);
  const round = times(4, 17, large);
  assert.deepEqual(round.flat().toSorted(), [0, 1, 2, 3], "each layer in four pictures");
  assert.ok(round.every((layers) => layers.length === 1));
  // A weave has fewer threads than the tangle before it.
  large.changed(4000);
  assert.ok(large.all);
  assert.equal(large.next(90).length, 4, "one late picture changes nothing");
  times(3, 90, large);
  assert.deepEqual(times(2, 30, large).flat().toSorted(), [0, 1, 2, 3], "two at a time");
  times(39, 17, large);
  assert.equal(large.next(30).length, 2, "after a mistake it waits for longer");
  times(41, 17, large);
  assert.ok(large.all);
  // What has changed is painted whole, and then nothing is.
  const turns = made(3, 16_000);
  const painted = times(2, undefined, turns);
  assert.ok(turns.behind, "one layer is left");
  painted.push(turns.next(undefined));
  assert.deepEqual(painted.flat().toSorted(), [0, 1, 2]);
  assert.ok(!turns.behind);
});

/**
 * In the page: shows a loom of many threads, and another on it, once it is still. Gives how many pixels of it differ from
 * those that one picture of the same has, how many do halfway, and how many change when it is painted again. On white,
 * since what hardly covers has any colour.
 */
async function inTurns(FAR, [layers, heads, columns]) {
  const { Drawing, canvasKit } = await import("/panels.js");
  const tokens = Array.from({ length: columns }, (_, at) => 97 + (at % 26));
  const guesses = tokens.map((token) => ({ token, share: 0.5 }));
  const of = (make) => Array.from({ length: layers }, (_, layer) => make(layer));
  const row = (at, strongest) =>
    Float32Array.from({ length: at + 1 }, (_, from) =>
      from === strongest % (at + 1) ? 0.5 : 0.5 / (at + 1),
    );
  const weave = (shift) => ({
    shape: { layers, heads },
    tokens,
    given: 18,
    answers: false,
    columns,
    guesses,
    shares: of((layer) =>
      Array.from({ length: heads }, (_, head) =>
        tokens.map((_, at) => row(at, layer + 3 * head + shift)),
      ),
    ),
    lens: of(() => guesses),
    changes: of(() => tokens.map(() => 1)),
  });
  const canvas = document.getElementById("loom-canvas");
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const drawing = new Drawing(canvas);
  const onWhite = (of) => {
    const { data } = of.getContext("2d").getImageData(0, 0, of.width, of.height);
    return (at, colour) => 255 + ((data[at + colour] - 255) * data[at + 3]) / 255;
  };
  const apart = (a, b) => {
    let pixels = 0;
    for (let at = 0; at < 4 * canvas.width * canvas.height; at += 4) {
      if ([0, 1, 2].some((colour) => Math.abs(a(at, colour) - b(at, colour)) > FAR)) pixels++;
    }
    return pixels;
  };
  const differing = () => {
    const one = document.createElement("canvas");
    [one.width, one.height] = [canvas.width, canvas.height];
    const context = one.getContext("2d");
    const scale = Math.min(2, devicePixelRatio);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    drawing.copy(canvasKit(context), canvas.clientWidth, canvas.clientHeight);
    return apart(onWhite(canvas), onWhite(one));
  };
  drawing.show(weave(0), { wanted: undefined, ghost: [] }, new Set());
  await frame();
  await frame();
  const halfway = differing();
  for (let at = 0; at < 120; at++) await frame();
  const still = differing();
  drawing.show(weave(5), { wanted: undefined, ghost: [] }, new Set());
  for (let at = 0; at < 120; at++) await frame();
  const after = differing();
  const before = onWhite(canvas);
  for (let at = 0; at < 10; at++) {
    drawing.refresh();
    await frame();
  }
  return { halfway, still, after, late: apart(before, onWhite(canvas)) };
}

test("a loom whose layers were painted in turns is the loom of one picture", LONG, async (t) => {
  const page = await openPanels(t, ["loom/drawing", "loom/pen"], WINDOW);
  const { halfway, still, after, late } = await page.evaluate(inTurns, 32, [4, 8, 32]);
  t.diagnostic(`${halfway} pixels differ halfway, ${still} and ${after} at rest`);
  assert.ok(halfway > 1000, "not all is painted by the first pictures");
  // Layers of one path share no pixel, but the browser draws a long path a little otherwise than its parts.
  assert.ok(Math.max(still, after, late) < 50, `${still}, ${after} and ${late} pixels differ`);
});

test("a small loom glides to its end where no tile turns", LONG, async (t) => {
  const page = await openPanels(t, ["loom/drawing", "loom/pen"], WINDOW);
  const { still, after, late } = await page.evaluate(inTurns, 32, [2, 2, 12]);
  assert.deepEqual([still, after], [0, 0], "pixels that differ from those of one picture");
  assert.equal(late, 0, "pixels that move once somebody points at the loom");
});

/** In the page: shows weaves on a canvas in view, below the window, and in view again. Gives what is painted of each. */
async function outOfView() {
  const { Drawing } = await import("/panels.js");
  const canvas = document.getElementById("loom-canvas");
  const context = canvas.getContext("2d");
  let pictures = 0;
  const { clearRect } = CanvasRenderingContext2D.prototype;
  context.clearRect = function (...room) {
    pictures++;
    clearRect.apply(this, room);
  };
  const guess = { token: 97, share: 0.5 };
  const weave = (share) => ({
    shape: { layers: 1, heads: 1 },
    tokens: [97, 98],
    given: 2,
    answers: false,
    columns: 2,
    shares: [[[Float32Array.of(1), Float32Array.of(share, 1 - share)]]],
    guesses: [guess, guess],
    lens: [[guess, guess]],
    changes: [[1, 1]],
  });
  const frames = async (number) => {
    for (let at = 0; at < number; at++) await new Promise((done) => requestAnimationFrame(done));
  };
  const drawing = new Drawing(canvas);
  const shown = async (share) => {
    pictures = 0;
    drawing.show(weave(share), { wanted: undefined, ghost: [] }, new Set());
    await frames(10);
    return pictures;
  };
  await frames(3);
  const seen = await shown(0.9);
  canvas.style.cssText = "position: absolute; top: 5000px";
  await frames(60);
  const [unseen, again] = [await shown(0.1), await shown(0.6)];
  const curves = [];
  const kit = {
    pen: new Proxy({}, { get: () => () => undefined, set: () => true }),
    path: () => ({ moveTo: () => undefined, bezierCurveTo: (...curve) => curves.push(curve) }),
    stroke: () => undefined,
  };
  drawing.copy(kit, 600, 400);
  pictures = 0;
  canvas.style.cssText = "";
  await frames(10);
  return { seen: seen > 3, unseen, again, copied: curves.length, back: pictures > 0 };
}

test(
  "a loom that is out of view is not painted, and its copy is what it would show",
  LONG,
  async (t) => {
    const page = await openPanels(t, ["loom/drawing"], WINDOW);
    const found = await page.evaluate(outOfView);
    assert.deepEqual(found, { seen: true, unseen: 0, again: 0, copied: 3, back: true });
  },
);

/** In the page: draws 30 pictures, then one of another size. Gives how often the canvas was asked for its size. */
async function pictures() {
  const { Drawing } = await import("/panels.js");
  const canvas = document.getElementById("loom-canvas");
  const { get } = Object.getOwnPropertyDescriptor(Element.prototype, "clientWidth");
  let asked = 0;
  Object.defineProperty(canvas, "clientWidth", {
    get() {
      asked++;
      return get.call(this);
    },
  });
  const guess = { token: 97, share: 0.5 };
  const weave = {
    shape: { layers: 1, heads: 1 },
    tokens: [97],
    given: 1,
    answers: false,
    columns: 1,
    shares: [[[Float32Array.of(1)]]],
    guesses: [guess],
    lens: [[guess]],
    changes: [[1]],
  };
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const drawing = new Drawing(canvas);
  drawing.show(weave, { wanted: undefined, ghost: [] }, new Set());
  for (let at = 0; at < 30; at++) {
    drawing.refresh();
    await frame();
  }
  const times = asked;
  canvas.style.width = "300px";
  for (let at = 0; at < 4; at++) await frame();
  const width = canvas.width / Math.min(2, devicePixelRatio);
  const heights = [2, 4].map((layers) => {
    const of = (one) => Array.from({ length: layers }, () => one[0]);
    const { shares, lens, changes } = weave;
    const all = { shares: of(shares), lens: of(lens), changes: of(changes) };
    const shape = { layers, heads: 1 };
    drawing.show({ ...weave, ...all, shape }, { wanted: undefined, ghost: [] }, new Set());
    return canvas.clientHeight;
  });
  return { times, width, heights };
}

test("a picture does not ask the browser to lay out the page", LONG, async (t) => {
  const page = await openPanels(t, ["loom/drawing"], WINDOW);
  const { times, width, heights } = await page.evaluate(pictures);
  assert.ok(times <= 3, `${times} times in 30 pictures`);
  assert.equal(width, 300, "a canvas of another size is drawn anew");
  assert.equal(heights[1] - heights[0], 112, "two more layers take seven lines");
});

/** In the page: a run with a step in each picture. Gives how often its curve was drawn, and milliseconds. */
async function curve() {
  const { Timeline, Track } = await import("/panels.js");
  const track = new Track({ task: "reverse", name: "reverse", steps: 20_000, questions: [] });
  const timeline = new Timeline(() => undefined);
  timeline.show(track, undefined, undefined);
  const figure = document.getElementById("time-curve");
  let drawn = 0;
  new MutationObserver((all) => {
    drawn += all.some(({ removedNodes }) => removedNodes.length > 0) ? 1 : 0;
  }).observe(figure, { childList: true });
  const began = performance.now();
  for (let step = 1; step <= 60; step++) {
    track.learn(step, 3 - step / 60);
    timeline.refresh();
    await new Promise((done) => requestAnimationFrame(done));
  }
  const [counted, milliseconds] = [drawn, performance.now() - began];
  const drawing = async () => {
    timeline.refresh();
    await new Promise((done) => setTimeout(done, 250));
    return Number(document.getElementById("time-range").max);
  };
  const rooms = [await drawing()];
  const last = figure.querySelector(".curve").getAttribute("d");
  track.learn(1500, 1);
  rooms.push(await drawing());
  track.ended = true;
  rooms.push(await drawing());
  return { drawn: counted, milliseconds, last, rooms };
}

test("the curve of a quick run is drawn ten times a second, and to its end", LONG, async (t) => {
  const page = await openPanels(t, ["loom/timeline", "loom/track"], WINDOW);
  const { drawn, milliseconds, last, rooms } = await page.evaluate(curve);
  t.diagnostic(`${drawn} times in ${milliseconds.toFixed(0)} ms`);
  assert.ok(drawn <= milliseconds / 100 + 2, `${drawn} times in ${milliseconds} ms`);
  assert.equal(last.split("L").length, 60, "all losses");
  assert.deepEqual(rooms, [1000, 2000, 20_000], "of a long run there is room for a part at first");
});

test("threads move on while a quick run stands still to be asked, to be kept, or to write", async (t) => {
  const { Player } = await pageModule("src/loom/player");
  const { Snapshot, Track } = await pageModule("src/loom/track");
  const { sizeOf, weavable } = await pageModule("src/loom/weights");
  t.mock.timers.enable({ apis: ["setInterval", "Date"] });
  globalThis.document = { hidden: false };
  t.after(() => delete globalThis.document);
  const shape = weavable({
    hidden_size: 32,
    intermediate_size: 64,
    num_hidden_layers: 1,
    num_attention_heads: 2,
  });
  const numbers = new Uint16Array(sizeOf(shape));
  const about = { task: "reverse", name: "reverse", steps: 20_000, questions: [], example: "" };
  const track = new Track(about);
  track.add(new Snapshot(0, shape, numbers));
  const player = new Player(
    () => undefined,
    () => undefined,
  );
  player.go(track, 0);
  const seen = [];
  let shown = 0;
  // Twelve snapshots in 0.6 s, then none for 1.1 s.
  for (let tick = 0; tick < 10 * 34; tick++) {
    if (tick % 34 < 12) track.add(new Snapshot(track.newest + 1, shape, numbers));
    t.mock.timers.tick(50);
    const { step } = track.upTo(player.at);
    if (step !== shown) seen.push(50 * tick);
    shown = step;
    assert.ok(track.newest - step <= 12, `step ${step} of ${track.newest}`);
  }
  for (let from = 0; from + 1000 <= 50 * 340; from += 1000) {
    const count = seen.filter((time) => time >= from && time < from + 1000).length;
    assert.ok(count >= 4, `${count} in the second from ${from} ms on`);
  }
  track.end();
  for (let tick = 0; tick < 40; tick++) t.mock.timers.tick(50);
  assert.deepEqual(
    [player.at, player.playing],
    [track.newest, false],
    "nothing is kept at the end",
  );
});
