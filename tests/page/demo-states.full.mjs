// axe finds nothing in any state of the demo page, light or dark, and nothing is wider than the screen. The tests of
// every day hold a part of these states to it. Screenshots of all lie in target/screenshots.
// reads: www
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { launch } from "../../scripts/browser.mjs";
import { root } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/server.mjs";
import { asset, Demo, PHONE, quickBenchmark, within } from "./demo-page.mjs";
import { blobs, checkpoint } from "./demo-tune-checkpoint.mjs";

const dist = join(root, "www", "dist");
/** Seconds that a call of the page may take. */
const CALL = 240;
const LONG = { timeout: 1_800_000 };
const LINK = "#text-source=reverse&size=thimble&steps=4000&tokens-per-step=128&seed=3";
const WIDE = { width: 1440, height: 900 };
const NARROW = { width: 1280, height: 800 };

/** Serves the page with other files in place of some, and opens it in a browser of its own. */
async function open(t, files = {}) {
  const server = await serve({ "/": dist, ...files });
  t.after(() => server.close());
  const browser = await launch("chromium", { seconds: CALL });
  t.after(() => browser.close());
  const again = async () => {
    const demo = await within(CALL, "page", Demo.open(browser, `${server.url}/${LINK}`));
    await demo.untilState("idle");
    return demo;
  };
  return { demo: await again(), again };
}

/** Holds the page to axe in both themes, and to the width of three screens. */
async function held(demo, name) {
  await demo.axe("light", name);
  await demo.shot(`state-${name}-light`, WIDE);
  await demo.axe("dark", name);
  await demo.shot(`state-${name}-dark`, NARROW);
  await demo.shot(`state-${name}-phone`, PHONE);
  await demo.page.setViewport(NARROW);
}

async function setUp(demo) {
  for (const source of ["stories", "shakespeare", "file", "paste"]) {
    await demo.fill("text-source", source);
    await held(demo, `learns-${source}`);
  }
  await demo.fill("text-source", "reverse");
  await demo.fill("size", "hot");
  await held(demo, "made-to-fail");
  await demo.fill("size", "own");
  await held(demo, "editor");
  const most = { layers: 11, width: 11, heads: 4 };
  for (const [slider, at] of Object.entries(most)) await demo.fill(`own-${slider}`, String(at));
  const refused = async () => (await demo.text("estimate-note")).includes("does not fit");
  await demo.until("refusal", refused, 60);
  await held(demo, "refused");
  await demo.fill("size", "thimble");
}

async function explained(demo) {
  for (const why of ["score", "loss", "validation", "lines"]) {
    await demo.page.click(`[popovertarget="why-${why}"]`);
    const words = await demo.page.$eval(`#why-${why}:popover-open`, (tip) => tip.innerText);
    assert.ok(words.trim().split(/\s+/).length > 10, `${why} says "${words}"`);
    await held(demo, `why-${why}`);
    await demo.page.keyboard.press("Escape");
  }
}

async function tour(demo) {
  await demo.page.click("#tour");
  for (let step = 1; step <= 6; step++) {
    await demo.page.waitForFunction(
      (text) => document.querySelector(".driver-popover-progress-text")?.textContent === text,
      { timeout: 60_000 },
      `${step} of 6`,
    );
    await held(demo, `tour-${step}`);
    await demo.page.click(".driver-popover-next-btn");
  }
  await demo.page.waitForFunction(() => !document.querySelector(".driver-popover"), {
    timeout: 60_000,
  });
}

/** Waits for the state that `until` takes for a failure of the test. */
const failed = (demo) => demo.page.waitForSelector("#error:not([hidden])", { timeout: 240_000 });

test("the page before a run, its forms, its tour and its errors", LONG, async (t) => {
  const { demo } = await open(t);
  await held(demo, "idle-folded");
  await demo.unfold();
  await held(demo, "idle");
  await setUp(demo);
  await explained(demo);
  await tour(demo);
  await demo.drop({
    "config.json": new Blob(['{"model_type":"llama"}']),
    "model.safetensors": new Blob(["nothing"]),
  });
  await failed(demo);
  await demo.unfold();
  await held(demo, "error");
  assert.deepEqual(demo.errors, [], "the page's console has errors");
});

/** Trains, loses the GPU, and pauses. */
async function trains(demo) {
  await demo.click("start");
  await demo.until("samples", async () => (await demo.step()) >= 16);
  await demo.unfold();
  await held(demo, "training");
  await demo.click("pull-plug");
  const back = async () => /were done twice/.test(await demo.text("plug-note"));
  await demo.until("the way back", back);
  await held(demo, "plug-pulled");
  await demo.click("pause");
  await demo.untilState("paused");
  await held(demo, "paused");
  await demo.click("code");
  await held(demo, "code");
  await demo.click("stop");
  await demo.untilState("stopped");
}

