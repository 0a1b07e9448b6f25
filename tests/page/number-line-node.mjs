// A Node process with Dawn: the stage's map of the digits, of models that have learned nothing and of one that learns
// to sort. Prints for each how much of a line it is.
import { ByteTokenizer, Dataset, Model, Runtime, Trainer } from "tinyloom";
import { create } from "webgpu";
import { presets } from "../../www/src/sizes.mjs";
import { pageModule } from "./page-module.mjs";

const { mapOf } = await pageModule("src/loom/number-line");
const { numbersOf, sizeOf, weavable, weightsOf } = await pageModule("src/loom/weights");
const { sort } = await pageModule("src/tasks/sort");
const { END, HELD_OUT, problemText, readProblems } = await pageModule("src/tasks/task");

const { config, minLearningRate } = presets.thimble;
const shape = weavable(config);
/** Models without a step, and the seed of the one that learns. */
const [UNTRAINED, SEED] = [60, 2];
/** Steps after which the map is drawn; each begins from the one before, as on the stage. */
const LOOKS = [0, 20, 50, 100];

const runtime = await Runtime.create({ gpu: create([]) });

/** The place of each number among all, from the least on. */
function ranksOf(numbers) {
  const order = [...numbers.keys()].sort((a, b) => numbers[a] - numbers[b]);
  return numbers.map((_, at) => order.indexOf(at));
}

/** Spearman's rank correlation of numbers with their own order; no two are equal. */
function ordered(numbers) {
  const count = numbers.length;
  const squares = ranksOf(numbers).reduce((sum, rank, at) => sum + (rank - at) ** 2, 0);
  return 1 - (6 * squares) / (count * (count ** 2 - 1));
}

/** How many digits have next to them on the map a digit that is larger or smaller by one. */
function neighbours(points) {
  return points.filter(([x, y], digit) => {
    const far = points.map(([a, b], at) => (at === digit ? Infinity : Math.hypot(a - x, b - y)));
    return Math.abs(far.indexOf(Math.min(...far)) - digit) === 1;
  }).length;
}

/** @param before - the directions of an earlier map. */
async function lineOf(model, before) {
  const files = await model.save();
  const numbers = new Float32Array(sizeOf(shape));
  const weights = weightsOf(shape, numbersOf(shape, files["model.safetensors"], numbers));
  const { directions, points } = mapOf(weights, before);
  const [line, next] = [ordered(points.map(([x]) => x)), neighbours(points)];
  return { directions, line, next };
}

async function untrained() {
  const found = [];
  for (let seed = 0; seed < UNTRAINED; seed++) {
    const model = await Model.create(runtime, config, { seed });
    const { line, next } = await lineOf(model);
    found.push({ line, next });
    await model.free();
  }
  return found;
}

async function trained() {
  const problems = readProblems(sort, await problemText(sort, SEED));
  const dataset = await Dataset.fromDocuments(problems, new ByteTokenizer(), {
    endToken: END,
    validationFraction: HELD_OUT,
    seed: SEED,
  });
  const model = await Model.create(runtime, config, { seed: SEED });
  const { steps: totalSteps, tokensPerStep, learningRate } = sort.training;
  const options = { tokensPerStep, learningRate, minLearningRate, totalSteps, seed: SEED };
  const trainer = await Trainer.create(model, options);
  const looks = [];
  let before;
  for (const step of LOOKS) {
    if (step > 0) for await (const _ of trainer.run(dataset, { until: step }));
    const { directions, line, next } = await lineOf(model, before);
    before = directions;
    looks.push({ step, line, next });
  }
  return looks;
}

console.log(JSON.stringify({ untrained: await untrained(), trained: await trained() }));
process.exit(0); // Dawn's threads would keep the process alive
