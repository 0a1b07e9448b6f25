// The run of nanoGPT's `shakespeare_char` on single characters: GPT-2's blocks as there, or Llama's with as many
// weights. Importable in a page and in Node.
import configs from "./configs.json" with { type: "json" };
import { median } from "./workloads.mjs";

/** Share of the text that is trained on, as nanoGPT's prepare.py cuts it. */
const TRAINED = 0.9;
const SEED = 1337;

/**
 * nanoGPT's two configurations, and Llama's blocks in the size of the larger. `wanted` is the loss that ends a run: a
 * little above nanoGPT's, but for `llama`, which has nanoGPT's own.
 */
export const SIZES = {
  small: { ...configs["nanoGPT-small"], steps: 2000, wanted: 1.9 },
  full: { ...configs.nanoGPT, steps: 5000, wanted: 1.48 },
  llama: { ...configs["Llama-6x384"], steps: 2500, wanted: 1.4697, dropout: 0.2 },
};

/** Ids of characters, in the order of their code points. */
function encoded(text) {
  const letters = [...new Set(text)].sort();
  const ids = new Map(letters.map((letter, id) => [letter, id]));
  return {
    tokens: Uint32Array.from(text, (letter) => ids.get(letter)),
    vocabulary: letters.length,
  };
}

/** The mean loss over all targets of a split, in windows of so many tokens. */
async function evaluated(model, tokens, length) {
  const losses = [];
  for (let at = 0; at + 1 < tokens.length; at += length) {
    const end = Math.min(at + length, tokens.length - 1);
    const targets = tokens.slice(at + 1, end + 1);
    const loss = model.loss(tokens.slice(at, end), targets);
    losses.push(loss.then((mean) => ({ sum: mean * targets.length, count: targets.length })));
  }
  const parts = await Promise.all(losses);
  const total = (what) => parts.reduce((sum, part) => sum + part[what], 0);
  return { loss: total("sum") / total("count"), targets: total("count") };
}

/** nanoGPT's options of the trainer for one of {@link SIZES}. */
function optionsOf({ tokens, documents, steps, dropout }, { seed, precision }) {
  return {
    precision,
    ...(dropout === undefined ? {} : { dropout }),
    learningRate: 1e-3,
    minLearningRate: 1e-4,
    warmupSteps: 100,
    totalSteps: steps,
    beta2: 0.99,
    weightDecay: 0.1,
    maxGradNorm: 1,
    tokensPerStep: documents * tokens,
    seed,
  };
}

/**
 * Trains in turns of `every` steps; `evaluate` is called with the step and the seconds of training before the first turn
 * and after each. It ends where that gives `true`.
 *
 * @returns the median of the turns' milliseconds per step.
 * @throws Error for a loss that is not finite.
 */
async function trainInTurns(trainer, dataset, { steps, every }, evaluate) {
  const times = [];
  const seconds = () => times.reduce((sum, time) => sum + (time * every) / 1000, 0);
  for (let step = 0; step <= steps; step += every) {
    if (step > 0) {
      const started = performance.now();
      for await (const { loss } of trainer.run(dataset, { steps: every, stepsAhead: 4 })) {
        if (!Number.isFinite(loss)) throw new Error(`the loss is ${loss}`);
      }
      times.push((performance.now() - started) / every);
    }
    if (await evaluate(step, seconds())) break;
  }
  return median(times);
}

/**
 * Trains one of {@link SIZES} and evaluates it on the whole validation split.
 *
 * @param tinyloom - the package.
 * @param gpu - what `Runtime.create` takes as `gpu`; in a page undefined.
 * @param asked.every - steps between two evaluations.
 * @param asked.precision - of the trainer.
 * @param asked.plain - WebGPU's default limits and no optional feature.
 * @param asked.whole - go on after `wanted` is reached.
 * @param report - called with each evaluation.
 */
export async function nanogpt(tinyloom, gpu, asked, report) {
  const { size, text, every = 250, seed = SEED, precision = "f32", plain = false } = asked;
  const { config: sizes, tokens: length, steps, wanted } = SIZES[size];
  const { tokens, vocabulary } = encoded(text);
  const boundary = Math.floor(TRAINED * tokens.length);
  const held = tokens.slice(boundary);
  const config = { ...sizes, vocab_size: vocabulary };
  const runtime = await tinyloom.Runtime.create({
    ...(gpu ? { gpu } : {}),
    ...(plain ? { limits: "default", features: false } : {}),
  });
  const began = performance.now();
  const minutes = () => (performance.now() - began) / 60_000;
  const model = await tinyloom.Model.create(runtime, config, { seed });
  const options = optionsOf(SIZES[size], { seed, precision });
  const trainer = await tinyloom.Trainer.create(model, options);
  const dataset = tinyloom.Dataset.fromTokens(tokens.slice(0, boundary), {
    sequenceLength: length,
    validationFraction: 0,
    seed,
  });
  const evaluations = [];
  const millisecondsPerStep = await trainInTurns(
    trainer,
    dataset,
    { steps, every },
    async (step, seconds) => {
      const { loss, targets } = await evaluated(model, held, length);
      evaluations.push({ step, loss, seconds, minutes: minutes() });
      report?.({ step, loss, targets, seconds });
      return loss <= wanted && !asked.whole;
    },
  );
  const met = evaluations.find(({ loss }) => loss <= wanted);
  const { adapter, features } = runtime.capabilities;
  return {
    about: { adapter, features, userAgent: globalThis.navigator?.userAgent ?? "" },
    size,
    plain,
    config,
    options: { ...options, dropout: trainer.options.dropout },
    parameters: model.parameterCount,
    validationTargets: held.length - 1,
    evaluations,
    best: Math.min(...evaluations.map(({ loss }) => loss)),
    wanted,
    /** Of training alone, without evaluations. */
    secondsToWanted: met?.seconds,
    minutes: minutes(),
    millisecondsPerStep,
  };
}
