// A Node process with Dawn that takes hostile input: `{ part, from, to, seed, oneOf }` in, findings and counts out.
import { create } from "webgpu";
import * as tinyloom from "../../pkg/dist/index.js";
import * as internal from "../../pkg/dist/internal.js";
import * as ops from "../../pkg/dist/ops.js";
import * as storage from "../../pkg/dist/storage/index.js";
import * as worker from "../../pkg/dist/worker/index.js";
import { Calls } from "./hostile-calls.mjs";
import { every } from "./hostile-every.mjs";
import { attempt, formats } from "./hostile-files.mjs";
import { Chance } from "./hostile-random.mjs";

/** Bytes that a file of some kilobytes may make the GPU or the module take at once. */
const MOST = 64 << 20;
/** How many damaged files of each kind there are among twenty. */
const SHARES = { safetensors: 4, config: 4, trainer: 4, tokenizer: 4, dataset: 2, run: 2 };

const send = (message) => new Promise((sent) => process.send(message, sent));
const all = { ...tinyloom, ...storage, ...worker, ops };
const gpu = create([]);

/** The largest buffer that was asked for since the last look. */
function watchBuffers(device) {
  const owner = Object.getPrototypeOf(device);
  const { createBuffer } = owner;
  let most = 0;
  owner.createBuffer = function (descriptor) {
    most = Math.max(most, descriptor.size);
    return createBuffer.call(this, descriptor);
  };
  return () => {
    const seen = most;
    most = 0;
    return seen;
  };
}

/** The counters, when what was freed is given back: that takes a few turns of the event loop. */
async function settled(counters, gpuBytes) {
  for (let turn = 0; turn < 20 && counters().gpuBytes !== gpuBytes; turn++) {
    await new Promise((next) => setTimeout(next, turn));
  }
  return counters();
}

async function files({ from, to, seed }) {
  const runtime = await tinyloom.Runtime.create({ gpu, recover: false });
  const kinds = await formats(all, runtime);
  const whole = {};
  for (const [kind, { files, load, names }] of Object.entries(kinds)) {
    whole[kind] = await load(files, names[0]);
  }
  const order = Object.entries(SHARES).flatMap(([kind, share]) => Array(share).fill(kind));
  const counters = () => internal.runtimes.of(runtime).counters();
  const largest = watchBuffers(runtime.device);
  const before = counters();
  const counts = {};
  for (let at = from; at < to; at++) {
    const kind = order[at % order.length];
    await send({ at, kind });
    const chance = new Chance(seed * 1_000_003 + at);
    const { name, loaded, wrong, bytes } = await attempt(kind, kinds[kind], whole[kind], chance);
    counts[kind] ??= { loaded: 0, refused: 0 };
    counts[kind][loaded ? "loaded" : "refused"] += 1;
    const asked = largest();
    const after = await settled(counters, before.gpuBytes);
    const found = [
      wrong,
      asked > MOST && `a buffer of ${asked} bytes`,
      after.wasmBytes - before.wasmBytes > MOST && `wasm memory of ${after.wasmBytes} bytes`,
      after.gpuBytes !== before.gpuBytes && `${after.gpuBytes - before.gpuBytes} bytes are left`,
    ].filter(Boolean);
    before.gpuBytes = after.gpuBytes;
    before.wasmBytes = Math.max(before.wasmBytes, after.wasmBytes);
    if (found.length > 0) {
      const text = bytes.length < 4000 ? new TextDecoder().decode(bytes) : "";
      await send({ finding: { at, kind, name, wrong: found.join("; ").slice(0, 600), text } });
    }
  }
  kinds.run.end();
  return { counts, adapter: runtime.capabilities.adapter };
}

async function calls({ from, to, seed }) {
  const stage = new Calls(all, gpu);
  await stage.open();
  for (let at = from; at < to; at++) {
    const chance = new Chance(seed * 1_000_033 + at);
    const call = stage.draw(chance);
    await send({ at, kind: call.name });
    const wrong = await stage.make(call);
    if (wrong)
      await send({
        finding: { at, kind: call.name, wrong: wrong.slice(0, 600), text: call.text() },
      });
  }
  return { counts: stage.counts, adapter: stage.adapter };
}

/** Every call of an open stage, or one of so many, with one piece of nonsense. */
async function everyCall(stage, { from, oneOf, seed }) {
  let at = -1;
  for (const { name, call, args, text } of every(stage)) {
    if (++at < from || (at + seed) % oneOf !== 0) continue;
    await send({ at, kind: name });
    const wrong = await stage.make({ name, call, args: args() });
    if (wrong)
      await send({ finding: { at, kind: name, wrong: wrong.slice(0, 600), text: text() } });
  }
  return { counts: stage.counts, adapter: stage.adapter };
}

async function direct(task) {
  const stage = new Calls(all, gpu);
  await stage.open();
  return everyCall(stage, task);
}

/** The same in a worker, but for operations, which stay there. */
async function inWorker(task) {
  const connected = await worker.connect();
  const elsewhere = ["close", "attention", "softmax"];
  const there = Object.keys(connected).filter((name) => !elsewhere.includes(name));
  const stage = new Calls(Object.fromEntries(there.map((name) => [name, connected[name]])));
  await stage.open();
  return everyCall(stage, task);
}

const PARTS = { files, calls, every: direct, worker: inWorker };
const silent = [];
process.on("unhandledRejection", (error) => silent.push(String(error?.stack ?? error)));
process.once("message", async (task) => {
  try {
    const result = await PARTS[task.part](task);
    await send({ ...result, silent });
  } catch (error) {
    await send({ broken: String(error?.stack ?? error) });
  }
  process.exit(0); // Dawn's threads would keep the process alive
});
