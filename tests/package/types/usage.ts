// A strict user's program; tsc compiles it and nothing runs it.
import {
  Adapter,
  type AdapterFiles,
  type BatchPrompt,
  ByteTokenizer,
  type Capabilities,
  type ChatOptions,
  type Conversation,
  chat,
  Dataset,
  type ErrorCode,
  estimate,
  type HiddenStatesOptions,
  IGNORE_INDEX,
  type Intervention,
  type LostInfo,
  Model,
  type ModelAttentionOptions,
  type ModelConfig,
  type ModelFiles,
  type Phase,
  type PlanBinding,
  type PlanRow,
  type Progress,
  type ResolvedTrainerOptions,
  Runtime,
  type Schedule,
  type StepMetrics,
  TinyloomError,
  type TokenBias,
  Trainer,
} from "tinyloom";
import { grpo } from "tinyloom/align";
import { type AttentionResult, attention, softmax, Tensor } from "tinyloom/ops";
import type { NotedMetrics, Runs, Sample, StoredRun } from "tinyloom/storage";
import * as worker from "tinyloom/worker";

export async function use(blob: Blob, controller: AbortController): Promise<void> {
  const runtime = await Runtime.create({
    limits: { maxComputeWorkgroupStorageSize: 16_384 },
    features: false,
  });
  const device: GPUDevice = runtime.device;
  const capabilities: Capabilities = runtime.capabilities;
  const [narrow, wide]: readonly [number, number] = capabilities.subgroupSize;
  void [device.limits.maxBufferSize, narrow + wide, (await runtime.lost).reason.length];

  const model = await Model.create(
    runtime,
    { hidden_size: 64, num_attention_heads: 2 },
    { seed: 1 },
  );
  const same = await Model.fromPretrained(
    runtime,
    { "config.json": blob, "model.safetensors": new Uint8Array(8) },
    {
      onProgress: ({ loaded, total, stage }) => console.log(stage, loaded / total),
      signal: controller.signal,
    },
  );
  const logits: Float32Array = await same.logits(new Uint32Array(4), { kvCache: "f16" });
  const loss: number = await same.loss([1, 2, 3], undefined, { kvCache: "int8" });
  for await (const { token, logprob } of model.generate([1], { maxTokens: 5, stopTokens: [0] })) {
    void (token + logprob + loss + (logits[0] ?? 0));
  }
  const file: Uint8Array<ArrayBuffer> = (await model.save())["model.safetensors"];
  void new Blob([file]);

  const dataset = await Dataset.fromText(blob, new ByteTokenizer(), { sequenceLength: 32 });
  const trainer = await Trainer.create(model, { schedule: "linear", gradientAccumulation: 2 });
  for await (const metrics of trainer.run(dataset, { steps: 2, evaluateEvery: 1 })) {
    const m: StepMetrics = metrics;
    void (m.loss + (m.validationLoss ?? 0));
  }
  const { loss: validation, tokens } = await trainer.evaluate(dataset);
  const gradients: { [name: string]: Float32Array } = await trainer.gradients();
  const resumed = await Trainer.resume(runtime, await trainer.save());
  void [validation, tokens, gradients, resumed.model.parameterCount, trainer.plan()[0]?.kernel];

  const options: ResolvedTrainerOptions = trainer.options;
  const schedule: Schedule = trainer.schedule;
  trainer.learningRate = Math.min(trainer.learningRate, options.learningRate);
  void [trainer.steps + (schedule.totalSteps ?? 0), schedule.kind === "linear"];
  const sizes: number[] = [dataset.tokens, dataset.documents, dataset.validationTokens];
  await trainer.step({ tokens: sizes, targets: [1, 2, IGNORE_INDEX] });
  const until = trainer.steps + dataset.stepsPerEpoch(options.tokensPerStep);
  for await (const { step } of trainer.run(dataset, { until })) if (step > 9) break;
  const long = { signal: controller.signal, onProgress: () => undefined };
  await Model.create(runtime, model.config, { seed: 1, ...long });
  await Trainer.create(model, { learningRate: 1e-3, ...long });
  await Promise.all([model.logits([1], long), model.loss([1, 2], undefined, long)]);
  await Promise.all([trainer.gradients(long), trainer.profile(long)]);
  const phase: Phase | undefined = trainer.plan()[0]?.phase;
  const bound: PlanBinding | undefined = trainer.plan()[0]?.bindings[0];
  const reason: LostInfo["reason"] = (await runtime.lost).reason;
  void [phase === "forward", reason === "destroyed", bound?.access === "read"];

  // @ts-expect-error: no such phase
  void (phase === "middle");
  // @ts-expect-error: no such reason
  void (reason === "crashed");
  // @ts-expect-error: an activation that tinyloom does not compute
  const relu: ModelConfig = { hidden_act: "relu" };
  void relu;
  const nulls: ModelConfig = { head_dim: null, num_key_value_heads: null, intermediate_size: null };
  void nulls;
  // @ts-expect-error: a count, not a method
  trainer.steps = 5;
  // @ts-expect-error: no such schedule
  await Trainer.create(model, { schedule: "exponential" });
  // @ts-expect-error: no such option
  await Trainer.create(model, { lr: 1 });
  // @ts-expect-error: internal
  runtime._counters();
  // @ts-expect-error: only through Model.create
  new Model();
  model.free();
  runtime.destroy();
}