/** What is looked at once a run has ended. */
async function looks(demo) {
  await demo.likeliest("loom", 8);
  const { name } = (await demo.runs())[0];
  await demo.press("Compare", name);
  await demo.until("its key", async () => (await demo.text("other-keys")) === name);
  await demo.fill("quantity", "gradNorm");
  await demo.click("logarithmic");
  await demo.click("zoom-in");
  await held(demo, "chart");
  await demo.fill("quantity", "loss");
  const note = (pattern) =>
    demo.until(`${pattern}`, async () => pattern.test(await demo.text("inside-note")), 60);
  await note(/looks at/);
  await held(demo, "attention");
  await demo.page.click('#layers [data-place="embeddings"]');
  await note(/^The model treats these most like/);
  await held(demo, "neighbours");
  await demo.click("measure");
  const measured = async () =>
    /mean of \d+ steps|^Estimated cost/.test(await demo.text("timeline-note"));
  await demo.until("kernels", measured);
  await demo.page.$eval("#timeline .segment", (one) => one.click());
  await demo.page.waitForSelector("#kernel:not([hidden])", { timeout: 60_000 });
  await held(demo, "kernels");
  await demo.click("prove");
  await demo.until("proof", async () => /^The same/.test(await demo.text("proof-note")));
  await held(demo, "proved");
  await demo.click("benchmark");
  const done = async () => /^Measured/.test(await demo.text("benchmark-note"));
  await demo.until("the benchmark", done);
  await held(demo, "benchmark");
  return name;
}

test("the page with a run, in each of its panels, and in a second tab", LONG, async (t) => {
  const { demo, again } = await open(t, quickBenchmark());
  await trains(demo);
  const name = await looks(demo);
  const second = await again();
  await second.until("the run", async () => (await second.runs()).length === 1);
  await second.press("Resume", name);
  await failed(second);
  await second.unfold();
  await held(second, "in-another-tab");
  for (const { errors } of [demo, second]) assert.deepEqual(errors, [], "the console has errors");
});

/** Waits for a state of the fine-tune panel, once it says no more that it is at work. */
async function untilTuned(demo, state) {
  const there = () => demo.page.$eval("#tune-panel", (panel) => panel.dataset.state);
  const atWork = async () => /…$/.test(await demo.text("tune-status"));
  await demo.until(
    `${state}, fine-tuned`,
    async () => (await there()) === state && !(await atWork()),
  );
}

/** What cannot be fine-tuned. */
async function tuneRefusals(demo) {
  const { "config.json": described, ...rest } = blobs(checkpoint());
  const drop = (files) => demo.drop(files, "#tune-panel");
  await drop(rest);
  await demo.page.waitForSelector("#tune-error:not([hidden])", { timeout: 60_000 });
  await held(demo, "tune-no-config");
  const large = { ...JSON.parse(await described.text()), hidden_size: 8192, num_hidden_layers: 90 };
  await drop({ ...rest, "config.json": new Blob([JSON.stringify(large)]) });
  await untilTuned(demo, "ready");
  await demo.page.waitForSelector("#tune-refused:not([hidden])", { timeout: 60_000 });
  await held(demo, "tune-refused");
  await drop({ ...rest, "config.json": described, "model.safetensors": new Blob(["nothing"]) });
  await untilTuned(demo, "ready");
  await demo.page.waitForSelector("#tune-refused[hidden]", { timeout: 60_000 });
  await demo.click("tune-start");
  await demo.page.waitForSelector("#tune-error:not([hidden])", { timeout: 60_000 });
  await demo.unfold();
  await held(demo, "tune-error");
  await drop({ ...rest, "config.json": described });
  await untilTuned(demo, "ready");
}

test("the fine-tune panel in each of its states", LONG, async (t) => {
  const { demo } = await open(t);
  await demo.page.click("#tune summary");
  await untilTuned(demo, "waiting");
  await held(demo, "tune-waiting");
  await tuneRefusals(demo);
  for (const source of ["file", "paste"]) {
    await demo.fill("tune-source", source);
    await untilTuned(demo, "waiting");
    await held(demo, `tune-${source}`);
  }
  await demo.fill("tune-source", "example");
  await untilTuned(demo, "ready");
  await demo.fill("tune-steps", "2000");
  await held(demo, "tune-ready");
  await demo.click("tune-start");
  await demo.until("steps", async () => Number.parseInt(await demo.text("tune-step"), 10) >= 3);
  await held(demo, "tune-training");
  await demo.click("tune-pause");
  await untilTuned(demo, "paused");
  await held(demo, "tune-paused");
  await demo.click("tune-stop");
  await untilTuned(demo, "done");
  await held(demo, "tune-done");
  assert.deepEqual(demo.errors, [], "the page's console has errors");
});

