// The workshop's chart, its kernels, its answers and its buttons, as they are drawn: in the page's own markup, without a
// model and in one browser.
// reads: www tests/page/panel-page.mjs
import assert from "node:assert/strict";
import { test } from "node:test";
import { pageModule } from "./page-module.mjs";
import { openPanels } from "./panel-page.mjs";

const PANELS = ["panels/chart", "panels/kernels", "panels/ask", "panels/buttons"];
/** A loss that falls evenly, with a noise of a third from step to step. */
const LOSSES = Array.from({ length: 40 }, (_, at) => 5 - at / 10 + (at % 2 === 0 ? 0.3 : -0.3));

/** In the page: the heights of the lines that the chart draws of these losses, in pixels, and what it is called. */
async function drawnCurves(losses) {
  const { LossChart } = await import("/panels.js");
  const lines = new Map();
  const { lineTo } = Path2D.prototype;
  Path2D.prototype.lineTo = function (x, y) {
    lines.set(this, [...(lines.get(this) ?? []), y]);
    return lineTo.call(this, x, y);
  };
  const host = document.getElementById("loss-chart");
  host.scrollIntoView();
  const chart = new LossChart(host, { values() {}, zoomed() {} });
  chart.reset(losses.length);
  for (const [at, loss] of losses.entries()) chart.add({ step: at + 1, loss });
  const whole = () => [...lines.values()].filter(({ length }) => length === losses.length);
  const end = Date.now() + 20_000;
  while (whole().length < 2 && Date.now() < end)
    await new Promise((turn) => requestAnimationFrame(turn));
  Path2D.prototype.lineTo = lineTo;
  return { lines: whole().slice(0, 2), label: host.getAttribute("aria-label") };
}

/** The chart's second line is the mean without lag; its first one, the losses, says which height is which loss. */
async function chart(page) {
  const { meanAt } = await pageModule("src/mean");
  const { lines, label } = await page.evaluate(drawnCurves, LOSSES);
  assert.equal(lines.length, 2, "the losses and their mean");
  const [drawn, mean] = lines;
  const [high, low] = [LOSSES.indexOf(Math.max(...LOSSES)), LOSSES.indexOf(Math.min(...LOSSES))];
  const perPixel = (LOSSES[high] - LOSSES[low]) / (drawn[high] - drawn[low]);
  for (const [at, y] of mean.entries()) {
    const loss = LOSSES[low] + (y - drawn[low]) * perPixel;
    // Lines go from pixel to pixel.
    const off = Math.abs(loss - meanAt(LOSSES, at));
    assert.ok(off < 1.5 * Math.abs(perPixel), `step ${at + 1}: ${loss}`);
  }
  const last = LOSSES.at(-1).toFixed(2);
  assert.equal(label, `Loss by step: ${last} at step 40, ${LOSSES[0].toFixed(2)} at the start`);
}

/** In the page: the kernels of a step whose phases take 70, 28 and 2 % of it, the last one's with ten tiny ones. */
async function shownKernels() {
  const { KernelsPanel } = await import("/panels.js");
  const row = (phase, kernel, label, gpuMicroseconds) => ({
    ...{ phase, kernel, label, gpuMicroseconds, variant: "plain", reason: "the only one" },
    ...{ workgroupSize: [64, 1, 1], grid: [1, 1, 1], bytes: 1, flops: 1 },
  });
  const rows = [
    row("forward", "matmul", "layer 0 q, k, v", 700),
    row("backward", "matmul_back", "layer 0 q, k, v, backward", 280),
    row("optimizer", "adam", "layer 1", 19),
    ...Array.from({ length: 10 }, (_, at) => row("optimizer", `norm_${at}`, "layer 1", 0.1)),
  ];
  const panel = new KernelsPanel();
  document.getElementById("kernels").open = true;
  for (let at = document.getElementById("kernels"); at; at = at.parentElement) at.hidden = false;
  panel.start(
    { profiled: true, profile: async () => rows, wgsl: async () => "fn main() {}" },
    true,
  );
  const [note, kernel] = ["timeline-note", "kernel"].map((id) => document.getElementById(id));
  document.getElementById("measure").click();
  const turn = () => new Promise((done) => setTimeout(done));
  while (note.textContent === "Measuring…") await turn();
  const box = (one) => one.getBoundingClientRect();
  const bars = [...document.querySelectorAll(".share-of-step")].map((bar) => {
    const { left, width } = box(bar.parentElement);
    return { before: (box(bar).left - left) / width, share: box(bar).width / width };
  });
  const segments = [...document.querySelectorAll("#timeline .segment")];
  segments[0].click();
  while (kernel.hidden) await turn();
  return {
    bars,
    note: note.textContent,
    phases: [...document.querySelectorAll("#timeline h3")].map((one) => one.textContent),
    sizes: segments.map((one) => [box(one).width, box(one).height]),
    reason: document.getElementById("kernel-reason").textContent,
  };
}

