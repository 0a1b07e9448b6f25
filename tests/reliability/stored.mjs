// Stored runs whose files are damaged or lost, whose writes fail, and which two tabs want: each file of a run in turn, in
// Node and in both browsers, and the writes also in a worker. `npm run reliability -- stored` keeps the result of each
// host.
import { fork } from "node:child_process";
import { join } from "node:path";
import { openPage } from "../../scripts/browser.mjs";
import { dawnEnv, findBrowser } from "../../scripts/machine.mjs";
import { withPage } from "../lanes/harness.mjs";
import { numbers } from "../random.mjs";
import { adapterName, keep } from "./results.mjs";

/** Times that each file has a bit flipped, and its end cut off. */
const TIMES = 8;
/** Quotas of Chromium that a checkpoint meets. */
const QUOTAS = 20;
/** A browser's name alone is its page, where files are written by streams. */
const HOSTS = ["node", "chromium", "chromium-worker", "firefox", "firefox-worker"];
/** Milliseconds that Node may take. */
const LONGEST = 600_000;

/** In Node with Dawn. */
async function inNode(task) {
  const child = fork(join(import.meta.dirname, "stored-node.mjs"), {
    env: { ...process.env, ...dawnEnv() },
  });
  const timer = setTimeout(() => child.kill("SIGKILL"), LONGEST);
  child.send(task);
  let answer;
  child.once("message", (message) => {
    answer = message;
  });
  const code = await new Promise((done) =>
    child.once("exit", (one, signal) => done(signal ?? one)),
  );
  clearTimeout(timer);
  if (!answer) throw new Error(`the Node process ended with ${code}`);
  return answer;
}

/** In the page. */
async function open(base, seed) {
  const { Stored, failingStreams } = await import(`${base}/tests/reliability/stored-stage.mjs`);
  const { originDisk } = await import(`${base}/tests/storage/bodies/storage.mjs`);
  const tinyloom = {
    ...(await import(`${base}/pkg/index.js`)),
    ...(await import(`${base}/pkg/storage/index.js`)),
  };
  globalThis.stage = new Stored({
    tinyloom,
    open: (name) => tinyloom.Runs.open(name),
    disk: originDisk,
    failing: failingStreams(),
    seed,
  });
  return globalThis.stage.begin();
}

/** The same through a worker. */
async function openWorker(base, seed) {
  const { Stored } = await import(`${base}/tests/reliability/stored-stage.mjs`);
  const { originDisk } = await import(`${base}/tests/storage/bodies/storage.mjs`);
  const { connect } = await import(`${base}/pkg/worker/index.js`);
  const worker = new Worker(`${base}/tests/reliability/stored-worker.mjs`, { type: "module" });
  const tinyloom = await connect({ worker });
  globalThis.stage = new Stored({
    tinyloom,
    open: (name) => tinyloom.Runs.open(name),
    disk: originDisk,
    failing: tinyloom.failing,
    seed,
  });
  return globalThis.stage.begin();
}

/** In the page: what a worker does otherwise. */
const failed = () => globalThis.stage.failures();

/** In the page. */
async function damaged(times) {
  const { stage } = globalThis;
  return [...(await stage.damages(times)), ...(await stage.failures())];
}

/** Chromium's own quota, at random bytes behind what is used. */
async function meetQuotas(page, url, random) {
  const session = await page.createCDPSession();
  const { bytes, usage } = await page.evaluate(() => globalThis.stage.beginQuota());
  const rows = [];
  for (let at = 0; at < QUOTAS; at++) {
    const quotaSize = Math.round(usage + random() * bytes);
    await session.send("Storage.overrideQuotaForOrigin", { origin: url, quotaSize });
    rows.push(await page.evaluate(() => globalThis.stage.meetQuota()));
  }
  await session.send("Storage.overrideQuotaForOrigin", { origin: url });
  await page.evaluate(() => globalThis.stage.endQuota());
  return rows;
}

/** A second tab wants the run that the first one has. */
async function twoTabs(page, url) {
  await page.evaluate(async () => {
    globalThis.shared = await globalThis.stage.runs.create("shared");
  });
  const other = await openPage(page.browser(), `${url}/blank.html`);
  const rows = await other.evaluate(async (base) => {
    const { otherTab } = await import(`${base}/tests/reliability/stored-stage.mjs`);
    return otherTab(await import(`${base}/pkg/storage/index.js`));
  }, url);
  await other.close();
  await page.evaluate(async () => {
    await globalThis.shared.close();
    await globalThis.stage.runs.delete("shared");
  });
  return rows;
}

/** Files are damaged alike whoever wrote them: in a worker only the writes fail. */
function inBrowser(host, { seed, times }) {
  const [kind, worker] = host.split("-");
  return withPage(
    kind,
    () => {},
    async (page, url) => {
      const opened = await page.evaluate(worker ? openWorker : open, url, seed);
      const rows = await page.evaluate(worker ? failed : damaged, times);
      if (kind === "chromium") rows.push(...(await meetQuotas(page, url, numbers(seed))));
      if (!worker) rows.push(...(await twoTabs(page, url)));
      return { ...opened, rows };
    },
  );
}

/** Every host; the result of each as JSON and a line. */
export async function stored({ count = TIMES, seed = Date.now() % 1e6, built, host } = {}) {
  let good = true;
  for (const one of host ? [host] : HOSTS) {
    if (built && one !== "node" && !findBrowser(one.split("-")[0])) {
      console.log(`stored: ${one} is not here and was left out`);
      continue;
    }
    const task = { seed, times: count };
    const { adapter, software, rows } = await (one === "node"
      ? inNode(task)
      : inBrowser(one, task));
    const wrong = rows.filter((row) => row.wrong);
    const result = { host: one, software, seed, times: count, rows };
    keep("stored", one, adapter, result, { short: count < TIMES });
    console.log(
      `stored: ${one}, seed ${seed}, ${adapterName(adapter)}: ${rows.length - wrong.length} of ${rows.length} ` +
        "faults were told, and a whole checkpoint went on to the same bits",
    );
    for (const { fault, file, wrong: what } of wrong) console.log(`  ${fault}, ${file}: ${what}`);
    good &&= wrong.length === 0;
  }
  return good;
}
