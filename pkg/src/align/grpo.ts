/** Reinforcement: training on texts that the model itself writes, by what they are worth. */

import type { With } from "../asked.js";
import { TinyloomError, throwIfAborted } from "../error.js";
import type { Model } from "../model.js";
import type { Scores } from "../model-types.js";
import {
  abortSignal,
  callback,
  check,
  inspect,
  integer,
  invalid,
  number,
  oneOf,
  orNull,
  type Rules,
  tokenizer,
} from "../options.js";
import type { TextDecoding } from "../tokenizer-types.js";
import type { TokenIds } from "../tokens.js";
import type { Trainer } from "../trainer.js";
import type { StepMetrics } from "../trainer-types.js";
import {
  type Anywhere,
  expectNoDropout,
  expectReference,
  expectTrainer,
  idsOf,
  listed,
  modelRule,
  scale,
} from "./checks.js";
import { advantagesOf, type Bounds, deviation, mean, type Part, tokenWeights } from "./policy.js";
import { mixed, type Reward, type Rollout, rewardsOf, rollOut, type Source } from "./rollouts.js";
import { type AlignCheckpoint, checkpointRule, expectWhole, keeper } from "./stored.js";
import { type Packed, pack, placesFrom, type Steered, stepBy } from "./texts.js";

/** Options of {@link grpo}. */
export interface GrpoOptions {
  /** What a text is worth. It may give a promise; all texts of a step are asked for at once. */
  reward: Reward;
  /** Gives the reward each text as a string. Without it `text` is empty, and there are the tokens. */
  tokenizer?: TextDecoding;
  /** Texts for each prompt, at least 2; default 8. */
  group?: number;
  /** Prompts in a micro-step; default 1. */
  promptsPerStep?: number;
  /** The most tokens of a text; default 256. */
  maxTokens?: number;
  /** Of the sampling and of all log-probabilities; default 1. */
  temperature?: number;
  /** Optimizer steps on the same texts; default 1. */
  updates?: number;
  /** How far the ratio of a token's probabilities, new to old, counts from 1 downwards, and upwards; default 0.2. */
  clip?: number;
  /** How far it counts upwards; default `clip`. */
  clipHigh?: number;
  /** The weight of the divergence from the reference; default 0: none. */
  klCoefficient?: number;
  /**
   * Another model. Default, where `klCoefficient` is above 0: of an adapter's trainer the model without the adapter. Another
   * trainer has to be given a model.
   */
  reference?: Anywhere<Model>;
  /**
   * What the rewards less the mean of their group are divided by, to be advantages: the standard deviation of the `"group"`,
   * the default, or of all texts of the step (`"batch"`), each plus 1e-4, or nothing (`"none"`).
   */
  advantages?: "group" | "batch" | "none";
  /**
   * The mean over tokens: `"dapo"`, the default, over all tokens of the step (Yu et al., arXiv:2503.14476); `"grpo"` over
   * those of each text, and then over texts (Shao et al., arXiv:2402.03300); `"dr_grpo"` the sum over texts × `maxTokens`
   * (Liu et al., arXiv:2503.20783).
   */
  loss?: "dapo" | "grpo" | "dr_grpo";
  /** The one token that ends a text; null for none. Default: the tokenizer's `endToken`, else the model's first one. */
  stopToken?: number | null;
  /** Optimizer steps, a multiple of `updates`; default as many as go over all prompts once. */
  steps?: number;
  /** Saves into storage. A trainer that is resumed from it goes on, to the bit where the reward always gives the same. */
  checkpoint?: AlignCheckpoint;
  signal?: AbortSignal;
}