export async function adapted(model: Model, signal: AbortSignal): Promise<void> {
  const adapter = await Adapter.create(model, { rank: 4, targets: ["q_proj"] });
  const saved: AdapterFiles = await adapter.save();
  const again = await Adapter.load(model, saved, { dropout: 0 });
  const targets: readonly string[] = again.options.targets;
  const tuned: Adapter = (await Trainer.create(again)).adapter;
  void [targets, tuned, await model.loss([1, 2], undefined, { adapter: again })];
  // @ts-expect-error: a model is no adapter of itself
  void model.loss([1, 2], undefined, { adapter: model });
  await again.merge({ signal });
  void (await Trainer.resume(model, saved)).steps;
}

export async function looked(model: Model, signal: AbortSignal): Promise<number> {
  const at: ModelAttentionOptions = { layer: 0, head: 1, kvCache: "f16" };
  const layer: HiddenStatesOptions["layer"] = model.config.num_hidden_layers;
  const looks: Float32Array[] = [
    await model.attention([1, 2], at),
    await model.hiddenStates(new Uint16Array(2), { layer, signal }),
  ];
  const { mlp } = await model.capture([1, 2], { mlp: true, layers: [0], signal });
  const [first] = await model.lens([1, 2], { top: 1 });
  const gradients = await model.attribute([1, 2], { target: 1 });
  const interventions: Intervention[] = [
    { at: "head", layer, head: 1, scale: 0 },
    { at: "residual", layer, add: [1, 2], strength: 2, positions: { from: 1 } },
    { at: "mlp", layer, set: new Float32Array(2), positions: [1] },
  ];
  // @ts-expect-error: a head has a number
  interventions.push({ at: "head", layer, scale: 0 });
  void [mlp[0], first?.top.ids, gradients[layer]];
  void (await model.logits([1], { interventions }));
  return looks.length;
}

