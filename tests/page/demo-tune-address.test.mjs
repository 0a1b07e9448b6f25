// The fine-tune panel with a model's address: what may be typed, what goes wrong in words, and that a folder on the web,
// a GGUF file there and one from the disk are fine-tuned alike.
// reads: www tests/files/hub-tokenizer
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { addressOf as inPackage } from "../../pkg/dist/addresses.js";
import { launch } from "../../scripts/browser.mjs";
import { root } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/server.mjs";
import { DESKTOP, Demo, PHONE, within } from "./demo-page.mjs";
import { CHATS, checkpoint, written } from "./demo-tune-checkpoint.mjs";
import { serveModels } from "./demo-tune-hub.mjs";
import { Tune } from "./demo-tune-panel.mjs";
import { pageModule } from "./page-module.mjs";

const { addressFailure, addressOf, forbids } = await pageModule("src/tune/address");

const dist = join(root, "www", "dist");
const HUB = "https://huggingface.co";
const CALL = 120;
const LINK = "#text-source=reverse&size=thimble&steps=24&tokens-per-step=128&seed=3";
const FILES = checkpoint();
const CSV = `prompt,completion\n${CHATS.map(([asked, answer]) => `${asked.content},"${answer.content}"`).join("\n")}`;
/** Steps of each fine-tuning. */
const STEPS = 3;

test("an address names a repository of the hub, a folder or a file", () => {
  const resolve = `${HUB}/org/name/resolve`;
  // What is typed, as the package takes it, the name, and the address that the package makes of it.
  for (const [typed, source, name, url] of [
    ["hf:org/name", "hf:org/name", "org/name", `${resolve}/main/`],
    [" HF:org/na.me@v1 ", "hf:org/na.me@v1", "org/na.me", `${HUB}/org/na.me/resolve/v1/`],
    ["org/name", "hf:org/name", "org/name", `${resolve}/main/`],
    ["org/name@v1", "hf:org/name@v1", "org/name", `${resolve}/v1/`],
    ["org/name@main/q8.gguf", "hf:org/name@main/q8.gguf", "q8.gguf", `${resolve}/main/q8.gguf`],
    ["org/name/q8.gguf", "hf:org/name/q8.gguf", "q8.gguf", `${resolve}/main/q8.gguf`],
    [
      "hf:org/name@refs/pr/7/q8.gguf",
      "hf:org/name@refs/pr/7/q8.gguf",
      "q8.gguf",
      `${resolve}/refs%2Fpr%2F7/q8.gguf`,
    ],
    [`${HUB}/org/name`, "hf:org/name", "org/name", `${resolve}/main/`],
    ["huggingface.co/org/name/", "hf:org/name", "org/name", `${resolve}/main/`],
    ["hf.co/org/name", "hf:org/name", "org/name", `${resolve}/main/`],
    ["https://www.huggingface.co/org/name", "hf:org/name", "org/name", `${resolve}/main/`],
    [`${HUB}/org/name/tree/v1`, "hf:org/name@v1", "org/name", `${resolve}/v1/`],
    [
      `${HUB}/org/name/tree/refs%2Fpr%2F7`,
      "hf:org/name@refs/pr/7",
      "org/name",
      `${resolve}/refs%2Fpr%2F7/`,
    ],
    [
      `${HUB}/org/name/blob/a%2Fbranch/q8.gguf`,
      `${resolve}/a%2Fbranch/q8.gguf`,
      "q8.gguf",
      `${resolve}/a%2Fbranch/q8.gguf`,
    ],
    [
      `${HUB}/org/name/blob/main/sub%20dir/q8.gguf`,
      "hf:org/name@main/sub dir/q8.gguf",
      "q8.gguf",
      `${resolve}/main/sub%20dir/q8.gguf`,
    ],
    [`${resolve}/main/`, `${resolve}/main/`, "main", `${resolve}/main/`],
  ]) {
    const given = addressOf(typed, true);
    assert.deepEqual(given, { source, name, host: "huggingface.co" }, typed);
    assert.equal(inPackage("a test", given.source).href, url, typed);
  }
  for (const [typed, source, name, host] of [
    ["example.com/models", "https://example.com/models", "models", "example.com"],
    ["example.com/a%20model", "https://example.com/a%20model", "a model", "example.com"],
    ["http://localhost:80/m/", "http://localhost/m/", "m", "localhost"],
    ["localhost/model", "http://localhost/model", "model", "localhost"],
    ["localhost:8000/model", "http://localhost:8000/model", "model", "localhost:8000"],
    ["127.0.0.1:8000/m", "http://127.0.0.1:8000/m", "m", "127.0.0.1:8000"],
  ]) {
    assert.deepEqual(addressOf(typed, true), { source, name, host }, typed);
    assert.equal(inPackage("a test", source).href, source, typed);
  }
});

