// Trains runs of every kind with tinyloom, saves each with its data in a folder below the one that is named, goes on as
// many steps as asked for, and prints their losses and norms by kind as JSON.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Adapter, ByteTokenizer, Dataset, Model, Runtime, Trainer } from "tinyloom";
import { create } from "webgpu";

const [, , folder, steps] = process.argv;
const sizes = {
  vocab_size: 256,
  hidden_size: 64,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  max_position_embeddings: 128,
};
const llama = {
  ...sizes,
  intermediate_size: 96,
  num_key_value_heads: 2,
  tie_word_embeddings: true,
};
const [embd_pdrop, attn_pdrop, resid_pdrop] = [0, 0, 0];
const gpt2 = {
  model_type: "gpt2",
  vocab_size: 256,
  n_embd: 64,
  n_layer: 2,
  n_head: 4,
  n_positions: 128,
  ...{ embd_pdrop, attn_pdrop, resid_pdrop },
};
const architecture = {
  ...sizes,
  model_type: "tinyloom",
  intermediate_size: 96,
  layers: [
    { sliding_window: 12, qk_norm: true },
    { parallel: true, norm_type: "layer", gated: false },
  ],
};
const neox = { ...sizes, model_type: "gpt_neox", intermediate_size: 96 };

const tokenizer = new ByteTokenizer();
const sentence = (i) => `the ${["cat", "dog", "owl"][i % 3]} number ${(i * i) % 97} sat on a log. `;
const sentences = Array.from({ length: 120 }, (_, i) => sentence(i));
const text = (sequenceLength) =>
  Dataset.fromText(sentences.join(""), tokenizer, { sequenceLength, seed: 5 });
const documents = () => {
  const list = sentences.map((prompt, i) => ({ prompt, completion: `${i}!` }));
  return Dataset.fromDocuments(list, tokenizer, { seed: 6 });
};
const chats = () => {
  const chat = (one, i) => [
    { role: "user", content: one },
    { role: "assistant", content: `It is ${i}.` },
    ...(i % 3
      ? []
      : [
          { role: "user", content: "And?" },
          { role: "assistant", content: "Yes." },
        ]),
  ];
  const template =
    "{% for m in messages %}<{{m.role}}>{{m.content}}</>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
  return Dataset.fromConversations(sentences.map(chat), tokenizer, { template });
};

/** Each with its config, its data, its trainer's options, and the adapter's. */
const KINDS = {
  text: { config: llama, data: () => text(32), options: { tokensPerStep: 130, totalSteps: 24 } },
  documents: { config: llama, data: documents, options: { gradientAccumulation: 2, seed: 9 } },
  chats: { config: llama, data: chats, options: { labelSmoothing: 0.1, zLoss: 1e-3 } },
  gpt2: { config: gpt2, data: documents, options: { schedule: "linear" } },
  neox: { config: neox, data: () => text(48), options: { maxGradNorm: null } },
  architecture: { config: architecture, data: documents, options: {} },
  adapter: { config: llama, data: chats, options: { weightDecay: 0 }, adapter: { rank: 4 } },
  layers: { config: llama, data: chats, options: { lastLayers: 1, schedule: "constant" } },
  lion: { config: llama, data: documents, options: { optimizer: "lion", learningRate: 1e-4 } },
  ema: { config: llama, data: documents, options: { ema: 0.9 } },
};

const runtime = await Runtime.create({ gpu: create([]) });
const write = (path, files) => {
  mkdirSync(join(folder, path), { recursive: true });
  for (const [file, bytes] of Object.entries(files)) writeFileSync(join(folder, path, file), bytes);
};
const told = {};
for (const [kind, { config, data, options, adapter }] of Object.entries(KINDS)) {
  const model = await Model.create(runtime, config, { seed: 3 });
  if (adapter) write(join(kind, "base"), await model.save());
  const trained = adapter ? await Adapter.create(model, { ...adapter, seed: 4 }) : model;
  const given = { learningRate: 3e-3, warmupSteps: 4, tokensPerStep: 128, ...options };
  const trainer = await Trainer.create(trained, given);
  const dataset = await data();
  for await (const _ of trainer.run(dataset, { steps: 10 }));
  write(join(kind, "run"), await trainer.save());
  write(join(kind, "dataset"), await dataset.save());
  told[kind] = [];
  for await (const { loss, gradNorm } of trainer.run(dataset, { steps: Number(steps) }))
    told[kind].push({ loss, gradNorm });
  model.free();
}
process.stdout.write(JSON.stringify(told));
process.exit(0); // Dawn's threads would keep the process alive
