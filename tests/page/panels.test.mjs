// What panels of the workshop show of what they are given: samples of bytes that are no text, the letter that is looked
// at, a long title, runs that are kept, and a measurement. In the page's own markup, without a model.
// reads: www tests/page/panel-page.mjs
import assert from "node:assert/strict";
import { test } from "node:test";
import { pageModule } from "./page-module.mjs";
import { openPanels } from "./panel-page.mjs";

/** A window of 1280 × 800 at 200 % zoom has half as many CSS pixels each way. */
const ZOOMED = { width: 640, height: 400, deviceScaleFactor: 2 };
const LONG = { timeout: 60_000 };

test("a byte that is no letter has a name, and so has white space", async () => {
  const { codecOf } = await pageModule("src/data");
  const { name } = await codecOf(undefined);
  const names = await Promise.all([146, 7, 255, 10, 32, 97].map((byte) => name(byte)));
  assert.deepEqual(names, ["byte 146", "byte 7", "byte 255", "line break", "space", "a"]);
});

/** In the page: a sample as it is written token by token, then the whole of it, with what is said of its tokens. */
async function written() {
  const { SamplesPanel } = await import("/panels.js");
  const panel = new SamplesPanel();
  panel.start();
  const letters = ["\n", "\n", "\ufffd", "a", "\u0007", "\u200b", "\n", "b"];
  const tokens = letters.map((text) => ({ text, probability: 0.5, alternatives: [["byte 7", 1]] }));
  const list = document.getElementById("samples");
  const shown = () => list.querySelector(".sample-text").textContent;
  const seen = [];
  for (const token of tokens) {
    panel.write(1, token);
    seen.push(shown());
  }
  panel.add(1, [{ text: letters.join("") }], tokens);
  const whole = shown();
  list.focus();
  list.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
  const first = list.querySelector(".token.current").textContent;
  panel.add(2, [{ text: "\n\nkept \ufffd before" }], []);
  const bare = shown();
  // An answer without a letter: of a run whose tokens were not kept, and of one whose tokens are known.
  const given = { text: "loom → ", verdict: "wrong", given: "", wanted: "mool", at: 7 };
  panel.add(3, [given], []);
  const empty = [shown()];
  panel.add(4, [given], [{ text: "loom → " }]);
  empty.push(shown());
  return { seen, whole, first, bare, empty };
}

test(
  "a sample begins with its first letter, and a dot stands for what is no letter",
  LONG,
  async (t) => {
    const page = await openPanels(t, ["panels/samples"], ZOOMED);
    const { seen, whole, first, bare, empty } = await page.evaluate(written);
    assert.deepEqual(seen, ["", "", "·", "·a", "·a·", "·a··", "·a··\n", "·a··\nb"]);
    assert.equal(whole, "·a··\nb");
    assert.equal(first, "·", "the arrow keys begin at what is seen");
    assert.equal(bare, "kept · before", "of runs whose tokens were not kept");
    assert.deepEqual(empty, Array(2).fill("loom → (nothing)\u00a0✗"), "an answer, not a delay");
  },
);

/** In the page: seven samples of a run that is quick, line by line as they come. Gives the sum of all shifts. */
async function quickSamples() {
  const { SamplesPanel } = await import("/panels.js");
  document.getElementById("samples-panel").scrollIntoView();
  const panel = new SamplesPanel();
  const mark = "→";
  panel.start({ mark, solve: () => "" });
  const drawn = () =>
    new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  await drawn();
  const shifts = [];
  new PerformanceObserver((list) => shifts.push(...list.getEntries())).observe({
    type: "layout-shift",
  });
  for (const step of [1, 4, 10, 16, 64, 100, 256]) {
    const answer = { verdict: "wrong", given: "mool", wanted: "mool", at: 1 };
    const pieces = [];
    for (let line = 0; line < 8; line++) {
      panel.write(step, { text: `loom${mark}` });
      panel.write(step, { text: "mool", probability: 0.5 });
      pieces.push({ ...answer, text: "loom → mool" });
      await drawn();
    }
    panel.add(step, pieces, []);
    await drawn();
  }
  await new Promise((done) => setTimeout(done, 100));
  return shifts.reduce((sum, { value }) => sum + value, 0);
}

test("samples of a quick run leave what stands below them where it is", LONG, async (t) => {
  const page = await openPanels(t, ["panels/samples"], { width: 1440, height: 900 });
  const sum = await page.evaluate(quickSamples);
  t.diagnostic(`shifts of ${sum.toFixed(3)}`);
  assert.ok(sum < 0.1, `shifts of ${sum}`);
});

