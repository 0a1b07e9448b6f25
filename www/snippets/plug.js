import { ByteTokenizer, Dataset, Model, Runtime, Trainer } from "tinyloom";

const onState = ({ state }) => console.log(state);
const runtime = await Runtime.create({ recover: { onState, snapshotSteps: 4 } });
const model = await Model.create(runtime, {
  vocab_size: 256,
  hidden_size: 64,
  num_hidden_layers: 2,
  num_attention_heads: 4,
});
const dataset = await Dataset.fromText("The owl hears the hen. ".repeat(200), new ByteTokenizer(), {
  sequenceLength: 64,
});
const trainer = await Trainer.create(model, { tokensPerStep: 128 });
for await (const { step, loss } of trainer.run(dataset, { steps: 12 })) {
  console.log(step, loss);
  if (step === 6) runtime.simulateLoss(); // as a crash of the driver would
}
