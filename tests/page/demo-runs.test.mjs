// Runs of the demo page stay: over a killed renderer and as a zip in Chromium, over a reload and without storage in
// Firefox.
// reads: www tests/reference tests/files/hub-tokenizer
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Runs } from "tinyloom/storage";
import { launch } from "../../scripts/browser.mjs";
import { root } from "../../scripts/lib.mjs";
import { referencePython } from "../../scripts/reference.mjs";
import { serve } from "../../scripts/server.mjs";
import { longTest } from "../gate/core.mjs";
import { CALL, DESKTOP, Demo, PHONE, within } from "./demo-page.mjs";

/** Twice what they take on two busy cores. */
const LONG = { timeout: 420_000 };
const dist = join(root, "www", "dist");
const STEPS = 30;
/** A run of seconds, as a link has it. */
const LINK = `#text-source=stories&size=story-small&steps=${STEPS}&sequence-length=32&tokens-per-step=64&seed=3`;
/** The step that is saved, and the one at which the page is ended: those between are done twice. */
const [SAVED, HELD] = [8, 10];
const PROMPT = "one day shy ";
const NAME = "Pocket on built-in stories";

/** Reads exported runs in Node. */
class Exported {
  static async open(t) {
    const exported = new Exported();
    exported.folder = mkdtempSync(join(tmpdir(), "tinyloom-demo-"));
    t.after(() => rmSync(exported.folder, { recursive: true, force: true }));
    exported.runs = await Runs.open("demo", { folder: exported.folder });
    return exported;
  }

  /** Losses and weights of a zip, and its files. */
  async read(zip, name) {
    const run = await this.runs.import(zip, name);
    const metrics = await run.metrics();
    await run.close();
    const files = await this.runs.export(name);
    const curve = metrics.map(({ step, loss, validationLoss }) => [step, loss, validationLoss]);
    const weights = Buffer.from(await files["model.safetensors"].arrayBuffer());
    return { curve, weights, files };
  }
}

async function begin(browser, server, hash = LINK) {
  const demo = await Demo.open(browser, `${server.url}/${hash}`);
  await demo.untilState("idle");
  return demo;
}

/** Starts a run that nothing disturbs. */
async function whole(demo) {
  await demo.click("start"); // the state is "loading" at once
  await demo.untilState("stopped");
  assert.equal(await demo.step(), STEPS);
  const newest = await demo.page.$eval("#samples li", (item) => item.value);
  assert.equal(newest, STEPS, "the run ends with a sample");
}

/**
 * Starts a run, and brings it to a checkpoint and two steps further, however fast the machine is: at one step the
 * page learns that it is hidden and saves, and two steps later its messages to the worker get lost.
 */
async function midway(demo) {
  await demo.page.evaluate(
    (saved, held) => {
      const { postMessage } = MessagePort.prototype;
      let holding = false;
      MessagePort.prototype.postMessage = function (...message) {
        if (!holding) postMessage.apply(this, message);
      };
      document.addEventListener("tinyloom:training", ({ detail: { type, step } }) => {
        holding ||= type === "step" && step === held;
        if (type !== "step" || step !== saved) return;
        Object.defineProperty(document, "hidden", { get: () => true });
        document.dispatchEvent(new Event("visibilitychange", { bubbles: true }));
      });
    },
    SAVED,
    HELD,
  );
  await demo.page.click("#start"); // by the mouse: without it browsers do not ask before a page is left
  await demo.until("steps", async () => (await demo.step()) === HELD);
  assert.ok((await stored(demo)).length > 0, "a checkpoint");
}

/** Files of checkpoints in the origin's private file system. */
const stored = (demo) =>
  demo.page.evaluate(async () => {
    const found = [];
    const walk = async (folder, path) => {
      for await (const [name, handle] of folder.entries()) {
        if (handle.kind === "directory") await walk(handle, `${path}/${name}`);
        else if (name === "manifest.json") found.push(path);
      }
    };
    await walk(await navigator.storage.getDirectory(), "");
    return found;
  });

