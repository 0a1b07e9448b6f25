/** Steps with an objective of their own: their options checked, and how the module takes them. */

import { either } from "./abortable.js";
import type { InnerRuntime } from "./inner-runtime.js";
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
import type { AskGradient, RawMetrics, RawTrainer } from "./raw-types.js";
import { toTokens } from "./tokens.js";
import type { Batch, GradientRows, SoftTargets, StateRows, StepGradient } from "./trainer-types.js";

type Objective = Omit<Batch, "tokens" | "targets" | "documents">;
/** A function for either kind of rows: which it takes is the caller's to know. */
interface Given {
  gradient: (rows: GradientRows & StateRows) => StepGradient | Promise<StepGradient>;
  gradientBy?: "logits" | "states";
  normalize?: number;
}

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
  ids: (value) => (value == null ? "as many token ids for each position" : undefined),
  probabilities: anything,
  direction: oneOf("forward", "reverse"),
  rest: oneOf("class", "renormalize"),
  share: number(0, 1),
  temperature: number(0, undefined, true),
};

const GIVEN: Rules<Given> = {
  gradient: callback,
  gradientBy: oneOf("logits", "states"),
  normalize: number(0, undefined, true),
};

/** Whose step it is. */
interface Own {
  readonly runtime: InnerRuntime;
  /** Fires when the trainer is freed: a gradient function is not waited for then. */
  readonly ended: AbortSignal;
}

/** A step whose batch has more than tokens, targets and documents. */
export async function stepBy(
  raw: RawTrainer,
  tokens: Uint32Array,
  documents: Uint32Array | undefined,
  { targets, ...more }: { targets: unknown } & Partial<Objective & Given>,
  own: Own,
): Promise<RawMetrics> {
  if (more.gradient !== undefined) {
    if (targets !== undefined) {
      throw invalid("step: a gradient function has no targets beside it; leave them out");
    }
    const given = check<Given>("step with a gradient function", more, GIVEN, "gradient");
    return stepGiven(raw, tokens, documents, given, own);
  }
  const { targetWeights, soft, ...numbers } = check<Objective>("step", more, OBJECTIVE);
  const wanted = toTokens("targets", targets);
  const weights =
    targetWeights === undefined ? undefined : toNumbers("targetWeights", targetWeights);
  const teacher =
    soft === undefined ? undefined : check<SoftTargets>("step: soft", soft, SOFT, "ids");
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
    const list: readonly unknown[] | undefined = Array.isArray(values) ? values : undefined;
    const wrong = list?.findIndex((one) => typeof one !== "number") ?? -1;
    if (list && wrong >= 0)
      throw invalid(`${name}[${wrong}] is ${show(list[wrong])}; give numbers`);
    if (list || isA(values, Float32Array) || isA(values, Float64Array)) {
      return Float32Array.from(values as Float32Array);
    }
    throw invalid(`${name} is ${show(values)}; give a Float32Array or an array of numbers`);
  });
}

async function stepGiven(
  raw: RawTrainer,
  tokens: Uint32Array,
  documents: Uint32Array | undefined,
  { gradient, gradientBy, normalize = 1 }: Given,
  { runtime, ended }: Own,
): Promise<RawMetrics> {
  let failed: { error: unknown } | undefined;
  const byStates = gradientBy === "states";
  const ask: AskGradient = async (values, first, rows, place) => {
    try {
      const columns = values.length / rows;
      const of = byStates
        ? { states: values, first, rows, hidden: columns }
        : { logits: values, first, rows, vocabulary: columns };
      const work = async () => gradient(of as GradientRows & StateRows);
      const given = await awaited("step: gradient", () => either(work(), ended));
      const [own, loss] = checkedGradient(given, values.length);
      if (!isBuffer(own)) return [own, loss];
      const [device, to] = placed(runtime, place);
      await write(device, own, to, [rows, columns]);
      return [null, loss];
    } catch (error) {
      failed = { error };
      throw error;
    }
  };
  try {
    return await raw.stepGiven(tokens, documents, normalize, byStates, ask);
  } catch (error) {
    throw failed ? failed.error : error;
  }
}

const isBuffer = (value: unknown): value is GPUBuffer =>
  typeof (value as Partial<GPUBuffer> | null)?.mapAsync === "function";

function checkedGradient(given: StepGradient, length: number): [Float32Array | GPUBuffer, number] {
  const { gradient, loss } = called("step: gradient", () => ({ ...given }));
  const own = isBuffer(gradient)
    ? gradient
    : toNumbers("step: the gradient that gradient() gave", gradient);
  const numbers = isBuffer(own) ? Math.floor(own.size / 4) : own.length;
  if (isBuffer(own) ? numbers < length : numbers !== length) {
    throw invalid(
      `step: gradient() gave ${numbers} numbers; it must give ${length}, one for each that it was given`,
    );
  }
  if (typeof loss !== "number") {
    throw invalid(`step: gradient() gave ${show(loss)} as loss; it must give a number`);
  }
  return [own, loss];
}

/** Where rows of a gradient lie, in bytes. */
interface Place {
  readonly buffer: GPUBuffer;
  readonly offset: number;
  readonly rowBytes: number;
}

function placed(runtime: InnerRuntime, place: Float64Array | undefined): [GPUDevice, Place] {
  if (!place) {
    throw invalid(
      "step: gradient() gave a GPUBuffer, and this model caps its logits: give the gradient's numbers",
    );
  }
  const [id = 0, offset = 0, rowBytes = 0] = place;
  return runtime.callSync((raw) => [raw.device(), { buffer: raw.buffer(id), offset, rowBytes }]);
}

/** Copies rows of a gradient to where the module reads them. */
async function write(
  device: GPUDevice,
  from: GPUBuffer,
  { buffer, offset, rowBytes }: Place,
  [rows, columns]: readonly [number, number],
): Promise<void> {
  const bytes = columns * 4;
  const [count, each] = rowBytes === bytes ? [1, rows * bytes] : [rows, bytes];
  device.pushErrorScope("validation");
  let thrown: unknown;
  try {
    const encoder = device.createCommandEncoder();
    for (let row = 0; row < count; row++) {
      encoder.copyBufferToBuffer(from, row * bytes, buffer, offset + row * rowBytes, each);
    }
    device.queue.submit([encoder.finish()]);
  } catch (error) {
    // What only looks like a buffer is refused at once, and the scope is still open.
    thrown = error;
  }
  const refused = (await device.popErrorScope()) ?? thrown;
  if (refused !== undefined) {
    const why = (refused as Error).message;
    throw invalid(
      `step: the GPUBuffer that gradient() gave cannot be copied (${why}); give one of runtime.device with ` +
        "usage COPY_SRC",
    );
  }
}