export async function told(model: Model): Promise<void> {
  const told = { tokenizer: new ByteTokenizer(), stop: ["\n"] as const };
  for await (const { text } of model.generate([1], told)) void text.length;
  const prompts: BatchPrompt[] = [{ prompt: [1], seed: 2, stop: ["a"], maxTokens: 3 }];
  for await (const { index, token, text } of model.generateBatch([[1], ...prompts], told)) {
    void (index + token + text.length);
  }
  for (const one of await Promise.all([Adapter.create(model), Adapter.create(model)])) {
    const own: BatchPrompt = { prompt: "once", adapter: one };
    void model.generateBatch([own, { prompt: [1], adapters: [{ adapter: one, scale: 2 }] }], told);
  }
  // @ts-expect-error one signal ends the whole call
  void model.generateBatch([{ prompt: [1], signal: new AbortController().signal }]);
  // @ts-expect-error a batch tells no alternatives
  void model.generateBatch([[1]], { alternatives: 2 });
  for await (const { token } of model.generate([1], { promptLookup: true })) void token;
  const story = model.generate("once", { ...told, heal: true, skipSpecialTokens: true });
  for await (const { text } of story) void text.length;
  const seeds: readonly number[] = model.generateBatch(["once", ...prompts], told).seeds;
  const messages: Conversation = [{ role: "user", content: "hello" }];
  const options: ChatOptions = { tools: [{ name: "look" }], maxTokens: 9, template: "x" };
  const answer = chat(model, new ByteTokenizer(), messages, options);
  for await (const { text } of answer) void text.length;
  void (story.seed + answer.seed + seeds.length);
  // @ts-expect-error a batch heals no prompt
  void model.generateBatch([[1]], { heal: true });
  const half: ModelFiles = await model.save({ dtype: "bf16" });
  void half["model.safetensors"];
  const rows: Float32Array = await model.logits([1, 2], { from: 1 });
  // @ts-expect-error the loss is of the whole text
  void model.loss([1, 2], undefined, { from: rows.length });
  const pairs: TokenBias = [[1, 2]];
  const bias = (tokens: Uint32Array) => (tokens.length > 2 ? pairs : undefined);
  for await (const { alternatives } of model.generate([1], { bias, alternatives: 2 })) {
    void (alternatives[0]?.logprob satisfies number | undefined);
  }
}

export async function picked(model: Model, runtime: Runtime, handle: FileSystemFileHandle) {
  const files = { "config.json": handle, "model.safetensors": handle };
  const nothing: undefined = await model.save({ to: files });
  const input = document.createElement("input"); // with webkitdirectory
  if (input.files) await Model.fromPretrained(runtime, input.files);
  return [nothing, await Model.fromPretrained(runtime, files)];
}

export async function dispose(runtime: Runtime): Promise<void> {
  using model = await Model.create(runtime, {});
  await Trainer.prepare(runtime, model.config, { learningRate: 1e-3, onProgress: () => undefined });
  await using trainer = await Trainer.create(model);
  const end: () => void = runtime[Symbol.dispose];
  const ended: Promise<void> = runtime[Symbol.asyncDispose]();
  void [trainer.steps, end, ended];
}

export async function operate(runtime: Runtime, numbers: Float32Array): Promise<void> {
  const query: Tensor = runtime.tensor(numbers, [1, 4, 8, 16]);
  const cache = runtime.tensor(null, [1, 2, 64, 16], { element: "f32" }).slice(2, 0, 8);
  const options = { causal: true, window: 4, additive: { data: numbers, shape: [4, 8, 8] } };
  const saved: AttentionResult = await attention.forward(query, cache, cache, {
    ...options,
    into: { output: runtime.tensor([], query.shape).transpose(1, 2) },
  });
  const { dQuery, dKey } = await attention.backward(query, query, cache, cache, {
    ...options,
    ...saved,
  });
  await dQuery.write(await (await softmax(dKey)).data());
  const buffer: GPUBuffer = saved.output.reshape([8, 64]).buffer;
  await attention.decode(query, cache, cache, { keyLengths: new Uint32Array(1) });
  // @ts-expect-error: decoding has no mask
  await attention.decode(query, cache, cache, { causal: true });
  // @ts-expect-error: the backward pass needs the forward's results
  await attention.backward(query, query, cache, cache, options);
  // @ts-expect-error: no such element
  runtime.tensor(null, [buffer.size], { element: "bf16" });
  // @ts-expect-error: only through runtime.tensor
  new Tensor();
  saved.logsumexp.free();
}