/** Kills the page's renderer process, and opens the page again. */
async function killed(demo, browser, server) {
  const session = await demo.page.createCDPSession();
  const crashed = new Promise((done) => demo.page.once("error", done));
  session.send("Page.crash").catch(() => undefined);
  await within(60, "crash of the renderer", crashed);
  await within(60, "end of the tab", demo.page.close()).catch(() => undefined);
  await unlocked(browser, server);
  return Demo.open(browser, `${server.url}/`);
}

/** Waits until the browser has noticed that whoever held a run's lock is gone. */
async function unlocked(browser, server) {
  const page = await browser.newPage();
  await page.goto(`${server.url}/no-such-page`);
  const free = async () => {
    while ((await navigator.locks.query()).held.length > 0) {
      await new Promise((done) => setTimeout(done, 50));
    }
  };
  await within(60, "release of the run's lock", page.evaluate(free));
  await page.close();
}

/** The page's run, which went on by itself, to its end; then an undisturbed one, and both compared. */
async function compare(t, demo) {
  await demo.until("the end", async () => (await demo.state()) === "stopped");
  assert.equal(await demo.step(), STEPS);
  await whole(demo);
  const names = (await demo.runs()).map(({ name }) => name);
  assert.deepEqual(names, [`${NAME} 2`, NAME]);
  const exported = await Exported.open(t);
  const disturbed = await exported.read(await demo.export(NAME), "disturbed");
  const zip = await demo.export(`${NAME} 2`);
  const undisturbed = await exported.read(zip, "undisturbed");
  assert.equal(disturbed.curve.length, STEPS);
  assert.deepEqual(disturbed.curve, undisturbed.curve, "losses");
  assert.ok(disturbed.weights.equals(undisturbed.weights), "weights");
  t.diagnostic(`${STEPS} losses and ${disturbed.weights.length} bytes of weights are equal`);
  return { zip, files: undisturbed.files };
}

/** Logits of an exported model, as the package computes them in the page. */
async function logitsOf(demo, files, tokens) {
  const contents = {};
  for (const name of ["config.json", "model.safetensors"]) {
    contents[name] = Buffer.from(await files[name].arrayBuffer()).toString("base64");
  }
  const computing = demo.page.evaluate(
    async (contents, tokens) => {
      const { Model, Runtime } = await import(`${location.origin}/pkg/index.js`);
      const source = {};
      for (const [name, content] of Object.entries(contents)) {
        source[name] = await (await fetch(`data:;base64,${content}`)).blob();
      }
      const runtime = await Runtime.create();
      const model = await Model.fromPretrained(runtime, source);
      const logits = await model.logits(tokens);
      runtime.destroy();
      return [...logits];
    },
    contents,
    tokens,
  );
  return Float32Array.from(await within(120, "logits of the export", computing));
}

