/** Searches for a learning rate. */

import type { Adapter } from "./adapter.js";
import { loadWeights } from "./checkpoint-loader.js";
import type { Data } from "./data.js";
import { throwIfAborted, toError } from "./error.js";
import type { Source } from "./file-part.js";
import { openSource } from "./file-source.js";
import { type InnerModel, models } from "./internal.js";
import { metricsOf } from "./metrics.js";
import type { Model } from "./model.js";
import { DEFAULTS } from "./optimizers.js";
import { check, integer, invalid, number, object, type Rules, show } from "./options.js";
import { LONG, type LongOptions, report, reported } from "./progress.js";
import { dispose } from "./raw-handle.js";
import type { Ask, RawDataset, RawLoader, RawModule } from "./raw-types.js";
import { type RawOptions, TRAINER } from "./trainer-options.js";
import type { RateOptions, RatePoint, RateSearch } from "./trainer-types.js";
import { watched } from "./watch.js";

const WHERE = "Trainer.findLearningRate";

const RULES: Rules<RateOptions & LongOptions> = {
  from: number(0, Number.POSITIVE_INFINITY, true),
  to: number(0, Number.POSITIVE_INFINITY, true),
  steps: integer(3, 100_000),
  trainer: object,
  ...LONG,
};

/** How much of the mean of losses a step keeps. */
const KEPT = 0.9;
/** The search ends where the mean is this many times the best one. */
const DIVERGED = 4;

type CopyOptions = NonNullable<RateOptions["trainer"]>;

interface Search {
  readonly module: RawModule;
  readonly source: Source;
  readonly names: readonly string[];
  readonly data: RawDataset;
  /** Refuses steps that are too short for the data. */
  fits(tokensPerStep: number): void;
  /** The trainer's options as JSON. */
  readonly json: string;
  readonly rates: readonly number[];
  readonly long: LongOptions;
  loader(config: string): RawLoader | Promise<RawLoader>;
}

/** {@link Trainer.findLearningRate}. */
export async function findLearningRate(
  trained: Model | Adapter,
  data: Data,
  options: RateOptions & LongOptions,
): Promise<RateSearch> {
  try {
    return await found(trained, data, options);
  } catch (error) {
    // What was aborted is the search, and not the save and the loading that it is made of.
    if (toError(error).code === "aborted") throwIfAborted(options.signal, WHERE);
    throw error;
  }
}

async function found(
  trained: Model | Adapter,
  data: Data,
  options: RateOptions & LongOptions,
): Promise<RateSearch> {
  const { from, to, steps, trainer, signal, onProgress } = {
    from: 1e-6,
    to: 1,
    steps: 100,
    ...check(WHERE, options, RULES),
  };
  if (from >= to) throw invalid(`${WHERE}: from is ${from} and to is ${to}; from has to be less`);
  const inner = models.find(trained);
  if (!inner) throw invalid(`${WHERE} takes a Model or an Adapter first, not ${show(trained)}`);
  const long = { ...(signal && { signal }), ...(onProgress && { onProgress }) };
  const { runtime, names } = inner;
  const json = trainerJson(trainer, to);
  // A packed model cannot be saved; why it is not trained is for its trainer to say.
  if (!inner.base && (trained as Model).weights !== "f32") await refusedTrainer(inner, json);
  // The copy that is trained, so that the model or adapter itself stays as it is to the bit.
  const dtype = inner.base ? undefined : ("f32" as const);
  const files = await trained.save({ ...(signal && { signal }), ...(dtype && { dtype }) });
  const source = openSource(WHERE, files, {});
  const rates = Array.from({ length: steps }, (_, i) => from * (to / from) ** (i / (steps - 1)));
  const search = (module: RawModule, loader: Search["loader"]) =>
    searched({
      module,
      source,
      names,
      data: data.raw(module),
      fits: (tokensPerStep) => data.expectFits(tokensPerStep),
      json,
      rates,
      long,
      loader,
    });
  if (inner.base) {
    const over = inner.base.handle;
    return over.run((raw) => search(runtime.module, (config) => raw.adaptAs(config)), signal);
  }
  return runtime.call(
    (raw, module) => search(module, (config) => new module.RawLoader(raw, config)),
    signal,
  );
}

/** Fails as `Trainer.create` does with such a model. */
function refusedTrainer({ handle, runtime }: InnerModel, json: string): Promise<void> {
  return handle.run(async (raw) => {
    const create = (ask: Ask) => runtime.module.RawTrainer.create(raw, json, ask);
    dispose(await watched(WHERE, {}, create));
  });
}

/** The options of the copy's trainer, whose rate is set before each step. */
function trainerJson(given: RateOptions["trainer"], learningRate: number): string {
  const { learningRate: _, minLearningRate: _1, schedule: _2, ...rest } = TRAINER;
  const { warmupSteps: _3, totalSteps: _4, ...rules } = rest;
  const chosen = check<CopyOptions>(`${WHERE}: trainer`, given, rules);
  const own = { learningRate, schedule: "constant", warmupSteps: 0 };
  return JSON.stringify({ ...DEFAULTS[chosen.optimizer ?? ""], ...chosen, ...own });
}

/** Trains a copy, each step at a higher rate. */
async function searched({
  module,
  data,
  fits,
  json,
  rates,
  long,
  ...by
}: Search): Promise<RateSearch> {
  const { signal } = long;
  const silent = signal ? { signal } : {};
  const model = await loadWeights({ module, ...by }, silent, { sum: 0 });
  try {
    const trainer = await watched(WHERE, silent, (ask) =>
      module.RawTrainer.create(model, json, ask),
    );
    try {
      fits((JSON.parse(trainer.options()) as RawOptions).tokensPerStep);
      const points: RatePoint[] = [];
      let mean = 0;
      for (const learningRate of rates) {
        throwIfAborted(signal, WHERE);
        report(long, { loaded: points.length, total: rates.length, stage: "search" });
        trainer.setLearningRate(learningRate);
        const step = await trainer.stepDataset(data, () => signal?.aborted === true);
        const { loss, skipped } = metricsOf(step);
        mean = KEPT * mean + (1 - KEPT) * loss;
        const smoothed = mean / (1 - KEPT ** (points.length + 1));
        if (skipped) break;
        points.push({ learningRate, loss, smoothed });
        if (smoothed > DIVERGED * Math.min(...points.map((point) => point.smoothed))) break;
      }
      await reported(long);
      return { learningRate: steepest(points), points };
    } finally {
      dispose(trainer);
    }
  } finally {
    dispose(model);
  }
}

/** The rate at which the mean falls fastest, before its least. */
function steepest(points: readonly RatePoint[]): number | null {
  const means = points.map((point) => point.smoothed);
  const least = means.indexOf(Math.min(...means));
  let found: number | null = null;
  let most = 0;
  for (let i = 1; i <= least && i + 1 < points.length; i++) {
    const fall = (means[i - 1] as number) - (means[i + 1] as number);
    if (fall > most) {
      most = fall;
      found = (points[i] as RatePoint).learningRate;
    }
  }
  return found;
}
