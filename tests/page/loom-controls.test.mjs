// Controls of the stage that other tests do not use: the mouse on the loom and on the squares, the button that weaves,
// and a chip that is pressed before there is a GPU. In a real browser.
// reads: www tests/page/no-gpu.mjs
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { launch } from "../../scripts/browser.mjs";
import { root } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/server.mjs";
import { asset, DESKTOP, Demo, within } from "./demo-page.mjs";
import { openWithoutGpu, untilHolds } from "./no-gpu.mjs";

const dist = join(root, "www", "dist");
/** Seconds that a call of the page may take. */
const CALL = 120;

const label = (demo) => demo.page.$eval("#loom-canvas", (one) => one.getAttribute("aria-label"));
const note = (demo) => demo.text("loom-note");

/** What is said at points of the loom, from the left to the right. */
async function along(demo, box, y) {
  const said = [];
  for (let x = 4; x < box.width; x += 5) {
    await demo.page.mouse.move(box.x + x, box.y + y);
    said.push({ x, text: await note(demo) });
  }
  return said;
}

/** Letters and threads are pointed at and chosen with the mouse. */
async function points(demo) {
  await demo.page.evaluate(() => document.getElementById("loom").scrollIntoView());
  const box = await (await demo.page.$("#loom-canvas")).boundingBox();
  const letters = await along(demo, box, box.height - 12);
  const names = new Set(letters.map(({ text }) => text).filter((text) => text !== ""));
  assert.equal(names.size, 13, `letters of planet→tenalp: ${[...names].join(" ")}`);
  const { x, text } = letters.find((one) => /^After “tena” it says “l”/.test(one.text));
  assert.notEqual(await demo.text("card-title"), text);
  await demo.page.mouse.click(box.x + x + 5, box.y + box.height - 12);
  assert.equal(await demo.text("card-title"), text, "what is chosen is explained");

  const heights = [0.3, 0.35, 0.65, 0.7].map((share) => share * box.height);
  let thread;
  for (const y of heights) {
    const found = (await along(demo, box, y)).find((one) =>
      /^Head \d of layer \d\./.test(one.text),
    );
    thread ??= found && { ...found, y };
  }
  assert.ok(thread, "a thread that is pointed at");
  assert.match(thread.text, /^Head \d of layer \d\. At .* it reads .*: .* of its look\.$/);
  await demo.page.mouse.click(box.x + thread.x, box.y + thread.y);
  const chosen = await demo.text("card-title");
  assert.ok(thread.text.startsWith(`${chosen}.`), `${chosen}; ${thread.text}`);
  const other = /^Head (\d) of layer (\d)$/.exec(chosen);
  await demo.click("card-cut");
  const cut = () =>
    demo.page.$$eval('.head[aria-pressed="false"]', (all) =>
      all.map((one) => one.getAttribute("aria-label")),
    );
  await untilHolds("a head that is cut", async () => (await cut()).length > 0);
  assert.deepEqual(await cut(), [other[0]], "of a thread its own head is cut");
  await demo.click("card-mend");
  await demo.page.mouse.move(box.x + box.width / 2, Math.max(1, box.y - 20));
  assert.equal(await note(demo), "", "nothing is said of what is not pointed at");
}

/** A square that is pointed at, by mouse or by keys, shows its word. A click weaves that word. */
async function squares(demo) {
  const said = () => demo.text("square-note");
  const pointed = () =>
    demo.page.$$eval("#squares i", (all) => all.findIndex((one) => one.matches(".pointed")));
  await demo.page.hover("#squares i:nth-child(20)");
  assert.equal(await pointed(), 19);
  const [asked, answer] = (await said()).split(/[→ ]+/);
  assert.equal([...asked].reverse().join(""), answer, await said());
  await demo.page.click("#squares i:nth-child(20)");
  const woven = new RegExp(`reads ${asked}→ and says ${answer}\\.`);
  await untilHolds("its word", async () => woven.test(await label(demo)));
  await demo.page.hover("#sentence");
  assert.equal(await said(), "");
  await demo.page.focus("#squares");
  const at = [];
  for (const key of ["ArrowRight", "ArrowDown", "ArrowRight", "ArrowLeft", "ArrowUp", "ArrowUp"]) {
    await demo.page.keyboard.press(key);
    at.push(await pointed());
  }
  assert.deepEqual(at, [0, 16, 17, 16, 0, 0]);
}

/** The button weaves what the field has; so does Enter. */
async function weaves(demo) {
  const reads = (word) =>
    untilHolds(word, async () => (await label(demo)).includes(`reads ${word}→ and says`));
  // Without an event, as what fills in forms may do it.
  const put = (word) =>
    demo.page.$eval(
      "#loom-word",
      (field, word) => {
        field.value = word;
      },
      word,
    );
  await put("silk");
  await demo.page.click("#loom-weave");
  await reads("silk");
  await put("thread");
  await demo.page.focus("#loom-word");
  await demo.page.keyboard.press("Enter");
  await reads("thread");
}

