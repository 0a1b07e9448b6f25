// Every program in examples/ runs, and learns what it is there to learn.
// reads: examples
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { copyFileSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { launch, openPage } from "../../scripts/browser.mjs";
import { root, target } from "../../scripts/lib.mjs";
import { dawnEnv, nativeEnv } from "../../scripts/machine.mjs";
import { serve } from "../../scripts/server.mjs";
import { longTest } from "../gate/core.mjs";
import { cargoProfile } from "../lanes/level.mjs";
import { within } from "../page/demo-page.mjs";

const TEXT = "The cat sees the fox. The dog hears the hen. The owl follows the bee.\n".repeat(80);
const limit = { timeout: 600_000 };
/** Seconds in which a program has to end, and in which what is waited for in a page has to come. */
const [PROGRAM, WAIT] = [480, 180];
const execute = promisify(execFile);
const run = (command, args, options) =>
  execute(command, args, { ...options, timeout: PROGRAM * 1000, killSignal: "SIGKILL" });

/** The losses that a program printed, which have to fall. */
function expectFall(t, text) {
  const losses = [...text.matchAll(/loss ([\d.]+)/g)].map((match) => Number(match[1]));
  assert.ok(losses.length >= 2, `it printed ${losses.length} losses:\n${text}`);
  assert.ok(losses.at(-1) < losses[0], `the loss went from ${losses[0]} to ${losses.at(-1)}`);
  t.diagnostic(`loss ${losses[0]} to ${losses.at(-1)}`);
  return losses;
}

/** Runs an example for Node in a folder of its own, below which nothing of an earlier test lies. */
function nodeExample(name) {
  const folder = join(target, "examples", name); // below the root, where the packages are found
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "text.txt"), TEXT);
  copyFileSync(join(root, "examples/node", `${name}.mjs`), join(folder, `${name}.mjs`));
  const env = { ...process.env, ...dawnEnv() };
  return async (...args) =>
    (await run(process.execPath, [`${name}.mjs`, ...args], { cwd: folder, env })).stdout;
}

async function trainsInNode(t) {
  const train = nodeExample("train");
  expectFall(t, await train("text.txt", "20"));
  const later = await train("text.txt", "20");
  assert.match(later, /step 40: /, "it did not continue at step 21");
  expectFall(t, later);
}
longTest("node/train.mjs trains, saves and continues", limit, trainsInNode);

test("node/attention.mjs agrees with plain JavaScript and descends", limit, async (t) => {
  expectFall(t, await nodeExample("attention")());
});

async function trainsWithCrate(t) {
  // With the features of the native lane, whose build has made it already.
  const built = ["--profile", cargoProfile, "--locked", "--quiet", "--features", "testing"];
  const args = ["run", ...built, "--example", "train", "--", "20"];
  const env = { ...process.env, ...nativeEnv() };
  const { stdout } = await run("cargo", args, { cwd: root, env });
  expectFall(t, stdout);
}
longTest("train.rs trains with the crate", limit, trainsWithCrate);

/**
 * In the page: keeps each text that the status shows, and presses a button when it shows a step. A test that looked
 * from time to time would be too late on a fast machine.
 */
function watch(step, button) {
  globalThis.said = [];
  const status = document.getElementById("status");
  const observer = new MutationObserver((records) => {
    for (const { data } of records.flatMap(({ addedNodes }) => [...addedNodes])) {
      globalThis.said.push(data);
      if (data.startsWith(`Step ${step} of `)) document.getElementById(button).click();
    }
  });
  observer.observe(status, { childList: true });
}

/** Opens an example's page on a text, and gives what a test looks at. At that step it presses that button. */
async function pageExample(t, folder, step, button) {
  const server = await serve({
    "/": join(root, "examples", folder),
    "/node_modules/tinyloom/dist": join(root, "pkg/dist"),
    "/favicon.ico": Buffer.alloc(0),
  });
  t.after(() => server.close());
  const browser = await launch("firefox", { seconds: WAIT }); // compiles in a third of the time on a CPU
  t.after(() => browser.close());
  const errors = [];
  const opening = openPage(browser, `${server.url}/`, (type, text) => {
    if (type === "error") errors.push(text);
  });
  const page = await within(WAIT, "page", opening);
  await page.evaluate(watch, step, button);
  /** What the status has said so far; a failure is none of these. */
  const said = async () => {
    const texts = await page.evaluate(() => globalThis.said ?? []); // none after a reload
    for (const text of texts)
      assert.match(text, /^(Starting|Going on|Step|Stopped|Paused|Paste|Back)/);
    return texts;
  };
  const until = async (what, condition) => {
    const end = Date.now() + WAIT * 1000;
    while (!(await condition())) {
      assert.deepEqual(errors, [], `while waiting for ${what}`);
      if (Date.now() > end) {
        assert.fail(`no ${what} within ${WAIT} s; the status says: ${(await said()).at(-1)}`);
      }
      await new Promise((done) => setTimeout(done, 200));
    }
  };
  /** Waits until the status has shown step `least` or a later one. */
  const stepped = (least) =>
    until(`step ${least}`, async () =>
      (await said()).some((text) => Number(/^Step (\d+)/.exec(text)?.[1]) >= least),
    );
  const told = (text) => until(text, async () => (await said()).at(-1) === text);
  await page.$eval(
    "#text",
    (element, text) => {
      element.value = text;
    },
    TEXT,
  );
  return { page, until, stepped, told, errors, said };
}

