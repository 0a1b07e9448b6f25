// How far training in mixed precision is from training in f32, on the built-in task: loss curves of the
// same seeds, beside a control in f32 whose learning rate differs by a ten-thousandth, since training
// magnifies any rounding. Importable in a page and in Node.

/** Seeds of weights and data that are trained with; a software adapter takes minutes for one. */
const SEEDS = { hardware: 8, software: 1 };
/** Steps that a point of a curve is the mean of. */
const WINDOW = 50;
/** What is trained, each set beside the first. */
const VARIANTS = {
  f32: {},
  mixed: { precision: "mixed" },
  "f32, learning rate x 1.0001": { nudge: 1.0001 },
};

const mean = (values) => values.reduce((sum, one) => sum + one, 0) / values.length;
const largest = (values) => values.reduce((most, one) => Math.max(most, one), 0);
/** How far each value is from its reference, as a share of that. */
const apart = (values, references) =>
  values.map((value, i) => Math.abs(value - references[i]) / references[i]);

/** Means of consecutive windows. */
function windows(losses) {
  const points = [];
  for (let at = 0; at < losses.length; at += WINDOW)
    points.push(mean(losses.slice(at, at + WINDOW)));
  return points;
}

/** Trains once. Gives each step's loss and the loss on the text's last tenth. */
async function trainOnce(tinyloom, job, runtime, settings, { precision = "f32", nudge = 1 }) {
  const { config, seed, steps, tokensPerStep, sequenceLength } = settings;
  const { learningRate, minLearningRate } = settings;
  const tokens = new tinyloom.ByteTokenizer().encode(job.storiesFor(settings));
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
    precision,
    seed,
  });
  const losses = [];
  for await (const { loss } of trainer.run(dataset, { steps, stepsAhead: 4 })) losses.push(loss);
  const { loss: validation } = await trainer.evaluate(dataset);
  dataset.free();
  model.free();
  return { losses, validation };
}

/** What separates a variant's runs from those in f32 of the same seeds: shares of the latter. */
function compare(runs, references) {
  const pairs = runs.map((run, i) => [run, references[i]]);
  const curve = (all) =>
    windows(all[0].losses.map((_, step) => mean(all.map((run) => run.losses[step]))));
  return {
    validation: mean(runs.map((run) => run.validation)),
    validationApart: largest(
      apart(
        runs.map((run) => run.validation),
        references.map((run) => run.validation),
      ),
    ),
    curve: curve(runs),
    curveApart: largest(apart(curve(runs), curve(references))),
    worstRunApart: largest(
      pairs.map(([one, other]) => largest(apart(windows(one.losses), windows(other.losses)))),
    ),
  };
}

/**
 * @param job - the bundle www/dist-node/job.js: the built-in task.
 * @returns rows `{ variant, seeds, steps, validation, validationApart, curve, curveApart,
 *   worstRunApart }`: the mean loss on the text's last tenth and how far the farthest seed's is from its
 *   twin in f32; the mean loss of all seeds by windows of steps, how far the farthest window is, and how
 *   far in a single seed. Losses in nats a byte, distances as shares.
 */
export async function precisionSuite(tinyloom, job, gpu, { steps, limits = "adapter" }, report) {
  const runtime = await tinyloom.Runtime.create({ gpu, limits });
  const { capabilities } = runtime;
  const { adapter, software } = capabilities;
  const seeds = software ? SEEDS.software : SEEDS.hardware;
  const results = [];
  let references;
  for (const [variant, options] of Object.entries(VARIANTS)) {
    const runs = [];
    for (let seed = 1; seed <= seeds; seed++) {
      const settings = job.resolveSettings({ steps, seed }, capabilities);
      runs.push(await trainOnce(tinyloom, job, runtime, settings, options));
    }
    references ??= runs;
    const row = { variant, seeds, steps, ...compare(runs, references) };
    results.push(row);
    report({ note: inWords(row) });
  }
  runtime.destroy();
  return { adapter, software, results };
}

function inWords({ variant, seeds, validation, ...distances }) {
  const percent = (share) => `${(100 * share).toFixed(2)} %`;
  const { validationApart, curveApart, worstRunApart } = distances;
  return (
    `${variant.padEnd(28)} validation ${validation.toFixed(5)}, at most ${percent(validationApart)} from f32; ` +
    `means of ${WINDOW} steps at most ${percent(curveApart)} over ${seeds} seeds, ${percent(worstRunApart)} in one`
  );
}
