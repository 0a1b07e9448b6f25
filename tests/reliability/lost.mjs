// The GPU process killed, or the device destroyed, at random moments of every operation: each goes on by itself.
import { fork } from "node:child_process";
import { join } from "node:path";
import { CONFIGS } from "../../bench/workloads.mjs";
import { step } from "../../scripts/lib.mjs";
import { dawnEnv, findBrowser, softwareOnly } from "../../scripts/machine.mjs";
import { withPage } from "../lanes/harness.mjs";
import { numbers } from "../random.mjs";
import { adapterName, keep, median } from "./results.mjs";

/**
 * Chromium refuses adapters to a site after two losses within two minutes, except with the first flag. After
 * three crashes of the GPU process it starts one without WebGPU, or one that computes on the CPU, for the rest
 * of the browser's life, except with the second.
 */
const UNBLOCKED = ["--disable-domain-blocking-for-3d-apis", "--disable-gpu-process-crash-limit"];

/** A model that a software adapter trains too. */
export const TINY = {
  config: { ...CONFIGS.tiny.config, max_position_embeddings: 128 },
  options: { learningRate: 1e-3, tokensPerStep: 128, totalSteps: 40, seed: 2 },
  steps: 10,
};

/** Steps that take a GPU as long. */
const QUICK = { ...TINY, options: { ...TINY.options, totalSteps: 400 }, steps: 300 };

/** Losses of each host. */
const COUNT = 50;

/** Milliseconds that an attempt may take: Chromium may make it wait for two minutes. */
const PATIENCE = 400_000;

/** Milliseconds that a loss may cost in the median, without compilation. */
const MOST = 2000;

/** In the page. */
async function open(base, parts, operations, kills) {
  const tinyloom = await import(`${base}/pkg/index.js`);
  const internal = await import(`${base}/pkg/internal.js`);
  const { Stage } = await import(`${base}/tests/reliability/lost-stage.mjs`);
  const stage = new Stage({ ...tinyloom, internal }, parts);
  globalThis.stage = stage;
  globalThis.lose = kills ? () => globalThis.killGpu() : () => stage.runtime.device.destroy();
  const opened = await stage.open(undefined, operations ?? undefined);
  return { ...opened, operations: Object.keys(stage.expected) };
}

/** In the page. */
function attempt(operation, part) {
  return globalThis.stage.attempt(operation, globalThis.lose, part);
}

/** Tries the operations in turn, until one has no end. */
async function attempts(names, count, random, work) {
  const rows = [];
  for (let at = 0; at < count; at++) {
    const operation = names[at % names.length];
    let timer;
    const late = new Promise((done) => {
      const wrong = `no end after ${PATIENCE / 1000} s`;
      timer = setTimeout(() => done({ operation, wrong, stalled: true }), PATIENCE);
    });
    const row = await Promise.race([work(operation, random()), late]);
    clearTimeout(timer);
    rows.push(row);
    step(`${at + 1} of ${count}: ${JSON.stringify(row)}`);
    if (row.stalled) break;
  }
  return rows;
}

/** Kills Chromium's GPU process. The answer may be lost with it, or never come. */
export async function crashGpu(session) {
  let timer;
  const late = new Promise((done) => {
    timer = setTimeout(done, 2000);
  });
  await Promise.race([session.send("Browser.crashGpuProcess").catch(() => {}), late]);
  clearTimeout(timer);
}

/**
 * Losses in a browser.
 *
 * @param kills - whether the GPU process is killed; else the page destroys its device.
 * @param blocked - whether Chromium may refuse adapters.
 * @param operations - those that are tried, in turn; default all.
 * @returns `{ host, how, seed, adapter, software, count, rows }`.
 */