export async function useWorker(file: File, signal: AbortSignal, given: Worker): Promise<void> {
  const { Adapter, Runtime, Model, Trainer, Dataset, ByteTokenizer, BpeTokenizer, close } =
    await worker.connect();
  const runtime: worker.Runtime = await Runtime.create({ features: false });
  const vendor: string = runtime.capabilities.adapter.vendor;
  const model: worker.Model = await Model.create(runtime, { hidden_size: 64 }, { seed: 1 });
  const trainer: worker.Trainer = await Trainer.create(model, { schedule: "linear" });
  await Trainer.prepare(runtime, { hidden_size: 64 }, { schedule: "linear" });
  const adapter: worker.Adapter = await Adapter.create(model, { rank: 4 });
  for await (const { token } of model.generate([1], { adapter })) void token;
  // @ts-expect-error: a model is no adapter of itself
  void model.loss([1, 2], undefined, { adapter: model });
  const dataset = await Dataset.fromTokens(worker.transfer(new Uint32Array(9)));
  void (await Dataset.fromText(file, new ByteTokenizer()));
  for await (const m of trainer.run(dataset, { steps: 2, signal })) {
    const loss: number = (m satisfies StepMetrics).loss;
    void loss;
  }
  for await (const { token } of model.generate([1], { maxTokens: 2 })) void (token + vendor.length);
  const learned: worker.BpeTokenizer = await BpeTokenizer.train("a text", { vocabSize: 300 });
  for await (const { text } of model.generate([1], { tokenizer: learned })) void text.length;
  const count: number = trainer.model.parameterCount;
  const rows = await trainer.plan();
  const bytes: Uint8Array<ArrayBuffer> = (await model.save())["model.safetensors"];
  void ((await model.save({ to: await navigator.storage.getDirectory() })) satisfies undefined);
  const same = await Trainer.resume(runtime, { "model.safetensors": bytes });
  const { reason } = await runtime.lost;
  void [count, rows[0]?.kernel, same.model.config.hidden_size, reason, model instanceof Model];
  // @ts-expect-error: the device stays in the worker
  runtime.device;
  const tensor: worker.Tensor = await runtime.tensor([1], [1]);
  // @ts-expect-error: so does a tensor's buffer
  tensor.buffer;
  // @ts-expect-error: synchronous there, a promise here
  const plan: PlanRow[] = trainer.plan();
  // @ts-expect-error: a runtime of the page is none of the worker's
  await Model.create(await import("tinyloom").then((direct) => direct.Runtime.create()), {});
  // @ts-expect-error: operations stay in the worker
  await softmax(tensor);
  await model.free();
  await close();
  const extra = { count: async function* (_to: number) {}, add: (a: number, b: number) => a + b };
  const own = await worker.connect<typeof extra>({ worker: given });
  const sum: number = await own.add(1, 2);
  for await (const _ of own.count(sum)) void plan;
  worker.serve(extra);
}

