// What steps, scores and reinforcement cost, on a model of given sizes with random weights.
import { median } from "../workloads.mjs";
import { mean, random } from "./kit.mjs";

/** The sizes of SmolLM2-135M. */
export const SMOLLM2 = {
  model_type: "llama",
  vocab_size: 49152,
  hidden_size: 576,
  intermediate_size: 1536,
  num_hidden_layers: 30,
  num_attention_heads: 9,
  num_key_value_heads: 3,
  max_position_embeddings: 2048,
  tie_word_embeddings: true,
};

/** Texts of a group, tokens of a text, tokens of its prompt. */
const [GROUP, TOKENS, PROMPT] = [8, 64, 16];
/** Tokens of a text that is scored. */
const SCORED = 512;
/** Rounds and updates that nothing counts. */
const [WARM_ROUNDS, WARM_UPDATES] = [10, 2];

function spread(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (share) => sorted[Math.floor(share * sorted.length)];
  return { median: median(values), quartiles: [at(0.25), at(0.75)] };
}

/**
 * Milliseconds of two works that take turns. Every other round the second one begins, so that both come as often behind
 * themselves as behind the other. What a work is given is made before its clock starts.
 *
 * @returns of each the median and the quartiles, and the same of the second's time by the first's of each round.
 */
async function inTurns(names, [first, second], given, rounds) {
  const times = [[], []];
  for (let round = 0; round < rounds + WARM_ROUNDS; round++) {
    for (const i of round % 2 ? [1, 0] : [0, 1]) {
      const work = [first, second][i];
      const input = given();
      const began = performance.now();
      await work(input);
      if (round >= WARM_ROUNDS) times[i].push(performance.now() - began);
    }
  }
  const [before, after] = times.map(spread);
  const ratio = spread(times[1].map((time, round) => time / times[0][round]));
  return { names, rounds, first: before, second: after, ratio };
}

/**
 * @param options - `config`; `rounds` of scores: steps are timed in a third as many; `updates` of GRPO that are timed.
 * @returns pairs of works with their times: a plain step and one with weights, a loss and scores of as many tokens, and a
 * loss beside itself, which says how much chance there is in it; of GRPO the seconds of an update, and the share of them
 * that the texts take.
 */
export async function speed({ Model, Trainer, align }, runtime, options) {
  const { config = SMOLLM2, rounds = 300, updates = 5, report = () => {} } = options;
  const draw = random(1);
  const ids = (count) => Uint32Array.from({ length: count }, () => draw() * config.vocab_size);
  const model = await Model.create(runtime, config, { seed: 1 });
  const tokensPerStep = GROUP * (PROMPT + TOKENS);
  const trainer = await Trainer.create(model, { tokensPerStep, learningRate: 1e-6, seed: 1 });
  const batch = {
    tokens: ids(tokensPerStep),
    targets: ids(tokensPerStep),
    documents: Uint32Array.from({ length: tokensPerStep }, (_, i) => i - (i % (PROMPT + TOKENS))),
  };
  const targetWeights = Float32Array.from(batch.tokens, () => draw() - 0.5);
  const pairs = [];
  const compare = async (...asked) => {
    pairs.push(await inTurns(...asked));
    report(pairs.at(-1));
  };
  await compare(
    ["step", "step with targetWeights"],
    [(given) => trainer.step(given), (given) => trainer.step({ ...given, targetWeights })],
    () => batch,
    Math.ceil(rounds / 3),
  );
  const loss = (text) => model.loss(text);
  const text = () => ids(SCORED); // another one each time: a text that is known is not read again
  for (const [name, work] of Object.entries({
    "loss again": loss,
    score: (text) => model.score(text),
    "score with entropy": (text) => model.score(text, { entropy: true }),
  })) {
    await compare(["loss", name], [loss, work], text, rounds);
  }
  const prompts = Array.from({ length: updates + WARM_UPDATES }, () => ids(PROMPT));
  const asked = { reward: ({ tokens }) => tokens[0] % 7, group: GROUP, maxTokens: TOKENS };
  const [seconds, shares] = [[], []];
  let began = performance.now();
  const run = align.grpo(trainer, prompts, { ...asked, stopToken: null, steps: prompts.length });
  for await (const { generationMilliseconds } of run) {
    const took = performance.now() - began;
    seconds.push(took / 1e3);
    shares.push(generationMilliseconds / took);
    began = performance.now();
  }
  model.free();
  const grpo = {
    group: GROUP,
    tokens: TOKENS,
    secondsPerUpdate: spread(seconds.slice(WARM_UPDATES)),
    generation: mean(shares.slice(WARM_UPDATES)),
  };
  return { config, tokensPerStep, scored: SCORED, pairs, grpo };
}
