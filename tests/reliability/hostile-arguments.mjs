// What calls are made with: nonsense, and good arguments of which some are replaced by it.

export const CONFIG = {
  model_type: "llama",
  vocab_size: 32,
  hidden_size: 8,
  intermediate_size: 8,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  num_key_value_heads: 1,
  max_position_embeddings: 32,
};
const boom = () => {
  throw new Error("boom");
};
const rejected = () => {
  const promise = Promise.reject(new Error("rejected"));
  promise.catch(() => {}); // where a call does not take it up, that is no fault of the call
  return promise;
};
const detached = () => {
  const array = Uint32Array.of(1, 2, 3);
  structuredClone(array.buffer, { transfer: [array.buffer] });
  return array;
};

/** Nonsense, made anew each time. Sizes are small, or larger than any memory. */
export const NONSENSE = [
  () => undefined,
  () => null,
  () => true,
  () => false,
  () => 0,
  () => -0,
  () => -1,
  () => 1,
  () => 2,
  () => 1.5,
  () => NaN,
  () => Infinity,
  () => -Infinity,
  () => 2 ** 31,
  () => 2 ** 32,
  () => 2 ** 32 - 1,
  () => 2 ** 53,
  () => 1e300,
  () => 1e-320,
  () => 5n,
  () => -(2n ** 70n),
  () => "",
  () => "x",
  () => "0",
  () => "\ud800",
  () => "a/../b",
  () => "\u0000",
  () => Symbol("s"),
  () => Symbol.iterator,
  () => () => undefined,
  () => boom,
  () => class {},
  () => async () => 1,
  () => ({}),
  () => Object.create(null),
  () => [],
  () => [1],
  () => [1.5],
  () => [-1],
  () => ["x"],
  () => [null],
  () => [[1]],
  () => Array(5),
  () => [2 ** 32],
  () => new Uint8Array(3),
  () => new Uint8Array(0),
  () => Uint32Array.of(1, 2, 3),
  () => Uint32Array.of(2 ** 32 - 1),
  detached,
  () => new Float32Array([NaN]),
  () => new Float64Array(2),
  () => new BigInt64Array(1),
  () => new ArrayBuffer(8),
  () => new SharedArrayBuffer(8),
  () => new DataView(new ArrayBuffer(4)),
  () => new Map([[1, 2]]),
  () => new Set(),
  () => new Date(NaN),
  () => /x/,
  () => new Error("mine"),
  () => Promise.resolve(1),
  rejected,
  () => new Proxy({}, { get: boom, ownKeys: boom, getPrototypeOf: boom }),
  () => new Proxy([], { get: boom }),
  // biome-ignore lint/suspicious/noThenProperty: what is awaited by accident
  () => ({ then: boom }),
  () => ({ valueOf: boom, toString: boom }),
  () => ({ toJSON: boom }),
  () => ({
    get length() {
      return boom();
    },
  }),
  () => ({ length: 2 ** 32 }),
  () => globalThis,
  () => new AbortController().signal,
  () => AbortSignal.abort("early"),
  () => ({ aborted: true }),
  () => new URL("file:///none/"),
  () => new URL("data:,x"),
  () => new Blob(["x"]),
  () => new ReadableStream({ start: (stream) => stream.close() }),
  () => new ReadableStream({ pull: boom }),
  () => new WritableStream(),
  () => new Response("x"),
  () => [1, 2, 3].values(),
  () =>
    (function* () {
      yield boom();
    })(),
  () =>
    (async function* () {
      yield 1;
    })(),
  () => {
    const circle = {};
    circle.self = circle;
    return circle;
  },
  () => "x".repeat(70_000),
  () => [[[[[[]]]]]],
];

