// Runs the kernel tests, compiled to wasm with the feature `testing`, in a browser.
import assert from "node:assert/strict";
import { join } from "node:path";
import { launch, openPage } from "../../scripts/browser.mjs";
import { root, target } from "../../scripts/lib.mjs";
import { softwareOnly } from "../../scripts/machine.mjs";
import { serve } from "../../scripts/server.mjs";
import { ofShard } from "./lane.mjs";
import { endProgress, firstSeed, full, shard, showProgress, wanted } from "./level.mjs";

const BLANK = Buffer.from(
  '<!doctype html><link rel="icon" href="data:,"><title>tinyloom tests</title>',
);
/** The label of a text that a case gives to be refused: Firefox logs what it refuses. */
const WRONG_ON_PURPOSE = "wrong on purpose";
/** Cases to name with their times. */
const SLOWEST = 20;

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
 * Runs every case on each device of a browser's adapter, and fails with the list of those that failed:
 * a subtest per device.
 *
 * @param t - the test's context; cases and pipelines are printed as its subtests' diagnostics.
 * @param browser - the browser's kind.
 * @param devices - `[{ name, options, expect }]`: the runtime's options, and what its capabilities must
 *   have, so that a device never runs as another by accident. What a device has run, those after it
 *   do not run again.
 * @param others - what to do with the kernels that selection returns for other adapters, as in lane.mjs;
 *   at the full level all of them run.
 */
export async function runLane(t, browser, devices, others = "run") {
  const problems = [];
  const onConsole = (type, text) => {
    if ((type === "error" || type === "warn") && !text.includes(WRONG_ON_PURPOSE))
      problems.push(text);
  };
  // A software adapter compiles on one thread of each browser's: two browsers share the cases.
  const browsers = softwareOnly() ? 2 : 1;
  const share = {
    others: full || wanted ? "run" : others,
    taken: 0,
    reports: devices.map(() => []),
  };
  const opened = await Promise.all(
    Array.from({ length: browsers }, () =>
      withPage(browser, onConsole, (page, url) => takeCases(browser, page, url, devices, share)),
    ),
  );
  endProgress();
  for (const [index, device] of devices.entries()) {
    const report = { capabilities: opened[0][index], cases: share.reports[index] };
    await t.test(device.name, (sub) => checkReport(sub, device, report, problems));
  }
  assert.deepEqual(problems, [], "the page's console has errors");
}

/**
 * Runs cases that no other page has taken, until none is left or a device is lost. Gives each device's
 * capabilities.
 */
async function takeCases(browser, page, url, devices, share) {
  const options = devices.map((device) => device.options);
  const call = (name, ...args) =>
    page.evaluate(
      async (base, name, args) => (await import(`${base}/tests/lanes/lane.mjs`))[name](...args),
      url,
      name,
      args,
    );
  const { capabilities, names } = await call("open", url, options, full);
  const mine = ofShard(
    names.filter((name) => name.includes(wanted)),
    shard,
  );
  while (share.taken < mine.length && !share.lost) {
    const name = mine[share.taken];
    const seed = firstSeed + share.taken++;
    showProgress(browser, `${share.taken}/${mine.length} ${name}`);
    for (const [index, report] of (await call("runCase", name, share.others, seed)).entries()) {
      share.reports[index].push(report);
      share.lost ??= report.lost;
    }
  }
  return capabilities;
}

function checkReport(t, { name, expect = {} }, { capabilities, cases: all }, problems) {
  const cases = all.filter((one) => !one.skipped);
  const failed = cases.filter((one) => !one.ok);
  const { vendor, architecture, description } = capabilities.adapter;
  const adapter = [vendor, architecture, description].filter(Boolean).join(" ") || "(unnamed)";
  t.diagnostic(`${name}: ${cases.length} cases, ${failed.length} failed, adapter ${adapter}`);
  for (const who of ["another device", "other lanes"]) {
    const left = all.filter((one) => one.skipped === who).length;
    if (left > 0) t.diagnostic(`${name}: ${left} cases were left to ${who}`);
  }
  for (const line of account(cases)) t.diagnostic(`${name}: ${line}`);
  for (const [feature, wanted] of Object.entries(expect)) {
    assert.equal(
      capabilities.features[feature],
      wanted,
      `lane ${name} needs ${feature}: ${wanted}`,
    );
  }
  assert.ok(cases.length > 0, `lane ${name} has no case`);
  assert.equal(new Set(cases.map((one) => one.name)).size, cases.length, "a case ran twice");
  const lost = cases.find((one) => one.lost)?.lost;
  assert.equal(lost, undefined, `the device was lost: ${JSON.stringify(lost)}`);
  const list = failed.map((one) => `${one.name}: ${one.detail}`).join("\n");
  assert.equal(
    failed.length,
    0,
    `${failed.length} of ${cases.length} cases failed:\n${list}\n${problems.join("\n")}`,
  );
}

/** What the cases ran, and where the time went. */
function account(cases) {
  const sum = (key) => cases.reduce((total, one) => total + (one[key] ?? 0), 0);
  const seconds = (milliseconds) => (milliseconds / 1000).toFixed(1);
  const slowest = cases
    .toSorted((a, b) => (b.milliseconds ?? 0) - (a.milliseconds ?? 0))
    .slice(0, SLOWEST)
    .map((one) => {
      const { milliseconds = 0, compiling = 0, running = 0, pipelines = 0 } = one;
      const parts = `${seconds(compiling)} ${seconds(running)} ${pipelines}`;
      return `${seconds(milliseconds)} ${parts} ${one.name}`;
    });
  return [
    `${sum("pipelines")} pipelines compiled; kernels ran ${sum("jobs") - sum("known")} times, and ` +
      `${sum("known")} times the adapter had run the same text on the same operands; ` +
      `${sum("unrun")} texts checked, and not run`,
    `${seconds(sum("milliseconds"))} s, of which kernels by themselves took ` +
      `${seconds(sum("compiling"))} s to compile and ${seconds(sum("running"))} s to run`,
    "slowest cases (seconds, compiling, running, pipelines):",
    ...slowest,
  ];
}