test("the loom answers the mouse: letters, threads, squares, and the button that weaves", {
  timeout: 300_000,
}, async (t) => {
  const { demo } = await openWithoutGpu(t);
  await untilHolds(
    "all of it",
    async () => (await demo.page.$eval("#time-range", (one) => one.max)) === "340",
  );
  await demo.page.setViewport(DESKTOP);
  await demo.fill("time-range", "340");
  await untilHolds("its end", async () => /at step 340:.*says tenalp/.test(await label(demo)));
  await untilHolds("answers", async () => /^12\d right/.test(await demo.text("squares-count")));
  await points(demo);
  await squares(demo);
  await weaves(demo);
  // The speed is that of the show: at four times the steps of a second, all is over in three.
  await demo.fill("time-speed", "4");
  await demo.fill("time-range", "0");
  await demo.click("time-play");
  const step = () => demo.page.$eval("#time-range", ({ value }) => Number(value));
  await untilHolds("the end", async () => (await step()) === 340, 30);
  assert.deepEqual(demo.errors, [], "the page's console has errors");
});

/** The worker's file, in which a method of WebGPU waits until a page calls `goOn`. */
function held(type, method) {
  const held =
    `{const {${method}}=${type}.prototype;` +
    `const goes=new Promise((go)=>{new BroadcastChannel("go on").onmessage=go});` +
    `${type}.prototype.${method}=async function(...all){await goes;return ${method}.apply(this,all)};}\n`;
  const path = asset("model-worker");
  return { [path]: Buffer.concat([Buffer.from(held), readFileSync(join(dist, path))]) };
}

const goOn = ({ page }) => page.evaluate(() => new BroadcastChannel("go on").postMessage(""));

test("who asks for a text of their own before the GPU is there hears when it can be pasted", {
  timeout: 300_000,
}, async (t) => {
  const server = await serve({ "/": dist, ...held("GPU", "requestAdapter") });
  t.after(() => server.close());
  const browser = await launch("chromium", { seconds: CALL });
  t.after(() => browser.close());
  const demo = await within(CALL, "page", Demo.open(browser, server.url));
  const says = (words) => demo.until(words, async () => (await demo.text("status")) === words, 60);
  await says("Getting ready. Your own model begins in a moment.");
  await demo.click("own-text");
  assert.equal(await demo.text("status"), "You can paste your text in a moment.");
  await goOn(demo);
  await demo.untilState("idle");
  assert.equal(await demo.text("status"), "Paste your text, then press Start.");
  assert.equal(await demo.text("text-source"), "paste");
  assert.equal(await demo.page.evaluate(() => document.activeElement.id), "paste");
  assert.deepEqual(await demo.runs(), [], "no run has begun by itself");
  assert.deepEqual(demo.errors, [], "the page's console has errors");
});

const LINK = (seed) =>
  `#text-source=sort&size=thimble&tokens-per-step=128&steps=9&seed=${seed}&step=2`;

/** Opens the page, and comes back while its first run is being made. */
async function inTheMaking(browser, url) {
  const demo = await within(CALL, "page", Demo.open(browser, url));
  // They are shown in the task in which the page looks for wishes of before.
  await demo.appears("#capabilities td");
  assert.equal(await demo.state(), "loading");
  return demo;
}

/** The states and steps of the page from now on. */
async function watched(demo) {
  await demo.page.evaluate(() => {
    globalThis.seen = [];
    new MutationObserver(() => globalThis.seen.push(document.body.dataset.state)).observe(
      document.body,
      { attributeFilter: ["data-state"] },
    );
    document.addEventListener("tinyloom:training", ({ detail: { type, step } }) => {
      if (type === "step") globalThis.seen.push(step);
    });
  });
  return () => demo.page.evaluate(() => globalThis.seen);
}

test("what is asked for while a run is being made is done, and that run makes no step", {
  timeout: 300_000,
}, async (t) => {
  const server = await serve({ "/": dist, ...held("GPUDevice", "createComputePipelineAsync") });
  t.after(() => server.close());
  // A browser that has been here before has kept the worker's file, as it is without what holds it.
  const newcomer = async (url) => {
    const browser = await launch("chromium", { seconds: CALL });
    t.after(() => browser.close());
    return inTheMaking(browser, url);
  };
  const demo = await newcomer(server.url);
  const seen = await watched(demo);
  await demo.click("own-text");
  assert.equal(await demo.text("status"), "You can paste your text in a moment.");
  await goOn(demo);
  const paste = "Paste your text, then press Start.";
  await demo.until("the field", async () => (await demo.text("status")) === paste, 60);
  assert.equal(await demo.page.evaluate(() => document.activeElement.id), "paste");
  assert.deepEqual(await seen(), ["stopped"], "the opening run does not go on");
  assert.deepEqual(demo.errors, [], "the page's console has errors");

  // A chip, and after it a second link while the first one's run is made.
  const chip = await newcomer(server.url);
  const begun = await watched(chip);
  await chip.page.click('[data-learns="add"]');
  await goOn(chip);
  await chip.until("a first step", async () => (await begun()).includes(1), 120);
  assert.equal(await chip.text("text-source"), "add");
  assert.deepEqual(
    (await begun()).filter((one) => one !== "loading").slice(0, 3),
    ["stopped", "training", 1],
    "the first step is that of what was asked for",
  );
  await chip.until("its row", async () =>
    (await chip.runs()).some(({ learned }) => /add/i.test(learned)),
  );

  const linked = await newcomer(`${server.url}/${LINK(4)}`);
  const linkedTo = await watched(linked);
  await linked.page.evaluate((hash) => {
    location.hash = hash;
  }, LINK(5));
  await goOn(linked);
  await linked.untilState("paused");
  assert.match(await linked.text("loom-said"), /^A link: sort digits, 9 steps, seed 5,/);
  assert.deepEqual(
    (await linkedTo()).filter((one) => Number(one) === one),
    [1, 2],
    "the first link's run makes no step",
  );
  assert.deepEqual(linked.errors, [], "the page's console has errors");
});
