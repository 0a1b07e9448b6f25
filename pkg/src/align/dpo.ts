/** Training on pairs of texts of which one is preferred. */

import { throwIfAborted } from "../error.js";
import type { Model } from "../model.js";
import {
  abortSignal,
  check,
  copied,
  flag,
  fraction,
  inspect,
  integer,
  invalid,
  oneOf,
  type Rules,
  show,
} from "../options.js";
import type { TokenIds } from "../tokens.js";
import type { Trainer } from "../trainer.js";
import type { StepMetrics } from "../trainer-types.js";
import {
  type Anywhere,
  expectCount,
  expectNoDropout,
  expectRoom,
  expectTrainer,
  expectVocabulary,
  listed,
  modelRule,
  scale,
  textsOf,
} from "./checks.js";
import {
  logistic,
  type Packed,
  pack,
  partsOf,
  stepBy,
  sums,
  type WeightedBatch,
  weightedBatch,
} from "./texts.js";

/** Two continuations of a prompt. */
export interface PreferencePair {
  prompt: TokenIds;
  chosen: TokenIds;
  rejected: TokenIds;
}

/** Log-probabilities of both continuations under the reference, in nats, summed over their tokens. */
export type ReferencePair = readonly [chosen: number, rejected: number];

/** Options of {@link dpo}. */
export interface DpoOptions {
  /**
   * `"sigmoid"`, the default, is DPO (Rafailov et al., arXiv:2305.18290), `"ipo"` IPO (Azar et al., arXiv:2310.12036),
   * `"simpo"` SimPO, which has no reference (Meng et al., arXiv:2405.14734).
   */
  loss?: "sigmoid" | "ipo" | "simpo";
  /** How strongly the reference holds; with SimPO the scale of the margin. Default 0.1, with SimPO 2. */
  beta?: number;
  /** SimPO's margin in the scaled log-probabilities; default 1. */
  gamma?: number;
  /** The share of pairs whose preference is taken to be the other way round; not of IPO. Default 0. */
  labelSmoothing?: number;
  /** Whether log-probabilities are means over the tokens of a continuation; default true for IPO and SimPO. */
  lengthNormalized?: boolean;
  /** Pairs in a micro-step; default 4. */
  pairsPerStep?: number;
  /** Optimizer steps; default as many as go over all pairs once. */
  steps?: number;
  /**
   * Another model, or what it gave for each pair. Default: of an adapter's trainer the model without the adapter, else the
   * model as it is when the call begins.
   */
  reference?: Anywhere<Model> | readonly ReferencePair[];
  signal?: AbortSignal;
}

/** What a step of {@link dpo} reports. */
export interface DpoMetrics extends StepMetrics {
  /** The mean of the pairs' losses: `loss` is a sum of weighted log-probabilities. */
  readonly objective: number;
  /** The mean of how much more the chosen text has gained over the reference than the rejected one, times beta. */
  readonly margin: number;
  /** The share of pairs whose margin is positive. */
  readonly accuracy: number;
  /** Means of the log-probabilities of both texts. */
  readonly chosen: number;
  readonly rejected: number;
}

const DPO: Rules<DpoOptions> = {
  loss: oneOf("sigmoid", "ipo", "simpo"),
  beta: scale(),
  gamma: scale(0),
  labelSmoothing: fraction(0, 0.5),
  lengthNormalized: flag,
  pairsPerStep: integer(1),
  steps: integer(1),
  reference: (value) =>
    modelRule(value) && !Array.isArray(value)
      ? "a model, or the log-probabilities of both texts of each pair"
      : undefined,
  signal: abortSignal,
};

const softplus = (x: number) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));

/** The loss of a pair whose chosen text is so much likelier, and its derivative by that. */
function pairLoss(
  apart: number,
  { loss, beta, gamma, labelSmoothing: flipped }: Chosen,
): [number, number] {
  if (loss === "ipo") {
    const off = apart - 1 / (2 * beta);
    return [off * off, 2 * off];
  }
  const x = beta * apart - (loss === "simpo" ? gamma : 0);
  const slope = flipped * logistic(x) - (1 - flipped) * logistic(-x);
  return [(1 - flipped) * softplus(-x) + flipped * softplus(x), beta * slope];
}

/** Both texts of each pair. */
const packed = (pairs: readonly PreferencePair[]): Packed =>
  pack(
    pairs.flatMap(({ prompt, chosen, rejected }) => [
      { prompt, completion: chosen },
      { prompt, completion: rejected },
    ]),
  );

type Chosen = Required<Pick<DpoOptions, "loss" | "beta" | "gamma" | "labelSmoothing">>;

/** Refuses options that the loss has no use for. */
function expectUsed(loss: Chosen["loss"], given: DpoOptions): void {
  const simpo = loss === "simpo";
  const unused = { gamma: !simpo, labelSmoothing: loss === "ipo", reference: simpo };
  for (const [name, none] of Object.entries(unused)) {
    if (!none || given[name as keyof typeof unused] === undefined) continue;
    throw invalid(`dpo: ${name} has no meaning with loss "${loss}"; leave it out`);
  }
}