/** Bars are as long as their phases, one after the other, and each kernel is large enough to be pressed. */
async function kernels(page) {
  const { bars, note, phases, sizes, reason } = await page.evaluate(shownKernels);
  assert.equal(
    note,
    "1.00 ms on the CPU, in place of a GPU, the mean of 40 steps. Choose a kernel.",
  );
  assert.deepEqual(phases, ["forward, 70 %", "backward, 28 %", "optimizer, 2 %"]);
  for (const [at, share] of [0.7, 0.28, 0.02].entries()) {
    assert.ok(Math.abs(bars[at].share - share) < 0.003, JSON.stringify(bars[at]));
    const { before, share: of } = bars[at - 1] ?? { before: 0, share: 0 };
    assert.ok(Math.abs(bars[at].before - (before + of)) < 0.003, JSON.stringify(bars));
  }
  assert.equal(sizes.length, 13);
  for (const size of sizes.flat()) assert.ok(size >= 24, `a kernel of ${size} pixels`);
  assert.match(reason, /^Layer 1 q, k, v\. matmul, once: 700 µs, 70\.0 %\./);
  assert.doesNotMatch(reason, /layer 0/i);
}

/** In the page: the answers of a model that writes this. */
async function answers(written) {
  const { AskPanel } = await import("/panels.js");
  globalThis.asking ??= new AskPanel();
  const write = async function* () {
    for (const text of written) yield { text, probability: 1, alternatives: [] };
  };
  const run = { name: "a run" };
  globalThis.asking.start({ task: "reverse", text: {}, step: 1, run, write });
  document.getElementById("prompt").value = "loom";
  document.getElementById("ask").requestSubmit();
  const output = document.getElementById("output");
  while (output.ariaBusy !== "false") await new Promise((turn) => setTimeout(turn));
  output.ariaBusy = null;
  return output.textContent;
}

/** An answer without a letter is one, and does not look as if it were still to come. */
async function empty(page) {
  assert.equal(await page.evaluate(answers, []), "loom → (nothing)\u00a0✗ right is mool");
  assert.equal(await page.evaluate(answers, ["mo", "ol"]), "loom → mool\u00a0✓");
}

/** In the page: what the buttons are in each state. */
async function buttonsIn(states) {
  const { showState } = await import("/panels.js");
  return states.map((state) => {
    showState(state, { ready: state !== "training", run: true });
    const [start, pause] = ["start", "pause"].map((id) => document.getElementById(id));
    const pressed = [start, pause].map((one) => one.getAttribute("aria-pressed"));
    return [start.textContent, start.disabled, pause.textContent, pause.disabled, ...pressed];
  });
}

/** One act has one button: a run that is paused is resumed by Start's, and Pause is no switch beside it. */
async function buttons(page) {
  const [training, paused, stopped] = await page.evaluate(buttonsIn, [
    "training",
    "paused",
    "stopped",
  ]);
  assert.deepEqual(training, ["Start", true, "Pause", false, null, null]);
  assert.deepEqual(paused, ["Resume", false, "Pause", true, null, null]);
  assert.deepEqual(stopped, ["Start", false, "Pause", true, null, null]);
}

test("what the workshop draws and offers is what it was given", { timeout: 120_000 }, async (t) => {
  const page = await openPanels(t, PANELS, { width: 1280, height: 900 });
  await chart(page);
  await kernels(page);
  await empty(page);
  await buttons(page);
});