/** What a step of {@link grpo} reports. */
export interface GrpoMetrics extends StepMetrics {
  /** What is minimised: `loss` is a sum of weighted log-probabilities. */
  readonly objective: number;
  /** The mean reward of the texts, and its standard deviation. */
  readonly reward: number;
  readonly rewardDeviation: number;
  /** The mean divergence from the reference, in nats per token; where there is a reference. */
  readonly kl?: number;
  /** The mean entropy of the model where the texts have their tokens, in nats, before the update. */
  readonly entropy: number;
  /** Mean tokens of a text, and the share of texts that came to the stop token. */
  readonly length: number;
  readonly finished: number;
  /** The share of tokens that the clipping leaves without gradient. */
  readonly clipped: number;
  /** Wall time in which the texts were written, for the first update on them; 0 for later ones. */
  readonly generationMilliseconds: number;
}

const GRPO: Rules<GrpoOptions> = {
  reward: callback,
  tokenizer,
  group: integer(2),
  promptsPerStep: integer(1),
  maxTokens: integer(1),
  temperature: number(1e-3, 1e6),
  updates: integer(1),
  clip: number(0, 1),
  clipHigh: number(0),
  klCoefficient: scale(0),
  reference: modelRule,
  advantages: oneOf("group", "batch", "none"),
  loss: oneOf("dapo", "grpo", "dr_grpo"),
  stopToken: orNull(integer(0)),
  steps: integer(1),
  checkpoint: checkpointRule,
  signal: abortSignal,
};

/** What all steps are made by. */
interface Work extends Bounds {
  readonly trainer: Trainer;
  readonly source: Source;
  readonly reward: Reward;
  readonly reference: Model | undefined;
  readonly group: number;
  readonly promptsPerStep: number;
  /** Prompts of a step. */
  readonly perStep: number;
  readonly advantages: "group" | "batch" | "none";
  readonly loss: "dapo" | "grpo" | "dr_grpo";
}

/** The tokens of the longest prompt. Refuses one behind which the model has no position left. */
function expectRoom(prompts: readonly TokenIds[], positions: number): number {
  const longest = prompts.reduce((most, prompt) => Math.max(most, prompt.length), 0);
  if (longest < positions) return longest;
  const at = prompts.findIndex((prompt) => prompt.length === longest);
  throw new TinyloomError(
    "invalid-tokens",
    `grpo: prompts[${at}] has ${longest} tokens, and the model has ${positions} positions: no text fits behind it; shorten it`,
  );
}

/** The options in force, refused where they cannot be. */
function workOf(trainer: Trainer, prompts: readonly TokenIds[], given: GrpoOptions): Work {
  const { group = 8, promptsPerStep = 1, maxTokens = 256, temperature = 1 } = given;
  const { clip = 0.2, clipHigh = clip, klCoefficient = 0, loss = "dapo", signal } = given;
  const { advantages = "group", tokenizer, reward } = given;
  const { model, adapter, options } = trainer;
  const { reference = klCoefficient > 0 ? adapter && model : undefined } = given;
  const { eos_token_id: ends } = model.config;
  const endToken = inspect("grpo: tokenizer", () => tokenizer?.endToken);
  const { stopToken = endToken ?? (Array.isArray(ends) ? ends[0] : ends) } = given;
  if (prompts.length === 0) throw invalid("grpo: there are no prompts; give at least one");
  if (klCoefficient > 0 && !reference) {
    throw invalid(
      "grpo: reference is missing; give a model, such as another one of the same files, or klCoefficient 0",
    );
  }
  if (reference) expectReference("grpo", trainer, reference as Model);
  const longest = expectRoom(prompts, model.config.max_position_embeddings);
  const texts = promptsPerStep * group;
  const length = Math.min(longest + maxTokens, model.config.max_position_embeddings);
  if (texts * length > options.tokensPerStep) {
    throw invalid(
      `grpo: a micro-step may have ${texts} texts of ${length} tokens, ${texts * length} in all, and tokensPerStep is ` +
        `${options.tokensPerStep}; lower promptsPerStep, group or maxTokens, or make the trainer with a larger tokensPerStep`,
    );
  }
  const ending = typeof stopToken === "number" ? stopToken : undefined;
  const vocabulary = model.config.vocab_size;
  if (ending !== undefined && ending >= vocabulary) {
    throw invalid(`grpo: stopToken is ${ending}; it must be below vocab_size, ${vocabulary}`);
  }
  const source = { model, adapter, temperature, maxTokens, tokenizer, signal, stopToken: ending };
  const bounds = { clip, clipHigh, klCoefficient };
  const perStep = promptsPerStep * options.gradientAccumulation;
  const numbers = { group, promptsPerStep, perStep, advantages, loss, ...bounds };
  return { trainer, source, reward, reference: reference as Model | undefined, ...numbers };
}

