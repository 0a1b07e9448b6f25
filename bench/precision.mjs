// How far training in mixed precision, or with moments in 8 bits, is from training in f32, on the built-in task, or of
// seed on a given text: loss curves of the same seeds, beside a control in f32 whose learning rate differs by a
// ten-thousandth, since training magnifies any rounding. Importable in a page and in Node.
import { CONFIGS } from "./workloads.mjs";

/** Seeds of weights and data that are trained with; a software adapter takes minutes for one. */
const SEEDS = { hardware: 8, software: 1 };
/** Steps that a point of a curve is the mean of. */
const WINDOW = 50;
/** What is trained, each set beside the first. */
const VARIANTS = {
  f32: {},
  mixed: { precision: "mixed" },
  "f32, learning rate x 1.0001": { nudge: 1.0001 },
  "8-bit moments": { optimizer: "adamw8bit" },
};

const mean = (values) => values.reduce((sum, one) => sum + one, 0) / values.length;
const largest = (values) => values.reduce((most, one) => Math.max(most, one), 0);
/** How far each value is above its reference, as a share of that. */
const above = (values, references) =>
  values.map((value, i) => (value - references[i]) / references[i]);
const farthest = (values, references) => largest(above(values, references).map(Math.abs));

/** Means of consecutive whole windows. */
function windows(losses) {
  const points = [];
  for (let at = 0; at + WINDOW <= losses.length; at += WINDOW)
    points.push(mean(losses.slice(at, at + WINDOW)));
  return points;
}

/** Standard error of a mean; none of a single value. */
function standardError(values) {
  const center = mean(values);
  const squares = values.map((value) => (value - center) ** 2);
  return values.length > 1 ? Math.sqrt(mean(squares) / (values.length - 1)) : undefined;
}

/** Of the seed configuration on a text: one document a step. */
function seedSettings(steps) {
  const { config, tokens } = CONFIGS.seed;
  const rates = { learningRate: 3e-4, minLearningRate: 3e-5 };
  return { config, steps, tokensPerStep: tokens, sequenceLength: tokens, ...rates };
}

/** Trains once. Gives each step's loss and the loss on the text's last tenth. */
async function trainOnce(tinyloom, job, runtime, settings, { nudge = 1, ...options }) {
  const { config, seed, steps, tokensPerStep, sequenceLength } = settings;
  const { learningRate, minLearningRate, text = job.storiesFor(settings) } = settings;
  const tokens = new tinyloom.ByteTokenizer().encode(text);
  const dataset = tinyloom.Dataset.fromTokens(tokens, {
    sequenceLength,
    validationFraction: job.validationFraction,
    seed,
  });
  const model = await tinyloom.Model.create(runtime, config, { seed });
  const trainer = await tinyloom.Trainer.create(model, {
    learningRate: learningRate * nudge,
    minLearningRate: minLearningRate * nudge,
    tokensPerStep,
    totalSteps: steps,
    ...options,
    seed,
  });
  const losses = [];
  for await (const { loss } of trainer.run(dataset, { steps, stepsAhead: 4 })) losses.push(loss);
  const { loss: validation } = await trainer.evaluate(dataset);
  if (![...losses, validation].every(Number.isFinite)) throw new Error("a loss is not finite");
  dataset.free();
  model.free();
  return { losses, validation };
}

/** What separates a variant's runs from those in f32 of the same seeds: shares of the latter. */
function compare(runs, references) {
  const validations = (all) => all.map((run) => run.validation);
  const worse = above(validations(runs), validations(references));
  const curve = (all) =>
    windows(all[0].losses.map((_, step) => mean(all.map((run) => run.losses[step]))));
  const single = runs.map((run, i) => farthest(windows(run.losses), windows(references[i].losses)));
  return {
    validation: mean(validations(runs)),
    validationAbove: mean(worse),
    validationError: standardError(worse),
    validationApart: largest(worse.map(Math.abs)),
    curve: curve(runs),
    curveAbove: mean(above(curve(runs), curve(references))),
    curveApart: farthest(curve(runs), curve(references)),
    singleApart: largest(single),
  };
}

/**
 * @param job - the bundle www/dist-node/job.js: the built-in task.
 * @param options - `{ steps, limits, seeds, text, only }`: `text` is trained on instead, by seed with one document of
 *   512 bytes a step; `only` keeps the variants that contain it, beside f32.
 * @returns the settings, and rows `{ variant, seeds, validation, validationAbove, validationError,
 *   validationApart, curve, curveAbove, curveApart, singleApart }`: of the losses on the text's last
 *   tenth the mean, by how much they are above those in f32 of the same seeds with its standard error,
 *   and how far the farthest is; of the mean loss by windows of steps the curve, how far it is above f32's
 *   on average, how far at most, and how far at most in a single seed. Losses in nats per byte, distances
 *   as shares.
 */
export async function precisionSuite(tinyloom, job, gpu, options, report) {
  const { steps, limits = "adapter", text, only = "" } = options;
  if (steps < WINDOW)
    throw new Error(`give at least ${WINDOW} steps: a curve has a point for so many`);
  const runtime = await tinyloom.Runtime.create({ gpu, limits });
  const { capabilities } = runtime;
  const { adapter, software } = capabilities;
  const seeds = options.seeds ?? (software ? SEEDS.software : SEEDS.hardware);
  const results = [];
  const { seed: _, ...settings } = text
    ? seedSettings(steps)
    : job.resolveSettings({ steps }, capabilities);
  let references;
  for (const [variant, training] of Object.entries(VARIANTS)) {
    if (!variant.includes(only) && references) continue;
    const runs = [];
    for (let seed = 1; seed <= seeds; seed++) {
      const once = { ...settings, seed, ...(text ? { text } : {}) };
      runs.push(await trainOnce(tinyloom, job, runtime, once, training));
    }
    references ??= runs;
    const row = { variant, seeds, ...compare(runs, references) };
    results.push(row);
    report({ note: inWords(row) });
  }
  runtime.destroy();
  return { adapter, software, settings, window: WINDOW, results };
}

function inWords({ variant, seeds, validation, validationError, ...distances }) {
  const percent = (share) => `${(100 * share).toFixed(2)} %`;
  const { validationAbove, validationApart, curveAbove, curveApart, singleApart } = distances;
  const error = validationError === undefined ? "" : ` ± ${percent(validationError)}`;
  return [
    `${variant}, ${seeds} seeds: validation ${validation.toFixed(5)}`,
    `${percent(validationAbove)}${error} above f32, at most ${percent(validationApart)} from it`,
    `means of ${WINDOW} steps on average ${percent(curveAbove)} above f32`,
    `at most ${percent(curveApart)} from it, ${percent(singleApart)} in one seed`,
  ].join("; ");
}
