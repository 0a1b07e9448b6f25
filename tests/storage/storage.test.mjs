// `tinyloom/storage`: on a folder in Node, and on the origin-private file system through `tinyloom/worker` in Firefox, or
// from the page in Chromium; a full quota; two tabs; tabs that are killed.
// reads: tests/api/bodies tests/storage tests/reliability
import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Runs } from "tinyloom/storage";
import { openPage } from "../../scripts/browser.mjs";
import { told } from "../child.mjs";
import { core, coreOf } from "../gate/core.mjs";
import { withPage } from "../lanes/harness.mjs";
import { seed } from "../lanes/level.mjs";
import { killTabs } from "../reliability/storage.mjs";

const LONG = { timeout: 1_200_000 };

async function report(t, results) {
  for (const { name, ok, detail, milliseconds } of results) {
    await t.test(name, (sub) => {
      sub.diagnostic(`${milliseconds} ms${ok && detail ? `, ${detail}` : ""}`);
      assert.ok(ok, detail);
    });
  }
  assert.ok(results.length >= 5, `${results.length} cases`);
}

/** Where runs are kept, and what ends a tab meanwhile: the core has the first. */
const PLACES = coreOf(["node", "chromium", "firefox", "killed tabs"], 4);
const BROWSERS = ["chromium", "firefox"];

async function inFolder(t) {
  const host = fileURLToPath(new URL("storage-node.mjs", import.meta.url));
  const { messages, printed, code } = await told(host, { signal: t.signal });
  assert.equal(code, 0, `the Node process ended with ${code}: ${printed}`);
  const [arrived] = messages;
  await report(t, arrived.results);
  assert.deepEqual(arrived.left, [], "files that are left when all runs are deleted");
}
if (PLACES.includes("node")) test("runs in a folder, in Node", LONG, inFolder);

/** In the page: every case. */
async function casesInPage(base, throughWorker, sample) {
  const { runStorage, originDisk } = await import(`${base}/tests/storage/bodies/storage.mjs`);
  const { connect } = await import(`${base}/pkg/worker/index.js`);
  const tinyloom = throughWorker
    ? await connect()
    : {
        ...(await import(`${base}/pkg/index.js`)),
        ...(await import(`${base}/pkg/storage/index.js`)),
      };
  const open = (name) => tinyloom.Runs.open(name);
  const where = "origin-private";
  return runStorage({ tinyloom, open, disk: originDisk, where, throughWorker, sample });
}

for (const kind of BROWSERS.filter((kind) => PLACES.includes(kind))) {
  // The page has asynchronous files, the worker synchronous ones; where the whole runs, both do in both.
  for (const throughWorker of !core ? [false, true] : [kind === "firefox"]) {
    const how = throughWorker ? "through tinyloom/worker" : "from the page";
    test(`runs in the origin's private file system, ${how}, in ${kind}`, LONG, (t) =>
      withPage(
        kind,
        () => {},
        async (page, url) => {
          await report(t, await page.evaluate(casesInPage, url, throughWorker, core));
        },
      ),
    );
  }
}

/** In the page: one checkpoint that fits, and then one that does not. */
async function fill(base, throughWorker) {
  const kit = await import(`${base}/tests/api/bodies/kit.mjs`);
  const { connect } = await import(`${base}/pkg/worker/index.js`);
  const tinyloom = throughWorker
    ? await connect()
    : {
        ...(await import(`${base}/pkg/index.js`)),
        ...(await import(`${base}/pkg/storage/index.js`)),
      };
  const runtime = await tinyloom.Runtime.create();
  const model = await tinyloom.Model.create(runtime, kit.config);
  const trainer = await tinyloom.Trainer.create(model, kit.trainerOptions);
  const data = await kit.dataset(tinyloom);
  const runs = await tinyloom.Runs.open(`full-${throughWorker}`);
  const run = await runs.create("one");
  const train = () =>
    kit.collect(trainer.run(data, { steps: 1, checkpoint: { run, keep: 2 } })).then(
      () => "saved",
      ({ code, message }) => `${code}: ${message}`,
    );
  const first = await train();
  globalThis.more = async () => {
    const said = await train();
    const whole = (await run.checkpoints()).map(({ step }) => step);
    const resumed = await tinyloom.Trainer.resume(runtime, run);
    return { said, whole, steps: resumed.steps, problems: run.problems };
  };
  return { first, usage: (await navigator.storage.estimate()).usage };
}

