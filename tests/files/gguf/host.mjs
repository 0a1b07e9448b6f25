// A Node process with Dawn that trains the models of models.mjs and saves each in every type. Beside each file it
// leaves what tinyloom makes of the file's own weights: greedy tokens and their margins.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as tinyloom from "tinyloom";
import { create } from "webgpu";
import { makeFile, openFile } from "../../api/bodies/kit.mjs";
import { MODELS, PROMPT, TEXT, TEXTS, TYPES } from "./models.mjs";
import { checkpointOf, readGguf } from "./read.mjs";
import { makeTokenizer } from "./tokenizers.mjs";

const [folder, ...names] = process.argv.slice(2);
const { Dataset, Model, Runtime, Tokenizer, Trainer } = tinyloom;
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

/** The model of other weights' config. They are given back. */
async function turnedInto(config, model) {
  const files = { ...(await model.save()), "config.json": Buffer.from(JSON.stringify(config)) };
  model.free();
  return Model.fromPretrained(runtime, files);
}

async function make(name) {
  const { config: given, tokenizer: kind, learns = TEXT, trainedAs } = MODELS[name];
  const { tokenizer, given: own } = await makeTokenizer(tinyloom, kind);
  // Three ids that no text has.
  const config = { ...given, vocab_size: tokenizer.vocabSize + 3 };
  const begun = await Model.create(runtime, { ...config, ...trainedAs }, { seed: 5 });
  const loss = await trained(begun, learns, tokenizer);
  const model = trainedAs ? await turnedInto(config, begun) : begun;
  const files = await model.save();
  writeFileSync(join(folder, `${name}.safetensors`), files["model.safetensors"]);
  writeFileSync(join(folder, `${name}.json`), files["config.json"]);
  const prompt = [...tokenizer.encode(PROMPT)];
  const expected = { prompt, types: {}, texts: [] };
  const read = {};
  for (const type of TYPES) {
    const saved = await model.save({ format: "gguf", type, tokenizer: own });
    writeFileSync(join(folder, `${name}-${type}.gguf`), saved["model.gguf"]);
    const other = await dequantised(files["config.json"], saved["model.gguf"]);
    expected.types[type] = await continued(other, prompt, TOKENS);
    const back = await Model.fromPretrained(runtime, saved);
    read[type] = {
      same: same(await back.save({ dtype: "f32" }), await other.save()),
      apart: differences(back.config, other.config),
      ends: await endsOf(back),
    };
    for (const one of [other, back]) one.free();
    const packed = { q8_0: "int8", q4_0: "int4" }[type];
    if (packed) read[type].packed = await packedLoss(saved, files["config.json"], packed, prompt);
    if (own && type === "f32") read.ids = await sameIds(saved, tokenizer);
  }
  for (const text of TEXTS) {
    const ids = [...tokenizer.encode(text)];
    expected.texts.push({ ids, ...(await continued(model, ids, 1)) });
  }
  writeFileSync(join(folder, `${name}.expected.json`), JSON.stringify(expected));
  model.free();
  return { name, loss, read };
}

/** Whether two checkpoints have the same weights, to the bit. */
function same(a, b) {
  const [one, other] = [a, b].map((files) => openFile(files["model.safetensors"]));
  const names = Object.keys(one.header).filter((name) => name !== "__metadata__");
  return names.every((name) => {
    const [x, y] = [one, other].map(({ header, data }) =>
      Buffer.from(data.subarray(...header[name].data_offsets)),
    );
    return x.equals(y);
  });
}

/** Fields of two configs that say something else, besides ids of tokens, names and what a GGUF file does not say. */
function differences(a, b) {
  const free = /_token_id$|^_name_or_path$|dropout|_pdrop$|^initializer_range$|^model_type$/;
  const text = (value) =>
    JSON.stringify(value, (_, one) => (typeof one === "number" ? Math.fround(one) : one));
  const names = new Set([...Object.keys(a), ...Object.keys(b)]);
  return [...names].filter((name) => !free.test(name) && text(a[name]) !== text(b[name]));
}

/** What ends a text by default. */
async function endsOf(model) {
  const files = await model.save();
  return JSON.parse(Buffer.from(files["generation_config.json"] ?? "{}").toString()).eos_token_id;
}

/** The loss of a text with the file's own codes, and with those of its weights that are packed here. */
async function packedLoss(saved, config, weights, tokens) {
  const losses = [];
  const checkpoint = safetensors(checkpointOf(readGguf(saved["model.gguf"])));
  for (const files of [saved, { "config.json": config, "model.safetensors": checkpoint }]) {
    const model = await Model.fromPretrained(runtime, files, { weights });
    losses.push(await model.loss(tokens));
    model.free();
  }
  return losses;
}

/** Whether the tokenizer in the file gives the same ids and texts. */
async function sameIds(saved, tokenizer) {
  const back = await Tokenizer.fromPretrained(saved);
  return TEXTS.filter((text) => {
    const [a, b] = [back, tokenizer].map((one) => [...one.encode(text)]);
    return a.join() !== b.join() || back.decode(a) !== tokenizer.decode(b);
  });
}

mkdirSync(folder, { recursive: true });
for (const name of names) {
  const made = await make(name);
  await new Promise((sent) => process.send(made, sent));
}
process.exit(0); // Dawn's threads would keep the process alive
