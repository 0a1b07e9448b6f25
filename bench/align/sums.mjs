// Reinforcement: a model that has learned sums from data of which a third is wrong comes to give right ones.
import { batchOf, random, shuffled, timed, written } from "./kit.mjs";

const [PLUS, EQUALS, END] = [10, 11, 12];
/** Tokens of a sum with its answer. */
const LENGTH = 9;

export const config = {
  model_type: "gpt2",
  vocab_size: 16,
  n_embd: 32,
  n_inner: 64,
  n_layer: 1,
  n_head: 4,
  n_positions: 16,
  embd_pdrop: 0,
  attn_pdrop: 0,
  resid_pdrop: 0,
  eos_token_id: END,
};

/** The last digits of a number, the last one first. */
const digits = (number, count) =>
  Array.from({ length: count }, (_, i) => Math.floor(number / 10 ** i) % 10);

/** "27+5=", and the answer from the last digit on, as one adds up: 230 for 32. */
const prompt = ([a, b]) => [...digits(a, 2).reverse(), PLUS, b, EQUALS];
const answer = (sum) => [...digits(sum, 3), END];
const right = ([a, b]) => answer(a + b);

/** All sums of a number below 100 and one below 10: those that are learned, and those of the test, which nothing sees. */
function split(seed) {
  const sums = Array.from({ length: 1000 }, (_, i) => [i % 100, Math.floor(i / 100)]);
  const mixed = shuffled(sums, random(seed));
  return { test: mixed.slice(0, 200), known: mixed.slice(200) };
}

/** Supervised steps, of whose answers one in three is any number. */
async function learn(trainer, sums, { seed, steps, texts }) {
  const draw = random(seed);
  const any = (below) => Math.floor(draw() * below);
  for (let step = 0; step < steps; step++) {
    const batch = Array.from({ length: texts }, () => {
      const sum = sums[any(sums.length)];
      return [prompt(sum), any(3) === 0 ? answer(any(109)) : right(sum)];
    });
    await trainer.step(batchOf(batch));
  }
}

/** The share of right answers: of those that are drawn at temperature 1, and of the likeliest ones. */
async function accuracy(model, sums) {
  const share = async (temperature) => {
    const asked = { temperature, maxTokens: 4, end: END, seed: 1 };
    const texts = await written(model, sums.map(prompt), asked);
    const hits = texts.filter((text, i) => [...text, END].join() === right(sums[i]).join());
    return hits.length / sums.length;
  };
  return { sampled: await share(1), greedy: await share(0) };
}

/**
 * @param options - `seed`; `steps` of learning, with `texts` each; `updates` of GRPO, with a point of the curve after
 * `each`; `report` hears of each point.
 * @returns the curve, whose first point is before reinforcement; the control after as many further supervised steps; seconds.
 */
export async function sums({ Model, Trainer, align }, runtime, options) {
  const { seed, steps = 600, updates = 150, each = 30, texts = 64, report = () => {} } = options;
  const { test, known } = split(seed);
  const tokensPerStep = texts * LENGTH;
  const supervised = { optimizer: "muon", weightDecay: 0.01, tokensPerStep, seed };
  const model = await Model.create(runtime, config, { seed });
  const schedule = { learningRate: 0.02, totalSteps: steps };
  const first = await Trainer.create(model, { ...supervised, ...schedule });
  const [, learning] = await timed(() => learn(first, known, { seed, steps, texts }));
  const { minLearningRate } = first.options;
  first.free();
  const before = await model.save();
  const curve = [{ step: 0, ...(await accuracy(model, test)) }];
  report(curve[0]);

  // The rate falls: at a constant one the answers waver.
  const reinforced = { learningRate: 3e-3, totalSteps: updates, warmupSteps: 5, weightDecay: 0 };
  const trainer = await Trainer.create(model, { ...reinforced, tokensPerStep, seed });
  const reward = ({ index, tokens }) => Number(tokens.join() === right(known[index]).join());
  const asked = { reward, group: 8, promptsPerStep: texts / 8, maxTokens: 4, steps: updates };
  let reinforcement = 0;
  let began = performance.now();
  for await (const { step, reward, entropy } of align.grpo(trainer, known.map(prompt), asked)) {
    if (step % each && step < updates) continue;
    reinforcement += (performance.now() - began) / 1e3;
    curve.push({ step, reward, entropy, ...(await accuracy(model, test)) });
    report(curve.at(-1));
    began = performance.now();
  }
  model.free();

  const other = await Model.fromPretrained(runtime, before);
  const further = { learningRate: minLearningRate, schedule: "constant", warmupSteps: 0 };
  const control = await Trainer.create(other, { ...supervised, ...further });
  await learn(control, known, { seed: seed + 1000, steps: updates, texts });
  const found = { curve, control: await accuracy(other, test) };
  other.free();
  return { ...found, seconds: { learning, reinforcement } };
}
