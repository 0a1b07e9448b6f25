// A Node process with Dawn that computes with a real model what tests/real/reference.py computed, and sends a row of
// the table for each comparison.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { Adapter, Model, Runtime, Tokenizer, Trainer } from "tinyloom";
import { create } from "webgpu";
import { strings } from "../text/strings.mjs";
import { greedyRow, idsRow, logitsRow, lorasRow, lossRow, textsRow } from "./compare.mjs";

const { folder, formats, checks, quick } = JSON.parse(process.argv[2]);

/** What is left out of a loss, as the batch of a step has it. */
const LEFT_OUT = 0xffff_ffff;

const url = (name) => pathToFileURL(`${join(folder, name)}/`);
const reference = (name) => JSON.parse(readFileSync(join(folder, name, "reference.json"), "utf8"));
const send = (message) => new Promise((sent) => process.send(message, sent));

function floats(path) {
  const bytes = readFileSync(join(folder, path));
  return new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
}

const runtime = await Runtime.create({ gpu: create([]) });
const { adapter, software } = runtime.capabilities;
await send({ adapter, software });

const loaded = (name, weights) =>
  Model.fromPretrained(runtime, url(name), weights === "f32" ? {} : { weights });

/** Sends a row, and the seconds that it took. */
async function timed(weights, work) {
  const began = performance.now();
  const row = await work();
  const seconds = (performance.now() - began) / 1000;
  await send({ row: { weights, ...row, seconds } });
}

async function logits(model) {
  const texts = reference("logits").logits;
  for (const [i, { ids }] of (quick ? texts.slice(0, 1) : texts).entries()) {
    await timed("f32", async () => {
      const got = await model.logits(ids);
      const wanted = floats(`logits/logits${i}.f32`);
      return logitsRow(`logits of text ${i}`, got, wanted, wanted.length / ids.length);
    });
  }
}

async function greedy(model) {
  for (const [i, { ids, steps }] of reference("greedy").greedy.entries()) {
    await timed("f32", async () => {
      const options = { temperature: 0, maxTokens: steps.length, stopTokens: [] };
      const got = [];
      for await (const { token } of model.generate(ids, options)) got.push(token);
      return greedyRow(`greedy text ${i}`, got, steps);
    });
  }
}

/** The loss in a format, beside transformers' in f32 on the same weights. */
async function loss(weights, name, check) {
  const model = await loaded(name === "loss" ? "dithered" : "hf", weights);
  const { ids, value } = reference(name).loss;
  await timed(weights, async () =>
    lossRow(check, weights, await model.loss(ids), value, ids.length),
  );
  model.free();
}

/** Ten steps of the adapter that PEFT began with, on its batch. */
async function lora() {
  const { options, batch, losses } = reference("lora");
  const model = await loaded("hf", "f32");
  const adapter = await Adapter.load(model, url("lora/adapter"));
  const { steps, ...given } = options;
  const trainer = await Trainer.create(adapter, {
    ...given,
    schedule: "constant",
    warmupSteps: 0,
    beta1: 0.9,
    beta2: 0.999,
    epsilon: 1e-8,
    tokensPerStep: batch.tokens.length,
  });
  const targets = batch.targets.map((id) => (id < 0 ? LEFT_OUT : id));
  await timed("f32", async () => {
    const got = [];
    while (got.length < steps) got.push((await trainer.step({ ...batch, targets })).loss);
    return lorasRow(`LoRA beside PEFT, ${batch.tokens.length} tokens a step`, got, losses);
  });
  model.free();
}

async function ids() {
  const tokenizer = await Tokenizer.fromPretrained(url("hf"));
  for (const [i, { text, ids }] of reference("logits").logits.entries())
    await timed("", () => idsRow(`ids of text ${i}`, tokenizer.encode(text), ids));
}

/** The GGUF file itself: its tokenizer beside the folder's, and the loss of its own numbers. */
async function gguf() {
  const file = pathToFileURL(join(folder, "model.gguf"));
  const [own, other] = [
    await Tokenizer.fromPretrained(file),
    await Tokenizer.fromPretrained(url("hf")),
  ];
  // A token that the model has no row for is in no such file.
  const texts = strings(5, []).filter((text) => !text.includes("<image_soft_token>"));
  await timed("", () => {
    const wrong = texts.filter((text) => {
      const [a, b] = [own, other].map((one) => [...one.encode(text)]);
      return a.join() !== b.join() || own.decode(a) !== other.decode(b);
    });
    return textsRow("ids and texts of the GGUF file's tokenizer", texts.length, wrong.length);
  });
  if (quick) return;
  const { ids, value } = reference("logits").loss;
  for (const weights of formats) {
    const model = await Model.fromPretrained(runtime, file, { weights });
    await timed(weights, async () =>
      lossRow(
        "loss of the GGUF file",
        weights === "f32" ? "f16" : weights,
        await model.loss(ids),
        value,
        ids.length,
      ),
    );
    model.free();
  }
}

/** What needs the model in f32 alone. */
async function inF32() {
  const wanted = [logits, greedy].filter(({ name }) => checks.includes(name));
  if (wanted.length === 0) return;
  const model = await loaded("hf", "f32");
  for (const check of wanted) await check(model);
  model.free();
}

if (checks.includes("ids")) await ids();
if (checks.includes("gguf")) await gguf();
const f32 = formats.includes("f32");
if (f32) await inF32();
if (checks.includes("loss")) {
  if (f32) await loss("f32", "logits", "loss");
  for (const weights of formats) await loss(weights, "loss", "loss on dithered weights");
}
if (f32 && checks.includes("lora")) await lora();
process.exit(0); // Dawn's threads would keep the process alive
