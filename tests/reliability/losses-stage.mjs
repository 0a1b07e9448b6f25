// In a page or in Node: a device is destroyed beneath calls of a runtime that does not come back.
import { batch, collect, config } from "../api/bodies/kit.mjs";

/** Small: each loss needs a device of its own, which compiles anew. */
const MODEL = { ...config, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1 };
const OPTIONS = { tokensPerStep: 16, totalSteps: 1000, seed: 3 };

/** Milliseconds until a call has to have failed. */
const PATIENCE = 60_000;

/** Each call, made ready on a runtime: `{ call, maps }`, the latter whether it reads back. */
const CALLS = {
  async "tensor.data"({ runtime }) {
    const tensor = runtime.tensor([1, 2, 3], [3]);
    return { call: () => tensor.data(), maps: true };
  },
  async "tensor.write"({ runtime }) {
    const tensor = runtime.tensor([1, 2, 3], [3]);
    return { call: () => tensor.write([4, 5, 6]), maps: false };
  },
  async "Model.create"({ Model, runtime }) {
    return { call: async () => (await Model.create(runtime, MODEL)).free(), maps: false };
  },
  async "model.save"({ Model, runtime }) {
    const model = await Model.create(runtime, MODEL);
    return { call: () => model.save(), maps: true };
  },
  async "model.logits"({ Model, runtime }) {
    const model = await Model.create(runtime, MODEL);
    return { call: () => model.logits([1, 2, 3]), maps: true };
  },
  async "model.generate"({ Model, runtime }) {
    const model = await Model.create(runtime, MODEL);
    return { call: () => collect(model.generate([1, 2], { maxTokens: 8, seed: 0 })), maps: true };
  },
  async "trainer.step"({ Model, Trainer, runtime }) {
    const trainer = await Trainer.create(await Model.create(runtime, MODEL), OPTIONS);
    return { call: () => trainer.step(batch(16)), maps: true };
  },
  async "trainer.save"({ Model, Trainer, runtime }) {
    const trainer = await Trainer.create(await Model.create(runtime, MODEL), OPTIONS);
    return { call: () => trainer.save(), maps: true };
  },
};

export const NAMES = Object.keys(CALLS);

/** How the device is lost: at a moment of its own, or as a map is asked for, which fails with it. */
export const HOWS = ["at a moment", "with a map that fails"];

const codeOf = (call) =>
  call().then(
    () => "none",
    ({ code, message }) => (code === "device-lost" ? code : `${code}: ${message}`),
  );

/** Replaces `mapAsync` of all buffers while `work` runs. */
async function mapping(device, replaced, work) {
  const probe = device.createBuffer({ size: 16, usage: 1 }); // MAP_READ
  const owner = Object.getPrototypeOf(probe);
  probe.destroy();
  const { mapAsync } = owner;
  owner.mapAsync = function (...values) {
    return replaced.call(this, mapAsync, values);
  };
  try {
    return await work();
  } finally {
    owner.mapAsync = mapAsync;
  }
}

/** What a map that fails gives on a device that lives: not the code of a lost one. */
async function onLiving(device, call) {
  let failed = false;
  const fail = function (mapAsync, values) {
    const mapped = mapAsync.apply(this, values);
    if (!failed) this.unmap();
    failed = true;
    return mapped;
  };
  const code = await mapping(device, fail, () => codeOf(call));
  return code.startsWith("internal: ") && code.includes("call again") ? "internal" : code;
}

/** Calls again and again until one fails. */
async function untilLost(call) {
  const end = performance.now() + PATIENCE;
  let code = "none";
  while (code === "none" && performance.now() < end) code = await codeOf(call);
  return code;
}

/**
 * One loss, and the codes of the first call that fails, of the next, and of a map that fails before it.
 *
 * @param part - the share of the call's time after which the device is lost.
 */
export async function lose({ tinyloom, gpu, name, how, part }) {
  const runtime = await tinyloom.Runtime.create({ ...(gpu && { gpu }), recover: false });
  const { device } = runtime;
  const { call, maps } = await CALLS[name]({ ...tinyloom, runtime });
  await call(); // compiles
  const began = performance.now();
  await call();
  const took = performance.now() - began;
  const row = { name, how: maps ? how : HOWS[0] };
  if (maps) row.living = await onLiving(device, call);
  if (row.how === HOWS[0]) {
    row.at = Math.round(part * Math.max(took, 20)); // calls follow one another
    setTimeout(() => device.destroy(), row.at);
    row.code = await untilLost(call);
  } else {
    const lost = function (mapAsync, values) {
      device.destroy();
      const mapped = mapAsync.apply(this, values);
      this.unmap();
      return mapped;
    };
    row.code = await mapping(device, lost, () => untilLost(call));
  }
  row.next = await codeOf(call);
  runtime.destroy();
  const { adapter, software } = runtime.capabilities;
  return { row, adapter, software };
}

/** What is wrong with a loss, if anything. */
export function judge({ living, code, next }) {
  const wrong = [code, next].filter((one) => one !== "device-lost");
  if (living !== undefined && living !== "internal") wrong.push(`a living device: ${living}`);
  return wrong.length > 0 ? wrong.join("; ") : undefined;
}
