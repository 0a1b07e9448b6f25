import { Model, Runtime, Trainer } from "tinyloom";

const runtime = await Runtime.create();
const model = await Model.create(runtime, {
  vocab_size: 256,
  hidden_size: 64,
  num_hidden_layers: 2,
  num_attention_heads: 4,
});
const trainer = await Trainer.create(model, { tokensPerStep: 128 });
const tokens = Uint32Array.from({ length: 128 }, (_, at) => at % 256);
await trainer.step({ tokens, targets: tokens });
for (const { kernel, reason } of trainer.plan()) console.log(kernel, reason);
console.log(trainer.wgsl(0)); // the text of the first kernel
if (runtime.capabilities.timestamps) console.log(await trainer.profile()); // microseconds on the GPU
