import { ByteTokenizer, Dataset, Model, Runtime, Trainer } from "tinyloom";
import { Runs } from "tinyloom/storage";

const text = "The cat sees the fox. The owl hears the hen. ".repeat(200);
const dataset = await Dataset.fromText(text, new ByteTokenizer(), { sequenceLength: 64 });
const runtime = await Runtime.create();
const model = await Model.create(runtime, {
  vocab_size: 256,
  hidden_size: 64,
  num_hidden_layers: 2,
  num_attention_heads: 4,
});
const trainer = await Trainer.create(model, { totalSteps: 8, tokensPerStep: 128 });
const runs = await Runs.open("my-app"); // in this browser: it is there on the next visit too
const run = await runs.create(`run of ${new Date().toISOString()}`, { data: text });
for await (const { step, loss } of trainer.run(dataset, {
  steps: 4,
  checkpoint: { run, every: 2 },
}))
  console.log(step, loss);
const resumed = await Trainer.resume(runtime, run); // as on the next visit
for await (const { step, loss } of resumed.run(dataset, { until: 8 })) console.log(step, loss);