test("what is no address of a model is refused in words", () => {
  for (const [typed, words] of [
    ["", /^Type the address/],
    ["hf:name", /^A repository of the hub is hf:OWNER\/NAME/],
    ["hf:org/name@", /^A repository of the hub is hf:OWNER\/NAME/],
    ["hf:a/b c", /^A repository of the hub is hf:OWNER\/NAME/],
    ["huggingface.co/datasets/squad", /below “datasets”, is not that of a model/],
    ["https://hf.co/spaces/org/name", /below “spaces”, is not that of a model/],
    ["not an address", /is no address/],
    ["file:///home/model", /file:\/\/ is not one of them/],
    ["http://example.com/m", /from https load from https/],
  ]) {
    assert.throws(() => addressOf(typed, true), { message: words }, typed);
  }
  assert.equal(addressOf("http://example.com/m", false).source, "http://example.com/m");
});

test("a violation of the page's policy is one of this address only if its origin is", () => {
  const of = (blockedURI, effectiveDirective = "connect-src") =>
    forbids({ blockedURI, effectiveDirective }, "https://a.example/m/config.json");
  assert.ok(of("https://a.example/m/config.json"));
  assert.ok(of("https://a.example"));
  for (const other of ["", "inline", "https://a.example.org/m", "http://a.example/m"]) {
    assert.ok(!of(other), other);
  }
  assert.ok(!of("https://a.example/m/config.json", "img-src"));
});

test("without a network the page says so, and asks nobody", async () => {
  const message = "https://example.com/m/config.json could not be fetched: TypeError";
  const asked = { online: false, answers: () => assert.fail("somebody was asked") };
  const error = await addressFailure(new Error(message), "example.com", asked);
  assert.match(error.message, /^There is no network\. A model on your disk/);
  const elsewhere = { online: true, answers: async () => "no" };
  const moved = await addressFailure(new Error(message), "huggingface.co", elsewhere);
  assert.match(
    moved.message,
    /^The server example\.com, to which huggingface\.co points, does not answer/,
  );
});

/** The page with the panel open, and a server of models. */
async function open(t, sent = {}) {
  const imports = { tinyloom: "/node_modules/tinyloom/dist/index.js" };
  const html = `<!doctype html><script type="importmap">${JSON.stringify({ imports })}</script>`;
  const page = await serve(
    {
      "/": dist,
      "/node_modules/tinyloom/dist": join(root, "pkg", "dist"),
      "/tokenizers.mjs": join(root, "node_modules/@huggingface/tokenizers/dist/tokenizers.mjs"),
      "/package.html": Buffer.from(html),
    },
    { sent },
  );
  t.after(() => page.close());
  const hub = await serveModels(t, {
    tiny: FILES,
    closed: FILES,
    large: { ...FILES, "config.json": Buffer.from(JSON.stringify(large())) },
    page: { "config.json": Buffer.from("<!doctype html>") },
    bare: { "config.json": FILES["config.json"] },
  });
  const browser = await launch("chromium", { seconds: CALL });
  t.after(() => browser.close());
  const demo = await within(CALL, "page", Demo.open(browser, `${page.url}/${LINK}`));
  await demo.untilState("idle");
  const tune = new Tune(demo);
  await demo.page.click("#tune summary");
  await tune.until("waiting", 30);
  return { demo, tune, hub, browser, page };
}

/** A model that no browser's GPU has room for. */
function large() {
  const config = JSON.parse(FILES["config.json"].toString());
  const wide = { hidden_size: 8192, intermediate_size: 28672, num_attention_heads: 64 };
  return { ...config, ...wide, num_hidden_layers: 90 };
}

/** Types an address, and presses what is beside it. */
async function load(tune, address) {
  await tune.bring(async () => {
    await tune.demo.fill("tune-address", address);
    await tune.demo.click("tune-load");
  });
}

async function shots(tune, name) {
  const { demo, page } = tune;
  const shoot = async (how, viewport, theme) => {
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
    await demo.shot(`tune-address-${name}-${how}`, viewport, "#tune-panel");
  };
  await shoot("light", { width: 1440, height: 900 }, "light");
  await shoot("dark", { width: 1280, height: 800 }, "dark");
  await shoot("phone", PHONE, "light");
  await page.setViewport(DESKTOP);
}