/** In the page: the panel that looks inside, with a model that looks at all letters alike. */
async function looks() {
  const { InsidePanel } = await import("/panels.js");
  const names = (ids) => [...ids].map((id) => String.fromCharCode(id));
  const codec = {
    encode: async (text) => Uint32Array.from(text, (letter) => letter.charCodeAt(0)),
    name: async (id) => names([id])[0],
  };
  const model = {
    config: { num_hidden_layers: 2, num_attention_heads: 2, hidden_size: 8 },
    attention: async ({ length }) => new Float32Array(length * length).fill(1 / length),
    logits: async ({ length }) => new Float32Array(length * 128),
  };
  const panel = new InsidePanel();
  const note = document.getElementById("inside-note");
  const text = document.getElementById("inside-text");
  const said = [];
  /** Waits for what is said of a text. */
  const look = async (expected) => {
    for (let turn = 0; turn < 200; turn++) {
      const [which] = /^Letter \d+/.exec(note.textContent) ?? [];
      const letters = [...text.children].map((one) => one.textContent).join("");
      if (letters === expected && which) {
        await new Promise((done) => setTimeout(done, 20));
        said.push(/^Letter \d+/.exec(note.textContent)[0]);
        return note.textContent;
      }
      await new Promise((done) => setTimeout(done, 5));
    }
    said.push(`no ${expected}: ${note.textContent}`);
  };
  const sample = (written) => panel.sampled([...written].map((one) => ({ text: one })));
  panel.open();
  panel.start({ model, codec, exampleText: "planet", step: 0 });
  panel.refresh();
  await look("planet");
  sample("loom");
  const equal = await look("loom");
  sample("threads");
  await look("threads");
  text.children[4].click();
  await new Promise((done) => setTimeout(done, 20));
  sample("ab");
  await look("ab");
  sample("weaving");
  await look("weaving");
  return { said, equal };
}

test(
  "the letter that is looked at stays the visitor's, whatever shorter text comes between",
  LONG,
  async (t) => {
    const page = await openPanels(t, ["panels/inside"], ZOOMED);
    const { said, equal } = await page.evaluate(looks);
    // Untouched it is the last letter; chosen it is the fifth, where there are so many.
    assert.deepEqual(said, ["Letter 6", "Letter 4", "Letter 7", "Letter 2", "Letter 5"]);
    // Which of two equal letters is meant is said.
    const seen = ["the 1st, “l”", "the 2nd, “o”", "the 3rd, “o”"].map((one) => `${one} 25\u00a0%`);
    assert.equal(equal, `Letter 4, “m”, looks at ${seen.join("; ")}.`);
  },
);

test("a long title wraps, and is cut nowhere", LONG, async (t) => {
  const page = await openPanels(t, ["dom"], ZOOMED);
  for (const viewport of [ZOOMED, { width: 320, height: 400 }, { width: 1280, height: 800 }]) {
    await page.setViewport(viewport);
    const found = await page.evaluate(() => {
      const title = document.getElementById("learning-title");
      const words =
        "Learning from a-file-with-a-name-that-goes-on-and-on-without-any-space-in-it.txt";
      title.textContent = words;
      const range = document.createRange();
      range.selectNodeContents(title);
      const { left, right, top, bottom } = range.getBoundingClientRect();
      const box = title.getBoundingClientRect();
      const controls = document.querySelector("#learning-panel .chart-controls");
      const beside = controls.getBoundingClientRect();
      const apart = right <= beside.left + 1 || bottom <= beside.top + 1;
      return {
        lines: new Set([...range.getClientRects()].map((one) => Math.round(one.top))).size,
        cut:
          right > box.right + 1 ||
          left < box.left - 1 ||
          title.scrollWidth > title.clientWidth + 1 ||
          bottom > box.bottom + 1 ||
          top < box.top - 1,
        apart,
        style: getComputedStyle(title).textOverflow,
      };
    });
    const name = `${viewport.width} pixels: ${JSON.stringify(found)}`;
    assert.equal(found.cut, false, name);
    assert.equal(found.style, "clip", name);
    assert.ok(found.apart, name);
    if (viewport.width < 1280) assert.ok(found.lines > 1, name);
  }
});