/** transformers loads the folder of the zip, computes the same logits, and writes what the page writes. */
async function inTransformers(t, demo, files, prompt, text) {
  const python = await referencePython();
  const folder = mkdtempSync(join(tmpdir(), "tinyloom-exported-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  for (const [name, blob] of Object.entries(files)) {
    writeFileSync(join(folder, name), Buffer.from(await blob.arrayBuffer()));
  }
  const run = (name, ...given) => {
    const script = join(root, "tests", "reference", name);
    const said = spawnSync(python, [script, folder, ...given], { encoding: "utf8" });
    assert.equal(said.status, 0, `${name}: ${said.stdout}${said.stderr}`);
    return said.stdout.trim();
  };
  const tokens = [...Buffer.from(prompt + text, "latin1")];
  writeFileSync(join(folder, "logits.f32"), await logitsOf(demo, files, tokens));
  const expected = join(folder, "expected.json");
  writeFileSync(expected, JSON.stringify({ tokens, logits: "logits.f32" }));
  t.diagnostic(run("check_saved.py", expected));
  const said = run("continue_text.py", prompt, String(text.length));
  assert.equal(Buffer.from(JSON.parse(said)).toString("latin1"), text, "text of transformers");
  t.diagnostic(`transformers goes on as the page does: ${JSON.stringify(prompt + text)}`);
}

/** An export without its text needs that text: another one is refused by name. */
async function otherData(demo, { data, ...files }) {
  assert.ok(data.size > 100_000, "the export has the text");
  const { learned } = (await demo.runs()).find(({ name }) => name === NAME);
  const resume = async () => {
    const button = `#runs [aria-label="Open undisturbed"]:not(:disabled)`;
    await demo.page.waitForSelector(button, { timeout: 60_000 });
    await demo.press("Open", "undisturbed");
  };
  const refused = (words) =>
    demo.page.waitForFunction(
      (all) => {
        const said = document.querySelector("#error:not([hidden])")?.textContent ?? "";
        return all.every((word) => said.includes(word));
      },
      { timeout: 60_000 },
      [learned, "Choose the text that it has learned from", ...words],
    );
  await demo.page.select("#text-source", "paste");
  await demo.drop(files);
  await refused(["Here no text is chosen"]);
  await demo.fill("paste", "Quite another text. ".repeat(60));
  await resume();
  await refused(["pasted text", "is another"]);
  await demo.axe("dark", "of other data");
  await demo.page.select("#text-source", "stories");
  await resume();
  await demo.untilState("stopped");
  assert.equal(await demo.step(), STEPS, "with its own text it loads");
}

async function outlives(t) {
  const server = await serve({ "/": dist, "/pkg": join(root, "pkg", "dist") });
  t.after(() => server.close());
  const browser = await launch("chromium", { seconds: CALL });
  t.after(() => browser.close());
  const first = await begin(browser, server);
  assert.equal(await first.text("steps"), String(STEPS), "the link's settings");
  assert.equal(await first.text("seed"), "3");
  await midway(first);
  const demo = await killed(first, browser, server);
  const { zip, files } = await compare(t, demo);

  const key = (name) =>
    demo.until(`key “${name}”`, async () => (await demo.text("other-keys")) === name);
  await key(NAME); // the run before lies behind the present one by itself
  await demo.press("Compare", NAME);
  await key("");
  await demo.press("Compare", NAME);
  await key(NAME);
  await demo.axe("light", "compared");
  await demo.shot("runs-desktop", DESKTOP);
  await demo.shot("runs-phone", PHONE);
  const text = await demo.likeliest(PROMPT, 12);
  assert.equal(
    await demo.text("output-step"),
    `Written by the model of step ${STEPS} of “${NAME} 2”:`,
  );
  await t.test("transformers computes the same logits, and goes on as the page does", (sub) =>
    inTransformers(sub, demo, files, PROMPT, text),
  );

  await demo.drop({ "back.zip": zip });
  await demo.until("import", async () =>
    (await demo.text("status")).startsWith("Loaded “back” at"),
  );
  assert.equal(await demo.step(), STEPS);
  await demo.drop({
    "config.json": files["config.json"],
    "model.safetensors": files["model.safetensors"],
  });
  await demo.untilState("paused");
  assert.equal(await demo.step(), 0, "a model alone begins a run");
  assert.equal(await demo.likeliest(PROMPT, 12), text, "what the imported model writes");
  await demo.click("stop");
  await demo.untilState("stopped");
  await demo.press("Delete", "imported model");
  await demo.until("deletion", async () => (await demo.runs()).length === 3);
  await demo.untilState("idle");
  const start = await demo.page.$eval("#start", (one) => one.textContent);
  assert.equal(start, "Start", "the page has no run that it could go on with");
  await otherData(demo, files);
  await full(t, demo, server.url);
  await rename(demo);
  assert.deepEqual(demo.errors, [], "the page's console has errors");
}

/** Where the storage is full, a run goes on in memory; what was stored stays. */
async function full(t, demo, origin) {
  const session = await demo.page.createCDPSession();
  const { usage } = await demo.page.evaluate(() => navigator.storage.estimate());
  // Room for the text but not for a checkpoint. Chromium takes 1 MiB while a file is open.
  const quotaSize = usage + 1_500_000;
  await session.send("Storage.overrideQuotaForOrigin", { origin, quotaSize });
  const before = (await demo.runs()).length;
  await whole(demo);
  assert.match(await demo.text("status"), /Done.*export it/);
  // The table follows the status.
  await demo.until("the result", async () =>
    (await demo.runs())[0].result.startsWith(`step ${STEPS} of ${STEPS}`),
  );
  assert.match(await demo.text("runs-note"), /is full/);
  const runs = await demo.runs();
  assert.deepEqual([runs.length, runs[0].name], [before + 2, `${NAME} 3, in memory`]);
  const exported = await Exported.open(t);
  const { curve } = await exported.read(await demo.export(runs[0].name), "full");
  assert.equal(curve.length, STEPS, "all steps are in the export");
  await session.send("Storage.overrideQuotaForOrigin", { origin });
}

/** Renames a run, and deletes all. */
async function rename(demo) {
  await demo.page.$eval(`#runs [aria-label="Name of the run back"]`, (input) => {
    input.value = "renamed";
    input.dispatchEvent(new Event("change"));
  });
  const names = async () => (await demo.runs()).map(({ name }) => name);
  await demo.until("renaming", async () => (await names()).includes("renamed"));
  for (const name of await names()) {
    await demo.press("Delete", name);
    await demo.until("deletion", async () => !(await names()).includes(name));
  }
  assert.deepEqual(await stored(demo), [], "checkpoints that are left");
}

/** A folder as Hugging Face has it, with a tokenizer that is not of bytes: it writes, and trains on. */
async function otherTokenizer(demo) {
  const from = (...path) => new Blob([readFileSync(join(root, "tests", ...path))]);
  await demo.drop({
    "config.json": from("reference", "fixtures", "llama", "config.json"),
    "model.safetensors": from("reference", "fixtures", "llama", "model.safetensors"),
    "tokenizer.json": from("files", "hub-tokenizer", "tokenizer.json"),
  });
  await demo.untilState("paused");
  // In Node the package writes the same five tokens of "ofdis", and ends there by itself.
  assert.equal(await demo.likeliest(PROMPT, 12), "ofdis", "it writes");
  assert.equal(await demo.text("loss-unit"), "nats per token");
  assert.equal(await demo.text("blind-key"), "blind guess among 47 tokens: 3.85");
  await demo.click("start");
  await demo.untilState("stopped");
  assert.equal(await demo.step(), STEPS);
}

async function inFirefox(t) {
  const assets = readdirSync(join(dist, "assets"));
  const worker = assets.find((name) => name.startsWith("model-worker-"));
  const refusing =
    'StorageManager.prototype.getDirectory = () => Promise.reject(new DOMException("no", "SecurityError"));\n';
  const code = readFileSync(join(dist, "assets", worker));
  const server = await serve({ "/": dist });
  const without = await serve({
    "/": dist,
    [`/assets/${worker}`]: Buffer.concat([Buffer.from(refusing), code]),
  });
  t.after(() => server.close());
  t.after(() => without.close());
  const browser = await launch("firefox", { seconds: CALL });
  t.after(() => browser.close());
  const demo = await begin(browser, server);
  await midway(demo);
  await within(120, "reload", demo.page.reload());
  assert.deepEqual(demo.dialogs, ["beforeunload"], "leaving asks first");
  await compare(t, demo);
  await otherTokenizer(demo);
  assert.deepEqual(demo.errors, [], "the page's console has errors");

  const lone = await begin(browser, without);
  assert.match(await lone.text("runs-note"), /keeps nothing/);
  await lone.page.click("#start"); // by the mouse: see midway
  await lone.until("a step", async () => (await lone.step()) >= 1);
  assert.match(await lone.text("status"), /ends with the page/);
  await lone.click("stop");
  await lone.untilState("stopped");
  assert.ok((await lone.export(NAME)).size > 1_000_000, "it can be exported");
  await within(120, "reload", lone.page.reload());
  assert.deepEqual(lone.dialogs, ["beforeunload"], "leaving a run in memory asks first");
  assert.deepEqual(lone.errors, [], "the page's console has errors");
}

longTest(
  "a run outlives its renderer, to the bit; it leaves as a zip and comes back",
  LONG,
  outlives,
);
longTest(
  "Firefox: a run survives a reload to the bit; without storage it is in memory",
  LONG,
  inFirefox,
);
