// A Node process with Dawn that trains the models of models.mjs and saves each in every type. Beside each file it
// leaves what tinyloom makes of the file's own weights: greedy tokens and their margins.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as tinyloom from "tinyloom";
import { create } from "webgpu";
import { makeFile } from "../../api/bodies/kit.mjs";
import { MODELS, PROMPT, TEXT, TEXTS, TYPES } from "./models.mjs";
import { checkpointOf, readGguf } from "./read.mjs";
import { makeTokenizer } from "./tokenizers.mjs";

const [folder, ...names] = process.argv.slice(2);
const { Dataset, Model, Runtime, Trainer } = tinyloom;
/** Tokens that are compared, and steps of training. */
const TOKENS = 64;
const STEPS = 60;

const runtime = await Runtime.create({ gpu: create([]), recover: false });

/** A checkpoint of these tensors. */
function safetensors(tensors) {
  const header = {};
  const parts = [];
  let at = 0;
  for (const [name, { shape, values }] of Object.entries(tensors)) {
    const data = new Uint8Array(values.buffer);
    header[name] = { dtype: "F32", shape, data_offsets: [at, at + data.length] };
    parts.push(data);
    at += data.length;
  }
  return makeFile(header, Buffer.concat(parts));
}

/** A model of the file's weights. */
const dequantised = (config, file) =>
  Model.fromPretrained(runtime, {
    "config.json": config,
    "model.safetensors": safetensors(checkpointOf(readGguf(file))),
  });

/** What a model continues the prompt with. */
async function continued(model, prompt, maxTokens) {
  const [tokens, logprobs, margins] = [[], [], []];
  const options = { maxTokens, temperature: 0, stopTokens: [], alternatives: 2 };
  for await (const { token, logprob, alternatives } of model.generate(prompt, options)) {
    tokens.push(token);
    logprobs.push(logprob);
    margins.push(alternatives[0].logprob - alternatives[1].logprob);
  }
  return { tokens, logprobs, margin: Math.min(...margins) };
}

/** Trains a model on a text; gives the last loss. */
async function trained(model, text, tokenizer) {
  const many = text.repeat(1600 / text.length);
  const dataset = await Dataset.fromText(many, tokenizer, { sequenceLength: 64 });
  const options = { learningRate: 1.2e-2, tokensPerStep: 128, warmupSteps: 5, weightDecay: 0 };
  const trainer = await Trainer.create(model, options);
  let last;
  for await (const { loss } of trainer.run(dataset, { steps: STEPS })) last = loss;
  trainer.free();
  return last;
}

async function make(name) {
  const { config: given, tokenizer: kind, learns = TEXT } = MODELS[name];
  const { tokenizer, given: own } = await makeTokenizer(tinyloom, kind);
  // Three ids that no text has.
  const config = { ...given, vocab_size: tokenizer.vocabSize + 3 };
  const model = await Model.create(runtime, config, { seed: 5 });
  const loss = await trained(model, learns, tokenizer);
  const files = await model.save();
  writeFileSync(join(folder, `${name}.safetensors`), files["model.safetensors"]);
  writeFileSync(join(folder, `${name}.json`), files["config.json"]);
  const prompt = [...tokenizer.encode(PROMPT)];
  const expected = { prompt, types: {}, texts: [] };
  for (const type of TYPES) {
    const saved = await model.save({ format: "gguf", type, tokenizer: own });
    writeFileSync(join(folder, `${name}-${type}.gguf`), saved["model.gguf"]);
    const other = await dequantised(files["config.json"], saved["model.gguf"]);
    expected.types[type] = await continued(other, prompt, TOKENS);
    other.free();
  }
  for (const text of TEXTS) {
    const ids = [...tokenizer.encode(text)];
    expected.texts.push({ ids, ...(await continued(model, ids, 1)) });
  }
  writeFileSync(join(folder, `${name}.expected.json`), JSON.stringify(expected));
  model.free();
  return { name, loss };
}

mkdirSync(folder, { recursive: true });
for (const name of names) {
  const made = await make(name);
  await new Promise((sent) => process.send(made, sent));
}
process.exit(0); // Dawn's threads would keep the process alive