/** Whether two types are one: an optional field is not the same as one that is there. */
type Same<A, B> =
  (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const same = <A, B>(_: Same<A, B>): void => undefined;

/** What an option asks for is there; the page has the same of a worker. */
export async function asked(
  direct: Model,
  remote: worker.Model,
  capabilities: Capabilities,
): Promise<void> {
  const tokenizer = new ByteTokenizer();
  for (const model of [direct, remote]) {
    const size: number = model.config.hidden_size / model.config.num_attention_heads;
    const tied: boolean = model.config.tie_word_embeddings;
    // @ts-expect-error: not every family has it
    const window: number = model.config.sliding_window;
    // @ts-expect-error: null in configs whose layers say it
    const width: number = model.config.head_dim ?? null;
    void [size, tied, window, width];
  }
  const told = { tokenizer, alternatives: 2 };
  const onProgress = ({ loaded, total, stage }: Progress) => console.log(stage, loaded / total);
  await direct.prepare({ generate: true, onProgress, signal: AbortSignal.timeout(9) });
  const adapter = await (await worker.connect()).Adapter.create(remote);
  await remote.prepare({ generate: { ...told, adapter, sequences: 4, weights: "int8" } });
  // @ts-expect-error: what to prepare for
  void direct.prepare({ onProgress });
  for await (const { text, alternatives } of direct.generate("a", told)) {
    void (text.length + alternatives.length);
  }
  for await (const { text, alternatives } of remote.generate("a", told)) {
    void (text.length + alternatives.length);
  }
  for await (const { text } of direct.generate("a", { tokenizer, maxTokens: 2 })) void text.length;
  for await (const { text } of remote.generate("a", { tokenizer })) void text.length;
  for await (const { text } of remote.generateBatch(["a"], { tokenizer })) void text.length;
  for await (const { text } of direct.generateBatch(["a"], { tokenizer })) void text.length;
  for await (const { alternatives } of remote.generate([1], { alternatives: 2 })) {
    void alternatives.length;
  }
  for await (const token of direct.generate([1])) {
    // @ts-expect-error: without a tokenizer there is no text
    void token.text.length;
  }
  // @ts-expect-error: no such option, of any of the overloads
  void direct.generate("a", { tokenizer, alternative: 2 });
  for await (const { text } of chat(direct, tokenizer, [])) void text.length;
  for await (const { alternatives } of chat(direct, tokenizer, [], { alternatives: 2 })) {
    void alternatives.length;
  }
  const { entropy, top } = await direct.score([1], { entropy: true, top: 2 });
  void (entropy.length + top.ids.length + (await remote.score([1], { top: 2 })).top.ids.length);
  const plain = await direct.score([1]);
  same<typeof plain.entropy, Float32Array | undefined>(true);
  void (await direct.lens([1]))[0]?.top.ids;
  for (const model of [direct, remote]) {
    const found = await model.capture([1], { residual: true, layers: [0] });
    void found.residual[0]?.length;
    // @ts-expect-error: not asked for
    void found.mlp[0];
  }
  // @ts-expect-error: no such kind
  void direct.capture([1], { residual: true, attentions: true });
  const trainer = await Trainer.create(await Adapter.create(direct));
  same<typeof trainer.adapter, Adapter>(true);
  void (await Trainer.resume(direct, {})).adapter.free();
  const { operations, milliseconds, snapshots } = await estimate(
    {},
    { trainer: {}, generate: {} },
    capabilities,
  );
  void (operations.step + operations.token + milliseconds.step + snapshots.gpu);
  const untimed = await (await worker.connect()).estimate({}, { generate: {} });
  void untimed.operations.token;
  // @ts-expect-error: without capabilities there are no times
  void untimed.milliseconds.token;
}

/** Metrics and samples have one type wherever they are read. */
export async function kept(runs: Runs, run: StoredRun, remote: worker.StoredRun): Promise<void> {
  const lists = [await run.metrics(), await runs.metrics("a"), await remote.metrics()] as const;
  same<(typeof lists)[number], NotedMetrics[]>(true);
  same<NotedMetrics["loss"], number | null | undefined>(true);
  same<NotedMetrics["skipped"], boolean | undefined>(true);
  for (const metrics of lists.flat()) await run.addMetrics(metrics);
  const samples: [Sample[], Sample[]] = [await run.samples(), await remote.samples()];
  for (const sample of samples.flat()) await run.addSample(sample);
}

export async function rewarded(trainer: Trainer, reference: Model): Promise<void> {
  const options = { reward: () => 1, reference };
  for await (const { kl } of grpo(trainer, [[1]], options)) void kl.toFixed();
}

export function explain(error: unknown): ErrorCode | undefined {
  return error instanceof TinyloomError ? error.code : undefined;
}
