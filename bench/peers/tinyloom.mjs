// tinyloom behind the interface of its peers; served as it is, beside the built package.
import { Model, Runtime, Trainer } from "/pkg/index.js";

const makeModel = async (config) =>
  Model.create(await Runtime.create({ limits: "adapter" }), config, { seed: 1 });

/** A training step of one batch, as a function that gives the loss. */
export async function makeStep(config, tokens, learningRate) {
  const trainer = await Trainer.create(await makeModel(config), {
    tokensPerStep: tokens,
    learningRate,
    schedule: "constant",
    warmupSteps: 0,
  });
  return async (batch) => (await trainer.step(batch)).loss;
}

/** A function that writes a number of tokens after a prompt. */
export async function makeWriter(config) {
  const model = await makeModel(config);
  return async (prompt, maxTokens) => {
    const options = { maxTokens, temperature: 0.8, seed: 0, stopTokens: [] };
    for await (const _ of model.generate(prompt, options));
  };
}
