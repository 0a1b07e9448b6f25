import { ByteTokenizer, Dataset, Model, Runtime, Trainer } from "tinyloom";

const runtime = await Runtime.create();
const dataset = await Dataset.fromText("The owl hears the hen. ".repeat(200), new ByteTokenizer(), {
  sequenceLength: 64,
});
for (const time of ["first", "second"]) {
  const model = await Model.create(
    runtime,
    { vocab_size: 256, hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 4 },
    { seed: 1 },
  );
  const trainer = await Trainer.create(model, { seed: 1, tokensPerStep: 128 });
  for await (const { step } of trainer.run(dataset, { steps: 5 })) console.log(time, step);
  const { "model.safetensors": weights } = await model.save();
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", weights));
  console.log(Array.from(hash, (byte) => byte.toString(16).padStart(2, "0")).join("")); // the same both times
}
