/** What the trainers of preference share: texts packed into batches, their log-probabilities, steps by them. */

import type { Adapter } from "../adapter.js";
import type { Model } from "../model.js";
import { invalid, type Rule } from "../options.js";
import { IGNORE_INDEX, type TokenIds } from "../tokens.js";
import type { Trainer } from "../trainer.js";
import type { StepMetrics } from "../trainer-types.js";
import type { Remote } from "../worker/types.js";

/** An object of the API, in this realm or in a worker: what a trainer of preference needs of it is the same. */
export type Anywhere<T> = T | Remote<T>;

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

export function pack(where: string, texts: readonly Text[]): Packed {
  const tokens: number[] = [];
  const targets: number[] = [];
  const documents: number[] = [];
  const starts: number[] = [];
  for (const { prompt, completion } of texts) {
    if (!(prompt?.length > 0 && completion?.length > 0)) {
      throw invalid(`${where}: a text needs a prompt and a completion of at least one token each`);
    }
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

/**
 * A micro-step along the slopes of an objective: its derivatives by the log-probability of each completion.
 *
 * @param divisor - texts or pairs of the whole step, over which the objective is a mean.
 */
export function stepBy(
  trainer: Trainer,
  { tokens, targets, documents, starts }: Packed,
  slopes: readonly number[],
  divisor: number,
): Promise<StepMetrics> {
  const weights = new Map(starts.map((start, i) => [start, -(slopes[i] as number)]));
  const targetWeights = Float32Array.from(documents, (start) => weights.get(start) as number);
  return trainer.step({ tokens, targets, documents, targetWeights, normalize: divisor });
}

/** Refuses dropout: scores are of the network without it. */
export function expectNoDropout(where: string, trainer: Trainer): void {
  const { dropout } = trainer.options;
  if (Object.values(dropout).some((rate) => rate > 0) || trainer.adapter?.options.dropout) {
    throw invalid(
      `${where}: log-probabilities are of the network without dropout; train with dropout 0`,
    );
  }
}

/** The next places of a list from one on; it begins again at its end. */
export const placesFrom = (first: number, count: number, length: number): number[] =>
  Array.from({ length: count }, (_, i) => (first + i) % length);

/** The rule of an option that is a model, here or in a worker. */
export const modelRule: Rule = (value) =>
  typeof (value as Partial<Model> | null)?.score === "function" ? undefined : "a model";

export const logistic = (x: number): number => 1 / (1 + Math.exp(-x));
