// A Node process in whose worker the module panics; it goes on there in a fresh instance, and in another worker.
import { Worker } from "node:worker_threads";
import { connect } from "tinyloom/worker";

const CONFIG = {
  vocab_size: 32,
  hidden_size: 8,
  intermediate_size: 8,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  max_position_embeddings: 32,
};
const BATCH = { tokens: [1, 2, 3, 4], targets: [2, 3, 4, 5] };

const worker = new Worker(new URL("panic-worker.mjs", import.meta.url));
const broken = await connect({ worker });
const runtime = await broken.Runtime.create();
const model = await broken.Model.create(runtime, CONFIG, { seed: 1 });
const trainer = await broken.Trainer.create(model, { tokensPerStep: 4, totalSteps: 9, seed: 1 });
await trainer.step(BATCH);
const files = await trainer.save();
const { loss: expected } = await trainer.step(BATCH);

await broken.breakIn(runtime);
const codeOf = (call) =>
  call().then(
    () => "none",
    ({ code }) => code,
  );
const round = () =>
  Promise.all(
    [
      () => trainer.step(BATCH),
      () => model.logits([1, 2]),
      () => trainer.save(),
      () => model.loss([1, 2, 3]),
    ].map(codeOf),
  );
// The module panics while it waits for bytes. What ends before it does is whole.
const during = [];
while (!during.includes("internal") && during.length < 400) during.push(...(await round()));
const after = [
  await codeOf(() => trainer.step(BATCH)),
  await codeOf(() => broken.Model.create(runtime, CONFIG)),
];
const again = await broken.Trainer.resume(await broken.Runtime.create(), files);
const metrics = await again.step(BATCH);
const same = [metrics.step, metrics.loss];
await broken.close(); // Dawn aborts the process where its thread is ended while it works: the thread stays

const fresh = await connect();
const resumed = await fresh.Trainer.resume(await fresh.Runtime.create(), files);
const { loss, step } = await resumed.step(BATCH);
await new Promise((sent) => process.send({ during, after, same, loss, expected, step }, sent));
process.exit(0); // Dawn's threads would keep the process alive
