// The first visit, in a real browser: how many bytes it takes up to the first step of its own, and whether what is
// shown stays where it is.
// reads: www
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { launch, openPage } from "../../scripts/browser.mjs";
import { root } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/server.mjs";
import { CALL, DESKTOP, PHONE, sleep } from "./demo-page.mjs";

const dist = join(root, "www", "dist");
/**
 * Bytes on the wire up to the first step, without the recording, and those of the recording. The wasm module, which has
 * a budget of its own, is 700,000 of them at most.
 */
const [MOST, RECORDING] = [900_000, 1_000_000];
/** The largest shift of the layout that counts as none. */
const SHIFT = 0.1;
/** Seconds of training that are watched. */
const WATCHED = 15;

/** Opens the page in a window of that size. Its shifts are summed as browsers do: in windows of five seconds at most. */
async function open(browser, url, viewport) {
  const blank = await openPage(browser, "about:blank");
  await blank.setViewport(viewport);
  await blank.evaluateOnNewDocument(() => {
    globalThis.shifts = [];
    new PerformanceObserver((list) => {
      for (const { value, hadRecentInput, startTime, sources } of list.getEntries()) {
        if (hadRecentInput) continue;
        const what = sources.map(({ node }) => node?.id || node?.className || node?.nodeName);
        globalThis.shifts.push({ value, at: startTime, what: what.join(" ") });
      }
    }).observe({ type: "layout-shift", buffered: true });
    const own = '[data-state="training"] #step:not([data-value=""], [data-value="0"])';
    new MutationObserver((_, observer) => {
      if (!document.querySelector(own)) return;
      globalThis.firstStep = Date.now();
      observer.disconnect();
    }).observe(document, { subtree: true, attributeFilter: ["data-state", "data-value"] });
  });
  await blank.goto(url, { waitUntil: "load" });
  await blank.waitForFunction(() => globalThis.firstStep !== undefined, { timeout: 120_000 });
  return blank;
}

/** The largest sum of shifts that lie less than a second apart, within five seconds. */
function largest(shifts) {
  let [most, sum, first, last] = [0, 0, 0, Number.NEGATIVE_INFINITY];
  for (const { value, at } of shifts) {
    if (at - last > 1000 || at - first > 5000) [sum, first] = [0, at];
    sum += value;
    last = at;
    most = Math.max(most, sum);
  }
  return most;
}

async function stays(t, page, name) {
  await sleep(WATCHED * 1000);
  const shifts = await page.evaluate(() => globalThis.shifts);
  const sum = largest(shifts);
  const worst = shifts.toSorted((a, b) => b.value - a.value).slice(0, 3);
  t.diagnostic(`${name}: shifts of ${sum.toFixed(3)}; ${JSON.stringify(worst)}`);
  assert.ok(sum < SHIFT, `${name}: ${JSON.stringify(worst)}`);
}

/** A phone's first screen has the sentence, the weave and the field, above the line at its lower edge. */
async function fits(page) {
  const low = await page.evaluate(() => {
    const edge = document.getElementById("ticker").getBoundingClientRect().top;
    return [...document.querySelectorAll("#sentence, #loom-canvas, #loom-word")]
      .filter((one) => one.getBoundingClientRect().bottom > edge)
      .map(({ id }) => id);
  });
  assert.deepEqual(low, [], "what is below a phone's first screen while a model trains");
}

test("the first visit is small, and what it shows stays where it is", {
  timeout: 400_000,
}, async (t) => {
  const asked = new Map();
  const onRequest = ({ url }) => {
    const { pathname } = new URL(url, "http://localhost");
    if (!asked.has(pathname)) asked.set(pathname, Date.now());
  };
  const server = await serve({ "/": dist }, { onRequest });
  t.after(() => server.close());
  const browser = await launch("chromium", { seconds: CALL });
  t.after(() => browser.close());
  const page = await open(browser, `${server.url}/`, DESKTOP);
  const firstStep = await page.evaluate(() => globalThis.firstStep);
  const taken = [...asked].flatMap(([path, at]) => (at <= firstStep ? [path] : []));
  assert.ok(!taken.includes("/service-worker.js"), "what comes later waits for the first run");
  const sizes = taken.flatMap((path) => {
    const file = path === "/" ? "index.html" : path.slice(1);
    if (file === "favicon.ico") return [];
    return [[file, gzipSync(readFileSync(join(dist, file))).length]];
  });
  const sum = (wanted) =>
    sizes
      .filter(([file]) => /recorded-/.test(file) === wanted)
      .reduce((all, [, size]) => all + size, 0);
  t.diagnostic(`${sum(false)} bytes up to the first step, and ${sum(true)} of the recording`);
  assert.ok(sum(false) < MOST, JSON.stringify(sizes.toSorted(([, a], [, b]) => b - a).slice(0, 6)));
  assert.ok(sum(true) < RECORDING);
  const [recording, rest] = await page.evaluate(() => {
    const all = performance.getEntriesByType("resource");
    return [/recorded-/, /page-.*\.js/].map(
      (is) => all.find(({ name }) => is.test(name)).startTime,
    );
  });
  assert.ok(
    recording < rest + 20,
    `the recording is asked for at ${recording} ms, not after ${rest}`,
  );
  await stays(t, page, "desktop");
  await page.close();
  const phone = await open(browser, `${server.url}/`, PHONE);
  await fits(phone);
  await stays(t, phone, "phone");
});
