// Runs the public-API test bodies in a browser or in Node with Dawn, each case as a subtest.
import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { target } from "../../scripts/lib.mjs";
import { told } from "../child.mjs";
import { everything } from "../draws.mjs";
import { withPage } from "../lanes/harness.mjs";
import { firstSeed, full, laneTimeout } from "../lanes/level.mjs";
import { BODIES } from "./bodies/run.mjs";

/**
 * Where a body runs, for `runBody`. At the full level it is left out, and each host runs every case. Otherwise
 * places.mjs has the host's cases; the seed draws among them, unless everything is to run.
 */
export const placeOf = (host) => (full ? {} : { host, ...(!everything && { turn: firstSeed }) });

/** Reports a body's results as subtests. */
async function report(t, body, results) {
  for (const { name, ok, detail, milliseconds } of results) {
    await t.test(`${body}: ${name}`, (sub) => {
      sub.diagnostic(`${milliseconds} ms${ok && detail ? `, ${detail}` : ""}`);
      assert.ok(ok, detail);
    });
  }
}

/** What Firefox logs of each text that it gets for a device that a body has just lost: two messages. */
const OF_LOST_DEVICES = [
  "Encountered one or more errors while creating shader module",
  "Parent device is lost",
];

const withoutLosses = (errors) =>
  errors.filter((text, at) => {
    const first = text === OF_LOST_DEVICES[1] ? at - 1 : at;
    const pair = errors[first]?.startsWith(OF_LOST_DEVICES[0]);
    return !(pair && errors[first + 1] === OF_LOST_DEVICES[1]);
  });

/** Bodies in a browser, as far as they have their place there. */
export function inBrowser(t, kind, bodies = BODIES) {
  const errors = [];
  const onConsole = (type, text) => {
    if (type === "error") errors.push(text);
  };
  return withPage(kind, onConsole, async (page, url) => {
    for (const body of bodies) {
      const results = await page.evaluate(
        async (base, body, place) => {
          const tinyloom = await import(`${base}/pkg/index.js`);
          const ops = await import(`${base}/pkg/ops.js`);
          const internal = await import(`${base}/pkg/internal.js`);
          const { runBody } = await import(`${base}/tests/pkg/bodies/run.mjs`);
          return runBody({ ...tinyloom, ops, internal }, navigator.gpu, body, place);
        },
        url,
        body,
        placeOf(kind),
      );
      await report(t, body, results);
    }
    assert.deepEqual(withoutLosses(errors), [], "the page's console has errors");
  });
}

/** Where the Node process keeps saved models. */
export const saved = join(target, "saved");

/** Bodies, as far as they have their place in Node, in a Node process of its own, with the environment that Dawn needs. */
export async function inNode(t, bodies = BODIES) {
  const host = fileURLToPath(new URL("node-host.mjs", import.meta.url));
  const cache = join(target, "cache");
  rmSync(cache, { recursive: true, force: true }); // what a run before has measured
  const { messages, printed, code } = await told(host, {
    args: [saved, JSON.stringify(placeOf("node")), ...bodies],
    env: { XDG_CACHE_HOME: cache },
    seconds: laneTimeout / 1000,
    signal: t.signal,
  });
  if (printed) process.stderr.write(printed);
  for (const { body, results } of messages) await report(t, body, results);
  assert.equal(code, 0, `the Node process ended with ${code}`);
  assert.equal(messages.length, bodies.length, "every body reported");
}
