// Who uses the page by keys keeps their place: what they press may disable, hide or replace itself, and the focus is still
// on it, or on what comes next. In the page's own markup, without a model.
// reads: www tests/page/panel-page.mjs
import assert from "node:assert/strict";
import { test } from "node:test";
import { openPanels } from "./panel-page.mjs";

const WIDE = { width: 1280, height: 800 };
const LONG = { timeout: 60_000 };

/** What has the focus, after the page had time to notice that it does nothing any more. */
const focused = (page) =>
  page.evaluate(async () => {
    await new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn, 50)));
    const { id, ariaLabel, ariaDisabled, tagName } = document.activeElement;
    return [id || ariaLabel || tagName, ariaDisabled === "true"];
  });

/** In the page: two promises that can be checked, of a run that is faked; a proof goes on for ever. */
async function promises() {
  const { ProofsPanel } = await import("/panels.js");
  const ever = () => new Promise(() => undefined);
  const lab = new Proxy({}, { get: () => new Proxy(ever, { get: () => ever }) });
  globalThis.panel = new ProofsPanel({ proving: false, prove() {}, proved() {} });
  globalThis.panel.start(lab, { step: 0, settings: {} });
}

test(
  "what proves and what pulls the plug keep the focus, and are pressed once",
  LONG,
  async (t) => {
    const page = await openPanels(t, ["panels/proofs"], WIDE);
    await page.evaluate(promises);
    await page.focus("#prove");
    await page.keyboard.press("Enter");
    await page.evaluate(() => {
      globalThis.panel.training = true;
    });
    assert.deepEqual(await focused(page), ["prove", true]);
    await page.focus("#pull-plug");
    await page.keyboard.press("Space");
    assert.deepEqual(await focused(page), ["pull-plug", true]);
    const words = () => page.$eval("#plug-note", (one) => one.textContent);
    await page.$eval("#plug-note", (one) => {
      one.textContent = "";
    });
    await page.keyboard.press("Space");
    assert.equal(await words(), "", "what is said to be disabled does nothing");
    await page.evaluate(() => {
      globalThis.panel.training = false;
    });
    assert.ok(await page.$("#pull-plug[aria-disabled=true]"));
    await page.focus("#status");
    await page.evaluate(() => {
      globalThis.panel.training = false;
    });
    assert.ok(
      await page.$("#pull-plug:disabled"),
      "without the focus it is disabled as others are",
    );
  },
);

/** In the page: a measurement of kernels that goes on. */
async function measures() {
  const { KernelsPanel } = await import("/panels.js");
  new KernelsPanel().start({ profiled: true, profile: () => new Promise(() => undefined) }, false);
}

test("what measures the kernels keeps the focus", LONG, async (t) => {
  const page = await openPanels(t, ["panels/kernels"], WIDE);
  await page.evaluate(measures);
  await page.evaluate(() => {
    document.getElementById("kernels").open = true;
  });
  await page.focus("#measure");
  await page.keyboard.press("Enter");
  assert.deepEqual(await focused(page), ["measure", true]);
});

/** In the page: the card of a weave of two letters in one layer with two heads. */
async function card() {
  const { Card } = await import("/panels.js");
  const rows = [[1], [0.9, 0.1]].map((row) => Float32Array.from(row));
  const guess = { token: 97, share: 0.5 };
  const weave = {
    shape: { layers: 1, heads: 2 },
    tokens: [97, 98],
    given: 1,
    answers: false,
    columns: 2,
    shares: [[rows, rows]],
    guesses: [guess, guess],
    lens: [[guess, guess]],
    changes: [[0, 0]],
  };
  const place = { at: 1 };
  // As on the stage the weave without these heads comes later.
  const made = new Card(
    (off) => setTimeout(() => made.show(weave, place, off), 100),
    () => ({ weave, place }),
  );
  made.show(weave, place, new Set());
}

test("who cuts threads by keys can put them back, and cut them again", LONG, async (t) => {
  const page = await openPanels(t, ["loom/card"], WIDE);
  await page.evaluate(card);
  const cut = (count) =>
    page.waitForFunction(
      (count) => document.querySelectorAll('.head[aria-pressed="false"]').length === count,
      {},
      count,
    );
  await page.focus("#card-cut");
  await page.keyboard.press("Space");
  await cut(2);
  assert.deepEqual(await focused(page), ["card-cut", true]);
  await page.keyboard.press("Tab");
  assert.deepEqual(await focused(page), ["card-mend", false]);
  await page.keyboard.press("Enter");
  await cut(0);
  assert.deepEqual(await focused(page), ["card-cut", false], "the button that is still there");
  await page.keyboard.press("Enter");
  await cut(2);
});