/** What the reference says of each pair. */
async function referenceOf(
  trainer: Trainer,
  pairs: readonly PreferencePair[],
  { reference, signal }: DpoOptions,
): Promise<readonly ReferencePair[]> {
  if (Array.isArray(reference)) {
    const own = inspect("dpo: reference", () => copied(reference));
    if (own.length !== pairs.length) {
      throw invalid(`dpo: reference has ${own.length} pairs, and there are ${pairs.length}`);
    }
    const wrong = own.findIndex(
      (pair) => !(Array.isArray(pair) && pair.length === 2 && pair.every(Number.isFinite)),
    );
    if (wrong < 0) return own;
    throw invalid(
      `dpo: reference[${wrong}] is ${show(own[wrong])}; give two finite numbers, of the chosen text and the rejected one`,
    );
  }
  const model = (reference as Model | undefined) ?? trainer.model;
  expectVocabulary("dpo", trainer.model, model);
  const all: ReferencePair[] = [];
  for (const pair of pairs) {
    throwIfAborted(signal, "dpo");
    const [chosen = 0, rejected = 0] = await sums(model, packed([pair]));
    all.push([chosen, rejected]);
  }
  return all;
}

/**
 * Trains on preferences and yields each step's metrics. The pairs come in their order, from the one that the trainer's steps
 * have come to, so that a resumed trainer goes on; a resumed run without adapter has to be given its `reference`.
 *
 * @param trained - a trainer of a model or an adapter, without dropout; `gradientAccumulation` micro-steps of `pairsPerStep` pairs
 * make a step.
 * @throws {@link TinyloomError} `invalid-options`, `invalid-tokens`, `non-finite`, `aborted`, and what `trainer.step` throws.
 */
export async function* dpo(
  trained: Anywhere<Trainer>,
  pairs: readonly PreferencePair[],
  options: DpoOptions = {},
): AsyncGenerator<DpoMetrics, void, undefined> {
  expectTrainer("dpo", trained);
  const trainer = trained as Trainer;
  const given = check<DpoOptions>("dpo", options, DPO);
  const { loss = "sigmoid", gamma = 1, labelSmoothing = 0, pairsPerStep = 4, signal } = given;
  expectUsed(loss, given);
  const { beta = loss === "simpo" ? 2 : 0.1, lengthNormalized = loss !== "sigmoid" } = given;
  const { config } = trainer.model;
  const all = listed("dpo: pairs", pairs, (place, pair) =>
    textsOf(place, pair, ["chosen", "rejected"], config),
  );
  if (all.length === 0) throw invalid("dpo: there are no pairs; give at least one");
  expectNoDropout("dpo", trainer);
  expectCount("dpo", trainer, { pairsPerStep }, 4); // two texts of a prompt and a continuation
  const { gradientAccumulation } = trainer.options;
  const perStep = pairsPerStep * gradientAccumulation;
  const { steps = Math.ceil(all.length / perStep) } = given;
  const chosen = { loss, beta, gamma, labelSmoothing };
  const lengths = all.map(
    ({ prompt, chosen, rejected }) => 2 * prompt.length + chosen.length + rejected.length,
  );
  expectRoom("dpo", trainer, { pairsPerStep }, lengths, steps); // before the reference is asked, which may take long
  const none = loss === "simpo" ? all.map((): ReferencePair => [0, 0]) : undefined;
  const reference = none ?? (await referenceOf(trainer, all, given));
  for (let made = 0; made < steps; made++) {
    const seen = { objective: 0, margin: 0, accuracy: 0, chosen: 0, rejected: 0 };
    throwIfAborted(signal, "dpo"); // not between micro-steps: half a step would be left
    expectRoom("dpo", trainer, { pairsPerStep }, lengths, 1); // the trainer may have made other steps since
    const before = trainer.steps;
    const parts: WeightedBatch[] = [];
    for (const places of partsOf(trainer, before, pairsPerStep, all.length)) {
      const batch = packed(places.map((place) => all[place] as PreferencePair));
      const own = await sums(trainer.model, batch, trainer.adapter);
      const slopes = places.flatMap((place, i) => {
        const [a, b] = [own[2 * i] as number, own[2 * i + 1] as number];
        const lengths = lengthNormalized ? batch.lengths.slice(2 * i, 2 * i + 2) : [1, 1];
        const [inChosen = 1, inRejected = 1] = lengths;
        const [c, r] = reference[place] as ReferencePair;
        const apart = (a - c) / inChosen - (b - r) / inRejected;
        const [value, slope] = pairLoss(apart, chosen);
        seen.objective += value / perStep;
        seen.margin += (beta * apart) / perStep;
        seen.accuracy += Number(apart > 0) / perStep;
        seen.chosen += a / perStep;
        seen.rejected += b / perStep;
        return [slope / inChosen, -slope / inRejected];
      });
      parts.push(weightedBatch(batch, slopes));
    }
    yield { ...(await stepBy("dpo", trainer, before, parts, { divisor: perStep })), ...seen };
  }
}
