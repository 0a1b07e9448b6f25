// The demo page in a browser whose worker has no WebGPU: the recording plays.
// reads: www
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { launch } from "../../scripts/browser.mjs";
import { root } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/server.mjs";
import { Demo, within } from "./demo-page.mjs";

const dist = join(root, "www", "dist");
/** Seconds that a call of the page may take. */
const CALL = 120;

/**
 * Opens the page.
 *
 * @param hash - the part of the address behind the `#`, with it.
 * @param others - what the server gives instead of some of the page's files, by path.
 */
export async function openWithoutGpu(t, hash = "", others = {}) {
  const worker = readdirSync(join(dist, "assets")).find((name) => name.startsWith("model-worker-"));
  const without = "delete WorkerNavigator.prototype.gpu;\n";
  const code = Buffer.concat([Buffer.from(without), readFileSync(join(dist, "assets", worker))]);
  const server = await serve({ "/": dist, [`/assets/${worker}`]: code, ...others });
  t.after(() => server.close());
  const browser = await launch("chromium", { seconds: CALL });
  t.after(() => browser.close());
  const demo = await within(CALL, "page", Demo.open(browser, `${server.url}/${hash}`));
  await demo.page.waitForSelector('[data-gpu="none"][data-state="error"]', { timeout: 60_000 });
  return { demo, server, browser };
}

/** Waits until something holds; that there is no GPU is no failure here. */
export async function untilHolds(what, condition, seconds = 60) {
  const end = Date.now() + seconds * 1000;
  while (!(await condition())) {
    assert.ok(Date.now() < end, `no ${what} within ${seconds} s`);
    await new Promise((turn) => setTimeout(turn, 100));
  }
}
