// Every program in examples/ runs, and learns what it is there to learn.
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
import { cargoProfile } from "../lanes/level.mjs";

const TEXT = "The cat sees the fox. The dog hears the hen. The owl follows the bee.\n".repeat(80);
const limit = { timeout: 600_000 };
const run = promisify(execFile);

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

test("node/train.mjs trains, saves and continues", limit, async (t) => {
  const train = nodeExample("train");
  expectFall(t, await train("text.txt", "20"));
  const later = await train("text.txt", "20");
  assert.match(later, /step 40: /, "it did not continue at step 21");
  expectFall(t, later);
});

test("node/attention.mjs agrees with plain JavaScript and descends", limit, async (t) => {
  expectFall(t, await nodeExample("attention")());
});

test("train.rs trains with the crate", limit, async (t) => {
  // With the features of the native lane, whose build has made it already.
  const built = ["--profile", cargoProfile, "--locked", "--quiet", "--features", "testing"];
  const args = ["run", ...built, "--example", "train"];
  const env = { ...process.env, ...nativeEnv() };
  const { stdout } = await run("cargo", args, { cwd: root, env });
  expectFall(t, stdout);
});

/** Opens an example's page on a text, and gives what a test looks at. */
async function pageExample(t, folder) {
  const server = await serve({
    "/": join(root, "examples", folder),
    "/node_modules/tinyloom/dist": join(root, "pkg/dist"),
    "/favicon.ico": Buffer.alloc(0),
  });
  t.after(() => server.close());
  const browser = await launch("chromium");
  t.after(() => browser.close());
  const errors = [];
  const page = await openPage(browser, `${server.url}/`, (type, text) => {
    if (type === "error") errors.push(text);
  });
  const until = async (what, condition) => {
    while (!(await condition())) {
      assert.deepEqual(errors, [], `while waiting for ${what}`);
      await new Promise((done) => setTimeout(done, 200));
    }
  };
  const seen = new Set();
  /** Waits until the status shows step `least` or a later one. */
  const stepped = (least) =>
    until(`step ${least}`, async () => {
      const text = await page.$eval("#status", (element) => element.textContent);
      seen.add(text);
      assert.match(text, /^(Starting|Going on|Step|Stopped|Paused|Paste)/);
      return Number(/^Step (\d+)/.exec(text)?.[1] ?? 0) >= least;
    });
  const told = (text) =>
    until(text, () => page.$eval("#status", (element, text) => element.textContent === text, text));
  await page.$eval(
    "#text",
    (element, text) => {
      element.value = text;
    },
    TEXT,
  );
  return { page, until, stepped, told, errors, seen };
}

test("page/index.html trains, stops and writes", limit, async (t) => {
  const { page, until, stepped, told, errors, seen } = await pageExample(t, "page");
  await page.click("#train");
  await stepped(30);
  expectFall(t, [...seen].join("\n"));
  await page.click("#stop");
  await told("Stopped.");
  await page.click("#write");
  const output = () => page.$eval("#output", (element) => element.textContent);
  await until("a text", async () => (await output()).length > 50);
  await page.click("#stop");
  assert.deepEqual(errors, []);
});

test("worker/index.html trains, pauses and goes on, with a curve", limit, async (t) => {
  const { page, stepped, told, errors, seen } = await pageExample(t, "worker");
  await page.click("#train");
  await stepped(20);
  expectFall(t, [...seen].join("\n"));
  await page.click("#pause");
  await told("Paused.");
  const points = () => page.$eval("#curve", ({ points }) => points.length);
  const before = await points();
  assert.ok(before >= 20, `the curve has ${before} points`);
  await page.click("#train");
  await stepped(before + 1);
  assert.ok((await points()) > before, "the curve goes on");
  const height = await page.$eval("#curve", ({ points }) => points[0].y);
  assert.ok(height < 0.1, `the first loss is drawn at ${height} of the height`);
  assert.deepEqual(errors, []);
});
