/** What the trainers of preference share: texts packed into batches, their log-probabilities, steps by them. */

import type { Adapter } from "../adapter.js";
import { TinyloomError } from "../error.js";
import type { Model } from "../model.js";
import { inspect, invalid, number, type Rule, show } from "../options.js";
import type { ResolvedConfig } from "../resolved-config.js";
import { IGNORE_INDEX, type TokenIds, toSomeTokens } from "../tokens.js";
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

/** Refuses what is no trainer, here or in a worker. */
export function expectTrainer(where: string, trainer: unknown): void {
  const { step, model } = (trainer ?? {}) as Partial<Trainer>;
  if (typeof step === "function" && !modelRule(model)) return;
  throw invalid(`${where}: the trainer is ${show(trainer)}; give what Trainer.create gave`);
}

/** Refuses what is no model, here or in a worker. */
export function expectModel(where: string, what: string, model: unknown): void {
  if (modelRule(model)) throw invalid(`${where}: the ${what} is ${show(model)}; give a model`);
}

/** The elements of a list that is an argument, each as `read` gives it. */
export function listed<T>(
  name: string,
  given: unknown,
  read: (place: string, one: unknown) => T,
): T[] {
  return inspect(name, () => {
    if (!Array.isArray(given)) throw invalid(`${name} is ${show(given)}; give an array`);
    return Array.from(given, (one, i) => read(`${name}[${i}]`, one));
  });
}

/** A copy of a text's ids, all of which the model knows. */
export function idsOf(place: string, given: unknown, config: ResolvedConfig): Uint32Array {
  const ids = toSomeTokens(place, given, config);
  const vocabulary = config.vocab_size;
  const at = ids.findIndex((id) => id >= vocabulary);
  if (at < 0) return ids;
  const allowed = `a token id must be below vocab_size, ${vocabulary}`;
  throw new TinyloomError("invalid-tokens", `${place}[${at}] is ${ids[at]}; ${allowed}`);
}

/** A prompt and its continuations under these names, which fit behind it. */
export function textsOf<Name extends string>(
  place: string,
  given: unknown,
  names: readonly Name[],
  config: ResolvedConfig,
): Record<Name | "prompt", Uint32Array> {
  if (typeof given !== "object" || given === null) {
    throw invalid(`${place} is ${show(given)}; give an object with prompt, ${names.join(", ")}`);
  }
  return inspect(place, () => {
    const all = ["prompt", ...names] as const;
    const own = Object.fromEntries(
      all.map((name) => [
        name,
        idsOf(`${place}.${name}`, (given as Record<string, unknown>)[name], config),
      ]),
    ) as Record<Name | "prompt", Uint32Array>;
    for (const name of names) {
      const tokens = own.prompt.length + own[name].length;
      expectPositions(place, `prompt and ${name}`, tokens, config);
    }
    return own;
  });
}

