/** The objective of GRPO: advantages, ratios of probabilities, the divergence from a reference. */

import type { With } from "../asked.js";
import type { Scores } from "../model-types.js";
import { IGNORE_INDEX } from "../tokens.js";
import type { Packed } from "./texts.js";

/** Scores of texts, with the entropy at each position. */
export type ScoresWithEntropy = With<Scores, "entropy">;

/** Texts of a micro-step. Lists have a number for each position. */
export interface Part {
  readonly packed: Packed;
  /** What the model said of them when they were drawn. */
  readonly old: ScoresWithEntropy;
  /** Log-probabilities under the reference. */
  readonly reference: Float32Array | undefined;
  readonly advantages: readonly number[];
  /** What a token counts less than others: the length of its text, or 1. */
  readonly lengths: readonly number[];
}

/** What bounds an update. */
export interface Bounds {
  readonly clip: number;
  readonly clipHigh: number;
  readonly klCoefficient: number;
}

/** Sums over the tokens of a micro-step, and the weights of its targets. */
export interface Judged {
  readonly weights: Float32Array;
  readonly objective: number;
  readonly kl: number;
  readonly entropy: number;
  /** How many tokens the clipping leaves without gradient. */
  readonly clipped: number;
}

const sum = (list: readonly number[]) => list.reduce((all, x) => all + x, 0);
export const mean = (list: readonly number[]): number => sum(list) / list.length;

/** The standard deviation with Bessel's correction. */
export function deviation(list: readonly number[]): number {
  const middle = mean(list);
  return Math.sqrt(sum(list.map((x) => (x - middle) ** 2)) / (list.length - 1));
}

/** The advantages of texts, group after group. TRL adds 1e-4 to the deviation, too. */
export function advantagesOf(
  rewards: readonly number[],
  group: number,
  by: "group" | "batch" | "none",
): number[] {
  return rewards.map((reward, i) => {
    const first = i - (i % group);
    const own = rewards.slice(first, first + group);
    const scale = by === "none" ? 1 : deviation(by === "group" ? own : rewards) + 1e-4;
    return (reward - mean(own)) / scale;
  });
}

/**
 * A token's objective is −min(ratio · A, clamp(ratio) · A) + klCoefficient · (exp(d) − d − 1), with d = log p_reference −
 * log p. The weight of its target is minus the derivative of that by log p.
 *
 * @param own - what the model says now.
 */
export function tokenWeights(
  part: Part,
  own: ScoresWithEntropy,
  { clip, clipHigh, klCoefficient }: Bounds,
): Judged {
  const { packed, old, reference, advantages, lengths } = part;
  const weights = new Float32Array(own.logprobs.length);
  const seen = { objective: 0, kl: 0, entropy: 0, clipped: 0 };
  for (const [i, log] of own.logprobs.entries()) {
    if (packed.targets[i] === IGNORE_INDEX) continue;
    const [advantage, length] = [advantages[i] as number, lengths[i] as number];
    const ratio = Math.exp(log - (old.logprobs[i] as number));
    const gain = ratio * advantage;
    const bounded = Math.min(Math.max(ratio, 1 - clip), 1 + clipHigh) * advantage;
    const free = gain <= bounded;
    const apart = reference ? (reference[i] as number) - log : 0;
    const kl = Math.exp(apart) - apart - 1;
    weights[i] = ((free ? gain : 0) - klCoefficient * (1 - Math.exp(apart))) / length;
    seen.objective += (klCoefficient * kl - Math.min(gain, bounded)) / length;
    seen.kl += kl;
    seen.entropy += own.entropy[i] as number;
    seen.clipped += free ? 0 : 1;
  }
  return { weights, ...seen };
}
