// What a page of `same.mjs` runs: greedy texts of two builds, and whether training repeats its bits.
import { batch, CONFIGS, createTraining } from "./workloads.mjs";

const CONTEXT = 128;
const TOKENS = 256;
/** Steps before the save that a run is resumed from, and behind it. */
const STEPS = 6;
/** Formats of the weights that decode. */
const FORMATS = ["f32", "f16", "int8", "int4"];

/** By name: random weights repeat one token, unless tokens that occurred become less likely. */
const TEXTS = { "greedy text": {}, "text without repeats": { repetitionPenalty: 4 } };

/**
 * Greedy texts of a model with random weights, whose logits lie close together.
 *
 * @returns the ids that the model continues the prompt with, by what it is and the format of the weights.
 */
export async function greedyTexts(tinyloom, name) {
  const runtime = await tinyloom.Runtime.create();
  const { config } = CONFIGS[name];
  const model = await tinyloom.Model.create(runtime, config, { seed: 1 });
  const prompt = batch(CONTEXT, config.vocab_size).tokens;
  const texts = {};
  for (const weights of FORMATS) {
    for (const [what, more] of Object.entries(TEXTS)) {
      const options = { maxTokens: TOKENS, temperature: 0, stopTokens: [], weights, ...more };
      const ids = [];
      for await (const { token } of model.generate(prompt, options)) ids.push(token);
      texts[`${what} in ${weights}`] = ids;
    }
  }
  const { adapter } = runtime.capabilities;
  runtime.destroy();
  return { adapter, texts };
}

/**
 * Trains twice alike, and once more with a save and a resume in the middle.
 *
 * @returns hashes of the saved files by run, their losses, and the bytes that model and trainer take on the GPU.
 */
export async function repeatedRuns(tinyloom, name, options) {
  const runtime = await tinyloom.Runtime.create();
  const runs = {};
  let gpuBytes;
  for (const run of ["first", "second", "resumed"]) {
    const { model, trainer, length } = await createTraining(tinyloom, runtime, name, options);
    const data = batch(length, CONFIGS[name].config.vocab_size, options.documents);
    const losses = [];
    const train = async (trainer) => {
      for (let step = 0; step < STEPS; step++) losses.push((await trainer.step(data)).loss);
    };
    await train(trainer);
    gpuBytes ??= model.gpuBytes;
    let last = trainer;
    if (run === "resumed") {
      const files = await trainer.save();
      model.free();
      last = await tinyloom.Trainer.resume(runtime, files);
    }
    await train(last);
    runs[run] = { losses, files: await hashes(await last.save()) };
    last.model.free();
  }
  const { adapter } = runtime.capabilities;
  runtime.destroy();
  return { adapter, gpuBytes, runs };
}

/** SHA-256 of each file, by its name. */
async function hashes(files) {
  const hashed = {};
  for (const [name, bytes] of Object.entries(files)) {
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
    hashed[name] = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  }
  return hashed;
}
