// Preferences: a model that mostly copies letters as they are comes to write them large.
import { batchOf, mean, random, shuffled, timed, written } from "./kit.mjs";

/** Letters; their large forms come behind the small ones. */
const LETTERS = 8;
const [EQUALS, END] = [16, 17];

export const config = {
  model_type: "llama",
  vocab_size: 20,
  hidden_size: 32,
  intermediate_size: 64,
  num_hidden_layers: 1,
  num_attention_heads: 4,
  max_position_embeddings: 16,
  tie_word_embeddings: true,
  eos_token_id: END,
};

const prompt = (letters) => [...letters, EQUALS];
const small = (letters) => [...letters, END];
const large = (letters) => [...letters.map((id) => id + LETTERS), END];

/** All texts of three letters: those that the model learns, those of the pairs, and those of the test. */
function split(seed) {
  const all = Array.from({ length: LETTERS ** 3 }, (_, i) =>
    [0, 1, 2].map((at) => Math.floor(i / LETTERS ** at) % LETTERS),
  );
  const mixed = shuffled(all, random(seed));
  return { test: mixed.slice(0, 128), pairs: mixed.slice(128, 256), learned: mixed.slice(256) };
}

/** Log-probabilities of completions. */
async function sums(model, texts) {
  const { tokens, targets, documents } = batchOf(texts);
  const { logprobs } = await model.score(tokens, { targets, documents });
  const found = new Map();
  for (const [i, start] of documents.entries()) {
    found.set(start, (found.get(start) ?? 0) + logprobs[i]);
  }
  return [...found.values()];
}

/** Supervised steps, of whose copies one in five is large. */
async function learn(trainer, all, { seed, steps, texts }) {
  const draw = random(seed);
  for (let step = 0; step < steps; step++) {
    const batch = Array.from({ length: texts }, () => {
      const letters = all[Math.floor(draw() * all.length)];
      return [prompt(letters), draw() < 0.2 ? large(letters) : small(letters)];
    });
    await trainer.step(batchOf(batch));
  }
}

/**
 * What the model writes for prompts, four times each at temperature 1: the share of large copies, and of copies of either
 * kind; the mean log-probability of large copies; the mean divergence from the reference, in nats per text.
 */
async function measured(model, reference, test) {
  const prompts = [...test, ...test, ...test, ...test];
  const asked = { temperature: 1, maxTokens: 4, end: END, seed: 1 };
  const drawn = await written(model, prompts.map(prompt), asked);
  const texts = drawn.map((text) => (text.length < 4 ? [...text, END] : text));
  const share = (kind) =>
    mean(texts.map((text, i) => Number(text.join() === kind(prompts[i]).join())));
  const whole = texts.map((text, i) => [prompt(prompts[i]), text]);
  const [own, theirs] = [await sums(model, whole), await sums(reference, whole)];
  const wanted = test.map((letters) => [prompt(letters), large(letters)]);
  const preferred = share(large);
  return {
    preferred,
    copies: preferred + share(small),
    logprob: mean(await sums(model, wanted)),
    divergence: mean(own.map((x, i) => x - theirs[i])),
  };
}

/**
 * @param options - `seed`; `steps` of learning, with `texts` each; `updates` of DPO.
 * @returns what is measured before and after, of prompts that nothing has seen; the first and last mean loss of pairs;
 * seconds.
 */
export async function kinds({ Model, Trainer, align }, runtime, options) {
  const { seed, steps = 250, updates = 50, texts = 32 } = options;
  const { test, pairs, learned } = split(seed);
  const shared = { tokensPerStep: 256, seed };
  const model = await Model.create(runtime, config, { seed });
  const supervised = { optimizer: "muon", learningRate: 0.01, weightDecay: 0.01 };
  const first = await Trainer.create(model, { ...shared, ...supervised, totalSteps: steps });
  const [, learning] = await timed(() => learn(first, learned, { seed, steps, texts }));
  first.free();
  const reference = await Model.fromPretrained(runtime, await model.save());
  const before = await measured(model, reference, test);

  const slow = { learningRate: 2e-4, schedule: "constant", warmupSteps: 5, weightDecay: 0 };
  const trainer = await Trainer.create(model, { ...shared, ...slow });
  const all = pairs.map((letters) => ({
    prompt: prompt(letters),
    chosen: large(letters),
    rejected: small(letters),
  }));
  const asked = { reference, beta: 2, pairsPerStep: 16, steps: updates };
  const objectives = [];
  const [, preferring] = await timed(async () => {
    for await (const { objective } of align.dpo(trainer, all, asked)) objectives.push(objective);
  });
  const after = await measured(model, reference, test);
  for (const one of [model, reference]) one.free();
  const objective = [objectives[0], objectives.at(-1)];
  return { before, after, objective, seconds: { learning, preferring } };
}
