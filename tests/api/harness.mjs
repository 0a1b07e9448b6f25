// Runs the public-API test bodies in a browser or in Node with Dawn, each case as a subtest.
import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { target } from "../../scripts/lib.mjs";
import { told } from "../child.mjs";
import { Kernels } from "../gate/made.mjs";
import { watch } from "../gate/record.mjs";
import { withPage } from "../lanes/harness.mjs";
import { laneTimeout } from "../lanes/level.mjs";

/** Reports a body's results as subtests, and gives whether all passed. */
async function report(t, body, results) {
  for (const { name, ok, detail, milliseconds } of results) {
    await t.test(`${body}: ${name}`, (sub) => {
      sub.diagnostic(`${milliseconds} ms${ok && detail ? `, ${detail}` : ""}`);
      assert.ok(ok, detail);
    });
  }
  return results.every(({ ok }) => ok);
}

/** What Firefox logs of each text that it gets for a device that a body has just lost: two messages. */
const OF_LOST_DEVICES = [
  "Encountered one or more errors while creating shader module",
  "Parent device is lost",
];

/** What Chromium logs of a file that need not be there, such as generation_config.json: a page cannot keep it from that. */
const MISSING = "Failed to load resource: the server responded with a status of 404";

const withoutLosses = (errors) =>
  errors.filter((text, at) => {
    const first = text === OF_LOST_DEVICES[1] ? at - 1 : at;
    const pair = errors[first]?.startsWith(OF_LOST_DEVICES[0]);
    return !(pair && errors[first + 1] === OF_LOST_DEVICES[1]);
  });

/**
 * Code for a page that keeps the texts of the kernels that it dispatches. `takeKernels()` gives those since the last call,
 * or nothing where there was a worker, which nobody watches.
 */
const watching = (watch) => `{
  let [texts, known] = [[], true];
  const forget = (${watch})(globalThis, (kernel) => texts.push(kernel));
  globalThis.Worker = class extends Worker {
    constructor(...given) {
      super(...given);
      known = false;
    }
  };
  globalThis.takeKernels = () => {
    const taken = known ? texts : undefined;
    [texts, known] = [[], true];
    forget();
    return taken;
  };
}`;

/**
 * Runs bodies in a browser.
 *
 * @param bodies - `[{ name, core }]`.
 * @param passed - hears of each body that passed, and of the kernels that it dispatched, where they are known.
 */
export function inBrowser(t, kind, bodies, passed = () => {}) {
  const errors = [];
  const onConsole = (type, text) => {
    if (type === "error" && !text.startsWith(MISSING)) errors.push(text);
  };
  return withPage(kind, onConsole, async (page, url) => {
    const kernels = new Kernels();
    await page.evaluate(watching(watch));
    for (const { name: body, core } of bodies) {
      const results = await page.evaluate(
        async (base, body, place) => {
          const tinyloom = await import(`${base}/pkg/index.js`);
          const ops = await import(`${base}/pkg/ops.js`);
          const align = await import(`${base}/pkg/align/index.js`);
          const { stored } = await import(`${base}/pkg/stored-runs.js`);
          const internal = { ...(await import(`${base}/pkg/internal.js`)), stored };
          const { runBody } = await import(`${base}/tests/api/bodies/run.mjs`);
          return runBody({ ...tinyloom, ops, align, internal }, navigator.gpu, body, place);
        },
        url,
        body,
        { host: kind, core },
      );
      const ok = await report(t, body, results);
      const said = withoutLosses(errors);
      assert.deepEqual(said, [], "the page's console has errors");
      const texts = await page.evaluate(() => globalThis.takeKernels());
      if (ok) passed(body, texts && kernels.of(texts));
    }
  });
}

/** Where the Node process keeps saved models. */
export const saved = join(target, "saved");

/** Runs bodies in a Node process of its own, with the environment that Dawn needs. Options as for `inBrowser`. */
export async function inNode(t, bodies, passed = () => {}) {
  const host = fileURLToPath(new URL("node-host.mjs", import.meta.url));
  const cache = join(target, "cache");
  rmSync(cache, { recursive: true, force: true }); // what a run before has measured
  const { messages, printed, code } = await told(host, {
    args: [saved, JSON.stringify(bodies)],
    env: { XDG_CACHE_HOME: cache },
    seconds: laneTimeout / 1000,
    signal: t.signal,
    onMessage({ body, results, kernels }) {
      if (results.every(({ ok }) => ok)) passed(body, kernels);
    },
  });
  if (printed) process.stderr.write(printed);
  for (const { body, results } of messages) await report(t, body, results);
  assert.equal(code, 0, `the Node process ended with ${code}`);
  assert.equal(messages.length, bodies.length, "every body reported");
}
