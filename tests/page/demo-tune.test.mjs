// The fine-tune panel of the demo page, by its controls, in a real browser: a checkpoint folder and chats go in, an
// adapter comes out that answers otherwise, and loads elsewhere with the same logits.
// reads: www tests/reference tests/files/hub-tokenizer
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { launch } from "../../scripts/browser.mjs";
import { root } from "../../scripts/lib.mjs";
import { referencePython } from "../../scripts/reference.mjs";
import { serve } from "../../scripts/server.mjs";
import { longTest, timed } from "../gate/core.mjs";
import { full } from "../lanes/level.mjs";
import { DESKTOP, Demo, longestTask, PHONE, within } from "./demo-page.mjs";
import { blobs, CHATS, checkpoint, unzip, written } from "./demo-tune-checkpoint.mjs";
import { Tune } from "./demo-tune-panel.mjs";

const dist = join(root, "www", "dist");
const CALL = 120;
const LINK = "#text-source=reverse&size=thimble&steps=24&tokens-per-step=128&seed=3";
const WIDE = { width: 1440, height: 900 };
/** Steps, the learning rate, and where it is paused. */
const [STEPS, RATE, PAUSED] = [40, 0.02, 8];
const FILES = checkpoint();
const JSONL = CHATS.map((messages) => `${JSON.stringify({ messages })}\n`).join("");
const CSV = `prompt,completion\n${CHATS.map(([asked, answer]) => `${asked.content},"${answer.content}"`).join("\n")}`;

async function open(t, mounts = {}, kind = "chromium") {
  const server = await serve({ "/": dist, ...mounts });
  t.after(() => server.close());
  const browser = await launch(kind, { seconds: CALL });
  t.after(() => browser.close());
  const demo = await within(CALL, "page", Demo.open(browser, `${server.url}/${LINK}`));
  await demo.untilState("idle");
  return { demo, tune: new Tune(demo), server, browser };
}

/** Screenshots of the panel in three sizes. */
async function shots(tune, name) {
  const { demo, page } = tune;
  const shoot = async (how, viewport, theme) => {
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
    await demo.shot(`tune-${name}-${how}`, viewport, "#tune-panel");
  };
  await shoot("light", WIDE, "light");
  await shoot("dark", { width: 1280, height: 800 }, "dark");
  await shoot("phone", PHONE, "light");
  await page.setViewport(DESKTOP);
}

/** Nothing can be pressed in vain before there is a model. */
async function empty(tune) {
  await tune.page.focus("#tune summary");
  await tune.page.keyboard.press("Enter");
  await tune.until("waiting", 30);
  await tune.said(/no model yet/);
  const dead = { start: false, pause: false, stop: false, save: false, again: false };
  assert.deepEqual(await tune.buttons(), dead);
  assert.equal(await tune.base(), "No model yet");
  assert.ok(await tune.page.$("#tune-takes[hidden]"), "nothing is counted before there is a model");
}

/** What is wrong with a folder or a file is said in a visitor's words. */
async function refuses(tune) {
  const { demo } = tune;
  const { "config.json": config, "tokenizer.json": tokenizer, ...rest } = blobs(FILES);
  const weights = rest["model.safetensors"];
  for (const [files, words] of [
    [{ "model.safetensors": weights }, /^The folder has no config\.json/],
    [{ "config.json": config, "pytorch_model.bin": new Blob(["x"]) }, /no \.safetensors file/],
    [{ "config.json": config, "model.safetensors": weights }, /no tokenizer\.json.* 48 tokens/],
    [
      { "config.json": new Blob(["{"]), "model.safetensors": weights },
      /config\.json .* is no JSON/,
    ],
  ]) {
    await tune.drop(files);
    await demo.until(`${words}`, async () => words.test(await tune.text("error")), 30);
    assert.doesNotMatch(await tune.base(), /a folder/, "what is no model is not chosen any more");
  }
  const large = { ...JSON.parse(FILES["config.json"].toString()), num_hidden_layers: 90 };
  Object.assign(large, { hidden_size: 8192, intermediate_size: 28672, num_attention_heads: 64 });
  const files = { "config.json": new Blob([JSON.stringify(large)]), "model.safetensors": weights };
  await tune.drop({ ...files, "tokenizer.json": tokenizer });
  await tune.until("ready", 30);
  const sum = /^This does not fit: weights .+ GB \+ .+ = .+ GB, and this page takes at most .+ GB/;
  assert.match(await tune.text("refused"), sum);
  await tune.said(/^It does not fit: the note above says why/);
  assert.equal((await tune.buttons()).start, false, "what is refused cannot be begun");
  await demo.axe("light", "tune-refused");
  // A damaged file shows when it is read.
  const damaged = { ...blobs(FILES), "model.safetensors": new Blob(["nothing"]) };
  await tune.drop(damaged);
  await demo.until("another sum", async () => (await tune.text("refused")) === "", 30);
  await tune.until("ready");
  assert.equal((await tune.buttons()).start, true, "what fits can");
  await demo.click("tune-start");
  const { words, whole } = await tune.failure();
  assert.match(words, /^These files are no model that the page can read/);
  assert.match(
    whole,
    /model\.safetensors.*\(invalid-checkpoint\)/s,
    "the library's words behind it",
  );
  await demo.axe("dark", "tune-error");
  await shots(tune, "error");
}