/** What the model, with what is trained of it, says of texts at the temperature of the sampling. */
function scored(
  { trainer, source }: Work,
  { tokens, targets, documents }: Packed,
): Promise<With<Scores, "entropy">> {
  const { model, adapter } = trainer;
  const more = {
    temperature: source.temperature,
    entropy: true as const,
    ...(adapter && { adapter }),
  };
  return model.score(tokens, { targets, documents, ...more });
}

/** The texts of a micro-step, with their advantages. */
async function partOf(
  work: Work,
  rollouts: readonly Rollout[],
  worth: readonly number[],
): Promise<Part> {
  const packed = pack(rollouts.map(({ prompt, tokens }) => ({ prompt, completion: tokens })));
  const { tokens, targets, documents, starts, lengths } = packed;
  const of = new Map(starts.map((start, i) => [start, i]));
  const places = Array.from(documents, (start) => of.get(start) as number);
  const { temperature } = work.source;
  const theirs = await work.reference?.score(tokens, { targets, documents, temperature });
  return {
    packed,
    old: await scored(work, packed),
    reference: theirs?.logprobs,
    advantages: places.map((place) => worth[place] as number),
    lengths: places.map((place) => (work.loss === "grpo" ? (lengths[place] as number) : 1)),
  };
}

/** The texts that the model has written for a step, in micro-steps, with their metrics. */
interface Round {
  readonly parts: readonly Part[];
  /** What the sums over the step are divided by. */
  readonly divisor: number;
  readonly tokens: number;
  readonly told: Pick<
    GrpoMetrics,
    "reward" | "rewardDeviation" | "length" | "finished" | "generationMilliseconds"
  >;
}

/** Draws the texts of a step and has them judged. */
async function roundOf(work: Work, prompts: readonly TokenIds[], first: number): Promise<Round> {
  const { trainer, source, group, promptsPerStep, perStep, loss } = work;
  const begun = performance.now();
  const asked = placesFrom(first, perStep, prompts.length).flatMap((index) =>
    Array.from({ length: group }, () => ({ index, prompt: prompts[index] as TokenIds })),
  );
  const { seed } = trainer.options;
  const seeds = asked.map((_, i) => mixed(seed, trainer.steps, i));
  const rollouts = await rollOut(source, asked, seeds);
  const generationMilliseconds = performance.now() - begun;
  const rewards = await rewardsOf("grpo", work.reward, rollouts, source.signal);
  throwIfAborted(source.signal, "grpo");
  const worth = advantagesOf(rewards, group, work.advantages);
  const parts: Part[] = [];
  for (let at = 0; at < rollouts.length; at += promptsPerStep * group) {
    const end = at + promptsPerStep * group;
    parts.push(await partOf(work, rollouts.slice(at, end), worth.slice(at, end)));
  }
  const texts = rollouts.length;
  const tokens = rollouts.reduce((sum, one) => sum + one.tokens.length, 0);
  const divisor = { dapo: tokens, grpo: texts, dr_grpo: texts * source.maxTokens }[loss];
  const finished = mean(rollouts.map((one) => Number(one.finished)));
  const reward = { reward: mean(rewards), rewardDeviation: deviation(rewards) };
  const told = { ...reward, length: tokens / texts, finished, generationMilliseconds };
  return { parts, divisor, tokens, told };
}

