// Trains and saves a run with tinyloom in the folder that is named, goes on with the batches that
// examples/pytorch/continue.py takes, and prints their losses and norms as JSON.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ByteTokenizer, Dataset, Model, Runtime, Trainer } from "tinyloom";
import { create } from "webgpu";

const [folder, length, windows, steps] = [process.argv[2], ...process.argv.slice(3).map(Number)];
const config = {
  vocab_size: 256,
  hidden_size: 64,
  intermediate_size: 96,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  max_position_embeddings: 64,
  tie_word_embeddings: true,
};
const sentence = (i) => `the ${["cat", "dog", "owl"][i % 3]} number ${(i * i) % 97} sat on a log. `;
const text = Array.from({ length: 120 }, (_, i) => sentence(i)).join("");

const runtime = await Runtime.create({ gpu: create([]) });
const model = await Model.create(runtime, config, { seed: 3 });
const options = {
  learningRate: 3e-3,
  warmupSteps: 4,
  totalSteps: 24,
  tokensPerStep: length * windows,
};
const trainer = await Trainer.create(model, options);
const dataset = await Dataset.fromText(text, new ByteTokenizer(), { sequenceLength: length });
for await (const _ of trainer.run(dataset, { steps: 10 }));

const write = (name, files) => {
  mkdirSync(join(folder, name), { recursive: true });
  for (const [file, bytes] of Object.entries(files)) writeFileSync(join(folder, name, file), bytes);
};
write("run", await trainer.save());
write("dataset", await dataset.save());

const tokens = new ByteTokenizer().encode(text);
const places = Array.from({ length: length * windows }, (_, i) => i);
const told = [];
for (let step = 0; step < steps; step++) {
  const first = step * windows * length;
  const { loss, gradNorm } = await trainer.step({
    tokens: Uint32Array.from(places, (i) => tokens[first + i]),
    targets: Uint32Array.from(places, (i) => tokens[first + i + 1]),
    documents: Uint32Array.from(places, (i) => i - (i % length)),
  });
  told.push({ loss, gradNorm });
}
process.stdout.write(JSON.stringify(told));
process.exit(0); // Dawn's threads would keep the process alive
