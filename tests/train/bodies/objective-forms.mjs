// Weights, soft targets and a gradient function by logits in each form of training: what the kernel computes of a teacher is
// what a function computes in f64 by the definition.
import { close, equal, ok, refuses } from "../../api/bodies/assert.mjs";
import { batch, config, trainerOptions } from "../../api/bodies/kit.mjs";

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["node"],
  why: "the kernels are those of tests/lanes, and train/objectives has the objectives one by one",
  smoke: ["recompute"],
};

const [TOKENS, IDS, TEMPERATURE, SHARE] = [20, 4, 2, 0.6];
const { tokens, targets } = batch(TOKENS);
const documents = Uint32Array.from(tokens, (_, i) => (i < 7 ? 0 : 7));
const targetWeights = Float32Array.from(tokens, (_, i) => [1.5, -0.5, 0, 2][i % 4]);
const soft = {
  ids: Uint32Array.from({ length: TOKENS * IDS }, (_, i) => (37 * i + 5) % 256),
  probabilities: Float32Array.from({ length: TOKENS * IDS }, (_, i) => 0.1 + 0.03 * (i % IDS)),
  temperature: TEMPERATURE,
  share: SHARE,
};

/** Probabilities of a row, in f64. */
function softmax(row, temperature) {
  const most = Math.max(...row);
  const powers = Array.from(row, (x) => Math.exp((x - most) / temperature));
  const sum = powers.reduce((all, x) => all + x, 0);
  return powers.map((x) => x / sum);
}

/** KL(teacher ‖ student) over ids and their rest, and its slopes by the student's tempered logits. */
function divergence(row, place) {
  const q = softmax(row, TEMPERATURE);
  const teacher = new Map();
  for (let k = 0; k < IDS; k++) {
    teacher.set(soft.ids[place * IDS + k], soft.probabilities[place * IDS + k]);
  }
  equal(teacher.size, IDS, "ids of a position");
  const [rest, left] = [1, 1].map(
    (whole, of) => whole - [...teacher].reduce((sum, [id, p]) => sum + (of === 0 ? p : q[id]), 0),
  );
  let loss = rest * Math.log(rest / left);
  for (const [id, p] of teacher) loss += p * Math.log(p / q[id]);
  const slopes = q.map((own, id) => own - (teacher.get(id) ?? (rest * own) / left));
  return [loss, slopes];
}

/** The same objective as that of the step with soft targets. */
function byDefinition({ logits, first, rows, vocabulary }) {
  const gradient = new Float64Array(logits.length);
  let loss = 0;
  for (let i = 0; i < rows; i++) {
    const row = logits.subarray(i * vocabulary, (i + 1) * vocabulary);
    const [weight, target] = [targetWeights[first + i], targets[first + i]];
    const [apart, slopes] = divergence(row, first + i);
    const p = softmax(row, 1);
    loss += weight * (SHARE * TEMPERATURE ** 2 * apart - (1 - SHARE) * Math.log(p[target]));
    for (const [id, own] of p.entries()) {
      const hard = (1 - SHARE) * (own - (id === target ? 1 : 0));
      gradient[i * vocabulary + id] = weight * (hard + SHARE * TEMPERATURE * slopes[id]);
    }
  }
  return { gradient, loss };
}

const norm = (a) => Math.sqrt(a.reduce((sum, x) => sum + x * x, 0));

/** A trainer whose steps change next to nothing. */
async function still({ tinyloom, runtime }, { adapted, ...more }) {
  const model = await tinyloom.Model.create(runtime, config, { seed: 5 });
  const of = adapted ? await tinyloom.Adapter.create(model, { rank: 4, seed: 2 }) : model;
  return tinyloom.Trainer.create(of, { ...trainerOptions, ...more, learningRate: 1e-20 });
}

async function same(host, more, tolerance) {
  const [kernel, own] = [await still(host, more), await still(host, more)];
  const steps = more.gradientAccumulation ?? 1;
  const normalize = 9 * steps;
  let [expected, got] = [];
  for (let i = 0; i < steps; i++) {
    got = await kernel.step({ tokens, targets, documents, targetWeights, soft, normalize });
    expected = await own.step({ tokens, documents, gradient: byDefinition, normalize });
  }
  close(got.loss, expected.loss, tolerance * (1 + Math.abs(expected.loss)), "loss");
  const [found, wanted] = [await kernel.gradients(), await own.gradients()];
  for (const [name, values] of Object.entries(wanted)) {
    const size = norm(values);
    if (more.adapted && name.includes("lora_A")) continue; // zero while B is
    const apart = norm(found[name].map((x, i) => x - values[i])) / size;
    ok(size > 0 && apart < tolerance, `${name} is ${apart} apart`);
  }
  for (const { model } of [kernel, own]) model.free();
}

export const cases = {
  ...Object.fromEntries(
    [
      ["an accumulation", { gradientAccumulation: 2 }, 1e-4],
      ["recompute", { recompute: true }, 1e-4],
      ["mixed precision", { precision: "mixed" }, 5e-3],
      ["the last layer alone", { lastLayers: 1 }, 1e-4],
      ["an adapter", { adapted: true }, 1e-4],
    ].map(([name, more, tolerance]) => [name, (host) => same(host, more, tolerance)]),
  ),

  async "a step whose function never settles ends with its trainer"(host) {
    const trainer = await still(host, {});
    const { model } = trainer;
    let step;
    await new Promise((asked) => {
      const gradient = () => new Promise(() => asked());
      step = trainer.step({ tokens, gradient });
    });
    trainer.free();
    await refuses("freed", "Trainer", () => step);
    model.free();
  },
};
