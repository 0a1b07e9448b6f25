// The page stays free while a worker trains, and a hidden tab goes on.
import assert from "node:assert/strict";
import { test } from "node:test";
import { withPage } from "../lanes/harness.mjs";

const LONG = { timeout: 1_200_000 };
/** No task of the main thread may take so long, in milliseconds. */
const TASK = 50;

/** In the page: what a frame sees while 200 steps are trained. */
async function frames(base, steps) {
  const { connect } = await import(`${base}/pkg/worker/index.js`);
  const { trainWithFrames } = await import(`${base}/tests/worker/bodies/frames.mjs`);
  return trainWithFrames(connect, steps);
}

for (const kind of ["chromium", "firefox"]) {
  test(`200 steps with a chart and a text field in use, in ${kind}`, LONG, (t) =>
    withPage(
      kind,
      () => {},
      async (page, url) => {
        const training = page.evaluate(frames, url, 200);
        let trained = false;
        training.finally(() => {
          trained = true;
        });
        await page.waitForSelector("#field");
        for (let typed = 0; !trained; typed++) {
          await page.keyboard.type("ab c"[typed % 4]);
          await new Promise((done) => setTimeout(done, 100));
        }
        const seen = await training;
        t.diagnostic(
          `longest task ${seen.measuresTasks ? `${seen.task || `below ${TASK}`} ms` : "not measured here"}, ` +
            `longest gap between frames ${Math.round(seen.gap)} ms, ${seen.frames} frames; timers waited ` +
            `${Math.round(seen.held)} ms at most for the page (${seen.when}), ${Math.round(seen.machine)} ms for page and machine`,
        );
        assert.equal(seen.steps, 200);
        assert.ok(seen.typed > 10, `${seen.typed} letters typed`);
        assert.equal(seen.measuresTasks, kind === "chromium");
        assert.ok(seen.task < TASK, `a task of ${seen.task} ms on the main thread`);
        assert.ok(seen.noticed > TASK, `a task of 150 ms on purpose: ${seen.noticed} ms noticed`);
        // Firefox does not report long tasks. A long task delays timers, so their delay is measured there.
        if (kind === "firefox") assert.ok(seen.held < TASK, `timers waited for ${seen.held} ms`);
      },
    ),
  );

  test(`a hidden tab goes on training, in ${kind}`, LONG, (t) =>
    withPage(
      kind,
      () => {},
      async (page, url) => {
        await page.evaluate(async (base) => {
          const tinyloom = await import(`${base}/pkg/index.js`);
          const { connect } = await import(`${base}/pkg/worker/index.js`);
          const { trainHidden } = await import(`${base}/tests/worker/bodies/frames.mjs`);
          await trainHidden(tinyloom, connect);
        }, url);
        const steps = () => page.evaluate(() => ({ ...globalThis.steps, hidden: document.hidden }));
        const reach = async (least) => {
          for (;;) {
            const now = await steps();
            assert.equal(now.failed, undefined);
            if (now.page >= least.page && now.worker >= least.worker) return now;
            await new Promise((done) => setTimeout(done, 200));
          }
        };
        await reach({ page: 2, worker: 2 });
        const other = await page.browser().newPage();
        await other.bringToFront();
        const before = await steps();
        assert.equal(before.hidden, true, "the page is hidden");
        const after = await reach({ page: before.page + 20, worker: before.worker + 20 });
        assert.equal(after.hidden, true, "the page was hidden all the while");
        t.diagnostic(`hidden: from ${JSON.stringify(before)} to ${JSON.stringify(after)}`);
      },
      { throttled: true },
    ),
  );
}
