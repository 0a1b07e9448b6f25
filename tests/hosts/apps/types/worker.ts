// The same through a worker: every class that `connect()` gives has its members here.
import {
  type Adapter,
  type BpeTokenizer,
  ByteTokenizer,
  type Connected,
  type ConnectOptions,
  connect,
  type Dataset,
  type ErrorCode,
  IGNORE_INDEX,
  type Model,
  type Runs,
  type Runtime,
  type StoredRun,
  serve,
  type Tensor,
  TinyloomError,
  type Tokenizer,
  type Trainer,
  transfer,
} from "tinyloom/worker";

export async function train(api: Connected, text: Blob): Promise<number> {
  const runtime: Runtime = await api.Runtime.create({ features: false });
  const vendor: string = runtime.capabilities.adapter.vendor;
  const model: Model = await api.Model.create(runtime, { hidden_size: 64 }, { seed: 1 });
  const adapter: Adapter = await api.Adapter.create(model, { rank: 4 });
  const dataset: Dataset = await api.Dataset.fromText(text, new ByteTokenizer());
  const trainer: Trainer = await api.Trainer.create(model, { learningRate: 1e-3 });
  let last = 0;
  for await (const { loss } of trainer.run(dataset, { steps: 1 })) last = loss;
  for await (const { token } of model.generate([1], { maxTokens: 2 })) last += token;
  trainer.learningRate = trainer.options.learningRate / 2;
  const rank: number = adapter.options.rank;
  const weights: Uint8Array<ArrayBuffer> = (await model.save())["model.safetensors"];
  const rows = await trainer.plan();
  await Promise.all([adapter.free(), model.free(), dataset.free()]);
  return last + vendor.length + rank + weights.length + rows.length + trainer.steps + IGNORE_INDEX;
}

export async function keep(api: Connected, trainer: Trainer): Promise<void> {
  const runs: Runs = await api.Runs.open("app");
  const run: StoredRun = await runs.create("first");
  await trainer.save({ to: run });
  const name: string = (await runs.list())[0]?.name ?? run.name;
  await runs.rename(name, "second");
}

export async function split(api: Connected, runtime: Runtime): Promise<number> {
  const learned: BpeTokenizer = await api.BpeTokenizer.train("a text", { vocabSize: 300 });
  const either: Tokenizer = learned;
  const tensor: Tensor = await runtime.tensor([1, 2], [2]);
  const numbers = await tensor.data();
  // @ts-expect-error: raw GPU objects stay in the worker
  tensor.buffer;
  // @ts-expect-error: so does the device
  runtime.device;
  return either.vocabSize + numbers.length;
}

export async function connected(options: ConnectOptions): Promise<ErrorCode | undefined> {
  const extra = { add: (a: number, b: number) => a + b };
  try {
    const api = await connect<typeof extra>(options);
    const sum: number = await api.add(1, 2);
    transfer(new Uint32Array(sum));
    await api.close();
  } catch (error) {
    return error instanceof TinyloomError ? error.code : undefined;
  }
  serve(extra);
  return undefined;
}
