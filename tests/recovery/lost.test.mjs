// The GPU process dies: work goes on by itself; without recovery calls fail with code "device-lost", `lost`
// settles, and a new runtime goes on.
// reads: tests/api/bodies tests/recovery tests/reliability
import assert from "node:assert/strict";
import { test } from "node:test";
import { withPage } from "../lanes/harness.mjs";
import { crashGpu, loseInBrowser, TINY } from "../reliability/lost.mjs";

/** In the page: makes what will be lost, and a save from before. */
async function prepare(base) {
  const tinyloom = await import(`${base}/pkg/index.js`);
  const kit = await import(`${base}/tests/api/bodies/kit.mjs`);
  const runtime = await tinyloom.Runtime.create({ recover: false });
  const model = await tinyloom.Model.create(runtime, kit.config, { seed: 1 });
  const trainer = await tinyloom.Trainer.create(model, { tokensPerStep: 16 });
  await trainer.step(kit.batch(16));
  const files = await trainer.save();
  const lost = runtime.lost.then((info) => {
    globalThis.lostInfo = info;
  });
  globalThis.before = { tinyloom, kit, model, trainer, files, lost };
}

/** In the page: what every call gives once the device is gone, and how a new runtime goes on. */
async function observe() {
  const { tinyloom, kit, model, trainer, files, lost } = globalThis.before;
  await lost;
  const code = (promise) =>
    promise.then(
      () => "nothing",
      (error) => `${error.name} ${error.code}`,
    );
  const codes = {
    logits: await code(model.logits([1, 2])),
    generate: await code(model.generate([1, 2]).next()),
    save: await code(model.save()),
    step: await code(trainer.step(kit.batch(16))),
    gradients: await code(trainer.gradients()),
    create: await code(tinyloom.Trainer.create(model, { tokensPerStep: 16 })),
  };
  model.free();
  const runtime = await tinyloom.Runtime.create();
  const resumed = await tinyloom.Trainer.resume(runtime, files);
  const { step } = await resumed.step(kit.batch(16));
  runtime.destroy();
  return { codes, step, info: globalThis.lostInfo };
}

test("work goes on by itself when the GPU process is killed", { timeout: 600_000 }, async (t) => {
  const { rows } = await loseInBrowser("chromium", {
    kills: true,
    count: 1,
    seed: 5,
    operations: ["run"],
    parts: { ...TINY, steps: 5 },
  });
  for (const { operation, wrong, ...row } of rows) {
    assert.equal(wrong, undefined, operation);
    t.diagnostic(`${operation}: ${JSON.stringify(row)}`);
  }
});

test(
  "without recovery a lost device is reported, and a new runtime resumes",
  { timeout: 600_000 },
  () =>
    withPage(
      "chromium",
      () => {},
      async (page, url) => {
        await page.evaluate(prepare, url);
        const session = await page.browser().target().createCDPSession();
        await crashGpu(session);
        const { codes, step, info } = await page.evaluate(observe);
        for (const [call, code] of Object.entries(codes)) {
          assert.equal(code, "TinyloomError device-lost", call);
        }
        assert.ok(info.reason && info.message, `lost settled with ${JSON.stringify(info)}`);
        assert.equal(step, 2, "the run goes on from the save");
      },
    ),
);

/** In the page: makes a runtime and keeps the end of its device. */
async function begin(base) {
  const { Runtime } = await import(`${base}/pkg/index.js`);
  const runtime = await Runtime.create({ recover: false });
  globalThis.next = { Runtime, lost: runtime.lost };
}

/** In the page: once the device is gone, what a new runtime gives. */
async function retry() {
  const { Runtime, lost } = globalThis.next;
  await lost;
  return Runtime.create().then(
    () => "a runtime",
    (error) => `${error.code}: ${error.message}`,
  );
}

test(
  "where the browser gives no adapter after crashes, the advice is to wait",
  {
    timeout: 600_000,
  },
  () =>
    withPage(
      "chromium",
      () => {},
      async (page, url) => {
        // Chromium blocks a site whose GPU was lost twice within two minutes.
        const session = await page.browser().target().createCDPSession();
        let said = "a runtime";
        for (let crash = 1; crash <= 4 && said === "a runtime"; crash++) {
          await page.evaluate(begin, url);
          await crashGpu(session);
          said = await page.evaluate(retry);
        }
        assert.match(said, /^adapter-unavailable: .*lost.*two minutes.*reload the page/);
        assert.doesNotMatch(said, /settings|driver/);
      },
    ),
);
