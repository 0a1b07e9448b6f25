// Small devices: caps on the limits of WebGPU, alone and together. `npm run reliability -- limits` runs all cells in
// Node, Chromium and Firefox and keeps the result; `--built` uses what is built, and the hosts that are there.
import { fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { dawnEnv, findBrowser } from "../../scripts/machine.mjs";
import { withPage } from "../lanes/harness.mjs";
import { below, numbers } from "../random.mjs";
import { AXES, isEffective } from "./limits-cell.mjs";
import { adapterName, keep } from "./results.mjs";

/** Cells with values of every limit, besides each limit's own. */
const TOGETHER = 12;

/**
 * Each value by itself, the least of all together, and others drawn by the seed from what the adapter has: a cap
 * above that does nothing.
 */
export function cellsOf(count, seed, capabilities) {
  const draw = below(numbers(seed));
  const drawn = (list, axis) => {
    const has = list.filter((value) => isEffective({ [axis]: value }, capabilities));
    return has[draw(has.length)];
  };
  const alone = Object.entries(AXES).flatMap(([axis, list]) =>
    list.map((value) => ({ [axis]: value })),
  );
  const values = (choose) =>
    Object.fromEntries(Object.entries(AXES).map(([axis, list]) => [axis, choose(list, axis)]));
  const least = values((list, axis) => (axis === "buffers" ? 6 : list[0]));
  const together = Array.from({ length: count }, () => values(drawn));
  return [...alone, least, { ...least, subgroups: false }, ...together];
}

/** A Node process with Dawn; `choose` gives the cells for its adapter. */
export async function inNode(choose) {
  const host = fileURLToPath(new URL("limits-node.mjs", import.meta.url));
  const child = fork(host, [], { env: { ...process.env, ...dawnEnv() } });
  const found = { host: "node", rows: [] };
  child.on("message", ({ capabilities, row }) => {
    if (row) return void found.rows.push(row);
    found.capabilities = capabilities;
    child.send({ cells: choose(capabilities) });
  });
  const ended = new Promise((done) => child.on("exit", (code, signal) => done(signal ?? code)));
  const code = await ended;
  if (code !== 0) throw new Error(`the Node process ended with ${code}`);
  return found;
}

/** In the page. */
async function open(base) {
  const tinyloom = await import(`${base}/pkg/index.js`);
  const internal = await import(`${base}/pkg/internal.js`);
  const { Sweep } = await import(`${base}/tests/reliability/limits-cell.mjs`);
  globalThis.sweep = new Sweep({ ...tinyloom, internal }, navigator.gpu);
  return globalThis.sweep.open();
}

/** The same in a page. */
function inBrowser(host, choose) {
  return withPage(
    host,
    () => {},
    async (page, url) => {
      const capabilities = await page.evaluate(open, url);
      const rows = [];
      for (const cell of choose(capabilities)) {
        rows.push(await page.evaluate((one) => globalThis.sweep.run(one), cell));
      }
      return { host, capabilities, rows };
    },
  );
}

/** Prints what a host's cells came to; returns whether all are whole. */
function report({ host, capabilities, rows }, seed) {
  const count = (wanted) => rows.filter(({ result }) => result === wanted).length;
  const counts = ["trains", "refused", "no effect", "wrong"].map((one) => `${count(one)} ${one}`);
  const name = adapterName(capabilities.adapter);
  console.log(`limits: ${host}, seed ${seed}, ${name}: ${counts.join(", ")}`);
  for (const { cell, result, detail } of rows) {
    if (result === "wrong") console.log(`  ${JSON.stringify(cell)}: ${detail}`);
  }
  return count("wrong") === 0;
}

/** All cells; the result as JSON and a line for each host. */
export async function limits({
  count = TOGETHER,
  seed = Date.now() % 1e6,
  built = false,
  host: only,
} = {}) {
  const choose = (capabilities) => cellsOf(count, seed, capabilities);
  const hosts = ["node", "chromium", "firefox"].filter((host) => !only || host === only);
  const there = hosts.filter((host) => !built || host === "node" || findBrowser(host));
  const results = [];
  let good = true;
  for (const host of there) {
    const found = host === "node" ? await inNode(choose) : await inBrowser(host, choose);
    good = report(found, seed) && good;
    results.push(found);
    const left = hosts.slice(results.length);
    const { adapter } = results[0].capabilities;
    keep("limits", only ?? "all", adapter, { seed, left, results }, { short: count < TOGETHER });
  }
  for (const host of hosts)
    if (!there.includes(host)) console.log(`limits: ${host}: not run, not here`);
  return good;
}