/** Good arguments of the calls on what holds a device. */
const onRuntime = ({ runtime, gpu }) => ({
  "Runtime.create": () => [
    {
      gpu,
      limits: { maxBufferSize: 2 ** 28 },
      features: { f16: false },
      powerPreference: "low-power",
      memoryBudget: 2 ** 30,
      recover: { attempts: 1 },
    },
  ],
  "Runtime#tensor": () => [[1, 2, 3, 4], [2, 2], { element: "f32" }],
  "Tensor#write": () => [[1, 2, 3, 4]],
  "Tensor#slice": () => [0, 0, 1],
  "Tensor#transpose": () => [0, 1],
  "Tensor#reshape": () => [[4]],
  estimate: () => [
    { ...CONFIG },
    { trainer: { tokensPerStep: 8 }, generate: { tokens: 8 } },
    runtime.capabilities,
  ],
});

/** Of a model's. */
const onModel = ({ runtime, files, byte, adapter }) => ({
  "Model.create": () => [runtime, { ...CONFIG }, { seed: 1 }],
  "Model.countParameters": () => [runtime, { ...CONFIG }],
  "Model.fromPretrained": () => [runtime, { ...files }, { onProgress: () => {} }],
  readConfig: () => [{ ...files }, { onProgress: () => {} }],
  "Model#logits": () => [[1, 2, 3], { weights: "f32" }],
  "Model#loss": () => [[1, 2, 3], [2, 3, 4], { weights: "f32" }],
  "Model#hiddenStates": () => [[1, 2], { layer: 1 }],
  "Model#attention": () => [[1, 2], { layer: 0, head: 0 }],
  "Model#capture": () => [[1, 2], { residual: true, layers: [1] }],
  "Model#lens": () => [[1, 2], { layers: [0], top: 1 }],
  "Model#attribute": () => [[1, 2], { target: 1, layers: [0] }],
  "Model#generate": () => [
    [1, 2],
    {
      maxTokens: 2,
      temperature: 1,
      topK: 4,
      topP: 0.9,
      minP: 0.1,
      repetitionPenalty: 1.1,
      seed: 1,
      stopTokens: [3],
      alternatives: 2,
      bias: [[1, 2]],
      stop: ["x"],
      tokenizer: byte,
      kvCache: "f16",
      weights: "f16",
      promptLookup: false,
      heal: false,
      skipSpecialTokens: true,
      adapter,
    },
  ],
  "Model#generateBatch": () => [
    [{ prompt: [1, 2], temperature: 1, seed: 1, stop: ["x"] }, [3]],
    {
      maxTokens: 2,
      topK: 4,
      topP: 0.9,
      minP: 0.1,
      repetitionPenalty: 1.1,
      stopTokens: [3],
      tokenizer: byte,
      skipSpecialTokens: false,
      kvCache: "f32",
      weights: "f32",
      adapter,
    },
  ],
  "Model#save": () => [{ onProgress: () => {}, dtype: "f32" }],
});

/** Of an adapter's. */
const onAdapter = ({ still, files, adapterFiles }) => ({
  "Adapter.create": () => [still, { rank: 2, alpha: 4, targets: ["q_proj"], dropout: 0, seed: 1 }],
  "Adapter.load": () => [still, { ...adapterFiles }, { dropout: 0 }],
  "Adapter#save": () => [{ onProgress: () => {} }],
  "Adapter#saveMerged": () => [{ ...files }, { onProgress: () => {} }],
});

/** Of a trainer's. */
const onTrainer = ({ runtime, model, files, data }) => ({
  "Trainer.create": () => [
    model,
    {
      optimizer: "adamw",
      learningRate: 1e-3,
      schedule: "cosine",
      warmupSteps: 1,
      totalSteps: 9,
      weightDecay: 0.1,
      beta1: 0.9,
      beta2: 0.95,
      epsilon: 1e-8,
      maxGradNorm: 1,
      gradientAccumulation: 1,
      tokensPerStep: 8,
      seed: 1,
    },
  ],
  "Trainer.resume": () => [runtime, { ...files }, {}],
  "Trainer#step": () => [{ tokens: [1, 2, 3], targets: [2, 3, 4], documents: [0, 0, 0] }],
  "Trainer#run": () => [data, { steps: 1, evaluateEvery: 1, maxSkipped: 1, stepsAhead: 0 }],
  "Trainer.findLearningRate": () => [
    model,
    data,
    { from: 1e-5, to: 1e-2, steps: 3, trainer: { tokensPerStep: 8 } },
  ],
  "Trainer#evaluate": () => [data, { averaged: false }],
  "Trainer#gradients": () => [{}],
  "Trainer#profile": () => [{}],
  "Trainer#save": () => [{ onProgress: () => {} }],
  "Trainer#wgsl": () => [0],
  "Trainer#learningRate": () => [1e-3],
});

