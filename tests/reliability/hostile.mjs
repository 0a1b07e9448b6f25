// Damaged files and nonsense calls, in Node with Dawn. `npm run reliability -- hostile` takes 20,000 of each.
import { fork } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { dawnEnv } from "../../scripts/machine.mjs";
import { adapterName, keep } from "./results.mjs";

const COUNT = 20_000;
/** More than there are. */
export const ALL = Number.MAX_SAFE_INTEGER;
/** Milliseconds without a word after which a process counts as hanging. */
const SILENCE = 60_000;

/**
 * Gives one process its task, and listens until it ends.
 *
 * @returns `{ counts, adapter, findings, next }`; `next` is the input after one at which the process died or hung.
 */
function inProcess(task) {
  const home = mkdtempSync(join(tmpdir(), "tinyloom-hostile-"));
  const child = fork(fileURLToPath(new URL("hostile-node.mjs", import.meta.url)), [], {
    cwd: home, // names of folders are nonsense too
    env: { ...process.env, ...dawnEnv(), HOME: home, XDG_DATA_HOME: home, XDG_CACHE_HOME: home },
    stdio: ["ignore", "ignore", "pipe", "ipc"],
  });
  let printed = "";
  child.stderr.on("data", (text) => {
    printed = `${printed}${text}`.slice(-20_000);
  });
  const findings = [];
  let [last, result, timer] = [{ at: task.from }, undefined, undefined];
  return new Promise((done) => {
    const waiting = () => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        findings.push({ ...last, wrong: `a hang: no word for ${SILENCE} ms` });
        child.kill("SIGKILL");
      }, SILENCE);
    };
    waiting();
    child.on("message", (message) => {
      waiting();
      if (message.finding) findings.push(message.finding);
      else if (message.at !== undefined) last = message;
      else result = message;
    });
    child.on("close", (code, signal) => {
      clearTimeout(timer);
      rmSync(home, { recursive: true, force: true });
      const panic = /panicked at [^\n]*/.exec(printed)?.[0];
      if (panic) findings.push({ ...last, wrong: panic });
      for (const wrong of new Set(result?.silent)) findings.push({ wrong: `unhandled: ${wrong}` });
      const whole = result?.counts !== undefined;
      if (
        !whole &&
        !findings.some(({ at, wrong }) => at === last.at && /^(a hang|panic)/.test(wrong))
      ) {
        findings.push({
          ...last,
          wrong: `${result?.broken ?? `ended with ${signal ?? code}`} ${printed.slice(-600)}`,
        });
      }
      const { counts = {}, adapter } = result ?? {};
      done({ counts, adapter, findings, next: whole ? task.to : last.at + 1 });
    });
    child.send(task);
  });
}

/** Adds up counts by name, however deep. */
function add(sums, counts) {
  for (const [name, value] of Object.entries(counts)) {
    if (typeof value === "number") sums[name] = (sums[name] ?? 0) + value;
    else sums[name] = add(sums[name] ?? {}, value);
  }
  return sums;
}

/**
 * Inputs of one part: so many "files" or "calls" that the seed draws, or "every" call with one piece of nonsense,
 * also through a "worker". A process that died is followed by another.
 *
 * @param oneOf - of every call one of so many is made.
 */
export async function attack(part, count, seed, oneOf = 1) {
  const found = { part, count, seed, counts: {}, findings: [] };
  for (let from = 0; from < count; ) {
    const { counts, adapter, findings, next } = await inProcess({
      part,
      from,
      to: count,
      seed,
      oneOf,
    });
    add(found.counts, counts);
    found.adapter ??= adapter;
    found.findings.push(...findings);
    from = next;
  }
  return found;
}

const DRAWN = {
  files: "damaged files",
  calls: "calls with nonsense",
};
const NAMES = {
  ...DRAWN,
  every: "calls with one piece of nonsense each",
  worker: "such calls through a worker",
};

/** How many inputs were taken, by the counts of `attack`. */
export const taken = (counts) =>
  Object.values(counts).reduce(
    (sum, count) => sum + (typeof count === "number" ? count : taken(count)),
    0,
  );

/** All parts; the result as JSON and a line each. */
export async function hostile({ count = COUNT, seed = Date.now() % 1e6 } = {}) {
  const results = [];
  for (const part of Object.keys(NAMES)) {
    const found = await attack(part, part in DRAWN ? count : ALL, seed);
    results.push(found);
    console.log(
      `hostile: ${taken(found.counts)} ${NAMES[part]}, seed ${seed}, ` +
        `${adapterName(found.adapter ?? {})}: ${found.findings.length} findings; ${JSON.stringify(found.counts)}`,
    );
    for (const { at, kind, name = "", wrong, text = "" } of found.findings.slice(0, 40)) {
      console.log(`  ${at} ${kind} ${name}: ${wrong}\n    ${text.slice(0, 300)}`);
    }
  }
  const whole = results.every(({ findings }) => findings.length === 0);
  const adapter = results.find((one) => one.adapter)?.adapter ?? {};
  keep("hostile", "node", adapter, { count, seed, whole, results }, { short: count < COUNT });
  return whole;
}