test("a full quota is told, and the checkpoint before loads", LONG, () =>
  withPage(
    "chromium",
    () => {},
    async (page, url) => {
      const session = await page.createCDPSession();
      for (const throughWorker of [false, true]) {
        await session.send("Storage.overrideQuotaForOrigin", { origin: url });
        const { first, usage } = await page.evaluate(fill, url, throughWorker);
        assert.equal(first, "saved");
        await session.send("Storage.overrideQuotaForOrigin", {
          origin: url,
          quotaSize: usage + 300_000,
        });
        // Chromium's estimate does not tell the real quota, so here the write itself fails.
        const failed = await page.evaluate(() => globalThis.more());
        assert.match(failed.said, /^storage-full: .*no room left/);
        assert.deepEqual([failed.whole, failed.steps, failed.problems], [[1], 1, []]);
        if (throughWorker) continue;
        await page.evaluate(() => {
          navigator.storage.estimate = async () => ({ usage: 900_000, quota: 1_000_000 });
        });
        const judged = await page.evaluate(() => globalThis.more());
        assert.match(judged.said, /^storage-full: a checkpoint of \d+ bytes does not fit/);
        assert.deepEqual([judged.whole, judged.steps, judged.problems], [[1], 1, []]);
        await page.reload();
      }
    },
  ),
);

/** In a tab: opens the run that both want. */
async function openShared(base) {
  const { Runs } = await import(`${base}/pkg/storage/index.js`);
  const runs = await Runs.open("tabs");
  const there = (await runs.list()).length > 0;
  const opening = there ? runs.open("shared") : runs.create("shared");
  return opening.then(
    (run) => {
      globalThis.run = run;
      return "opened";
    },
    ({ code, message }) => `${code}: ${message}`,
  );
}

for (const kind of coreOf(BROWSERS, 2)) {
  test(`of two tabs the second is told, in ${kind}`, LONG, () =>
    withPage(
      kind,
      () => {},
      async (page, url) => {
        const second = await openPage(page.browser(), page.url());
        assert.equal(await page.evaluate(openShared, url), "opened");
        assert.match(await second.evaluate(openShared, url), /^in-use: .*another tab/);
        await page.evaluate(() => globalThis.run.close());
        assert.equal(await second.evaluate(openShared, url), "opened");
        await second.close();
        assert.equal(
          await page.evaluate(openShared, url),
          "opened",
          "after the other tab was closed",
        );
      },
    ),
  );
}

async function goesOn(t) {
  const count = core ? 1 : 3; // `npm run reliability -- storage` kills 50
  const { kills, halfWritten } = await killTabs({ count, seed, steps: core ? 20 : 60 });
  t.diagnostic(`seed ${seed}: ${kills.length} kills, ${halfWritten} of them within a checkpoint`);
  assert.equal(kills.length, count);
  for (const { wrong } of kills) assert.equal(wrong, undefined);
}
if (PLACES.includes("killed tabs"))
  test("tabs killed while they save go on from a whole checkpoint", LONG, goesOn);

test("the folder of runs is a path or a file: URL", async () => {
  const root = mkdtempSync(join(tmpdir(), "tinyloom-folder-"));
  const before = readdirSync(process.cwd());
  const wrong = ["", `https://example.com${root}/web`, new URL(`https://example.com${root}/web`)];
  for (const folder of [...wrong, `file://host${root}/host`, 3, null]) {
    await assert.rejects(Runs.open("app", { folder }), (error) => {
      assert.equal(error.name, "TinyloomError");
      assert.equal(error.code, "invalid-options");
      assert.match(error.message, /folder.*file: URL/);
      return true;
    });
  }
  await Runs.open("app", { folder: `file://${root}/a%20b` });
  await Runs.open("app", { folder: new URL(`file://${root}/c`) });
  await Runs.open("app", { folder: join(root, "d") });
  assert.deepEqual(readdirSync(root).sort(), ["a b", "c", "d"]);
  assert.deepEqual(readdirSync(process.cwd()), before);
  rmSync(root, { recursive: true });
});
