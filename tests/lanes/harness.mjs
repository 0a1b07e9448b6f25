// Runs the kernel tests, compiled to wasm with the feature `testing`, in a browser.
import assert from "node:assert/strict";
import { join } from "node:path";
import { launch, openPage } from "../../scripts/browser.mjs";
import { root, target } from "../../scripts/lib.mjs";
import { softwareOnly } from "../../scripts/machine.mjs";
import { serve } from "../../scripts/server.mjs";
import { openCases } from "./cases.mjs";
import { endProgress, full, ofShard, seed, showProgress } from "./level.mjs";

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
 * Runs the cases on each device of a browser's adapter, as far as their keys ask for it, and fails with the list of
 * those that failed: a subtest per device.
 *
 * @param t - the test's context; cases and pipelines are printed as its subtests' diagnostics.
 * @param browser - the browser's kind.
 * @param devices - `[{ name, options, expect }]`: the runtime's options, and what its capabilities must
 *   have, so that a device never runs as another by accident. What a device has run, those after it
 *   do not run again.
 */
export async function runLane(t, browser, devices) {
  const problems = [];
  const onConsole = (type, text) => {
    if ((type === "error" || type === "warn") && !text.includes(WRONG_ON_PURPOSE))
      problems.push(text);
  };
  // A software adapter compiles on one thread of each browser's: two browsers share the cases.
  const browsers = softwareOnly() ? 2 : 1;
  const share = { reports: devices.map(() => []), taken: 0, pages: [] };
  const ready = Array.from({ length: browsers }, () => deferred());
  const opened = await Promise.all(
    ready.map((own) =>
      withPage(browser, onConsole, async (page, url) => {
        const call = caller(page, url);
        const options = devices.map((device) => device.options);
        const { capabilities, names } = await call("open", url, options, full);
        for (const [at, device] of devices.entries()) checkFeatures(device, capabilities[at]);
        share.pages.push(call);
        own.resolve();
        await Promise.all(ready.map(({ promise }) => promise));
        share.opened ??= openCases(browser, names, (mine) => listIn(share.pages, mine));
        share.cases = await share.opened;
        await takeCases(browser, call, share, problems);
        return capabilities;
      }).catch((error) => {
        own.reject(error); // the other page waits no longer
        throw error;
      }),
    ),
  );
  endProgress();
  const { run, left, ended } = share.cases;
  t.diagnostic(
    `${run.length} cases ran; ${left} have not passed whole: npm run test:rest -- lanes`,
  );
  for (const [index, device] of devices.entries()) {
    const report = { capabilities: opened[0][index], cases: share.reports[index] };
    await t.test(device.name, (sub) => checkReport(sub, device, report, problems, run.length));
  }
  assert.deepEqual(problems, [], "the page's console has errors");
  ended();
}

/** A promise that is settled from outside. */
function deferred() {
  const made = {};
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }));
  made.promise.catch(() => {});
  return made;
}

/** What calls a function of lane.mjs in a page. */
const caller =
  (page, url) =>
  (name, ...args) =>
    page.evaluate(
      async (base, name, args) => (await import(`${base}/tests/lanes/lane.mjs`))[name](...args),
      url,
      name,
      args,
    );

/** Lists cases, each page every so-manieth of them. */
async function listIn(pages, names) {
  const lists = await Promise.all(
    pages.map((call, index) => call("listCases", ofShard(names, [index + 1, pages.length]), seed)),
  );
  return names.map((_, i) => lists[i % pages.length][Math.floor(i / pages.length)]);
}

/** Runs cases that no other page has taken, until none is left or a device is lost. */
async function takeCases(browser, call, share, problems) {
  const { run, passed } = share.cases;
  while (share.taken < run.length && !share.lost) {
    const { name, core } = run[share.taken++];
    showProgress(browser, `${share.taken}/${run.length} ${name}`);
    const before = problems.length;
    const reports = await call("runCase", name, core ? "own" : "run", seed);
    for (const [at, report] of reports.entries()) {
      share.reports[at].push(report);
      share.lost ??= report.lost;
    }
    const quiet = problems.length === before;
    if (quiet && reports.every(({ ok, lost }) => ok && !lost)) passed(name);
  }
}

function checkFeatures({ name, expect = {} }, { features }) {
  for (const [feature, wanted] of Object.entries(expect))
    assert.equal(features[feature], wanted, `lane ${name} needs ${feature}: ${wanted}`);
}

function checkReport(t, { name }, { capabilities, cases }, problems, wantedCases) {
  const failed = cases.filter((one) => !one.ok);
  const { vendor, architecture, description } = capabilities.adapter;
  const adapter = [vendor, architecture, description].filter(Boolean).join(" ") || "(unnamed)";
  t.diagnostic(`${name}: ${cases.length} cases, ${failed.length} failed, adapter ${adapter}`);
  for (const line of account(cases)) t.diagnostic(`${name}: ${line}`);
  const lost = cases.find((one) => one.lost)?.lost;
  assert.equal(lost, undefined, `the device was lost: ${JSON.stringify(lost)}`);
  const list = failed.map((one) => `${one.name}: ${one.detail}`).join("\n");
  assert.equal(
    failed.length,
    0,
    `${failed.length} of ${cases.length} cases failed:\n${list}\n${problems.join("\n")}`,
  );
  assert.equal(cases.length, wantedCases, "cases that did not run");
  assert.equal(new Set(cases.map((one) => one.name)).size, cases.length, "a case ran twice");
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