async function writes(t) {
  const { page, until, told, errors, said } = await pageExample(t, "page", 30, "stop");
  await page.click("#train");
  await told("Stopped.");
  expectFall(t, (await said()).join("\n"));
  await page.click("#write");
  const output = () => page.$eval("#output", (element) => element.textContent);
  await until("a text", async () => (await output()).length > 50);
  await page.click("#stop");
  assert.deepEqual(errors, []);
}

/** In the page: keeps the names of the methods that are called in the worker, and presses Pause beside one of them. */
function pauseBeside(call) {
  globalThis.called = [];
  const { postMessage } = MessagePort.prototype;
  MessagePort.prototype.postMessage = function (message, ...rest) {
    postMessage.call(this, message, ...rest);
    if (message.path?.[0] !== "call") return;
    const [target, member] = message.argumentList.map(({ value }) => value);
    const name = typeof target === "string" ? `${target}.${member}` : member;
    const first = !globalThis.called.includes(name);
    globalThis.called.push(name);
    if (first && name === call) document.getElementById("pause").click();
  };
}

async function goesOn(t) {
  const { page, stepped, told, errors, said } = await pageExample(t, "worker", 20, "pause");
  await page.evaluate(pauseBeside, "Trainer.create");
  await page.click("#train");
  await told("Paused.");
  const called = await page.evaluate(() => globalThis.called);
  const [made, freed] = ["Model.create", "free"].map((name) => called.lastIndexOf(name));
  assert.ok(
    made >= 0 && freed > made,
    `paused while kernels compile, it frees its model: ${called}`,
  );
  await page.click("#train");
  await stepped(20);
  await told("Paused.");
  expectFall(t, (await said()).join("\n"));
  const points = () => page.$eval("#curve", ({ points }) => points.length);
  const before = await points();
  assert.ok(before >= 20, `the curve has ${before} points`);
  await page.click("#train");
  await stepped(before + 1);
  assert.ok((await points()) > before, "the curve goes on");
  const height = await page.$eval("#curve", ({ points }) => points[0].y);
  assert.ok(height < 0.1, `the first loss is drawn at ${height} of the height`);
  assert.deepEqual(errors, []);
}

async function comesBack(t) {
  const { page, until, stepped, errors, said } = await pageExample(t, "runs", 15, "pause");
  const status = () => page.$eval("#status", (element) => element.textContent);
  const shows = (pattern) => until(String(pattern), async () => pattern.test(await status()));
  await shows(/^Paste/);
  await page.click("#train");
  await shows(/^Paused after step \d+, and saved/);
  expectFall(t, (await said()).join("\n"));
  const paused = Number(/\d+/.exec(await status())[0]);
  await page.click("#train");
  await stepped(paused + 12); // a checkpoint lies between
  await page.reload();
  await shows(/^Back at step/);
  const back = Number(/\d+/.exec(await status())[0]);
  assert.ok(back > paused && back % 10 === 0, `paused at ${paused}, back at ${back}`);
  assert.equal(await page.$eval("#text", (element) => element.value), TEXT);
  await page.evaluate(watch, back + 2, "pause");
  await page.click("#train");
  await shows(/^Paused after/);
  assert.ok((await said()).includes("Going on."));
  await page.click("#write");
  const output = () => page.$eval("#output", (element) => element.textContent);
  await until("a text", async () => (await output()).length > 60);
  await until("the end of the text", () => page.$eval("#forget", ({ disabled }) => !disabled));
  await page.click("#forget");
  await shows(/^Paste/);
  await page.reload();
  await shows(/^Paste/);
  assert.deepEqual(errors, []);
}

longTest("page/index.html trains, stops and writes", limit, writes);
longTest("worker/index.html trains, pauses and goes on, with a curve", limit, goesOn);
longTest(
  "runs/index.html trains, pauses, comes back after a reload in the middle, and writes",
  limit,
  comesBack,
);
