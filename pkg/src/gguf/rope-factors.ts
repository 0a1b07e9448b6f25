/** Llama 3's scaling of RoPE from the divisors of angles that a GGUF file has instead. */

import { llama3Factors } from "./rope.js";

/** What configs have of the scaling. */
export type Llama3 = {
  readonly rope_type: "llama3";
  readonly factor: number;
  readonly low_freq_factor: number;
  readonly high_freq_factor: number;
  readonly original_max_position_embeddings: number;
};

/** How far a divisor may be from what the numbers give, relative: files have f32. */
const APART = 1e-4;

/**
 * The scaling whose divisors these are; undefined where no such scaling gives them. Of the four numbers, three are free:
 * original positions, low and high factor may be multiplied together. The low factor is 1, as in every released model.
 */
export function fittedFactors(
  divisors: Float32Array,
  theta: number,
  headDim: number,
): Llama3 | undefined {
  const factor = Math.max(...divisors);
  const rounded = Number(factor.toPrecision(6));
  const dim = 2 * divisors.length;
  if (dim !== headDim || !(rounded >= 1)) return undefined;
  // Between the bounds the share of the angle that stays is a line over the turns: share = slope · turns − offset.
  const points = [...divisors].flatMap((divisor, pair) => {
    const share = (1 / divisor - 1 / factor) / (1 - 1 / factor);
    const turns = theta ** ((-2 * pair) / dim) / (2 * Math.PI);
    return share > 1e-3 && share < 1 - 1e-3 ? [[turns, share] as const] : [];
  });
  for (const [original, high] of [...usual(points), ...lineThrough(points)]) {
    const scaling: Llama3 = {
      rope_type: "llama3",
      factor: rounded,
      low_freq_factor: 1,
      high_freq_factor: high,
      original_max_position_embeddings: original,
    };
    const made = llama3Factors(scaling, theta, headDim);
    const close = (divisor: number, pair: number) =>
      Math.abs((made[pair] as number) / divisor - 1) < APART;
    if (divisors.every(close)) return scaling;
  }
  return undefined;
}

type Points = readonly (readonly [turns: number, share: number])[];

/** Original positions with the high factor of released models: those of a point, or else a power of two. */
function usual([point]: Points): [original: number, high: number][] {
  if (point) return [[Math.round((1 + 3 * point[1]) / point[0]), 4]];
  return Array.from({ length: 18 }, (_, power) => [2 ** (power + 5), 4]);
}

/** Positions and high factor of the line through the first and the last point. */
function lineThrough(points: Points): [original: number, high: number][] {
  if (points.length < 2) return [];
  const [first, last] = [points[0], points.at(-1)] as [[number, number], [number, number]];
  const slope = (first[1] - last[1]) / (first[0] - last[0]);
  const offset = slope * first[0] - first[1];
  const high = 1 + 1 / offset;
  const original = Math.round(slope * (high - 1));
  // A high factor is a round number.
  return [
    [original, Number(high.toPrecision(3))],
    [original, high],
  ];
}
