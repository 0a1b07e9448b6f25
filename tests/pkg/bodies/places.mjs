// Where each body of the public API's tests runs.
//
// The module is the same wasm in every host, and so is the TypeScript over it. What differs: Firefox has
// another engine, another WebGPU (wgpu, naga, lavapipe), other web APIs. Chromium and Node share engine,
// WebGPU (Dawn) and adapter (SwiftShader); a page adds the GPU process, whose errors and results come
// over a pipe, and web APIs. The kernels themselves are compiled and compared in both browsers by
// tests/lanes.

const EVERYWHERE = ["node", "chromium", "firefox"];
const NODE = ["node"];
// For bodies that make many runtimes, or many plans: SwiftShader takes five times as long to compile them.
const FIREFOX = ["firefox"];

/** The seed draws one of so many `smoke` cases. It runs in one host. */
const SMOKE_ONE_OF = 2;

/**
 * For each body the hosts that run all of it (`whole`), why, and the cases that the other hosts run (`smoke`): those that
 * touch the host where they can. Two such hosts share these cases by turns, and the seed draws half of them. With `oneOf`
 * the seed draws the cases that a whole host runs: one of three for 3. Those of `always` run in every host with each
 * seed. A `timed` body holds times to account and has the machine for itself. A `full` one runs in `npm run test:full`
 * alone. The order is that of the run.
 */
export const PLACES = {
  calls: {
    whole: NODE, // first: it has a dataset from before the module is loaded
    why: "arrays are copied and signals looked at in TypeScript, before the GPU",
    smoke: [
      "unawaited calls that share an array read it as it was",
      "memory that threads share is copied at the call, not when the GPU is free",
      "unawaited steps that share a batch train on it as it was",
      "a dataset keeps the tokens that it was given",
    ],
    always: ["unawaited calls that share an array read it as it was"],
  },
  options: {
    whole: EVERYWHERE,
    why: "adapters, limits and the loss of a device are the host's; the rest is quick",
  },
  "bad-input": {
    whole: NODE,
    why: "refused in the module, before the GPU",
    smoke: ["batches that cannot be", "free before a call begins and while it runs"],
  },
  nonsense: {
    whole: NODE,
    why: "refused in the module, but for what adapters and errors of the host are like",
    smoke: [
      "sizes that no memory holds",
      "errors of the page's own use of the device",
      "adapters that are none",
      "a model freed while its trainer is made",
    ],
  },
  checkpoint: {
    whole: NODE,
    why: "bytes are read in the module; Blobs, URLs and signals are the host's",
    smoke: ["what is saved loads again, from bytes and from Blobs", "loading stops at the signal"],
  },
  loading: {
    whole: NODE,
    why: "the order of requests and pieces is decided in TypeScript; fetch and its streams are the host's",
    smoke: [
      "from servers with and without Range, lengths and Content-Range",
      "a run resumes over HTTP, in one progress",
      "a download stops at the signal",
      "bytes that go away while they are read are reported",
    ],
  },
  saving: {
    whole: EVERYWHERE,
    why: "streams and directories are the host's",
  },
  gguf: {
    whole: NODE,
    why: "the file is made in TypeScript; streams are the host's",
    smoke: ["a stream gets the bytes of a save into memory"],
  },
  decoding: {
    whole: FIREFOX,
    oneOf: 6,
    why: "the loop over tokens is the module's; submits and readbacks are the host's",
    smoke: [
      "greedy tokens are those of the logits",
      "one seed gives one text",
      "the signal, a break and two at once",
    ],
  },
  generation: {
    whole: FIREFOX,
    why: "text is joined in TypeScript, which is loaded when it is needed",
    smoke: ["each token comes with its text"],
  },
  batch: {
    whole: FIREFOX,
    oneOf: 6,
    why: "as for decoding; another compiler sees the kernels of several rows in the lanes",
    smoke: [
      "texts are those of generate, whatever their neighbours are",
      "a lost device in the midst of a batch",
      "prompt lookup changes no text",
    ],
  },
  looks: {
    whole: FIREFOX,
    why: "plans and chunks are the module's; fixtures hold PyTorch's numbers, some of them in Node and samples in the browsers",
    smoke: ["the last hidden state has the logits, the first is the embedding"],
  },
  training: {
    whole: FIREFOX,
    oneOf: 6,
    why: "schedule, batches and metrics are the module's; submits, readbacks and what keeps measured products are the host's",
    smoke: [
      "the loss falls and is reported",
      "training twice gives identical bytes",
      "products are measured once, and remembered",
      "20 steps are 10, save, resume, 10: to the bit",
      "a run stops at the signal and goes on later",
      "a loss that is not finite skips the step and ends the run",
    ],
  },
  optimizers: {
    whole: FIREFOX,
    oneOf: 12,
    why: "as for training",
    smoke: ["an average of weights is evaluated, saved and resumed, and leaves the weights alone"],
  },
  text: {
    whole: EVERYWHERE,
    why: "files, streams, workers and the characters of regular expressions are the host's; it is quick",
  },
  pieces: {
    whole: NODE,
    why: "windows and pieces are the module's and TypeScript's; steps and evaluations run in all hosts with other bodies",
    smoke: ["a run that began without start tokens names the option that gives them back"],
  },
  "text-nonsense": {
    whole: NODE,
    why: "refused in TypeScript; detached arrays and errors of proxies are the engine's",
    smoke: ["ids, texts and documents that cannot be read"],
  },
  runs: {
    whole: FIREFOX,
    oneOf: 6,
    why: "whose steps a run counts is decided in TypeScript",
    smoke: [
      "a step beside a run is none of the run's",
      "two trainers and a generation on one runtime are what they are alone",
      "a dataset that is freed while evaluate reads it is read to its end",
    ],
  },
  resources: {
    timed: true,
    whole: EVERYWHERE,
    why: "when results are noticed, memory comes back and garbage is collected is the host's",
  },
  estimates: {
    whole: FIREFOX,
    oneOf: 12,
    why: "sums and predictions are computed in the module; bytes are those of its own counters",
    smoke: ["bytes of one model equal what is then allocated"],
  },
  faults: {
    whole: FIREFOX,
    oneOf: 6,
    why: "what is kept and undone is decided in the module; what a refused call looks like is the host's",
    smoke: [
      "a step whose submit is refused rejects, and the run goes on as if it had not been",
      "steps that are queued ahead and refused leave no trace in the count",
      "every call tells of its refused submits and writes",
      "a model or trainer whose upload is refused is not made",
      "a tensor that gets no memory gives no one else's bytes",
      "a creation after one whose pipelines were refused makes its own",
      "a readback that fails on a living device is no lost device",
      "a lost device is told as such, whenever it is lost",
      "a plan whose ranges the browser refuses to write leaves no byte",
    ],
    always: [
      "a model or trainer whose upload is refused is not made",
      "a creation after one whose pipelines were refused makes its own",
    ],
  },
  recovery: {
    whole: FIREFOX,
    oneOf: 12,
    why: "what comes back, and in which order, is decided in TypeScript; how a device is lost is the host's",
    smoke: [
      "a call waits, unless its signal fires",
      "an onState that throws is reported, and ends nothing",
      "without recovery a lost device is the end",
    ],
  },
  concurrency: {
    full: true,
    whole: EVERYWHERE,
    why: "a device is compiled for again after each loss: in npm run test:full alone",
  },
  cut: {
    whole: FIREFOX,
    why: "where matrices are cut is decided in the module; limits, memory and submits are the host's",
    smoke: [
      "matrices cut into several bindings and shards train as whole ones do",
      "a cut model trains, is saved, resumed and generated from",
    ],
    always: [
      "matrices cut into several bindings and shards train as whole ones do",
      "a cut model trains, is saved, resumed and generated from",
    ],
  },
  fixtures: {
    whole: NODE,
    oneOf: 12,
    why: "PyTorch's numbers come from the kernels, which the lanes run on each compiler and adapter; files are the host's",
    smoke: [
      "lion: ten steps",
      "llama3: logits, and saved again",
      "llama3: gradients and ten steps",
      "llama3: greedy text",
      "qwen3: logits, and saved again",
      "qwen3: gradients and ten steps",
      "qwen3: greedy text",
      "gpt2: gradients and ten steps",
      "gpt2: dropout, gradients and ten steps",
      "gemma3: gradients and ten steps",
      "gpt2-bf16: logits, and saved again",
      "gemma2: hidden states and attention",
      "a fresh model is saved with the same bytes everywhere",
    ],
    // The browsers' are the adapter's.
    limits: { node: "default" },
  },
  peft: {
    whole: NODE,
    oneOf: 12,
    why: "as for fixtures",
    smoke: ["packed-int4: exported", "gemma2: merged"],
    limits: { node: "default" },
  },
  adapters: {
    whole: FIREFOX,
    oneOf: 6,
    why: "which weights are read, trained and saved is decided in the module and in TypeScript",
    smoke: ["a merge is done once"],
  },
  packed: {
    whole: FIREFOX,
    oneOf: 12,
    why: "what is packed and what is refused is decided in the module; peft holds PEFT's numbers, some of them in Node and samples in the browsers",
    smoke: ["texts are those of an f32 model that reads the same format"],
  },
  tensors: {
    whole: EVERYWHERE,
    why: "buffers, views and reads are the host's; the whole is quick",
  },
  ops: {
    whole: ["node", "firefox"],
    oneOf: 6,
    why: "PyTorch's numbers are to come out of each compiler and adapter: Chromium has Node's",
    smoke: ["PyTorch's outputs and gradients", "calls run in their order"],
  },
  "ops-nonsense": {
    whole: NODE,
    why: "refused in TypeScript and in the module, before the GPU",
    smoke: ["the other passes"],
  },
  errors: {
    whole: EVERYWHERE,
    why: "structuredClone, proxies and detached arrays are the engine's",
  },
};

