/** Training on single texts that are desirable or not. */

import { throwIfAborted } from "../error.js";
import type { Model } from "../model.js";
import { abortSignal, check, inspect, integer, invalid, type Rules, show } from "../options.js";
import type { ResolvedConfig } from "../resolved-config.js";
import type { TokenIds } from "../tokens.js";
import type { Trainer } from "../trainer.js";
import type { StepMetrics } from "../trainer-types.js";
import {
  type Anywhere,
  expectCount,
  expectNoDropout,
  expectPositions,
  expectReference,
  expectRoom,
  expectTrainer,
  listed,
  modelRule,
  scale,
  textsOf,
} from "./checks.js";
import {
  logistic,
  pack,
  partsOf,
  partsToCome,
  stepBy,
  sums,
  type WeightedBatch,
  weightedBatch,
} from "./texts.js";

/** A continuation of a prompt, and whether it is to become likelier. */
export interface LabelledText {
  prompt: TokenIds;
  completion: TokenIds;
  desirable: boolean;
}

/** Options of {@link kto}. */
export interface KtoOptions {
  /** How strongly the reference holds; default 0.1. */
  beta?: number;
  /** Weights of desirable and of undesirable texts in the mean; default 1. */
  desirableWeight?: number;
  undesirableWeight?: number;
  /** Texts in a micro-step, at least 2: the baseline is of a prompt with the completion of another one. Default 4. */
  textsPerStep?: number;
  /** Optimizer steps; default as many as go over all texts once. */
  steps?: number;
  /** Default: of an adapter's trainer the model without the adapter. Another trainer has to be given a model. */
  reference?: Anywhere<Model>;
  signal?: AbortSignal;
}

/** What a step of {@link kto} reports. */
export interface KtoMetrics extends StepMetrics {
  /** The mean of the texts' losses. */
  readonly objective: number;
  /** The mean baseline: how much likelier mismatched completions are than under the reference, at least 0. */
  readonly baseline: number;
  /** Means of how much likelier the texts are than under the reference, times beta; 0 where there is none. */
  readonly desirable: number;
  readonly undesirable: number;
}

const KTO: Rules<KtoOptions> = {
  beta: scale(),
  desirableWeight: scale(0),
  undesirableWeight: scale(0),
  textsPerStep: integer(2),
  steps: integer(1),
  reference: modelRule,
  signal: abortSignal,
};

function textOf(place: string, given: unknown, { model }: Trainer): LabelledText {
  const own = textsOf(place, given, ["completion"], model.config);
  const { desirable } = inspect(place, () => ({ ...(given as LabelledText) }));
  if (typeof desirable === "boolean") return { ...own, desirable };
  throw invalid(`${place}.desirable is ${show(desirable)}; give true or false`);
}

/** Refuses a prompt whose baseline is of a completion that does not fit into the model's context after it. */
function expectMismatches(
  places: readonly number[],
  all: readonly LabelledText[],
  config: ResolvedConfig,
): void {
  for (const [i, at] of places.entries()) {
    const other = places.at(i - 1) as number;
    const [own, before] = [all[at], all[other]] as [LabelledText, LabelledText];
    const tokens = own.prompt.length + before.completion.length;
    const parts = `its prompt and the completion of texts[${other}], of which the baseline is,`;
    expectPositions(`kto: texts[${at}]`, parts, tokens, config);
  }
}

/**
 * Trains by KTO (Ethayarajh et al., arXiv:2402.01306) and yields each step's metrics. The texts come in their order, from
 * the one that the trainer's steps have come to. The baseline of a micro-step is the mean over its prompts with the
 * completions of the texts before them, as TRL takes it; it has no gradient.
 *
 * @param trained - a trainer of a model or an adapter, without dropout.
 * @throws {@link TinyloomError} `invalid-options`, `invalid-tokens`, `non-finite`, `aborted`, and what `trainer.step` throws.
 */
export async function* kto(
  trained: Anywhere<Trainer>,
  texts: readonly LabelledText[],
  options: KtoOptions = {},
): AsyncGenerator<KtoMetrics, void, undefined> {
  expectTrainer("kto", trained);
  const trainer = trained as Trainer;
  const given = check<KtoOptions>("kto", options, KTO);
  const { beta = 0.1, desirableWeight = 1, undesirableWeight = 1, textsPerStep = 4 } = given;
  if (!(desirableWeight || undesirableWeight)) {
    throw invalid("kto: desirableWeight and undesirableWeight are 0: nothing would be learned");
  }
  const { reference = trainer.adapter && trainer.model, signal } = given;
  const all = listed("kto: texts", texts, (place, one) => textOf(place, one, trainer));
  if (all.length < 2) throw invalid(`kto: there are ${all.length} texts; give at least 2`);
  expectReference("kto", trainer, reference);
  expectNoDropout("kto", trainer);
  expectCount("kto", trainer, { textsPerStep }, 2);
  const { gradientAccumulation } = trainer.options;
  const perStep = textsPerStep * gradientAccumulation;
  const { steps = Math.ceil(all.length / perStep) } = given;
  /** How much likelier each text is than under the reference. */
  const gains = async (own: readonly LabelledText[]) => {
    const batch = pack(own);
    const ours = await sums(trainer.model, batch, trainer.adapter);
    const theirs = await sums(reference, batch);
    return { batch, gains: ours.map((x, i) => x - (theirs[i] as number)) };
  };
  const lengths = all.map(({ prompt, completion }) => prompt.length + completion.length);
  const expectNext = (toCome: number) => {
    const parts = partsToCome(trainer, toCome, textsPerStep, all.length);
    for (const places of parts) expectMismatches(places, all, trainer.model.config);
    expectRoom("kto", trainer, { textsPerStep }, lengths, toCome);
  };
  expectNext(steps);
  for (let made = 0; made < steps; made++) {
    throwIfAborted(signal, "kto"); // not between micro-steps: half a step would be left
    const seen = { objective: 0, baseline: 0 };
    const rewards = { desirable: [] as number[], undesirable: [] as number[] };
    const parts: WeightedBatch[] = [];
    expectNext(1); // the trainer may have made other steps since
    const before = trainer.steps;
    for (const places of partsOf(trainer, before, textsPerStep, all.length)) {
      const own = places.map((place) => all[place] as LabelledText);
      const mismatched = own.map((text, i) => ({
        ...text,
        completion: (own.at(i - 1) as LabelledText).completion,
      }));
      const others = (await gains(mismatched)).gains;
      const baseline = Math.max(0, others.reduce((sum, x) => sum + x, 0) / others.length);
      const { batch, gains: ours } = await gains(own);
      const slopes = ours.map((gain, i) => {
        const { desirable } = own[i] as LabelledText;
        const [sign, weight] = desirable ? [1, desirableWeight] : [-1, undesirableWeight];
        const value = logistic(sign * beta * (gain - baseline));
        seen.objective += (weight * (1 - value)) / perStep;
        rewards[desirable ? "desirable" : "undesirable"].push(beta * gain);
        return -weight * sign * beta * value * (1 - value);
      });
      seen.baseline += baseline / gradientAccumulation;
      parts.push(weightedBatch(batch, slopes));
    }
    const metrics = await stepBy("kto", trainer, before, parts, { divisor: perStep });
    const mean = (list: readonly number[]) =>
      list.reduce((sum, x) => sum + x, 0) / Math.max(1, list.length);
    const { desirable, undesirable } = rewards;
    const means = { desirable: mean(desirable), undesirable: mean(undesirable) };
    yield { ...metrics, ...seen, ...means };
  }
}