/** In the page: the table of a run that has ended and of one that trains, and what its fields and buttons do. */
async function keptRuns() {
  const { RunsPanel } = await import("/panels.js");
  const told = [];
  const act =
    (what) =>
    (...values) =>
      told.push([what, ...values]);
  const names = ["resume", "export", "rename", "delete", "compare"];
  const panel = new RunsPanel(Object.fromEntries(names.map((name) => [name, act(name)])));
  const run = (name, step) => ({
    id: name,
    name,
    created: 0,
    checkpoints: [{ number: 1, step, bytes: 9 }],
    options: {
      settings: {
        config: { num_hidden_layers: 1, hidden_size: 8 },
        learningRate: 1,
        tokensPerStep: 8,
        seed: 1,
        steps: 20,
      },
      text: { name: "text" },
    },
  });
  const store = {
    lasting: true,
    full: false,
    list: async () => [run("ended", 20), run("on", 5)],
    metrics: async () => [],
  };
  await panel.show(store, { id: "on", step: 6 }, { busy: true, proving: false, ready: false });
  const buttons = [...document.querySelectorAll("#runs tbody tr")].map((row) =>
    [...row.querySelectorAll("button")].map((one) => [one.textContent, one.disabled, one.title]),
  );
  const field = document.querySelector('#runs [aria-label="Name of the run ended"]');
  const type = (value) => {
    field.value = value;
    field.dispatchEvent(new Event("change"));
    return field.value;
  };
  return { buttons, names: [type("  "), type(" other ")], told };
}

test(
  "a run that has ended is opened, one that trains says why it waits, and a name stays",
  LONG,
  async (t) => {
    const page = await openPanels(t, ["panels/runs"], ZOOMED);
    const { buttons, names, told } = await page.evaluate(keptRuns);
    const [ended, on] = buttons.map((all) =>
      Object.fromEntries(all.map(([text, ...rest]) => [text, rest])),
    );
    assert.ok("Open" in ended && !("Resume" in ended), Object.keys(ended).join());
    assert.deepEqual(ended.Export, [false, ""]);
    assert.deepEqual(on.Export, [true, "It trains: pause it first."]);
    assert.deepEqual(names, ["ended", " other "], "without a name a run keeps its own");
    assert.deepEqual(told, [["rename", "ended", "other"]]);
  },
);

/** In the page: a measurement by a worker that says one row, takes long for the next, and is stopped then. */
async function stoppedMeasurement() {
  let now = 0;
  performance.now = () => now;
  let ended = 0;
  let worker;
  globalThis.Worker = class {
    constructor() {
      worker = this;
    }
    postMessage() {}
    terminate() {
      ended++;
    }
  };
  const { BenchmarkPanel } = await import("/panels.js");
  const panel = new BenchmarkPanel();
  panel.busy = false;
  const button = document.getElementById("benchmark");
  const note = document.getElementById("benchmark-note");
  const turn = () => new Promise((done) => setTimeout(done));
  const seen = [button.textContent];
  button.click();
  while (!worker) await turn();
  const row = { workload: "train tiny", milliseconds: 1, tokensPerSecond: 5 };
  worker.onmessage({ data: { rows: [row], next: "decode tiny" } });
  seen.push(note.textContent, button.textContent, String(button.disabled));
  now = 83_000;
  const end = Date.now() + 5000;
  while (!note.textContent.includes("1:23") && Date.now() < end) await turn();
  seen.push(note.textContent, note.querySelector("[role=timer]").textContent);
  button.click();
  while (/^Measuring/.test(note.textContent)) await turn();
  await turn();
  seen.push(note.textContent, button.textContent);
  return { seen, ended, rows: document.querySelectorAll("#benchmark-rows tbody tr").length };
}

test(
  "a measurement says how far it is and for how long, within a row too, and can be stopped",
  LONG,
  async (t) => {
    const page = await openPanels(t, ["panels/benchmark"], ZOOMED);
    const { seen, ended, rows } = await page.evaluate(stoppedMeasurement);
    assert.deepEqual(seen, [
      "Measure this GPU",
      "Measuring: decode tiny, 2 of 6, 0:00 min so far…",
      "Stop measuring",
      "false",
      "Measuring: decode tiny, 2 of 6, 1:23 min so far…",
      "1:23",
      "Stopped. Rows that are done are below.",
      "Measure this GPU",
    ]);
    assert.deepEqual([ended, rows], [1, 1], "the worker ends, and its rows stay");
  },
);