/**
 * The names of a body's cases that a host runs.
 *
 * @param all - the names of all its cases.
 * @param host - "node", "chromium" or "firefox"; undefined: all cases.
 * @param turn - a whole number, the seed: by it cases are drawn and shared. Without it `whole` hosts run all cases, and the
 *   others all of `smoke`.
 * @throws Error if the table names a case that the body does not have, or does not know the body.
 */
export function placed(body, all, host, turn) {
  const place = PLACES[body];
  if (!place) throw new Error(`tests/pkg/bodies/places.mjs does not say where ${body} runs`);
  const { whole, smoke = [], always = [], oneOf = 1, full } = place;
  if (full && host !== undefined) return [];
  const missing = [...smoke, ...always].filter((name) => !all.includes(name));
  if (missing.length > 0) throw new Error(`${body} has no case ${missing.join(" or ")}`);
  const others = EVERYWHERE.filter((one) => !whole.includes(one));
  if (others.length > 0 && smoke.length === 0) {
    throw new Error(`${body} has no case for the hosts that do not run all of it`);
  }
  if (host === undefined) return all;
  /** Whether the seed draws the case at this index for the hosts at this place among so many. */
  const drawn = (index, count, at) => turn === undefined || (index + turn) % count === at;
  const [cases, count, at] = whole.includes(host)
    ? [all, oneOf, 0]
    : [smoke, others.length * SMOKE_ONE_OF, others.indexOf(host)];
  return cases.filter((name, index) => always.includes(name) || drawn(index, count, at));
}
