// What the seed draws of tests/pkg in an everyday run. Everything runs at the full level, where files are named
// (`npm test -- docs`), and without TINYLOOM_SEED.
import { test } from "node:test";
import { ANOTHER_SEED } from "../scripts/left-out.mjs";
import { firstSeed, full } from "./lanes/level.mjs";
import { below, mulberry32 } from "./random.mjs";

export const everything = full || process.env.TINYLOOM_WHOLE === "1" || !process.env.TINYLOOM_SEED;

/** Files of tests/pkg that leave something to other seeds or to the full level, where each runs whole. */
export const IN_FULL = [
  ...["checkpoint-memory", "chromium", "demo", "demo-panels", "demo-runs", "demo-states"],
  ...["demo-tune", "docs", "examples", "firefox", "gguf", "hostile", "hub", "node"],
  ...["packed-memory", "panic", "readme", "storage", "text-memory", "times", "worker"],
  ...["worker-file", "worker-frames"],
];

/** Long tests: of each list the seed draws every `parts`-th. With more parts than tests some seeds draw none. */
export const GROUPS = {
  longest: {
    parts: 12,
    tests: [
      ...["panels", "runs in Firefox", "checkpoints", "fine-tuning", "node/train", "text"],
      ...["page", "packed weights", "train.rs", "worker", "runs", "runs in Chromium"],
    ],
  },
  panic: { parts: 3, tests: ["a process", "a page", "a worker"] },
  readme: { parts: 4, tests: ["page", "script"] },
};

const hash = (text) =>
  [...text].reduce((sum, letter) => (Math.imul(sum, 31) + letter.codePointAt(0)) | 0, 7);

/** Every `parts`-th of a list, from the one that the seed draws for this name. */
export function drawnWith(seed, what, list, parts) {
  const turn = below(mulberry32(seed ^ hash(what)))(parts);
  return list.filter((_, index) => (index + turn) % parts === 0);
}

/** As drawnWith, with this run's seed; all of the list where everything runs. */
export const drawnOf = (what, list, parts) =>
  everything ? list : drawnWith(firstSeed, what, list, parts);

/** The runner's `test`, where the seed draws that test of its group; else what registers it as left out. */
export function testDrawn(group, name) {
  const { parts, tests } = GROUPS[group];
  if (!tests.includes(name)) throw new Error(`${group} has no long test ${name}`);
  const drawn = drawnOf(group, tests, parts).includes(name);
  return drawn ? test : (title) => test(title, { skip: ANOTHER_SEED });
}