/** In the page: a table of runs, which a test shows again as they are then. */
async function table() {
  const { RunsPanel } = await import("/panels.js");
  const settings = { config: { num_hidden_layers: 1, hidden_size: 8 }, steps: 20 };
  const kept = { settings: { ...settings, learningRate: 1, tokensPerStep: 8, seed: 1 } };
  const run = (id, step) => ({
    id,
    name: id,
    created: 0,
    checkpoints: [{ number: step, step, bytes: 9 }],
    options: { ...kept, text: { name: "text" } },
  });
  globalThis.runs = [run("a", 20), run("b", 5), run("c", 20)];
  const store = { lasting: true, list: async () => globalThis.runs, metrics: async () => [] };
  const nothing = () => undefined;
  const panel = new RunsPanel({
    resume: () => globalThis.show(true),
    export: nothing,
    compare: nothing,
    rename(name, to) {
      globalThis.runs = globalThis.runs.map((one) =>
        one.name === name ? { ...one, name: to } : one,
      );
      globalThis.show(false);
    },
    delete(names) {
      globalThis.runs = globalThis.runs.filter(({ name }) => !names.includes(name));
      globalThis.show(globalThis.trains ?? false);
    },
  });
  globalThis.show = (busy) =>
    panel.show(store, { id: "b", step: 6 }, { busy, proving: false, ready: !busy });
  await globalThis.show(false);
}

test("the table of runs keeps the focus whatever becomes of them", LONG, async (t) => {
  const page = await openPanels(t, ["panels/runs"], WIDE);
  await page.evaluate(table);
  const show = (busy) => page.evaluate((busy) => globalThis.show(busy), busy);
  await page.focus('[aria-label="Resume b"]');
  await page.keyboard.press("Enter");
  assert.deepEqual(await focused(page), ["Resume b", true], "a run that begins");
  await page.evaluate(() => {
    globalThis.runs[1].checkpoints = [{ number: 20, step: 20, bytes: 9 }];
  });
  await show(false);
  assert.deepEqual(await focused(page), ["Open b", false], "a run that has ended");

  // While a name is written a run ends, and another one comes.
  const field = '[aria-label="Name of the run b"]';
  await page.focus(field);
  await page.keyboard.press("End");
  await page.keyboard.type("e");
  await show(true);
  await page.evaluate(() => globalThis.runs.unshift({ ...globalThis.runs[0], id: "d", name: "d" }));
  await show(false);
  await page.keyboard.press("End");
  await page.keyboard.type("st");
  assert.equal(await page.$eval(field, (one) => one.value), "best");
  await page.keyboard.press("Enter");
  assert.deepEqual(await focused(page), ["Name of the run best", false], "a new name");
  const names = () =>
    page.$$eval("#runs tbody tr", (all) => all.map(({ cells }) => cells[1].firstChild.value));
  assert.deepEqual(await names(), ["d", "a", "best", "c"]);

  // Of the next run, which trains, nothing can be pressed.
  await page.evaluate(async () => {
    globalThis.trains = true;
    await globalThis.show(true);
  });
  await page.focus('[aria-label="Delete a"]');
  await page.keyboard.press("Enter");
  assert.deepEqual(await focused(page), ["Name of the run best", false], "the run that trains");
  await page.evaluate(async () => {
    globalThis.trains = false;
    await globalThis.show(false);
  });
  await page.focus('[aria-label="Delete best"]');
  for (const next of ["Delete c", "Delete d", "status"]) {
    await page.keyboard.press("Enter");
    assert.deepEqual(await focused(page), [next, false], "what follows a run that is deleted");
  }
});

test("Enter in a field that begins a run leads to the button that ends it", LONG, async (t) => {
  const page = await openPanels(t, ["panels/buttons"], WIDE);
  await page.evaluate(async () => {
    const { showState } = await import("/panels.js");
    globalThis.show = (state) => showState(state, { ready: state === "stopped", run: true });
    globalThis.show("stopped");
  });
  const goes = async (id, state) => {
    await page.focus(id);
    await page.evaluate((state) => globalThis.show(state), state);
    return (await focused(page))[0];
  };
  assert.equal(await goes("#size", "loading"), "status", "until there is a run");
  assert.equal(await goes("#status", "training"), "pause");
  assert.equal(await goes("#size", "stopped"), "size", "fields are open then");
  assert.equal(await goes("#code", "training"), "code", "this one is no field");
});

test(
  "a choice that is only said to be disabled stays as it is, and lets the focus go",
  LONG,
  async (t) => {
    const page = await openPanels(t, ["focus"], WIDE);
    await page.focus("#quantity");
    await page.evaluate(async () => {
      const { disable } = await import("/panels.js");
      disable(document.getElementById("quantity"), true);
    });
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("End");
    assert.equal(await page.$eval("#quantity", (one) => one.value), "loss");
    assert.deepEqual(await focused(page), ["quantity", true]);
    await page.keyboard.press("Tab");
    assert.deepEqual(await focused(page), ["logarithmic", false]);
  },
);
