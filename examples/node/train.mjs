// Trains on a text file, saves after each run, and continues where the last run stopped.
//
//   npm install tinyloom webgpu
//   node train.mjs FILE [STEPS]
import { existsSync } from "node:fs";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { ByteTokenizer, Dataset, Model, Runtime, Trainer } from "tinyloom";
import { create } from "webgpu";

const [file, steps = "100"] = process.argv.slice(2);
if (!file) {
  console.error("usage: node train.mjs FILE [STEPS]");
  process.exit(2);
}
const folder = resolve("run");
const tokenizer = new ByteTokenizer();
const dataset = await Dataset.fromText(new Blob([await readFile(file)]), tokenizer, {
  sequenceLength: 128,
});
const runtime = await Runtime.create({ gpu: create([]) });

/** The trainer of the last run, or a new one. */
async function trainerOf() {
  if (existsSync(folder)) return Trainer.resume(runtime, pathToFileURL(folder));
  const model = await Model.create(runtime, {
    vocab_size: 256,
    hidden_size: 64,
    intermediate_size: 192,
    num_hidden_layers: 2,
    num_attention_heads: 4,
    max_position_embeddings: 256,
    tie_word_embeddings: true,
  });
  return Trainer.create(model, { learningRate: 3e-3, tokensPerStep: 512, schedule: "constant" });
}

const trainer = await trainerOf();
for await (const { step, loss } of trainer.run(dataset, { steps: Number(steps) })) {
  if (step % 10 === 0) console.log(`step ${step}: loss ${loss.toFixed(3)}`);
}

await mkdir(folder, { recursive: true });
for (const [name, bytes] of Object.entries(await trainer.save())) {
  await writeFile(`${folder}/${name}`, bytes);
}

const decoder = tokenizer.decoder();
const prompt = tokenizer.encode((await readFile(file, "utf8")).slice(0, 10));
process.stdout.write(tokenizer.decode(prompt));
for await (const { token } of trainer.model.generate(prompt, { maxTokens: 100 })) {
  process.stdout.write(decoder.push(token));
}
console.log();
runtime.destroy();
