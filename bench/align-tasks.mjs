// Tasks on which the trainers of tinyloom/align show what they are for, each with its data, its tiny model and what is
// measured. tests/train/bodies/align-works.mjs runs them in short, bench/align.mjs whole.

/** Numbers that follow from a seed, at least 0 and below 1 (mulberry32). */
export function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let bits = Math.imul(state ^ (state >>> 15), state | 1);
    bits ^= bits + Math.imul(bits ^ (bits >>> 7), bits | 61);
    return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** The list in a random order. */
export function shuffled(list, draw) {
  const all = [...list];
  for (let i = all.length - 1; i > 0; i--) {
    const j = Math.floor(draw() * (i + 1));
    [all[i], all[j]] = [all[j], all[i]];
  }
  return all;
}

const IGNORED = 0xffffffff;
const [PLUS, EQUALS, END] = [10, 11, 12];
/** Tokens of a sum with its answer. */
const LENGTH = 9;

/** Sums of a number below 100 and one below 10, "27+5=" and the digits of 32 from the last one on, as one adds up. */
export const addition = {
  config: {
    model_type: "llama",
    vocab_size: 16,
    hidden_size: 32,
    intermediate_size: 64,
    num_hidden_layers: 1,
    num_attention_heads: 4,
    max_position_embeddings: 16,
    tie_word_embeddings: true,
    eos_token_id: END,
  },
  /** Sums for learning, for reinforcement and for the test: no sum is in two of the lists. */
  split(seed) {
    const sums = Array.from({ length: 1000 }, (_, i) => [i % 100, Math.floor(i / 100)]);
    const mixed = shuffled(sums, random(seed));
    return { test: mixed.slice(0, 200), prompts: mixed.slice(200, 400), learned: mixed.slice(400) };
  },
  prompt: ([a, b]) => [...digits(a, 2).reverse(), PLUS, b, EQUALS],
  answer: (sum) => [...digits(sum, 3), END],
};

const digits = (number, count) =>
  Array.from({ length: count }, (_, i) => Math.floor(number / 10 ** i) % 10);

/** Packed documents of prompts with answers, of which the answers are learned. */
function batchOf(texts) {
  const tokens = [];
  const targets = [];
  const documents = [];
  for (const [prompt, answer] of texts) {
    const start = tokens.length;
    const text = [...prompt, ...answer];
    for (const [i, token] of text.entries()) {
      tokens.push(token);
      documents.push(start);
      targets.push(i + 1 < prompt.length ? IGNORED : (text[i + 1] ?? IGNORED));
    }
  }
  return { tokens, targets, documents };
}

/** Steps on sums of which the answers of one in `wrong` are any number. */
export async function learnSums(trainer, sums, { seed, steps, texts, wrong = 3 }) {
  const draw = random(seed);
  const any = (below) => Math.floor(draw() * below);
  let last;
  for (let step = 0; step < steps; step++) {
    const batch = Array.from({ length: texts }, () => {
      const sum = sums[any(sums.length)];
      const told = any(wrong) === 0 ? any(109) : sum[0] + sum[1];
      return [addition.prompt(sum), addition.answer(told)];
    });
    last = await trainer.step(batchOf(batch));
  }
  return last;
}

/** The share of sums whose answer is right, with that temperature. */
export async function accuracy(model, sums, { temperature, seed }) {
  const answers = sums.map(() => []);
  const prompts = sums.map((sum, i) => ({ prompt: addition.prompt(sum), seed: seed + i }));
  const asked = { temperature, maxTokens: 4, stopTokens: [END] };
  for await (const { index, token } of model.generateBatch(prompts, asked)) {
    answers[index].push(token);
  }
  const right = sums.filter(([a, b], i) => answers[i].join() === digits(a + b, 3).join());
  return right.length / sums.length;
}

/** 1 for the right answer that ends, else 0. */
export const exactMatch =
  (sums) =>
  ({ index, tokens }) =>
    tokens.join() === addition.answer(sums[index][0] + sums[index][1]).join() ? 1 : 0;

/**
 * Learns sums with wrong answers in a third of the data, then by GRPO with the reward of right answers. The control goes on
 * with as many supervised steps instead.
 */
export async function reinforcement({ Model, Trainer, align }, runtime, options) {
  const { seed, steps, texts, rate, updates, more, each, report = () => {} } = options;
  const { test, prompts, learned } = addition.split(seed);
  const tokensPerStep = texts * LENGTH;
  const supervised = { optimizer: "muon", learningRate: rate, tokensPerStep, weightDecay: 0.01 };
  const model = await Model.create(runtime, addition.config, { seed });
  const first = await Trainer.create(model, { ...supervised, totalSteps: steps, seed });
  const times = { began: performance.now() };
  await learnSums(first, learned, { seed, steps, texts });
  times.learned = performance.now();
  const measured = async (of) => ({
    sampled: await accuracy(of, test, { temperature: 1, seed: 1 }),
    greedy: await accuracy(of, test, { temperature: 0, seed: 1 }),
  });
  const before = await measured(model);
  report({ step: 0, ...before });
  const files = await model.save();
  first.free();
  const reinforced = { tokensPerStep, seed, warmupSteps: 5, schedule: "constant", weightDecay: 0 };
  const trainer = await Trainer.create(model, { ...reinforced, ...more.trainer });
  const asked = prompts.map(addition.prompt);
  const curve = [{ step: 0, ...before }];
  const reward = exactMatch(prompts);
  const own = { reward, group: 8, maxTokens: 4, ...more.grpo };
  for await (const m of align.grpo(trainer, asked, { ...own, steps: updates })) {
    if (m.step % each && m.step < updates) continue;
    const point = { step: m.step, reward: m.reward, entropy: m.entropy, clipped: m.clipped };
    curve.push({ ...point, ...(await measured(model)) });
    report(curve.at(-1));
  }
  times.reinforced = performance.now();
  const control = await Model.fromPretrained(runtime, files);
  const last = {
    ...supervised,
    learningRate: rate / 10,
    schedule: "constant",
    warmupSteps: 0,
    seed,
  };
  const other = await Trainer.create(control, last);
  await learnSums(other, learned, { seed: seed + 1000, steps: updates, texts });
  const found = { before, curve, after: curve.at(-1), control: await measured(control) };
  for (const one of [model, control]) one.free();
  return {
    ...found,
    seconds: {
      learning: (times.learned - times.began) / 1e3,
      reinforcement: (times.reinforced - times.learned) / 1e3,
    },
  };
}
