/** A blind comparison: samples from before and after teaching, in random order. */
import { randomSource } from "../../stories/generate.ts";
import { shuffled } from "./beginnings.ts";
import type { Written } from "./teaching.ts";

/** Samples of each kind. */
const EACH = 8;

export interface BlindSample {
  readonly sample: Written;
  readonly taught: boolean;
}

/** As many of each kind, drawn and mixed by the seed; the two of one beginning are never both there. */
export function mixed(
  before: readonly Written[],
  after: readonly Written[],
  seed: number,
): BlindSample[] {
  const random = randomSource(seed);
  const count = Math.min(EACH, before.length >> 1);
  const places = shuffled([...before.keys()], random);
  const chosen = [
    ...places.slice(0, count).map((at) => ({ sample: before[at]!, taught: false })),
    ...places.slice(count, 2 * count).map((at) => ({ sample: after[at]!, taught: true })),
  ];
  return shuffled(chosen, random);
}

/** How many of each kind a visitor has called good. */
export function tallied(
  all: readonly BlindSample[],
  good: (one: BlindSample) => boolean,
): { before: number; after: number; each: number } {
  const count = (taught: boolean) => all.filter((one) => one.taught === taught && good(one)).length;
  return { before: count(false), after: count(true), each: all.length / 2 };
}
