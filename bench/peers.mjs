// What tinyloom and its peers take for the same work. Node lists the tasks; each is measured in a page
// of its own, so that no peer meets another's memory or crash.
import { batch, CONFIGS, median, warm } from "./workloads.mjs";

/** The peers that bench/peers/build.mjs bundles. */
export const BUNDLED = ["webgpu-llm", "jax", "tfjs"];

const LEARNING_RATE = 3e-4;
/** Training steps after the first that the last loss is read after: the same for everyone. */
const LEARNED = 10;
/** Milliseconds from which a step is slow, and the fewest that are timed of slow and of other ones. */
const SLOW = 200;
const FEWEST = { slow: 10, quick: 30 };
/** Rows of the square matrices multiplied; software adapters take minutes for the larger ones. */
const PRODUCT = { hardware: 4096, software: 512 };
/** Tokens of the prompt, tokens written, and what a cache must hold at least. */
const DECODED = { context: 128, tokens: 256, capacity: 512 };

/** Everything to measure; `only` keeps the workloads that contain it, or a peer by its whole name. */
export function tasks(only = "") {
  const each = (peers, task) => peers.map((peer) => ({ peer, ...task }));
  const all = [
    ...Object.keys(CONFIGS).flatMap((name) =>
      each(["tinyloom", ...BUNDLED], { workload: `train ${name}`, kind: "train", name }),
    ),
    ...each(["jax", "tfjs"], { workload: "matmul", kind: "matmul" }),
    ...["tiny", "seed"].flatMap((name) =>
      each(["tinyloom", "webgpu-llm"], { workload: `decode ${name}`, kind: "decode", name }),
    ),
  ];
  return all.filter(({ workload, peer }) => workload.includes(only) || peer === only);
}

const load = (peer) =>
  import(BUNDLED.includes(peer) ? `./peers/dist/${peer}.js` : `./peers/${peer}.mjs`);

async function timed(work) {
  const start = performance.now();
  await work();
  return performance.now() - start;
}

/** Median milliseconds of `work` after a second of it, and how often it was timed. */
async function timeOften(work, wanted) {
  let once;
  await warm(async () => {
    once = await timed(work);
  });
  const steps = once > SLOW ? FEWEST.slow : Math.max(FEWEST.quick, wanted);
  const times = [];
  for (let i = 0; i < steps; i++) times.push(await timed(work));
  return { milliseconds: median(times), steps };
}

async function train({ peer, name, steps }) {
  const { tokens, config } = CONFIGS[name];
  const data = batch(tokens, config.vocab_size);
  const began = performance.now();
  const { makeStep } = await load(peer);
  const step = await makeStep(config, tokens, LEARNING_RATE);
  const firstLoss = await step(data);
  const coldMilliseconds = performance.now() - began;
  let lastLoss = firstLoss;
  for (let i = 0; i < LEARNED; i++) lastLoss = await step(data);
  if (!Number.isFinite(lastLoss)) throw new Error(`the loss became ${lastLoss}`);
  const times = await timeOften(() => step(data), steps);
  return {
    tokens,
    ...times,
    tokensPerSecond: (tokens / times.milliseconds) * 1000,
    coldMilliseconds,
    firstLoss,
    lastLoss,
    falls: lastLoss < firstLoss,
  };
}

async function matmul({ peer, software, steps }) {
  const n = software ? PRODUCT.software : PRODUCT.hardware;
  const { makeProduct } = await load(peer);
  const times = await timeOften(await makeProduct(n), steps);
  return { workload: `matmul ${n}`, ...times, teraflops: (2 * n ** 3) / times.milliseconds / 1e9 };
}

async function decode({ peer, name }) {
  const { context, tokens, capacity } = DECODED;
  const { config } = CONFIGS[name];
  const prompt = batch(context, config.vocab_size).tokens;
  const { makeWriter } = await load(peer);
  const write = await makeWriter(config, capacity);
  await warm(() => write(prompt, tokens));
  // The prompt's own time is in both.
  const short = await timed(() => write(prompt, 1));
  const long = await timed(() => write(prompt, tokens + 1));
  return { context, tokensPerSecond: (tokens / (long - short)) * 1000 };
}

/** Measures one of the tasks, in a page; throws what the peer throws. */
export async function measure(task) {
  const { workload, peer, kind } = task;
  return { workload, peer, ...(await { train, matmul, decode }[kind](task)) };
}

/** The adapter that everything is measured on. */
export async function describe() {
  const { Runtime } = await import("/pkg/index.js");
  const runtime = await Runtime.create({ limits: "adapter" });
  const { adapter, software, features, subgroupSize, limits } = runtime.capabilities;
  runtime.destroy();
  return { adapter, software, features, subgroupSize, limits };
}