export function loseInBrowser(
  host,
  {
    kills = false,
    blocked = false,
    count,
    seed,
    operations,
    parts = softwareOnly() ? TINY : QUICK,
  },
) {
  return withPage(
    host,
    () => {},
    async (page, url) => {
      if (kills) {
        const session = await page.browser().target().createCDPSession();
        await page.exposeFunction("killGpu", () => crashGpu(session));
      }
      const opened = await page.evaluate(open, url, parts, operations, kills);
      const rows = await attempts(opened.operations, count, numbers(seed), (...one) =>
        page.evaluate(attempt, ...one),
      );
      const { adapter, software } = opened;
      const flags = blocked ? "" : `, ${UNBLOCKED.join(", ")}`;
      const how = kills ? `GPU process killed${flags}` : "device.destroy()";
      return { host, how, seed, adapter, software, count, rows };
    },
    kills && !blocked ? { flags: UNBLOCKED } : {},
  );
}

/** Losses in Node with Dawn. */
async function loseInNode({ count, seed }) {
  const script = join(import.meta.dirname, "lost-node.mjs");
  const child = fork(script, { env: { ...process.env, ...dawnEnv() } });
  const failed = new Promise((_, fail) => {
    child.once("exit", (code) => fail(new Error(`Node ended with ${code}`)));
  });
  failed.catch(() => {});
  const ask = (question) => {
    const answer = new Promise((done) => {
      child.once("message", done);
    });
    child.send(question);
    return Promise.race([answer, failed]);
  };
  try {
    const opened = await ask({ parts: softwareOnly() ? TINY : QUICK });
    const rows = await attempts(opened.operations, count, numbers(seed), (operation, part) =>
      ask({ operation, part }),
    );
    const { adapter, software } = opened;
    return { host: "node", how: "device.destroy()", seed, adapter, software, count, rows };
  } finally {
    child.kill();
  }
}

/**
 * Prints what became of the attempts, and keeps it.
 *
 * @param usual - attempts by default.
 */
function report(part, result, usual) {
  const { host, how, seed, adapter, software, count, rows } = result;
  const ended = rows.filter(({ stalled }) => !stalled);
  const whole = rows.filter(({ wrong }) => !wrong).length;
  const without = median(ended.map(({ late, compiled }) => Math.max(0, late - compiled)));
  console.log(
    `${part}: ${host}, ${how}, seed ${seed}, ${adapterName(adapter)}: ${whole} of ${count} went on to the ` +
      `same bits; ${rows.filter(({ amid }) => amid).length} in the midst of a call; in the median ` +
      `${median(ended.map(({ late }) => late))} ms later than undisturbed, compilation ` +
      `${median(ended.map(({ compiled }) => compiled))} ms, without it ${without} ms` +
      `${software ? " (software adapter)" : ""}`,
  );
  if (rows.length < count) console.log(`  only ${rows.length} of ${count} were tried`);
  for (const { operation, wrong } of rows) if (wrong) console.log(`  ${operation}: ${wrong}`);
  keep(part, host, adapter, result, { short: count < usual });
  return whole === count && (part === "blocked" || without < MOST);
}

/** The GPU process of Chromium is killed. */
export async function gpuProcess({ count = COUNT, seed = Date.now() % 1e6 } = {}) {
  const result = await loseInBrowser("chromium", { kills: true, count, seed });
  return report("gpu-process", result, COUNT);
}

/** The GPU process is killed twice within two minutes: Chromium then refuses adapters, and calls wait. */
export async function blocked({ seed = Date.now() % 1e6 } = {}) {
  const options = { kills: true, blocked: true, count: 2, seed, operations: ["generate"] };
  const result = await loseInBrowser("chromium", options);
  const waits = result.rows.filter(({ waited }) => waited).map(({ reopened }) => reopened);
  console.log(`blocked: the browser was waited for ${waits.length} times: ${waits.join(", ")} ms`);
  return report("blocked", result, options.count) && waits.length > 0;
}

const HOSTS = ["chromium", "firefox", "node"];

/** The page destroys its device, in both browsers and in Node. */
export async function destroy({ count = COUNT, seed = Date.now() % 1e6, built, host } = {}) {
  let good = true;
  for (const one of host ? [host] : HOSTS) {
    // Where nothing is installed a browser may be missing.
    if (built && one !== "node" && !findBrowser(one)) {
      console.log(`destroy: ${one} is not here and was left out`);
      continue;
    }
    const lose = one === "node" ? loseInNode : (options) => loseInBrowser(one, options);
    good = report("destroy", await lose({ count, seed }), COUNT) && good;
  }
  return good;
}