/**
 * Makes one optimizer step. Each part of the round is a micro-step.
 *
 * @param before - the trainer's steps at its scores.
 */
async function updated(
  work: Work,
  round: Round,
  first: boolean,
  before: number,
): Promise<GrpoMetrics> {
  const { temperature, signal } = work.source;
  const { divisor, told } = round;
  const seen = { objective: 0, kl: 0, entropy: 0, clipped: 0 };
  const parts: Steered[] = [];
  throwIfAborted(signal, "grpo"); // not between micro-steps: half a step would stay behind
  for (const part of round.parts) {
    const own = first ? part.old : await scored(work, part.packed);
    const { weights: targetWeights, ...sums } = tokenWeights(part, own, work);
    parts.push({ batch: part.packed, targetWeights });
    seen.objective += sums.objective / divisor;
    for (const name of ["kl", "entropy", "clipped"] as const) {
      seen[name] += sums[name] / round.tokens;
    }
  }
  const metrics = await stepBy("grpo", work.trainer, before, parts, { divisor, temperature });
  const { kl, ...means } = seen;
  const own = { ...means, ...(work.reference && { kl }), ...told };
  return { ...metrics, ...own, ...(!first && { generationMilliseconds: 0 }) };
}

/**
 * Trains by GRPO (Shao et al., arXiv:2402.03300) and yields each step's metrics. It draws `group` texts for each prompt, and
 * makes a text likelier by how much better its reward is than the mean of its group. Prompts come in their order, from the
 * one that the trainer's steps have come to. Seeds of texts follow from the trainer's seed and its steps.
 *
 * @param trained - a trainer of a model or an adapter, without dropout; `gradientAccumulation` micro-steps of `promptsPerStep` prompts
 * make a step.
 * @throws {@link TinyloomError} `invalid-options`, `invalid-tokens`, `non-finite`, `aborted`, and what `generateBatch` and
 * `trainer.step` throw.
 *
 * @example
 * ```ts
 * const reward = ({ text }: Rollout) => (text.trim() === "12" ? 1 : 0);
 * for await (const m of grpo(trainer, prompts, { reward, tokenizer, steps: 50 })) console.log(m.step, m.reward);
 * ```
 */
export function grpo(
  trained: Anywhere<Trainer>,
  prompts: readonly TokenIds[],
  options: GrpoOptions & { reference: Anywhere<Model> },
): AsyncGenerator<With<GrpoMetrics, "kl">, void, undefined>;
export function grpo(
  trained: Anywhere<Trainer>,
  prompts: readonly TokenIds[],
  options: GrpoOptions,
): AsyncGenerator<GrpoMetrics, void, undefined>;
export async function* grpo(
  trained: Anywhere<Trainer>,
  prompts: readonly TokenIds[],
  options: GrpoOptions,
): AsyncGenerator<GrpoMetrics, void, undefined> {
  expectTrainer("grpo", trained);
  const trainer = trained as Trainer;
  const given = check<GrpoOptions>("grpo", options, GRPO, "reward");
  expectNoDropout("grpo", trainer);
  const { config } = trainer.model;
  const all = listed("grpo: prompts", prompts, (place, ids) => idsOf(place, ids, config));
  const work = workOf(trainer, all, given);
  const { updates = 1 } = given;
  const { steps = Math.ceil(all.length / work.perStep) * updates } = given;
  expectWhole("grpo", steps, updates);
  const keep = keeper("grpo", trainer, given.checkpoint, given.signal);
  for (let made = 0; made < steps; ) {
    throwIfAborted(given.signal, "grpo");
    let before = trainer.steps;
    const first = Math.floor(before / updates) * work.perStep;
    const round = await roundOf(work, all, first);
    for (let update = 0; update < updates; update++, made++) {
      const metrics = await updated(work, round, update === 0, before);
      await keep(metrics, update + 1 === updates, made + 1 === steps);
      yield metrics;
      before = trainer.steps;
    }
  }
}
