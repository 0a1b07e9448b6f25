// In the page of finetune.mjs: loads a checkpoint, trains it or an adapter on it, and says what that took.
import { batch, median, queued } from "./workloads.mjs";

/** Kinds of dispatches that a profile names. */
const MOST = 25;

/** Where a step's time goes: milliseconds and dispatches by kernel and label, the longest first. */
function summed(rows) {
  const sums = new Map();
  for (const { kernel, label, gpuMicroseconds = 0 } of rows) {
    const key = `${kernel} ${label.replace(/\d+/g, "#")}`;
    const [time, count] = sums.get(key) ?? [0, 0];
    sums.set(key, [time + gpuMicroseconds / 1000, count + 1]);
  }
  return [...sums]
    .sort(([, [a]], [, [b]]) => b - a)
    .slice(0, MOST)
    .map(([name, sum]) => [name, ...sum]);
}

/**
 * @param base - the server's address.
 * @param row - `{ model, tokens, rank?, weights? }`: without a rank the model itself is trained.
 * @param steps - Steps per measurement. They are awaited one by one first, then queued ahead twice; the second time
 *   is reported.
 */
export async function finetune(base, { model: name, tokens, rank, weights }, steps) {
  const tinyloom = await import(`${base}/pkg/index.js`);
  const { Adapter, Model, Runtime, Trainer, estimate } = tinyloom;
  const { runtimes } = await import(`${base}/pkg/internal.js`);
  const began = performance.now();
  const seconds = () => (performance.now() - began) / 1000;
  const runtime = await Runtime.create({ recover: false });
  const { counters } = runtimes.of(runtime);
  let peakGpuBytes = 0;
  const note = () => {
    peakGpuBytes = Math.max(peakGpuBytes, counters().gpuBytes);
  };
  const source = `${base}/checkpoints/${name}/`;
  const packed = weights && weights !== "f32" ? { weights } : {};
  const model = await Model.fromPretrained(runtime, source, { ...packed, onProgress: note });
  const secondsToLoad = seconds();
  const config = await (await fetch(`${source}config.json`)).json();
  const wanted = {
    trainer: { tokensPerStep: tokens },
    ...(rank && { adapter: { rank, targets: "all-linear" } }),
  };
  const told = await estimate(config, { ...wanted, ...packed }, runtime.capabilities);
  const trained = rank ? await Adapter.create(model, wanted.adapter) : model;
  const trainer = await Trainer.create(trained, wanted.trainer);
  const data = batch(tokens, config.vocab_size);
  const times = [];
  let secondsToFirstStep;
  let metrics;
  for (let at = 0; at < steps; at++) {
    metrics = await trainer.step(data);
    note();
    secondsToFirstStep ??= seconds();
    times.push(metrics.milliseconds);
  }
  const ahead = queued(tinyloom, trainer, { length: tokens, vocabulary: config.vocab_size }, note);
  await ahead(steps);
  const millisecondsQueued = await ahead(steps);
  const profile = summed(await trainer.profile());
  const { adapter, features } = runtime.capabilities;
  return {
    about: { adapter, features, userAgent: navigator.userAgent },
    parameters: model.parameterCount,
    trained: trained.parameterCount,
    tokens,
    secondsToLoad,
    secondsToFirstStep,
    millisecondsQueued,
    millisecondsAwaited: median(times.slice(1)),
    peakGpuBytes,
    estimatedGpuBytes: told.bytes.total,
    loss: metrics.loss,
    profile,
  };
}