/** Of texts', datasets' and tokenizers'. */
const onText = ({ byte, tokenizer, model }) => {
  const text = "some text ".repeat(9);
  const split = () => ({ sequenceLength: 4, validationFraction: 0.1, seed: 1 });
  return {
    "Dataset.fromText": () => [text, byte, { ...split(), startTokens: [1] }],
    "Dataset.fromTokens": () => [[1, 2, 3, 4, 5, 6, 7, 8], { ...split(), validationFraction: 0 }],
    "Dataset.from": () => [text, byte, { ...split(), format: "text" }],
    "Dataset.fromDocuments": () => [
      ["some text", "and more of it"],
      byte,
      { ...split(), startTokens: true, endToken: 1, joined: true },
    ],
    "Dataset.fromConversations": () => [
      [[{ role: "user", content: "a" }]],
      tokenizer,
      { template: "x" },
    ],
    "Dataset.load": () => [{ "dataset.json": new Uint8Array(2) }],
    "Dataset#document": () => [0],
    chat: () => [
      model,
      byte,
      [{ role: "user", content: "a" }],
      { template: "x", tools: [{ name: "a" }], maxTokens: 2, seed: 1, stop: ["y"] },
    ],
    chatPrompt: () => [[{ role: "user", content: "a" }], tokenizer, { template: "x" }],
    "Dataset#stepsPerEpoch": () => [8],
    "Dataset#save": () => [{}],
    "BpeTokenizer.train": () => [text, { vocabSize: 260, minFrequency: 2 }],
    "BpeTokenizer.fromPretrained": () => [tokenizer.save()],
    "Tokenizer.fromPretrained": () => [tokenizer.save()],
    "ByteTokenizer#encode": () => ["a text"],
    "ByteTokenizer#decode": () => [[1, 2]],
    "BpeTokenizer#encode": () => ["a text"],
    "BpeTokenizer#decode": () => [[1, 2]],
  };
};

/** Of stored runs', operations' and the rest. */
const onOthers = ({ runtime, tensor }) => {
  const attention = () => {
    const one = () => runtime.tensor(null, [1, 1, 4, 4]);
    return [one(), one(), one(), { causal: true }];
  };
  return {
    "Runs.open": () => ["calls", { memory: true }],
    "Runs#create": () => ["r1", { data: "x", tokenizer: "{}", options: {} }],
    "Runs#rename": () => ["none", "other"],
    "Runs#export": () => ["one", { zip: false }],
    "Runs#import": () => ["two", {}],
    zip: () => [{ "a.txt": new Uint8Array(2) }],
    "StoredRun#addMetrics": () => [{ step: 1, loss: 2 }],
    "StoredRun#addSample": () => [{ step: 1, text: "x" }],
    connect: () => [{ worker: 5 }],
    "ops.softmax": () => [tensor()],
    "ops.attention.forward": attention,
    "ops.attention.backward": () => [attention()[0], ...attention()],
    "ops.attention.decode": attention,
    "TinyloomError.from": () => [{ code: "freed", message: "x" }],
    "new TinyloomError": () => ["freed", "x", { cause: 1 }],
  };
};

/** Good arguments of each call that has some; what is called without is called with nonsense alone. */
export const goodOf = (objects) => ({
  ...onRuntime(objects),
  ...onModel(objects),
  ...onAdapter(objects),
  ...onTrainer(objects),
  ...onText(objects),
  ...onOthers(objects),
});
