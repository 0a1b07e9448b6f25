/** A blind comparison: samples of before and of after, in an order that says nothing. */
import { randomSource } from "../../stories/generate.ts";
import type { Written } from "./teaching.ts";

/** Samples of each kind. */
const EACH = 8;

export interface BlindSample {
  readonly sample: Written;
  readonly taught: boolean;
}

/** As many of each kind, mixed; the two of one beginning are never both there. */
export function mixed(
  before: readonly Written[],
  after: readonly Written[],
  seed: number,
): BlindSample[] {
  const random = randomSource(seed);
  const count = Math.min(EACH, before.length >> 1);
  const chosen = [
    ...before.slice(0, count).map((sample) => ({ sample, taught: false })),
    ...after.slice(count, 2 * count).map((sample) => ({ sample, taught: true })),
  ];
  for (let last = chosen.length - 1; last > 0; last--) {
    const other = Math.floor(random() * (last + 1));
    [chosen[last], chosen[other]] = [chosen[other]!, chosen[last]!];
  }
  return chosen;
}

/** How many of each kind a visitor has called good. */
export function tallied(
  all: readonly BlindSample[],
  good: (one: BlindSample) => boolean,
): { before: number; after: number; each: number } {
  const count = (taught: boolean) => all.filter((one) => one.taught === taught && good(one)).length;
  return { before: count(false), after: count(true), each: all.length / 2 };
}
