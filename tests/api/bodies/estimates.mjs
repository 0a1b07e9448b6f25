// What a model is estimated to take, beside what it then takes.
import { close, equal, ok, refuses } from "./assert.mjs";
import { batch, collect, config, sameSnapshot, trainerOptions } from "./kit.mjs";

const bytesOf = (runtime) => runtime._counters().gpuBytes;

/** Waits until what was freed is given back. */
const settled = (runtime) => runtime.device.queue.onSubmittedWorkDone();

/** Models of different shape: tied or not, windows, biases, norms per head and behind blocks, soft caps. */
const MODELS = [
  config,
  { ...config, tie_word_embeddings: false, vocab_size: 301, num_hidden_layers: 3 },
  { ...config, model_type: "mistral", sliding_window: 24, max_position_embeddings: 4096 },
  { ...config, model_type: "qwen2" },
  { ...config, model_type: "qwen3", head_dim: 32 },
  { ...config, model_type: "gemma2", sliding_window: 24 },
  { ...config, model_type: "gemma3_text", sliding_window: 24, sliding_window_pattern: 2 },
];
const TRAINERS = [
  { tokensPerStep: 64 },
  { tokensPerStep: 300, recompute: true },
  { tokensPerStep: 96, precision: "mixed", gradientAccumulation: 3 },
  { tokensPerStep: 64, lastLayers: 1 },
  { tokensPerStep: 64, ema: 0.99 },
  { tokensPerStep: 64, optimizer: "adamw8bit" },
];

/** What a model is tried with: the first with everything, the others in turn with one. */
const inTurn = (options, model) =>
  options.filter((_, at) => model === 0 || at === model % options.length);

/** Holds the predicted bytes of models, trainers and generations to those that are then allocated. */
async function sameBytes({ tinyloom, runtime }, shapes, trainers, generations) {
  const { estimate, Model, Trainer } = tinyloom;
  await settled(runtime);
  const empty = bytesOf(runtime);
  let sum = 0;
  for (const [index, shape] of shapes.entries()) {
    for (const trainer of inTurn(trainers, index)) {
      const expected = await estimate(shape, { trainer }, runtime.capabilities);
      const model = await Model.create(runtime, shape);
      const weights = await estimate(shape, {}, runtime.capabilities);
      equal(bytesOf(runtime) - empty, weights.bytes.total, `${shape.model_type}: weights`);
      equal(weights.parameters, model.parameterCount, "parameters");
      const all = trainer.lastLayers === undefined;
      equal(expected.trainable === model.parameterCount, all, "weights that are trained");
      equal(weights.snapshots, undefined, "snapshots of a model alone");
      await Trainer.create(model, trainer);
      const what = `${shape.model_type} with ${JSON.stringify(trainer)}`;
      equal(bytesOf(runtime) - empty, expected.bytes.total, what);
      equal(model.gpuBytes, expected.bytes.total, `gpuBytes of ${what}`);
      await sameSnapshot(tinyloom, runtime, model, expected.snapshots, what);
      sum += expected.bytes.total;
      model.free();
      await settled(runtime);
    }
    for (const generate of inTurn(generations, index)) {
      const model = await Model.create(runtime, shape);
      const { tokens, ...forms } = generate;
      const options = { ...forms, maxTokens: tokens - 5, temperature: 0 };
      await collect(model.generate(batch(5).tokens, options));
      const { bytes } = await estimate(shape, { generate }, runtime.capabilities);
      equal(bytesOf(runtime) - empty, bytes.total, JSON.stringify(generate));
      equal(model.gpuBytes, bytes.total, `gpuBytes with ${JSON.stringify(generate)}`);
      ok(bytes.cache > 0, "a cache");
      model.free();
      await settled(runtime);
    }
  }
  return `${sum} bytes`;
}

const GENERATIONS = [{ tokens: 20 }, { tokens: 60, kvCache: "int8", weights: "int4" }];

