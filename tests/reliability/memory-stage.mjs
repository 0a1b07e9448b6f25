// What a page, or Node, does until the GPU's memory is full: the error names bytes and settings, nothing half-built
// stays, and what is freed can be used again.
import { collect, config, dataset, trainerOptions } from "../api/bodies/kit.mjs";

/** Milliseconds that the end of what was freed may take. */
const LONGEST = 20_000;

const told = (error) => ({ code: error?.code, message: String(error?.message ?? error) });

/** A model of at least so many bytes of weights. */
function modelOf(bytes) {
  const width = 1024;
  const layer = 4 * (4 * width * width + 3 * width * 4 * width);
  return {
    ...config,
    hidden_size: width,
    intermediate_size: 4 * width,
    num_attention_heads: 16,
    num_key_value_heads: 16,
    num_hidden_layers: Math.ceil(bytes / layer),
  };
}

/**
 * Fills the memory.
 *
 * @param piece - bytes that are taken at a time.
 * @param most - bytes after which it counts as endless.
 * @param limit - called when everything is there that works with ample memory.
 */
export async function exhaust({ tinyloom, gpu, piece, most, limit = async () => {} }) {
  const { Runtime, Model, Trainer, internal } = tinyloom;
  const runtime = await Runtime.create({ ...(gpu && { gpu }), recover: false });
  const { counters } = internal.runtimes.of(runtime);
  const settled = async (bytes) => {
    const end = performance.now() + LONGEST;
    while (counters().gpuBytes !== bytes && performance.now() < end) {
      await new Promise((next) => setTimeout(next, 10));
    }
    return counters().gpuBytes;
  };
  const data = await dataset(tinyloom);
  const train = async () => {
    const model = await Model.create(runtime, config, { seed: 3 });
    const trainer = await Trainer.create(model, trainerOptions);
    const losses = (await collect(trainer.run(data, { steps: 3 }))).map(({ loss }) => loss);
    model.free();
    return losses;
  };
  const before = await train();
  const empty = await settled(0);
  await limit();

  const { maxBufferSize, maxStorageBufferBindingSize } = runtime.capabilities.limits;
  const bytes = Math.min(piece, maxBufferSize, maxStorageBufferBindingSize) & ~1023;
  const held = [];
  let full;
  while (!full && held.length * bytes < most) {
    try {
      const tensor = runtime.tensor(null, [bytes / 4]);
      held.push(tensor);
      await internal.tensors.of(tensor).allocation.ready;
    } catch (error) {
      full = told(error);
    }
  }
  const filled = held.length * bytes;
  // Some room, which a model takes a part of before it meets the end.
  for (const tensor of held.splice(-3)) tensor.free();
  const heldFirst = await settled(held.length * bytes);
  const large = await Model.create(runtime, modelOf(6 * bytes), { seed: 1 }).then((model) => {
    model.free();
    return { code: "none" };
  }, told);
  const heldThen = await settled(heldFirst);
  for (const tensor of held) tensor.free();
  const left = await settled(empty);
  const after = await train().catch(told);
  const { adapter, software } = runtime.capabilities;
  runtime.destroy();
  return {
    adapter,
    software,
    piece: bytes,
    filled,
    full,
    large,
    held: [heldFirst, heldThen],
    left,
    before,
    after,
  };
}