/** Refuses a text whose parts are longer together than the model reads. */
export function expectPositions(
  place: string,
  parts: string,
  tokens: number,
  config: ResolvedConfig,
): void {
  const most = config.max_position_embeddings;
  if (tokens <= most) return;
  throw new TinyloomError(
    "invalid-tokens",
    `${place}: ${parts} have ${tokens} tokens in all, more than the model's ${most} positions; shorten them`,
  );
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
export interface Steered {
  readonly batch: Packed;
  readonly targetWeights: Float32Array;
}

/** Texts with weights along the slopes of an objective: its derivatives by the log-probability of each completion. */
export function steered(batch: Packed, slopes: readonly number[]): Steered {
  const weights = new Map(batch.starts.map((start, i) => [start, -(slopes[i] as number)]));
  const of = (start: number) => weights.get(start) as number;
  return { batch, targetWeights: Float32Array.from(batch.documents, of) };
}

/** Refuses a step that another call made amid one of ours: the scores before it are not of the weights that it left. */
function expectAlone(where: string, trainer: Trainer, steps: number): void {
  if (trainer.steps === steps) return;
  throw invalid(
    `${where}: the trainer made a step of another call between scores and the step by them; let one call end before the next`,
  );
}

function expectFinite(where: string, { targetWeights }: Steered): void {
  const wrong = targetWeights.find((weight) => !Number.isFinite(weight));
  if (wrong === undefined) return;
  throw new TinyloomError(
    "non-finite",
    `${where}: a target would have the weight ${wrong}: log-probabilities are too far from those of before or of the ` +
      "reference; lower the learning rate, or the scales of the objective",
  );
}

/**
 * A step whose micro-steps have all been scored: what fails before it leaves no half of a step behind.
 *
 * @param before - the trainer's steps at the scores.
 * @param divisor - texts, pairs or tokens of the whole step, over which the objective is a mean.
 */
export async function stepBy(
  where: string,
  trainer: Trainer,
  before: number,
  parts: readonly Steered[],
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

/**
 * Refuses texts that are too long for a micro-step together, before a part of a step is made.
 *
 * @param option - the name of the option that says how many there are, with its number.
 * @param parts - the tokens of each micro-step.
 */
export function expectFits(
  where: string,
  { options }: Trainer,
  option: Readonly<Record<string, number>>,
  parts: readonly number[],
): void {
  const tokens = parts.reduce((longest, part) => Math.max(longest, part), 0);
  const most = options.tokensPerStep;
  if (tokens <= most) return;
  const [[name, count] = ["", 1]] = Object.entries(option);
  const fitting = Math.max(1, Math.floor((count * most) / tokens));
  const lower = count > 1 ? `lower it to ${fitting}, or ` : "";
  throw invalid(
    `${where}: ${name} is ${count}; a micro-step would have ${tokens} tokens, and tokensPerStep is ${most}: ` +
      `${lower}make the trainer with a larger tokensPerStep`,
  );
}

/**
 * Refuses so many texts that no lengths of them fit into a micro-step, before a list of them is made.
 *
 * @param option - as of {@link expectFits}.
 * @param least - the fewest tokens of one of them.
 */
export function expectCount(
  where: string,
  { options }: Trainer,
  option: Readonly<Record<string, number>>,
  least: number,
): void {
  const [[name, count] = ["", 1]] = Object.entries(option);
  const most = options.tokensPerStep;
  if (count * least <= most) return;
  throw invalid(
    `${where}: ${name} is ${count}; with ${least} tokens at least for each they need more than tokensPerStep, ${most}: ` +
      "lower it, or make the trainer with a larger tokensPerStep",
  );
}

/**
 * Refuses a reference that lacks tokens, and one that is the model in training: what is measured from that is always 0.
 */
export function expectReference(where: string, { model, adapter }: Trainer, given: Model): void {
  if (given === model && !adapter) {
    throw invalid(
      `${where}: reference is the model that is trained; give another one, such as one of the same files`,
    );
  }
  expectVocabulary(where, model, given);
}

/** Refuses a reference that lacks tokens. One may have more: some are padded. */
export function expectVocabulary(where: string, model: Model, reference: Model): void {
  const [own, theirs] = [model, reference].map((one) => one.config.vocab_size);
  if ((theirs as number) >= (own as number)) return;
  throw invalid(
    `${where}: the vocab_size of reference is ${theirs}, below the model's, ${own}; both need the same tokenizer`,
  );
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

/**
 * Scales of objectives. Smaller and larger ones make slopes that f32 does not hold.
 *
 * @param least - 0 where the scale may turn a part off.
 */
export const scale = (least = 1e-6): Rule => number(least, 1e6);

/** The rule of an option that is a model, here or in a worker. */
export const modelRule: Rule = (value) =>
  typeof (value as Partial<Model> | null)?.score === "function" ? undefined : "a model";

export const logistic = (x: number): number => 1 / (1 + Math.exp(-x));