/** The case of a model, by its place in the list. */
const ofModel = (shape, index) => [
  `bytes equal what is then allocated: model ${index}, ${shape.model_type}`,
  (context) => sameBytes(context, [shape], inTurn(TRAINERS, index), inTurn(GENERATIONS, index)),
];

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["firefox"],
  why: "sums and predictions are computed in the module; bytes are those of its own counters",
  core: 12,
  smoke: ["bytes of one model equal what is then allocated"],
};

export const cases = {
  ...Object.fromEntries(MODELS.map(ofModel)),

  "bytes of one model equal what is then allocated": (context) =>
    sameBytes(context, [config], [trainerOptions], [{ tokens: 20 }]),

  async "operations are those of the plan"({ tinyloom, runtime }) {
    const { estimate, Model, Trainer } = tinyloom;
    const trainer = { tokensPerStep: 64 };
    const { operations } = await estimate(config, { trainer }, runtime.capabilities);
    const model = await Model.create(runtime, config);
    const rows = (await Trainer.create(model, trainer)).plan();
    const flops = rows.reduce((total, row) => total + row.flops, 0);
    close(operations.step / flops, 1, 1e-9, "operations of a step");
    const thrice = { ...trainer, gradientAccumulation: 3 };
    const more = await estimate(config, { trainer: thrice });
    ok(more.operations.step > 2.9 * flops && more.operations.step < 3 * flops, "three micro-steps");
    equal(more.milliseconds, undefined, "times without capabilities");
    model.free();
  },

  async "of more weights than 32 bits count, all are counted"({ tinyloom, runtime }) {
    // Fields that are not given are transformers' own: Llama 7B.
    const options = { trainer: { tokensPerStep: 16 } };
    const told = await tinyloom.estimate({}, options, runtime.capabilities);
    equal([told.parameters, told.trainable], [6_738_415_616, 6_738_415_616]);
    // Each tensor's state begins at a multiple of some bytes.
    const padded = told.snapshots.gpu / (12 * 6_738_415_616) - 1;
    ok(padded >= 0 && padded < 1e-5, `a snapshot takes ${told.snapshots.gpu} bytes`);
  },

  async "what cannot be is refused"({ tinyloom, runtime }) {
    const { estimate } = tinyloom;
    const wrong = (words, ...call) => refuses("invalid-options", words, () => estimate(...call));
    await refuses("invalid-config", ["hidden_size"], () => estimate({ ...config, hidden_size: 0 }));
    await refuses("invalid-config", ["config"], () => estimate("llama"));
    await wrong(["train", "trainer"], config, { train: {} });
    await wrong(["tokensPerStep", "0"], config, { trainer: { tokensPerStep: 0 } });
    await wrong(["tokens", "1.5"], config, { generate: { tokens: 1.5 } });
    await wrong(["sequences is -1", "at most 256"], config, { generate: { sequences: -1 } });
    const most = config.max_position_embeddings ?? 2048;
    await wrong(["tokens", `${most + 1}`], config, { generate: { tokens: most + 1 } });
    await wrong(["capabilities"], config, {}, { limits: 3 });
    for (const limits of [{}, [], { maxBufferSize: 2 ** 30 }]) {
      const told = ["capabilities: ", "give all of runtime.capabilities"];
      const { message } = await wrong(told, config, {}, { limits });
      ok(!message.includes("column"), message);
    }
    for (const value of [
      0,
      NaN,
      false,
      "",
      5,
      null,
      {},
      [],
      () => 1,
      { toJSON: () => undefined },
    ]) {
      await wrong(["capabilities", "runtime.capabilities"], config, {}, value);
    }
    for (const name of Object.keys(runtime.capabilities.limits)) {
      for (const value of [0, -1, 1.5, "8", null]) {
        const limits = { ...runtime.capabilities.limits, [name]: value };
        const able = { ...runtime.capabilities, limits };
        await wrong(["capabilities", name, "at least 1"], config, { trainer: {} }, able);
      }
    }
    const limits = { ...runtime.capabilities.limits, maxStorageBufferBindingSize: 64 };
    await refuses("limit-exceeded", ["maxStorageBufferBindingSize"], () =>
      estimate(config, {}, { ...runtime.capabilities, limits }),
    );
  },
};