/** What goes wrong is said in words, and no model is chosen by it. */
async function refuses(tune, hub) {
  const { demo } = tune;
  for (const [address, words, exact] of [
    [`${hub.url}/none/`, /^There is no config\.json at this address/, /invalid-checkpoint/],
    [`${hub.url}/none/q8.gguf`, /has no file q8\.gguf there/, /invalid-checkpoint/],
    [`${hub.url}/private`, /private, or its terms/, /answered 401/],
    [`${hub.url}/broken`, /answered 503\. Try again later/, /answered 503/],
    [`${hub.url}/page`, /leads to a web page, not to a model's file/, /is not JSON/],
    [`${hub.url}/closed`, /answers, but lets no other website read its files/, /could not be/],
    [`${hub.gone}/model`, /^The server localhost:\d+ does not answer/, /could not be fetched/],
    [`${hub.url}/bare`, /^There is no tokenizer\.json/, /missing/],
  ]) {
    await load(tune, address);
    await demo.until(`${words}`, async () => words.test(await tune.text("error")), 30);
    assert.match((await tune.failure()).whole, exact);
    assert.equal(await tune.base(), "No model yet", address);
  }
  await demo.axe("dark", "tune-address-error");
  await shots(tune, "error");
  await demo.fill("tune-address", "hf:name");
  await demo.click("tune-load");
  await demo.until("words", async () => /hf:OWNER\/NAME/.test(await tune.text("error")), 30);
}

/** What takes long can be ended: the panel is then as it was. */
async function cancels(tune, hub) {
  const { demo, page } = tune;
  const button = () => page.$eval("#tune-load", (one) => one.textContent);
  await load(tune, `${hub.url}/slow`);
  await tune.said(/^Reading what the model is…/);
  assert.equal(await button(), "Cancel");
  await shots(tune, "reading");
  await demo.axe("light", "tune-address-reading");
  await demo.click("tune-load");
  await tune.until("waiting", 30);
  assert.deepEqual([await button(), await tune.base()], ["Load", "No model yet"]);
}

/** Trains some steps, and gives the exact loss of the last. */
async function trained(tune) {
  const { demo, page } = tune;
  await demo.fill("tune-steps", String(STEPS));
  // So few steps may be over before the page is asked for its state.
  await page.$eval("#tune-panel", (panel) => {
    globalThis.tuneTrained = false;
    new MutationObserver(() => {
      globalThis.tuneTrained ||= panel.dataset.state === "training";
    }).observe(panel, { attributeFilter: ["data-state"] });
  });
  await demo.click("tune-start");
  await demo.until("training", () => page.evaluate(() => globalThis.tuneTrained));
  await tune.until("done");
  await tune.said(new RegExp(`^Done after ${STEPS} steps`));
  return page.$eval("#tune-loss", ({ dataset }) => dataset.value);
}

/** In a page with the package: a model with a tokenizer of its own, as a folder and as a GGUF file. */
async function made(text) {
  const { BpeTokenizer, Model, Runtime } = await import("tinyloom");
  const tokenizer = await BpeTokenizer.train(text, { vocabSize: 300 });
  const config = {
    vocab_size: 300,
    hidden_size: 64,
    intermediate_size: 128,
    num_hidden_layers: 2,
    num_attention_heads: 4,
    max_position_embeddings: 128,
    tie_word_embeddings: true,
  };
  const model = await Model.create(await Runtime.create(), config, { seed: 5 });
  const files = { ...(await model.save()), ...tokenizer.save() };
  const gguf = await model.save({ format: "gguf", type: "f32", tokenizer: files });
  return Object.entries({ ...files, ...gguf }).map(([name, bytes]) => [name, [...bytes]]);
}

/** Puts that model on the server, and gives the bytes of its GGUF file. */
async function withGguf(browser, page, hub) {
  const other = await browser.newPage();
  await other.goto(`${page.url}/package.html`);
  const files = await within(CALL, "GGUF file", other.evaluate(made, CSV));
  await other.close();
  for (const [name, bytes] of files) hub.add("own", name, Buffer.from(bytes));
  return Buffer.from(files.find(([name]) => name === "model.gguf")[1]);
}

/** What does not fit is refused before any weights are fetched. */
async function refusesLarge(tune, hub) {
  await load(tune, `${hub.url}/large`);
  await tune.until("ready", 30);
  assert.match(await tune.text("refused"), /^This does not fit: weights .+ GB/);
  const weights = hub.asked.filter((path) => /large.*safetensors/.test(path));
  assert.deepEqual(weights, []);
}

/** A folder with safetensors: fetched by Train, with progress, and not again where the browser keeps it. */
async function folder(tune, hub) {
  const { demo, page } = tune;
  await load(tune, `${hub.url}/tiny`);
  await tune.until("ready", 30);
  assert.equal(await tune.base(), `tiny, from ${new URL(hub.url).host}`);
  assert.match(await tune.text("base-note"), /^llama, 48 tokens, sees 64 at once\. Its own chat/);
  await demo.axe("light", "tune-address-ready");
  await shots(tune, "ready");
  const fetched = () => hub.asked.filter((path) => path === "/tiny/model.safetensors").length;
  assert.equal(fetched(), 0, "weights are fetched by Train alone");
  await page.evaluate(() => {
    globalThis.tuneSaid = new Set();
    const status = document.getElementById("tune-status");
    const hears = () => globalThis.tuneSaid.add(status.textContent);
    new MutationObserver(hears).observe(status, { childList: true });
  });
  const loss = await trained(tune);
  const said = await page.evaluate(() => [...globalThis.tuneSaid].join("\n"));
  assert.match(said, /^Downloading model\.safetensors: [\d.]+ kB/m);
  assert.equal(fetched(), 1);
  assert.equal(await trained(tune), loss);
  assert.equal(fetched(), 1, "what is kept is not fetched");
  const before = hub.asked.length;
  await load(tune, `${hub.url}/tiny`);
  await tune.until("ready", 30);
  const again = hub.asked.slice(before).filter((path) => path.slice(6) in FILES);
  assert.deepEqual(again, [], "config and tokenizer are kept, too");
  await demo.until("kept files", async () => (await page.$("#tune-forget[hidden]")) === null);
  await demo.click("tune-forget");
  await demo.until("none", async () => (await page.$("#tune-forget[hidden]")) !== null);
  await demo.click("tune-keep");
  assert.equal(await trained(tune), loss);
  assert.ok(fetched() > 1, "without the tick they are fetched");
  assert.ok(await page.$("#tune-forget[hidden]"), "and not kept");
}

/** A model as a folder, and as a GGUF file on the web and on the disk: the same weights and tokens give the same losses. */
async function files(t, tune, { hub, browser, page }) {
  const content = await withGguf(browser, page, hub);
  const about = /^llama, 300 tokens, sees 128 at once\./;
  await load(tune, `${hub.url}/own`);
  await tune.until("ready", 30);
  assert.match(await tune.text("base-note"), about);
  const loss = await trained(tune);
  await load(tune, `${hub.url}/own/model.gguf`);
  await tune.until("ready", 30);
  assert.equal(await tune.base(), `model.gguf, from ${new URL(hub.url).host}`);
  assert.match(await tune.text("base-note"), about);
  assert.equal(await trained(tune), loss, "the GGUF file by its address");
  const folder = mkdtempSync(join(tmpdir(), "tinyloom-gguf-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const paths = written(folder, { "own.gguf": content });
  const [chooser] = await Promise.all([
    tune.page.waitForFileChooser({ timeout: 30_000 }),
    tune.page.click("#tune-pick"),
  ]);
  await tune.bring(() => chooser.accept(paths));
  await tune.until("ready", 30);
  assert.equal(await tune.base(), "own, a GGUF file");
  assert.equal(await trained(tune), loss, "the GGUF file from the disk");
  await shots(tune, "done");
}

test("a folder and a GGUF file are fine-tuned from their addresses", {
  timeout: 600_000,
}, async (t) => {
  const parts = await open(t);
  const { demo, tune, hub } = parts;
  await refuses(tune, hub);
  await cancels(tune, hub);
  await refusesLarge(tune, hub);
  await demo.fill("tune-source", "paste");
  await demo.fill("tune-paste", CSV);
  await tune.until("ready", 30);
  await folder(tune, hub);
  await files(t, tune, parts);
  const unexpected = demo.errors.filter((text) => !/Failed to load resource|CORS/.test(text));
  assert.deepEqual(unexpected, [], "the page's console has errors");
});

test("where the website's own policy forbids the address, the page says who can allow it", {
  timeout: 200_000,
}, async (t) => {
  const policy = { "content-security-policy": "connect-src 'self' blob: data:" };
  const { demo, tune, hub } = await open(t, policy);
  await load(tune, `${hub.url}/tiny`);
  const words =
    /^The rules of this website .* add https?:\/\/localhost:\d+ to connect-src in its Content/;
  await demo.until(`${words}`, async () => words.test(await tune.text("error")), 30);
  assert.deepEqual(hub.asked, [], "nobody was asked");
});

test("where the browser keeps nothing, the panel does not offer it, and loads all the same", {
  timeout: 200_000,
}, async (t) => {
  const { demo, tune, hub } = await open(t);
  const { page } = demo;
  const refused = () => page.$eval("#tune-keep", (one) => one.disabled);
  await demo.until("a browser that keeps files", async () => !(await refused()));
  await page.evaluate(() => {
    const get = () => {
      throw new DOMException("storage is forbidden", "SecurityError");
    };
    Object.defineProperty(globalThis, "caches", { get });
  });
  await demo.click("tune-forget");
  await demo.until("no offer", refused);
  await load(tune, `${hub.url}/tiny`);
  await tune.until("ready", 30);
  assert.deepEqual(demo.errors, [], "the page's console has errors");
});
