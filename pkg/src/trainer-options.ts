/** What is checked of a trainer's options, and how the module reports them. */

import { DEFAULTS, OPTIMIZER } from "./optimizers.js";
import {
  check,
  flag,
  fraction,
  inspect,
  integer,
  number,
  oneOf,
  orNull,
  type Rule,
  type Rules,
  seed,
} from "./options.js";
import { LONG, type LongOptions } from "./progress.js";
import type {
  DropoutRates,
  ResolvedTrainerOptions,
  Schedule,
  TrainerOptions,
} from "./trainer-types.js";

const MAX_U32 = 0xffff_ffff;

const share = fraction();

const PLACES: Rules<DropoutRates> = { embedding: share, attention: share, residual: share };

/** A rate for all places, or for some of them by name. */
const dropout: Rule = (value) => {
  if (typeof value === "object" && value) check("dropout", value, PLACES);
  else
    return (
      share(value) && `${share(undefined)}, or { embedding, attention, residual } of such numbers`
    );
};

/** Rules of {@link TrainerOptions}. */
export const TRAINER: Rules<TrainerOptions> = {
  ...OPTIMIZER,
  schedule: oneOf("constant", "linear", "cosine"),
  warmupSteps: integer(0, MAX_U32),
  totalSteps: integer(1, MAX_U32),
  minLearningRate: number(0),
  maxGradNorm: orNull(number(0, Number.POSITIVE_INFINITY, true)),
  gradientAccumulation: integer(1, 65_536),
  tokensPerStep: integer(1, MAX_U32),
  recompute: flag,
  precision: oneOf("f32", "mixed"),
  lastLayers: orNull(integer(1, MAX_U32)),
  labelSmoothing: share,
  zLoss: number(0),
  dropout,
  ema: orNull(share),
  seed,
};

/** Checks the options of `Trainer.create`, and of what prepares it. `json` are those of the module. */
export function toldOptions(what: string, options: TrainerOptions & LongOptions) {
  const { signal, onProgress, ...chosen } = check<TrainerOptions & LongOptions>(what, options, {
    ...TRAINER,
    ...LONG,
  });
  const json = inspect(what, () =>
    JSON.stringify({ ...DEFAULTS[chosen.optimizer ?? ""], ...chosen }),
  );
  const long: LongOptions = { ...(signal && { signal }), ...(onProgress && { onProgress }) };
  return { long, json, fixedTotal: chosen.totalSteps !== undefined };
}

/** The options as the module reports them, as far as they differ from the public ones. */
export interface RawOptions extends Omit<ResolvedTrainerOptions, "minLearningRate"> {
  readonly minLearningRate: number | null;
}

/** The schedule as the module reports it. */
export interface RawSchedule extends Omit<Schedule, "kind"> {
  readonly schedule: Schedule["kind"];
}
