/** Texts packed into batches, their log-probabilities, and steps by them. */

import type { Adapter } from "../adapter.js";
import { TinyloomError } from "../error.js";
import type { Model } from "../model.js";
import { invalid } from "../options.js";
import { IGNORE_INDEX, type TokenIds } from "../tokens.js";
import type { Trainer } from "../trainer.js";
import type { StepMetrics } from "../trainer-types.js";

/** A prompt and what follows it. */
export interface Text {
  readonly prompt: TokenIds;
  readonly completion: TokenIds;
}

/** Texts as documents of one batch, whose completions alone have targets. */
export interface Packed {
  readonly tokens: Uint32Array;
  readonly targets: Uint32Array;
  readonly documents: Uint32Array;
  /** Where each text begins. */
  readonly starts: readonly number[];
  /** Tokens of each completion. */
  readonly lengths: readonly number[];
}

export function pack(texts: readonly Text[]): Packed {
  const tokens: number[] = [];
  const targets: number[] = [];
  const documents: number[] = [];
  const starts: number[] = [];
  for (const { prompt, completion } of texts) {
    const start = tokens.length;
    const text = [...prompt, ...completion];
    starts.push(start);
    for (const [i, token] of text.entries()) {
      tokens.push(token);
      documents.push(start);
      targets.push(i + 1 < prompt.length ? IGNORE_INDEX : (text[i + 1] ?? IGNORE_INDEX));
    }
  }
  const lengths = texts.map(({ completion }) => completion.length);
  const [ids, wanted, of] = [tokens, targets, documents].map((list) => Uint32Array.from(list));
  return {
    tokens: ids as Uint32Array,
    targets: wanted as Uint32Array,
    documents: of as Uint32Array,
    starts,
    lengths,
  };
}

/** The log-probability of each completion, in nats. */
export async function sums(model: Model, packed: Packed, adapter?: Adapter): Promise<number[]> {
  const { tokens, targets, documents, starts } = packed;
  const options = { targets, documents, ...(adapter && { adapter }) };
  const { logprobs } = await model.score(tokens, options);
  return starts.map((start, i) =>
    logprobs.subarray(start, starts[i + 1] ?? tokens.length).reduce((sum, x) => sum + x, 0),
  );
}

/** A micro-step: texts, and a weight of each target. */
export interface WeightedBatch {
  readonly batch: Packed;
  readonly targetWeights: Float32Array;
}

/** For each token the number of its text. */
export function perToken({ starts, documents }: Packed, perText: readonly number[]): number[] {
  const numbers = new Map(starts.map((start, i) => [start, perText[i] as number]));
  return Array.from(documents, (start) => numbers.get(start) as number);
}

/** Texts with weights along the slopes of an objective: its derivatives by the log-probability of each completion. */
export function weightedBatch(batch: Packed, slopes: readonly number[]): WeightedBatch {
  const weights = slopes.map((slope) => -slope);
  return { batch, targetWeights: Float32Array.from(perToken(batch, weights)) };
}

/** Refuses a step that another call made amid one of ours: the scores before it are not of the weights that it left. */
function expectAlone(where: string, trainer: Trainer, steps: number): void {
  if (trainer.steps === steps) return;
  throw invalid(
    `${where}: another call stepped the trainer after the scores were computed; let one call end before the next`,
  );
}

function expectFinite(where: string, { targetWeights }: WeightedBatch): void {
  const wrong = targetWeights.find((weight) => !Number.isFinite(weight));
  if (wrong === undefined) return;
  throw new TinyloomError(
    "non-finite",
    `${where}: a target would have the weight ${wrong}: log-probabilities are too far from those of before or of the ` +
      "reference; lower the learning rate, or the scales of the objective",
  );
}

/**
 * A step whose micro-steps have all been scored: a failure before it leaves no half-made step.
 *
 * @param before - the trainer's steps at the scores.
 * @param divisor - texts, pairs or tokens of the whole step, over which the objective is a mean.
 */
export async function stepBy(
  where: string,
  trainer: Trainer,
  before: number,
  parts: readonly WeightedBatch[],
  { divisor: normalize, temperature = 1 }: { divisor: number; temperature?: number },
): Promise<StepMetrics> {
  for (const part of parts) expectFinite(where, part);
  let metrics: StepMetrics | undefined;
  for (const { batch, targetWeights } of parts) {
    const { tokens, targets, documents } = batch;
    const own = { tokens, targets, documents, targetWeights, normalize, temperature };
    expectAlone(where, trainer, before);
    metrics = await trainer.step(own);
  }
  expectAlone(where, trainer, before + 1);
  return metrics as StepMetrics;
}

/** The next places of a list from one on; it begins again at its end. */
export const placesFrom = (first: number, count: number, length: number): number[] =>
  Array.from({ length: count }, (_, i) => (first + i) % length);

/** The places of the texts in each micro-step of one step. */
export function partsOf(
  { options }: Trainer,
  step: number,
  perPart: number,
  length: number,
): number[][] {
  const { gradientAccumulation } = options;
  const first = step * gradientAccumulation * perPart;
  return Array.from({ length: gradientAccumulation }, (_, part) =>
    placesFrom(first + part * perPart, perPart, length),
  );
}

/** The different micro-steps of the steps to come: those that begin with the same text are the same. */
export function partsToCome(
  trainer: Trainer,
  steps: number,
  perPart: number,
  length: number,
): number[][] {
  const parts = new Map<number, number[]>();
  for (let step = 0; step < steps; step++) {
    for (const part of partsOf(trainer, trainer.steps + step, perPart, length)) {
      const start = part[0] as number;
      if (parts.has(start)) return [...parts.values()]; // from here on all come again
      parts.set(start, part);
    }
  }
  return [...parts.values()];
}

export const logistic = (x: number): number => 1 / (1 + Math.exp(-x));
