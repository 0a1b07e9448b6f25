// A panic is an error of every object of that instance of the module: none hangs, and the page, or the worker, goes on
// in a fresh instance.
// reads: tests/api/bodies tests/recovery
import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { told } from "../child.mjs";
import { longTest } from "../gate/core.mjs";
import { withPage } from "../lanes/harness.mjs";

/** What a host tells, and what it prints. */
async function answerOf(t, name) {
  const host = fileURLToPath(new URL(name, import.meta.url));
  const { messages, printed, code } = await told(host, { seconds: 110, signal: t.signal });
  assert.ok(messages.length > 0, printed || `the process said nothing and ended with ${code}`);
  return { answer: messages.at(-1), printed };
}

const LONG = { timeout: 120_000 };

/** Holds what `panicAndGoOn` tells to what a panic may do. */
function judge({ during, after, still, next, lost, ended, losses, again, ...told }) {
  const failed = during.filter(({ code }) => code !== "none");
  assert.ok(failed.length > 0, "no panic");
  for (const failure of [...failed, ...after, still]) {
    assert.equal(failure.name, "TinyloomError", JSON.stringify(failure));
    assert.equal(failure.code, "internal");
    assert.match(failure.message, /panicked at/);
    assert.match(failure.message, /Runtime\.create\(\)/, "how to go on");
  }
  assert.match(lost, /panicked at/, "runtime.lost settles");
  assert.equal(ended, "destroyed", "the device of the runtime that was destroyed");
  assert.equal(next.code, "none", "the fresh instance, beside the end of the other one's runtime");
  assert.deepEqual(again, { from: 4, losses }, "the run goes on to the bit");
  assert.ok(told.snapshots > 0, "snapshots");
  const { from, losses: rest } = told.fromSnapshot;
  assert.ok(from > 0, "the snapshot is of a step");
  assert.deepEqual(rest.slice(-losses.length), losses.slice(-rest.length), `from step ${from}`);
}

longTest("after a panic in a process it goes on in a fresh instance", LONG, async (t) => {
  const { answer, printed } = await answerOf(t, "panic-host.mjs");
  judge(answer);
  assert.match(printed, /panicked at [^\n]*\.rs:\d+/);
  assert.match(printed, /Stack:[\s\S]*wasm/);
});

/** In the page. */
async function panicInPage(base) {
  const tinyloom = await import(`${base}/pkg/index.js`);
  const internal = await import(`${base}/pkg/internal.js`);
  const { panicAndGoOn } = await import(`${base}/tests/recovery/panic-stage.mjs`);
  return panicAndGoOn({ ...tinyloom, internal }, navigator.gpu);
}

longTest("after a panic in a page it goes on in a fresh instance, without a reload", LONG, () =>
  withPage(
    "chromium",
    () => {},
    async (page, url) => judge(await page.evaluate(panicInPage, url)),
  ),
);

longTest(
  "a panic in a worker ends its calls, and the same worker or another one resumes to the bit",
  LONG,
  async (t) => {
    const { answer } = await answerOf(t, "panic-worker-host.mjs");
    const { during, after, same, loss, expected, step } = answer;
    assert.ok(during.includes("internal"), "no panic");
    const from = during.indexOf("internal");
    assert.deepEqual([...new Set(during.slice(from))], ["internal"], "calls behind the panic");
    assert.deepEqual([...new Set(during.slice(0, from))].join(), from > 0 ? "none" : "");
    assert.deepEqual(after, ["internal", "internal"]);
    assert.deepEqual(same, [2, expected], "in the same worker");
    assert.deepEqual([step, loss], [2, expected], "in another worker");
  },
);
