/** Steps with an objective of their own: their options checked, and how the module takes them. */

import {
  anything,
  awaited,
  callback,
  called,
  check,
  inspect,
  invalid,
  isA,
  number,
  oneOf,
  type Rules,
  show,
} from "./options.js";
import type { RawMetrics, RawTrainer } from "./raw-types.js";
import { toTokens } from "./tokens.js";
import type { Batch, GradientBatch, SoftTargets, StepGradient } from "./trainer-types.js";

type Objective = Omit<Batch, "tokens" | "targets" | "documents">;
type Given = Omit<GradientBatch, "tokens" | "documents">;

const divisor = (value: unknown) =>
  value === "targets" || value === "weights" || number(0, undefined, true)(value) === undefined
    ? undefined
    : '"targets" | "weights" | a number above 0';

const OBJECTIVE: Rules<Objective> = {
  targetWeights: anything,
  normalize: divisor,
  temperature: number(0, undefined, true),
  soft: anything,
};

const SOFT: Rules<SoftTargets> = {
  ids: anything,
  probabilities: anything,
  direction: oneOf("forward", "reverse"),
  rest: oneOf("class", "renormalize"),
  share: number(0, 1),
  temperature: number(0, undefined, true),
};

const GIVEN: Rules<Given> = { gradient: callback, normalize: number(0, undefined, true) };

/** A step whose batch has more than tokens, targets and documents. */
export async function stepBy(
  raw: RawTrainer,
  tokens: Uint32Array,
  documents: Uint32Array | undefined,
  { targets, ...more }: { targets: unknown } & Partial<Objective & Given>,
): Promise<RawMetrics> {
  if (more.gradient !== undefined) {
    if (targets !== undefined) {
      throw invalid("step: a gradient function has no targets beside it; leave them out");
    }
    const given = check<Given>("step with a gradient function", more, GIVEN, "gradient");
    return stepGiven(raw, tokens, documents, given);
  }
  const { targetWeights, soft, ...numbers } = check<Objective>("step", more, OBJECTIVE);
  const wanted = toTokens("targets", targets);
  const weights = targetWeights && toNumbers("targetWeights", targetWeights);
  const teacher = soft && check<SoftTargets>("step: soft", soft, SOFT, "ids");
  const words = teacher && wordsOf(teacher);
  const json = JSON.stringify({
    ...numbers,
    soft: teacher && {
      reverse: teacher.direction === "reverse",
      renormalized: teacher.rest === "renormalize",
      share: teacher.share ?? 1,
      temperature: teacher.temperature ?? numbers.temperature ?? 1,
    },
  });
  return raw.step(tokens, wanted, documents, json, weights, words);
}

/** All ids, then the bits of their probabilities. */
function wordsOf({ ids, probabilities }: SoftTargets): Uint32Array {
  const tokens = toTokens("soft.ids", ids);
  const { buffer, length } = toNumbers("soft.probabilities", probabilities);
  if (length !== tokens.length) {
    throw invalid(
      `soft.probabilities has ${length} elements and soft.ids has ${tokens.length}; the lengths must agree`,
    );
  }
  const words = new Uint32Array(2 * length);
  words.set(tokens);
  words.set(new Uint32Array(buffer), length);
  return words;
}

/** A copy of numbers, as f32. */
function toNumbers(name: string, values: unknown): Float32Array {
  return inspect(name, () => {
    const isList = Array.isArray(values) && values.every((one) => typeof one === "number");
    if (isA(values, Float32Array) || isA(values, Float64Array) || isList) {
      return Float32Array.from(values as Float32Array);
    }
    throw invalid(`${name} is ${show(values)}; give a Float32Array or an array of numbers`);
  });
}

async function stepGiven(
  raw: RawTrainer,
  tokens: Uint32Array,
  documents: Uint32Array | undefined,
  { gradient, normalize = 1 }: Given,
): Promise<RawMetrics> {
  let failed: { error: unknown } | undefined;
  const ask = async (first: number, logits: Float32Array, rows: number) => {
    try {
      const of = { logits, first, rows, vocabulary: logits.length / rows };
      return judged(await awaited("step: gradient", () => gradient(of)), logits.length);
    } catch (error) {
      failed = { error };
      throw error;
    }
  };
  try {
    return await raw.stepGiven(tokens, documents, normalize, ask);
  } catch (error) {
    throw failed ? failed.error : error;
  }
}

function judged(given: StepGradient, length: number): [Float32Array, number] {
  const { gradient, loss } = called("step: gradient", () => ({ ...given }));
  const floats = toNumbers("step: the gradient that gradient() gave", gradient);
  if (floats.length !== length) {
    throw invalid(
      `step: gradient() gave ${floats.length} numbers; it must give ${length}, one for each logit`,
    );
  }
  if (typeof loss !== "number") {
    throw invalid(`step: gradient() gave ${show(loss)} as loss; it must give a number`);
  }
  return [floats, loss];
}
