/** What the trainers of preference refuse before they begin, and the rules of their options. */

import { TinyloomError } from "../error.js";
import type { Model } from "../model.js";
import { inspect, invalid, number, type Rule, show } from "../options.js";
import type { ResolvedConfig } from "../resolved-config.js";
import { toSomeTokens } from "../tokens.js";
import type { Trainer } from "../trainer.js";
import type { Remote } from "../worker/types.js";
import { partsToCome } from "./texts.js";

/** An object of the API, in this realm or in a worker: what a trainer of preference needs of it is the same. */
export type Anywhere<T> = T | Remote<T>;

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

/** A prompt and its continuations under these names. Each continuation fits into the model's context after the prompt. */
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
 * Refuses texts of which those of a micro-step to come are too long together.
 *
 * @param option - as of {@link expectFits}.
 * @param lengths - the tokens of each text, or of each pair of texts.
 * @param steps - how many steps are to come.
 */
export function expectRoom(
  where: string,
  trainer: Trainer,
  option: Readonly<Record<string, number>>,
  lengths: readonly number[],
  steps: number,
): void {
  const [perPart = 1] = Object.values(option);
  const parts = partsToCome(trainer, steps, perPart, lengths.length);
  const tokens = parts.map((places) => places.reduce((sum, at) => sum + (lengths[at] ?? 0), 0));
  expectFits(where, trainer, option, tokens);
}

/**
 * Refuses a number of texts that cannot fit into a micro-step whatever their lengths, before a list of that length is made.
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
 * Refuses a reference that is missing or lacks tokens, and one that is the model in training: what is measured from that is
 * always 0. What it accepts counts as a model of this realm: one of a worker serves the same.
 *
 * @param or - what else an error may advise where there is none.
 */
export function expectReference(
  where: string,
  { model, adapter }: Trainer,
  given: Anywhere<Model> | undefined,
  or = "",
): asserts given is Model {
  if (!given) {
    throw invalid(
      `${where}: reference is missing; give a model, such as another one of the same files${or}`,
    );
  }
  if (given === model && !adapter) {
    throw invalid(
      `${where}: reference is the model that is trained; give another one, such as one of the same files`,
    );
  }
  expectVocabulary(where, model, given);
}

/** Refuses a reference that lacks tokens. One may have more: some are padded. */
export function expectVocabulary(where: string, model: Model, reference: Anywhere<Model>): void {
  const own = model.config.vocab_size;
  const theirs = reference.config.vocab_size;
  if (theirs >= own) return;
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

/**
 * Scales of objectives. Smaller and larger ones make slopes that f32 does not hold.
 *
 * @param least - 0 where the scale may turn a part off.
 */
export const scale = (least = 1e-6): Rule => number(least, 1e6);

/** The rule of an option that is a model, here or in a worker. */
export const modelRule: Rule = (value) =>
  typeof (value as Partial<Model> | null)?.score === "function" ? undefined : "a model";
