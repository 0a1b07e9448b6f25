// How much the lanes run, and what they show meanwhile.
import { gateMode } from "../gate/passed.mjs";

/** Whether everything runs, whatever has passed: `npm run test:full`. The lanes have more products then. */
export const full = gateMode() === "full";

/**
 * The part of the cases that this process runs, `[index, count]`: `TINYLOOM_SHARD=2/8` takes every
 * eighth from the second, so that a full run can be shared among processes or machines.
 */
export const shard = parseShard(process.env.TINYLOOM_SHARD || "1/1");

/** Of the cases' names those of a part `[index, count]`: every count-th from the index-th, of 1. */
export function ofShard(names, [index, count]) {
  return names.filter((_, i) => i % count === index - 1);
}

/** Cargo's profile for tests on native adapters: what runs for hours is optimised. */
export const cargoProfile = full ? "release" : "lane";

/** A part of the names of the cases to run; all without it. */
export const wanted = process.env.TINYLOOM_CASE ?? "";

function parseShard(text) {
  const [index, count] = /^[1-9]\d*\/[1-9]\d*$/.test(text) ? text.split("/").map(Number) : [];
  if (!(index <= count)) throw new Error(`TINYLOOM_SHARD is ${text}, not a part like 2/8`);
  return [index, count];
}

/** The seed of random data. Each run has the same, so that equal tests have equal keys; `TINYLOOM_SEED` names another. */
export const seed = parseSeed(process.env.TINYLOOM_SEED || "1");

function parseSeed(text) {
  if (/^\d+$/.test(text) && Number.isSafeInteger(Number(text))) return Number(text);
  throw new Error(`TINYLOOM_SEED is ${text}, not a whole number`);
}

/** Milliseconds that a lane may take on software adapters, where other work shares the processor too. */
export const laneTimeout = gateMode() === "everyday" ? 4_500_000 : 6 * 3_600_000;

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