/** A folder from the disk by the picker's own dialog. */
async function opens(t, tune) {
  const folder = mkdtempSync(join(tmpdir(), "tinyloom-tune-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const paths = written(join(folder, "tiny-model"), FILES);
  for (const [button, files, name] of [
    ["tune-open", [join(folder, "tiny-model")], "tiny-model"],
    ["tune-pick", paths, "imported model"],
  ]) {
    const [chooser] = await Promise.all([
      tune.page.waitForFileChooser({ timeout: 30_000 }),
      tune.page.click(`#${button}`),
    ]);
    await tune.bring(() => chooser.accept(files));
    await tune.until("ready");
    assert.equal(await tune.text("error"), "", `what ${button} opened`);
    assert.equal(await tune.base(), `${name}, a folder`);
    assert.match(await tune.text("base-note"), /^llama, 48 tokens, sees 64 at once\. Its own chat/);
  }
  const [from] = written(folder, { "chats.jsonl": Buffer.from(JSONL) });
  await tune.demo.fill("tune-source", "file");
  await tune.said(/Choose a file of chats first/);
  const input = await tune.page.$("#tune-file");
  await tune.bring(() => input.uploadFile(from));
  await tune.until("ready");
  assert.match(await tune.text("chats-note"), /^24 chats; a tenth is kept/);
}

/** Masked tokens are those of the user's turns, and of what the template puts before an answer. */
async function masked(tune) {
  const shown = await tune.examples();
  assert.equal(shown.length, 3);
  // The first token is a space that the tokenizer puts before a text, and takes away from it.
  const bare = (text) => text.replaceAll(/\s|▫/g, "");
  for (const [at, { counts, out, said }] of shown.entries()) {
    const [asked, answer] = CHATS[at];
    assert.equal(bare(counts), bare(`${answer.content}</s>`), `what counts of chat ${at + 1}`);
    assert.equal(
      bare(out),
      bare(`user ${asked.content}</s>assistant`),
      `what is left out of ${at + 1}`,
    );
    assert.match(said, new RegExp(`^chat ${at + 1} of 24: \\d+ of \\d+ tokens count$`));
  }
  await tune.demo.click("tune-more");
  const next = async () => (await tune.examples())[0]?.said.startsWith("chat 4 of 24");
  await tune.demo.until("other chats", next, 30);
  assert.equal(bare((await tune.examples())[0].counts), bare(`${CHATS[3][1].content}</s>`));
  // The same chats as CSV are the same tokens.
  await tune.demo.fill("tune-source", "paste");
  await tune.said(/Paste some chats first/);
  await tune.demo.fill("tune-paste", "prompt,completion\nonly a question");
  assert.match((await tune.failure()).words, /No chat was found in row 2/);
  await tune.demo.fill("tune-paste", CSV);
  await tune.until("ready");
  assert.deepEqual(await tune.examples(), shown, "of CSV");
  assert.equal(
    await tune.text("prompts"),
    CHATS.slice(-3)
      .map(([{ content }]) => content)
      .join("\n"),
  );
}

/** Rank and format change what is predicted, before anything is created. */
async function predicted(tune) {
  const { demo } = tune;
  const first = await tune.bytes();
  assert.ok((await tune.choose("rank", "32")) > first, "a larger rank takes more");
  assert.equal(await tune.choose("rank", "8"), first);
  const sizes = [first];
  for (const weights of ["f16", "int8", "int4"]) sizes.push(await tune.choose("weights", weights));
  assert.deepEqual(
    sizes,
    sizes.toSorted((a, b) => b - a),
    "bytes of f32, f16, int8 and int4",
  );
  assert.equal(await tune.choose("weights", "f32"), first);
  await demo.page.click("#tune-choices summary");
  assert.ok((await tune.choose("targets", "attention")) < first);
  assert.equal(await tune.choose("targets", "all-linear"), first);
  assert.ok((await tune.choose("tokens", "512")) > first);
  assert.equal(await tune.choose("tokens", "256"), first);
  for (const [id, value] of [
    ["steps", STEPS],
    ["rate", RATE],
    ["alpha", 16],
    ["seed", 3],
  ]) {
    await demo.fill(`tune-${id}`, String(value));
  }
  assert.match(await tune.text("sum"), /^: [\d.]+ (k|M)B, about [\d.]+ s$/);
  // What a field does not allow keeps the page from beginning. The field is shown, and named.
  await demo.page.click("#tune-choices summary");
  assert.ok(await demo.page.$("#tune-choices details:not([open])"));
  await demo.fill("tune-alpha", "0");
  // Once it is typed the panel names it, and opens nothing.
  await tune.said(/^Alpha: /);
  assert.ok(await demo.page.$("#tune-choices details:not([open])"));
  await demo.click("tune-start");
  assert.equal(await tune.state(), "ready");
  assert.ok(await demo.page.$("#tune-choices details[open]"));
  assert.equal(await demo.page.evaluate(() => document.activeElement.id), "tune-alpha");
  await demo.fill("tune-alpha", "16");
}

/** In the page: notes each loss that it shows, and pauses at a step. */
function note(paused) {
  globalThis.tuneLosses = new Map();
  const step = document.getElementById("tune-step");
  new MutationObserver(() => {
    const at = Number(step.dataset.value);
    queueMicrotask(() => {
      const { value } = document.getElementById("tune-loss").dataset;
      if (value) globalThis.tuneLosses.set(at, Number(value));
    });
    if (at !== paused || globalThis.tunePaused) return;
    globalThis.tunePaused = true;
    document.getElementById("tune-pause").click();
  }).observe(step, { attributes: true });
}

/**
 * Goes on to the end. `npm run test:timed` holds the main thread's tasks to account. Where one was too long it trains the
 * same again, twice at most: other work on the machine only makes them longer.
 */
async function quickly(t, tune) {
  const found = [];
  const tries = timed ? 3 : 1;
  while (found.length < tries && !found.some((task) => task < 50)) {
    await tune.demo.click("tune-start");
    await tune.until("training");
    await longestTask(tune.page);
    await tune.until("done");
    found.push(await longestTask(tune.page));
    await tune.said(new RegExp(`^Done after ${STEPS} steps`));
  }
  const tasks = found.map((task) => task || "below 50").join(", ");
  t.diagnostic(`longest task of the main thread while it trained: ${tasks} ms`);
  if (timed) assert.ok(Math.min(...found) < 50, `tasks of ${tasks} ms`);
}

/** Trains, pauses, goes on, and answers otherwise. Gives the losses by step. */
async function trains(t, tune) {
  const { demo, page } = tune;
  await page.evaluate(note, PAUSED);
  await demo.click("tune-start");
  await tune.until("paused");
  await tune.said(/^Paused after \d+ steps/);
  const at = Number(await page.$eval("#tune-step", ({ dataset }) => dataset.value));
  assert.ok(at >= PAUSED && at < STEPS, `paused at ${at}`);
  const half = { start: true, pause: false, stop: true, save: true, again: true };
  assert.deepEqual(await tune.buttons(), half);
  assert.ok(await page.$("#tune-choices:disabled"), "its choices stand");
  await shots(tune, "paused");
  await quickly(t, tune);
  const losses = await page.evaluate(() => Object.fromEntries(globalThis.tuneLosses));
  assert.ok(losses[STEPS] < losses[1] / 2, `a loss from ${losses[1]} to ${losses[STEPS]}`);
  const label = await page.$eval("#tune-chart", (chart) => chart.getAttribute("aria-label"));
  assert.match(label, new RegExp(`at step ${STEPS}, `));
  assert.ok(Number(await page.$eval("#tune-validation", ({ dataset }) => dataset.value)) > 0);
  const answers = await tune.answers();
  assert.deepEqual(
    answers.map(([asked]) => asked),
    CHATS.slice(-3).map(([one]) => one.content),
  );
  for (const [asked, before, after] of answers) {
    assert.ok(before !== "" && after !== "" && before !== after, `${asked}: ${before}, ${after}`);
  }
  t.diagnostic(
    `loss ${losses[1].toFixed(2)} to ${losses[STEPS].toFixed(2)}: ${answers.join("; ")}`,
  );
  return { losses, answers };
}

/** The first prompt on the loom: with the adapter, and without it another answer. */
async function looks(tune) {
  const { demo, page } = tune;
  const label = () => page.$eval("#tune-loom", (canvas) => canvas.ariaLabel);
  await demo.click("tune-look");
  await tune.said(/^Its layers are on the loom/);
  const adapted = await label();
  assert.match(adapted, /^Layers 1(, \d+)* of the model, with \d+ heads each, .* its answer: \S/);
  assert.match(await demo.text("real-story"), /an adapter that has learned for \d+ steps\.$/);
  const canvas = await page.$("#tune-loom");
  await canvas.scrollIntoView();
  const { x, y, width } = await canvas.boundingBox();
  await page.mouse.move(x + width - 30, y + 40);
  await demo.until(
    "words",
    async () => /^Behind “.*” it says “/.test(await tune.text("loom-note")),
    30,
  );
  await page.focus("#tune-loom");
  await page.keyboard.press("Home");
  const first = await tune.text("loom-note");
  assert.match(first, /^Behind “.*” it says “.* layer 1 looks most at “.*”, /);
  await page.keyboard.press("ArrowRight");
  assert.notEqual(await tune.text("loom-note"), first);
  await page.click("#tune-loom-adapted");
  await demo.until("the model alone", async () => (await label()) !== adapted, 60);
  await tune.said(/^Its layers are on the loom/);
}

/** Prompts of one's own, and a curve that zooms and comes back. */
async function asks(tune) {
  const { demo, page } = tune;
  await demo.fill("tune-prompts", "is the stone old?\n\nwhere is the dog?");
  await demo.click("tune-again");
  await tune.said(/^The answers are below/);
  const rows = await tune.answers();
  assert.deepEqual(
    rows.map(([asked]) => asked),
    ["is the stone old?", "where is the dog?"],
  );
  for (const [, before, after] of rows) assert.notEqual(before, after);
  await page.focus("#tune-chart");
  await page.keyboard.press("ArrowLeft");
  const values = async () => new RegExp(`^step ${STEPS}: loss`).test(await tune.text("values"));
  await demo.until("values under the cursor", values, 10);
  await page.keyboard.press("Escape");
  const box = await (await page.$("#tune-chart")).boundingBox();
  const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
  await page.mouse.move(x, y);
  await page.mouse.down();
  await page.mouse.move(x + 80, y, { steps: 4 });
  await page.mouse.up();
  await page.waitForSelector("#tune-zoom-out:not([hidden])", { timeout: 10_000 });
  await page.click("#tune-zoom-out");
  assert.ok(await page.$("#tune-zoom-out[hidden]"), "all steps again");
}

/** In a page of its own, with the public package: the same training by hand, and the adapter of the zip. */
async function elsewhere({ files, chats, steps, rate, asked }) {
  const { Adapter, chatPrompt, Dataset, Model, Runtime, Tokenizer, Trainer } = await import(
    "tinyloom"
  );
  const runtime = await Runtime.create();
  const model = await Model.fromPretrained(runtime, "/checkpoint/");
  const tokenizer = await Tokenizer.fromPretrained("/checkpoint/", { library: "/tokenizers.mjs" });
  const bytes = Object.fromEntries(
    files.map(([name, content]) => [name, Uint8Array.from(content)]),
  );
  const loaded = await Adapter.load(model, bytes);
  const data = await Dataset.fromConversations(chats, tokenizer, {
    validationFraction: 0.1,
  });
  const adapter = await Adapter.create(model, { rank: 8, alpha: 16, seed: 3 });
  const trainer = await Trainer.create(adapter, {
    tokensPerStep: 256,
    learningRate: rate,
    totalSteps: steps,
    warmupSteps: Math.ceil(steps / 10),
    seed: 3,
  });
  const losses = [];
  for await (const { loss } of trainer.run(data, { steps })) losses.push(loss);
  const prompt = await chatPrompt([{ role: "user", content: asked }], tokenizer);
  const logits = async (options) => [...(await model.logits(prompt.tokens, options))];
  let answer = "";
  const options = { adapter: loaded, tokenizer, stop: prompt.stop, temperature: 0 };
  for await (const { text } of model.generate(prompt.tokens, {
    ...options,
    maxTokens: 64 - prompt.tokens.length,
    stopTokens: [tokenizer.endToken],
  }))
    answer += text;
  return {
    losses,
    tokens: [...prompt.tokens],
    base: await logits({}),
    own: await logits({ adapter }),
    zip: await logits({ adapter: loaded }),
    answer: answer.trim(),
  };
}

/** What was downloaded is what the same training by hand gives, to the bit, and answers as on the page. */
async function loadsBack(t, { demo, tune, server, browser }, { losses, answers }) {
  const zip = await demo.savedFile("#tune-save");
  assert.equal(zip.name, "imported-model-adapter.zip");
  await tune.said(/as PEFT reads it/);
  const files = unzip(new Uint8Array(await zip.arrayBuffer()));
  assert.deepEqual(Object.keys(files).sort(), ["adapter_config.json", "adapter_model.safetensors"]);
  const { r, lora_alpha } = JSON.parse(new TextDecoder().decode(files["adapter_config.json"]));
  assert.deepEqual([r, lora_alpha], [8, 16]);
  const page = await browser.newPage();
  await page.goto(`${server.url}/elsewhere.html`);
  const [asked, , after] = answers[0];
  const given = Object.entries(files).map(([name, content]) => [name, [...content]]);
  const made = await within(
    CALL,
    "the training by hand",
    page.evaluate(elsewhere, { files: given, chats: CHATS, steps: STEPS, rate: RATE, asked }),
  );
  await page.close();
  // The page may show two steps at once, and then one of them is not noted.
  const noted = Object.keys(losses).length;
  assert.ok(noted >= STEPS / 2, `only ${noted} of ${STEPS} losses were noted`);
  for (const [step, loss] of Object.entries(losses))
    assert.equal(loss, made.losses[step - 1], step);
  assert.deepEqual(made.zip, made.own, "logits of the zip's adapter, and of one trained by hand");
  assert.notDeepEqual(made.zip, made.base, "logits of the model alone");
  assert.equal(made.answer, after, "its answer there");
  t.diagnostic(`${made.zip.length} logits and ${noted} losses are the same`);
  await t.test("PEFT computes the same logits", (t) => inPeft(t, files, made));
}

/** PEFT reads the files of the zip, over the checkpoint that transformers reads. */
async function inPeft(t, files, { tokens, zip }) {
  const python = await referencePython();
  const folder = mkdtempSync(join(tmpdir(), "tinyloom-tuned-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const keep = (place, given) => {
    mkdirSync(join(folder, place));
    for (const [name, bytes] of Object.entries(given))
      writeFileSync(join(folder, place, name), bytes);
    return join(folder, place);
  };
  const [base, adapter] = [keep("base", FILES), keep("adapter", files)];
  const expected = JSON.stringify({ tokens, logits: "logits.f32" });
  const told = keep("told", { "expected.json": expected, "logits.f32": Float32Array.from(zip) });
  const script = join(root, "tests", "reference", "check_saved.py");
  const args = [script, base, join(told, "expected.json"), "--adapter", adapter];
  const said = spawnSync(python, args, { encoding: "utf8" });
  assert.equal(said.status, 0, `${said.stdout}${said.stderr}`);
  t.diagnostic(said.stdout.trim());
}

async function tunesFolder(t) {
  const imports = { tinyloom: "/node_modules/tinyloom/dist/index.js" };
  const parts = await open(t, {
    ...Object.fromEntries(
      Object.entries(FILES).map(([name, bytes]) => [`/checkpoint/${name}`, bytes]),
    ),
    "/node_modules/tinyloom/dist": join(root, "pkg", "dist"),
    "/tokenizers.mjs": join(root, "node_modules/@huggingface/tokenizers/dist/tokenizers.mjs"),
    "/elsewhere.html": Buffer.from(
      `<!doctype html><script type="importmap">${JSON.stringify({ imports })}</script>`,
    ),
  });
  const { demo, tune } = parts;
  await empty(tune);
  await refuses(tune);
  await opens(t, tune);
  await masked(tune);
  await predicted(tune);
  await demo.axe("light", "tune-ready");
  await shots(tune, "before");
  const trained = await trains(t, tune);
  await demo.axe("light", "tune-done");
  await demo.axe("dark", "tune-done");
  await shots(tune, "after");
  await loadsBack(t, parts, trained);
  await asks(tune);
  await looks(tune);
  assert.deepEqual(demo.errors, [], "the page's console has errors");
}
longTest(
  "a checkpoint folder is fine-tuned on chats, and its adapter loads elsewhere",
  { timeout: 600_000 },
  tunesFolder,
);

/** Begins with this base and format, and stops in the midst of it. */
async function some(tune, weights) {
  const { demo } = tune;
  await demo.fill("tune-weights", weights);
  await demo.fill("tune-steps", "2000");
  await demo.click("tune-start");
  await tune.until("training");
  await demo.until("steps", async () => Number.parseInt(await tune.text("step"), 10) >= 3);
  await shots(tune, `during-${weights}`);
  await demo.axe("dark", "tune-training");
  await demo.click("tune-stop");
  await tune.until("done");
  await tune.said(/^Stopped after \d+ steps/);
  return tune.answers();
}

// Only a full run has: a run of the page and a kept one as base, the built-in example, packed formats, and Stop. What
// differs in Firefox is WebGPU and the picker of files.
if (full) {
  test("a run of the page, and one that is kept, are fine-tuned on the built-in example", {
    timeout: 400_000,
  }, async (t) => {
    const { demo, tune } = await open(t);
    await demo.click("start");
    await demo.page.click("#tune summary");
    await tune.said(/The page trains a model of its own/);
    assert.equal((await tune.buttons()).start, false, "not while the page trains");
    await demo.untilState("stopped");
    await demo.until("the button", async () => (await tune.buttons()).start, 30);
    const [{ name }] = await demo.runs();
    assert.equal(await tune.base(), `${name}, on this page`);
    assert.match(await tune.text("chats-note"), /^1,008 problems “reverse a word”/);
    const [first] = await tune.examples();
    const word = first.out.slice(0, -1);
    assert.match(first.out, /^[a-z]+>$/);
    assert.equal(first.counts.replace("⏎\n", ""), `${[...word].reverse().join("")}!`);
    assert.equal(await tune.text("prompts"), "planet\nsilk\nbobbin");
    const answers = await some(tune, "int8");
    assert.equal(answers.length, 3);
    for (const [, ...both] of answers)
      assert.ok(
        both.every((one) => one !== "" && !one.includes("\n")),
        String(both),
      );
    await within(CALL, "reload", demo.page.reload());
    assert.deepEqual(
      demo.dialogs,
      ["beforeunload"],
      "leaving asks first: the adapter is not downloaded",
    );
    await demo.untilState("idle");
    await demo.page.click("#tune summary");
    await tune.until("ready");
    assert.equal(await tune.base(), name, "a kept run");
    await some(tune, "f16");
    await demo.savedFile("#tune-save");
    assert.deepEqual(demo.errors, [], "the page's console has errors");
  });

  test("Firefox: a run of the page is fine-tuned, and its adapter downloaded", {
    timeout: 400_000,
  }, async (t) => {
    const { demo, tune } = await open(t, {}, "firefox");
    await demo.page.click("#start"); // by the mouse: Firefox asks before leaving only those who have done something
    await demo.untilState("stopped");
    await demo.page.click("#tune summary");
    await tune.until("ready");
    await demo.until("the button", async () => (await tune.buttons()).start, 30);
    await demo.fill("tune-steps", "6");
    await demo.click("tune-start");
    await tune.until("done");
    await tune.said(/^Done after 6 steps/);
    const answers = await tune.answers();
    assert.deepEqual(
      answers.map(([asked]) => asked),
      ["planet", "silk", "bobbin"],
    );
    for (const [, ...both] of answers)
      assert.ok(
        both.every((one) => one !== "" && !one.includes("\n")),
        String(both),
      );
    const zip = await demo.savedFile("#tune-save");
    const files = unzip(new Uint8Array(await zip.arrayBuffer()));
    assert.deepEqual(Object.keys(files).sort(), [
      "adapter_config.json",
      "adapter_model.safetensors",
    ]);
    assert.deepEqual(demo.errors, [], "the page's console has errors");
  });
}
