// Runs the kernel tests, compiled to wasm with the feature `testing`, in a browser.
import assert from "node:assert/strict";
import { join } from "node:path";
import { launch, openPage } from "../../scripts/browser.mjs";
import { root, target } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/server.mjs";
import { endProgress, full, shard, showProgress, wanted } from "./level.mjs";

const BLANK = Buffer.from(
  '<!doctype html><link rel="icon" href="data:,"><title>tinyloom tests</title>',
);
const PROGRESS = "lane-progress ";

/**
 * Runs work with a page of that browser that can import from /tests, /testing and /pkg.
 *
 * @param options - of `launch`.
 */
export async function withPage(kind, onConsole, work, options = {}) {
  const server = await serve({
    "/blank.html": BLANK,
    "/tests": join(root, "tests"),
    "/testing": join(target, "testing-wasm"),
    "/pkg": join(root, "pkg", "dist"),
  });
  try {
    const browser = await launch(kind, options);
    try {
      const page = await openPage(browser, `${server.url}/blank.html`, onConsole);
      return await work(page, server.url);
    } finally {
      await browser.close();
    }
  } finally {
    await server.close();
  }
}

/**
 * Runs every case of a lane and fails with the list of those that failed.
 *
 * @param t - the test's context; cases and pipelines are printed as its diagnostic.
 * @param lane - `{ name, browser, options, expect }`: the runtime's options, and what its
 *   capabilities must have, so that a lane never runs as another by accident.
 */
export async function runLane(t, { name, browser, options, expect = {} }) {
  const began = Date.now();
  const problems = [];
  const onConsole = (type, text) => {
    if (text.startsWith(PROGRESS)) showProgress(name, text.slice(PROGRESS.length));
    else if (type === "error" || type === "warn") problems.push(text);
  };
  const report = await withPage(browser, onConsole, (page, url) =>
    page.evaluate(
      async (base, ...args) =>
        (await import(`${base}/tests/lanes/lane.mjs`)).runCases(base, ...args),
      url,
      options,
      full,
      shard,
      wanted,
    ),
  );
  endProgress();
  const { capabilities, cases, lost } = report;
  const failed = cases.filter((one) => !one.ok);
  const pipelines = cases.reduce((sum, one) => sum + (one.pipelines ?? 0), 0);
  const seconds = Math.round((Date.now() - began) / 1000);
  const adapter = [
    capabilities.adapter.vendor,
    capabilities.adapter.architecture,
    capabilities.adapter.description,
  ];
  t.diagnostic(
    `${name}: ${cases.length} cases, ${failed.length} failed, ${pipelines} pipelines compiled, ${seconds} s, ` +
      `adapter ${adapter.filter(Boolean).join(" ") || "(unnamed)"}`,
  );
  const slowest = cases
    .toSorted((a, b) => (b.milliseconds ?? 0) - (a.milliseconds ?? 0))
    .slice(0, 5)
    .map((one) => `${one.name} ${Math.round((one.milliseconds ?? 0) / 1000)} s`);
  t.diagnostic(`${name}: slowest cases: ${slowest.join("; ")}`);
  for (const [feature, wanted] of Object.entries(expect)) {
    assert.equal(
      capabilities.features[feature],
      wanted,
      `lane ${name} needs ${feature}: ${wanted}`,
    );
  }
  assert.ok(cases.length > 0, `lane ${name} has no case`);
  assert.equal(lost, undefined, `the device was lost: ${lost}`);
  const list = failed.map((one) => `${one.name}: ${one.detail}`).join("\n");
  assert.equal(
    failed.length,
    0,
    `${failed.length} of ${cases.length} cases failed:\n${list}\n${problems.join("\n")}`,
  );
  assert.deepEqual(problems, [], "the page's console has errors");
}
