// What steps, scores and reinforcement cost, on a model of given sizes with random weights.
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

const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];

/**
 * Medians of the milliseconds of works that take turns, without the first two turns. Each turn begins with another work, so
 * that none always has the same one before it.
 */
async function inTurns(works, turns) {
  const times = works.map(() => []);
  for (let turn = 0; turn < turns + 2; turn++) {
    for (let next = 0; next < works.length; next++) {
      const i = (turn + next) % works.length;
      const began = performance.now();
      await works[i](turn);
      if (turn > 1) times[i].push(performance.now() - began);
    }
  }
  return times.map(median);
}

/**
 * @param options - `config`; `turns` of steps and scores; `updates` of GRPO that count, behind two that do not.
 * @returns milliseconds of a plain step and of one with weights, of a loss and of scores of as many tokens; of GRPO the
 * seconds of an update, and the share of them that the texts take.
 */
export async function speed({ Model, Trainer, align }, runtime, options) {
  const { config = SMOLLM2, turns = 20, updates = 5 } = options;
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
  const [plain, weighted] = await inTurns(
    [() => trainer.step(batch), () => trainer.step({ ...batch, targetWeights, normalize: 512 })],
    turns,
  );
  const text = () => ids(512); // another one each time: a text that is known is not read again
  const [loss, score, entropies] = await inTurns(
    [
      () => model.loss(text()),
      () => model.score(text()),
      () => model.score(text(), { temperature: 1, entropy: true }),
    ],
    turns,
  );
  const prompts = Array.from({ length: updates + 2 }, () => ids(PROMPT));
  const asked = { reward: ({ tokens }) => tokens[0] % 7, group: GROUP, maxTokens: TOKENS };
  const [seconds, shares] = [[], []];
  let began = performance.now();
  const run = align.grpo(trainer, prompts, { ...asked, stopToken: null, steps: updates + 2 });
  for await (const { generationMilliseconds } of run) {
    const took = performance.now() - began;
    seconds.push(took / 1e3);
    shares.push(generationMilliseconds / took);
    began = performance.now();
  }
  model.free();
  return {
    milliseconds: { plain, weighted, loss, score, entropies },
    grpo: { secondsPerUpdate: median(seconds.slice(2)), generation: mean(shares.slice(2)) },
  };
}
