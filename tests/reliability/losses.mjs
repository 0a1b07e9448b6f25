// Devices lost for good beneath calls, and maps that fail: each call rejects with the code that is right.
import { fork } from "node:child_process";
import { join } from "node:path";
import { step } from "../../scripts/lib.mjs";
import { dawnEnv, findBrowser } from "../../scripts/machine.mjs";
import { withPage } from "../lanes/harness.mjs";
import { numbers } from "../random.mjs";
import { HOWS, judge, NAMES } from "./losses-stage.mjs";
import { adapterName, keep } from "./results.mjs";

/** Losses of each host. */
const COUNT = 150;

const HOSTS = ["chromium", "firefox", "node"];

/** The losses one after the other: each call in turn, and each way of losing the device. */
async function all(count, seed, work) {
  const random = numbers(seed);
  const rows = [];
  let found = {};
  for (let at = 0; at < count; at++) {
    const how = HOWS[Math.floor(at / NAMES.length) % HOWS.length];
    const { row, ...rest } = await work({ name: NAMES[at % NAMES.length], how, part: random() });
    const wrong = judge(row);
    rows.push(wrong ? { ...row, wrong } : row);
    found = rest;
    step(`${at + 1} of ${count}: ${JSON.stringify(rows.at(-1))}`);
  }
  return { ...found, rows };
}

/** In the page. */
async function inPage(base, asked) {
  const tinyloom = await import(`${base}/pkg/index.js`);
  const { lose } = await import(`${base}/tests/reliability/losses-stage.mjs`);
  return lose({ tinyloom, ...asked });
}

const inBrowser = (host, count, seed) =>
  withPage(
    host,
    () => {},
    (page, url) => all(count, seed, (asked) => page.evaluate(inPage, url, asked)),
  );

async function inNode(count, seed) {
  const script = join(import.meta.dirname, "losses-node.mjs");
  const child = fork(script, { env: { ...process.env, ...dawnEnv() } });
  const ended = new Promise((_, fail) => {
    child.once("exit", (code) => fail(new Error(`Node ended with ${code}`)));
  });
  ended.catch(() => {});
  const ask = (asked) => {
    const answer = new Promise((done) => {
      child.once("message", done);
    });
    child.send(asked);
    return Promise.race([answer, ended]);
  };
  try {
    return await all(count, seed, ask);
  } finally {
    child.kill();
  }
}

/** Devices lost for good, in both browsers and in Node; or in one `host`. */
export async function losses({ count = COUNT, seed = Date.now() % 1e6, built, host } = {}) {
  let good = true;
  for (const one of host ? [host] : HOSTS) {
    // Where nothing is installed a browser may be missing.
    if (built && one !== "node" && !findBrowser(one)) {
      console.log(`losses: ${one} is not here and was left out`);
      continue;
    }
    const lost = await (one === "node" ? inNode(count, seed) : inBrowser(one, count, seed));
    const { adapter, rows } = lost;
    const wrong = rows.filter((row) => row.wrong);
    const failed = rows.filter(({ how }) => how === HOWS[1]).length;
    const living = rows.filter((row) => row.living !== undefined).length;
    console.log(
      `losses: ${one}, seed ${seed}, ${adapterName(adapter)}: ${count - wrong.length} of ${count} gave ` +
        `device-lost, ${failed} of them through a map that failed; before that ${living} maps failed on ` +
        "a living device",
    );
    for (const row of wrong) console.log(`  ${row.name}, ${row.how}: ${row.wrong}`);
    const result = { host: one, seed, count, ...lost };
    keep("losses", one, adapter, result, { short: count < COUNT });
    good &&= wrong.length === 0;
  }
  return good;
}
