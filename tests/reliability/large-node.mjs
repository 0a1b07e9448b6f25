// A Node process with Dawn that saves a large model to files, or loads it from them: `{ work, folder, config }` in,
// what it took out. On an adapter that computes on the CPU its buffers lie in this process.
import { createWriteStream, readFileSync } from "node:fs";
import { join } from "node:path";
import { Writable } from "node:stream";
import { pathToFileURL } from "node:url";
import { create } from "webgpu";
import * as tinyloom from "../../pkg/dist/index.js";
import * as internal from "../../pkg/dist/internal.js";

const { Runtime, Model } = tinyloom;
const NAMES = ["config.json", "model.safetensors"];

/** Bytes of this process in memory (Linux). */
const resident = () =>
  Number(/^VmRSS:\s+(\d+) kB/m.exec(readFileSync("/proc/self/status"))[1]) * 1024;

const streams = (folder) =>
  Object.fromEntries(
    NAMES.map((name) => [name, Writable.toWeb(createWriteStream(join(folder, name)))]),
  );

/** The work, with the process's memory before it and at its peak, as the parent sampled it. */
async function measure(runtime, work) {
  globalThis.gc();
  const gpuBytes = () => internal.runtimes.of(runtime).counters().gpuBytes;
  const before = { resident: resident(), gpu: gpuBytes() };
  await told("begin");
  const began = performance.now();
  const result = await work();
  const seconds = (performance.now() - began) / 1000;
  const peak = await told("end");
  return { result, before, after: { resident: resident(), gpu: gpuBytes() }, peak, seconds };
}

/** Tells the parent, and gives its answer. */
function told(what) {
  const answer = new Promise((done) => process.once("message", done));
  process.send({ phase: what });
  return answer;
}

process.once("message", async ({ work, folder, config, small }) => {
  const runtime = await Runtime.create({ gpu: create([]) });
  const { adapter, software } = runtime.capabilities;
  // Both ways once with a small model: what is loaded and compiled for them is no part of a checkpoint.
  const first = await Model.create(runtime, small);
  await first.save({ to: streams(join(folder, "small")) });
  (await Model.fromPretrained(runtime, pathToFileURL(join(folder, "small/")))).free();
  first.free();
  let found;
  if (work === "save") {
    const model = await Model.create(runtime, config);
    found = await measure(runtime, () => model.save({ to: streams(folder) }));
    found.bytes = model.gpuBytes;
  } else {
    const load = () => Model.fromPretrained(runtime, pathToFileURL(`${folder}/`));
    const { result, ...rest } = await measure(runtime, load);
    found = { ...rest, bytes: result.gpuBytes };
  }
  await new Promise((sent) => process.send({ ...found, adapter, software }, sent));
  process.exit(0); // Dawn's threads would keep the process alive
});
