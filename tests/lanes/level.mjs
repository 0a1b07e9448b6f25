// How much the lanes run, and what they show meanwhile.

import { test } from "node:test";
import { freshSeed } from "../random.mjs";

/** Whether to run the products that the everyday cases sample: `npm run test:full`. */
export const full = process.env.TINYLOOM_LEVEL === "full";

/**
 * The part of the cases that this process runs, `[index, count]`: `TINYLOOM_SHARD=2/8` takes every
 * eighth from the second, so that a full run can be shared among processes or machines.
 */
export const shard = parseShard(process.env.TINYLOOM_SHARD || "1/1");

/** Cargo's profile for tests on native adapters: what runs for hours is optimised. */
export const cargoProfile = full ? "release" : "lane";

/** A part of the names of the cases to run; all without it. */
export const wanted = process.env.TINYLOOM_CASE ?? "";

function parseShard(text) {
  const [index, count] = /^[1-9]\d*\/[1-9]\d*$/.test(text) ? text.split("/").map(Number) : [];
  if (!(index <= count)) throw new Error(`TINYLOOM_SHARD is ${text}, not a part like 2/8`);
  return [index, count];
}

/** Seed of the first case's random data; each later case takes the next. `TINYLOOM_SEED` repeats a run. */
export const firstSeed = Number(process.env.TINYLOOM_SEED ?? freshSeed());

/**
 * Whether to run also what the everyday run draws by the seed: at the full level, and where `npm test -- docs` has
 * named the files.
 */
export const whole = full || process.env.TINYLOOM_WHOLE === "1";

/** Of a list every `parts`-th, as the seed draws it, or all of it where `whole`. The next seed draws the next. */
export function drawnOf(list, parts) {
  return whole ? list : list.filter((_, index) => (index + firstSeed) % parts === 0);
}

/** Long tests of one thing, each a minute or so: of each group the seed draws every second one. */
const GROUPS = {
  demo: ["panels", "runs in Chromium", "fine-tuning", "runs in Firefox"],
  examples: ["node/train", "page", "train.rs", "worker", "runs"],
  memory: ["checkpoints", "text"],
};

/** The runner's `test`, where the seed draws that test of its group; else what tests nothing. */
export function testDrawn(group, name) {
  if (!GROUPS[group].includes(name)) throw new Error(`${group} has no long test ${name}`);
  return drawnOf(GROUPS[group], 2).includes(name) ? test : () => {};
}

/** Milliseconds that a lane may take on software adapters, where other work shares the processor too. */
export const laneTimeout = full ? 6 * 3_600_000 : 3_000_000;

let lastLine = 0;

/** Shows a line of progress: on a terminal each in place, else at most two a minute. */
export function showProgress(name, text) {
  const now = Date.now();
  if (process.stderr.isTTY) process.stderr.write(`\r\x1b[2K${name} ${text}`);
  else if (now - lastLine > 30_000) process.stderr.write(`${name} ${text}\n`);
  else return;
  lastLine = now;
}

/** Clears the line of progress. */
export function endProgress() {
  if (process.stderr.isTTY) process.stderr.write("\r\x1b[2K");
}
