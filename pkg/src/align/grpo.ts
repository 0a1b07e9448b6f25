/** Reinforcement: training on texts that the model itself writes, by what they are worth. */

import type { With } from "../asked.js";
import { throwIfAborted } from "../error.js";
import type { Model } from "../model.js";
import { check } from "../options.js";
import type { TokenIds } from "../tokens.js";
import type { Trainer } from "../trainer.js";
import type { StepMetrics } from "../trainer-types.js";
import { type Anywhere, expectNoDropout, expectTrainer, idsOf, listed } from "./checks.js";
import { GRPO, type GrpoOptions, type Settings, settingsOf } from "./grpo-options.js";
import {
  advantagesOf,
  deviation,
  mean,
  type Part,
  type ScoresWithEntropy,
  tokenWeights,
} from "./policy.js";
import { mixed, type Rollout, rewardsOf, rollOut } from "./rollouts.js";
import { expectWhole, keeper } from "./stored.js";
import { type Packed, pack, perToken, placesFrom, stepBy, type WeightedBatch } from "./texts.js";

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

/** Scores of texts by the model with the adapter that is trained, at the temperature of the sampling. */
function scored({ trainer, source }: Settings, packed: Packed): Promise<ScoresWithEntropy> {
  const { tokens, targets, documents } = packed;
  const { model, adapter } = trainer;
  const { temperature } = source;
  const own = { targets, documents, temperature, ...(adapter && { adapter }) };
  return model.score(tokens, { ...own, entropy: true });
}

/** The texts of a micro-step, with their advantages. */
async function partOf(
  settings: Settings,
  rollouts: readonly Rollout[],
  advantages: readonly number[],
): Promise<Part> {
  const { reference, source, loss } = settings;
  const packed = pack(rollouts.map(({ prompt, tokens }) => ({ prompt, completion: tokens })));
  const { tokens, targets, documents, lengths } = packed;
  const { temperature } = source;
  const theirs = await reference?.score(tokens, { targets, documents, temperature });
  return {
    packed,
    old: await scored(settings, packed),
    reference: theirs?.logprobs,
    advantages: perToken(packed, advantages),
    lengths: perToken(packed, loss === "grpo" ? lengths : lengths.map(() => 1)),
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

/**
 * Draws the texts of a step and has them judged.
 *
 * @param first - the place of its first prompt.
 */
async function roundOf(
  settings: Settings,
  prompts: readonly TokenIds[],
  first: number,
): Promise<Round> {
  const { trainer, source, group, promptsPerStep, perStep, loss } = settings;
  const begun = performance.now();
  const { seed } = trainer.options;
  const asked = placesFrom(first, perStep, prompts.length)
    .flatMap((index) => new Array<number>(group).fill(index))
    .map((index, i) => ({
      index,
      prompt: prompts[index] as TokenIds,
      seed: mixed(seed, trainer.steps, i),
    }));
  const rollouts = await rollOut(source, asked);
  const generationMilliseconds = performance.now() - begun;
  const rewards = await rewardsOf("grpo", settings.reward, rollouts, source.signal);
  throwIfAborted(source.signal, "grpo");
  const advantages = advantagesOf(rewards, group, settings.advantages);
  const parts: Part[] = [];
  for (let at = 0; at < rollouts.length; at += promptsPerStep * group) {
    const end = at + promptsPerStep * group;
    parts.push(await partOf(settings, rollouts.slice(at, end), advantages.slice(at, end)));
  }
  const texts = rollouts.length;
  const tokens = rollouts.reduce((sum, one) => sum + one.tokens.length, 0);
  const divisor = { dapo: tokens, grpo: texts, dr_grpo: texts * source.maxTokens }[loss];
  const told = {
    reward: mean(rewards),
    rewardDeviation: deviation(rewards),
    length: tokens / texts,
    finished: mean(rollouts.map((one) => Number(one.finished))),
    generationMilliseconds,
  };
  return { parts, divisor, tokens, told };
}

/**
 * Makes one optimizer step. Each part of the round is a micro-step.
 *
 * @param before - the trainer's steps at its scores.
 */
async function updated(
  settings: Settings,
  round: Round,
  first: boolean,
  before: number,
): Promise<GrpoMetrics> {
  const { temperature, signal } = settings.source;
  const { divisor, told } = round;
  const seen = { objective: 0, kl: 0, entropy: 0, clipped: 0 };
  const parts: WeightedBatch[] = [];
  throwIfAborted(signal, "grpo"); // not between micro-steps: half a step would be left
  for (const part of round.parts) {
    const own = first ? part.old : await scored(settings, part.packed);
    const { weights: targetWeights, ...sums } = tokenWeights(part, own, settings);
    parts.push({ batch: part.packed, targetWeights });
    seen.objective += sums.objective / divisor;
    for (const name of ["kl", "entropy", "clipped"] as const) {
      seen[name] += sums[name] / round.tokens;
    }
  }
  const metrics = await stepBy("grpo", settings.trainer, before, parts, { divisor, temperature });
  const { kl, ...means } = seen;
  const own = { ...means, ...(settings.reference && { kl }), ...told };
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
  const settings = settingsOf(trainer, all, given);
  const { updates = 1 } = given;
  const { steps = Math.ceil(all.length / settings.perStep) * updates } = given;
  expectWhole("grpo", steps, updates);
  const keep = keeper("grpo", trainer, given.checkpoint, given.signal);
  for (let made = 0; made < steps; ) {
    throwIfAborted(given.signal, "grpo");
    let before = trainer.steps;
    const first = Math.floor(before / updates) * settings.perStep;
    const round = await roundOf(settings, all, first);
    for (let update = 0; update < updates; update++, made++) {
      const metrics = await updated(settings, round, update === 0, before);
      await keep(metrics, update + 1 === updates, made + 1 === steps);
      yield metrics;
      before = trainer.steps;
    }
  }
}
