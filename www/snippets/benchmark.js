import { Model, Runtime, Trainer } from "tinyloom";

const runtime = await Runtime.create();
const model = await Model.create(runtime, {
  vocab_size: 256,
  hidden_size: 128,
  num_hidden_layers: 4,
  num_attention_heads: 4,
});
const trainer = await Trainer.create(model, { tokensPerStep: 128 });
const tokens = Uint32Array.from({ length: 128 }, (_, at) => at % 256);
const step = () => trainer.step({ tokens, targets: tokens });
await step(); // compiles the kernels
const began = performance.now();
for (let steps = 0; steps < 5; steps++) await step();
console.log(
  `${(performance.now() - began) / 5} ms a step on ${runtime.capabilities.adapter.description}`,
);