/** The worker's file with lines before it. */
function worker(...lines) {
  const path = asset("model-worker");
  const code = readFileSync(join(dist, path));
  return { [path]: Buffer.concat([Buffer.from(lines.join("\n")), Buffer.from("\n"), code]) };
}

/** Gives a device once. */
const ONE_DEVICE =
  "{const {requestDevice}=GPUAdapter.prototype;let asked=0;" +
  "GPUAdapter.prototype.requestDevice=function(...all){return asked++?" +
  'Promise.reject(new DOMException("no device","OperationError")):requestDevice.apply(this,all)};}';
const NO_STORAGE =
  'StorageManager.prototype.getDirectory=()=>Promise.reject(new DOMException("no","SecurityError"));';

/** Trains until there is a snapshot, and loses the GPU for good. */
async function losesGpu(demo) {
  await demo.click("start");
  const snapshot = () => demo.page.$eval("#plug-note", (note) => Number(note.dataset.snapshot));
  await demo.until("a snapshot", async () => (await snapshot()) > 0);
  await demo.click("pull-plug");
  await failed(demo);
  return snapshot();
}

test(
  "the page without storage, whose GPU is gone for good: the last snapshot is kept",
  LONG,
  async (t) => {
    const { demo } = await open(t, worker(ONE_DEVICE, NO_STORAGE));
    await demo.unfold();
    await held(demo, "without-storage");
    const step = await losesGpu(demo);
    const result = async () => (await demo.runs())[0].result;
    await demo.page
      .waitForFunction(
        (text) => document.querySelector("#runs tbody tr")?.cells[4].textContent.startsWith(text),
        { timeout: 60_000 },
        `step ${step.toLocaleString("en")} of`,
      )
      .catch(async () => {
        const said = await demo.text("error");
        assert.fail(`the run has "${await result()}", not step ${step}; the page says: ${said}`);
      });
    // The table tells of the checkpoint first, the status follows.
    await demo.page.waitForFunction(
      (text) => document.querySelector("#status").textContent.includes(text),
      { timeout: 60_000 },
      `The run stands at step ${step}.`,
    );
    assert.match(await demo.text("status"), /export it to keep it/);
    await held(demo, "lost-without-storage");
    const zip = await demo.export((await demo.runs())[0].name);
    // 115 thousand weights with their moments.
    assert.ok(zip.size > 1_300_000, `an export with the model, of ${zip.size} bytes`);
  },
);

test("the page whose storage is full", LONG, async (t) => {
  const { demo } = await open(t);
  const session = await demo.page.createCDPSession();
  const { usage } = await demo.page.evaluate(() => navigator.storage.estimate());
  // Room for the text but not for a checkpoint. Chromium takes 1 MiB while a file is open.
  const origin = new URL(demo.page.url()).origin;
  await session.send("Storage.overrideQuotaForOrigin", { origin, quotaSize: usage + 2_000_000 });
  await demo.click("start");
  await demo.until("a full storage", async () => /is full/.test(await demo.text("status")));
  await demo.unfold();
  await held(demo, "storage-full");
  await demo.click("stop");
  await demo.untilState("stopped");
  assert.match(await demo.text("runs-note"), /is full/);
  await held(demo, "storage-was-full");
  assert.deepEqual(demo.errors, [], "the page's console has errors");
});

test("the page whose GPU is gone for good", LONG, async (t) => {
  const { demo } = await open(t, worker(ONE_DEVICE));
  await losesGpu(demo);
  await demo.unfold();
  await held(demo, "lost");
  const [{ name, buttons }] = await demo.runs();
  assert.deepEqual(buttons, { Resume: false, Export: true, Delete: true });
  const alive = await demo.page.$$eval("#generate, #prove, #measure, #benchmark, #start", (all) =>
    all.filter((one) => !one.disabled).map(({ id }) => id),
  );
  assert.deepEqual(alive, [], "controls that do nothing");
  assert.match(await demo.text("inside-step"), /GPU is gone|^Of the model after step/);
  await demo.page.$eval("#tune", (one) => {
    one.open = true;
  });
  await demo.until(
    "its status",
    async () => /GPU is gone/.test(await demo.text("tune-status")),
    30,
  );
  assert.ok((await demo.export(name)).size > 100_000, "an export with the text");
});
