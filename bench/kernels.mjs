// Times kernels alone, by timestamps of the GPU: raw WebGPU around WGSL that the testing module
// composes, importable in a page and in Node.

const MEASURED = 5;
const ROUNDS = 3;
/** Turns of a pass; milliseconds, and at most turns, of work just before: an idle GPU lowers its clock. */
const TURNS = 8;
const WARM_UP = 40;
/** Microseconds of a pass that are enough. */
const LONG = 20_000;
const MOST_WARM_UP = 4000;
/** Milliseconds after which a GPU has lowered its clock far, and of work that raise it again. */
const IDLE = 1000;
const WAKING = 500;
/** When a GPU last had something to time. */
let busyUntil = -IDLE;

/** Random floats in ±1. */
export function noise(elements) {
  let state = 99991;
  const values = new Float32Array(elements);
  for (let i = 0; i < elements; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    values[i] = state / 2 ** 31 - 1;
  }
  return values;
}

/** Makes buffers on a device, and destroys them all at once. */
export class Buffers {
  constructor(device) {
    this.device = device;
    this.made = [];
  }

  make(data, usage = GPUBufferUsage.STORAGE) {
    const bytes = typeof data === "number" ? data : data.byteLength;
    const buffer = this.device.createBuffer({
      size: Math.max(16, Math.ceil(bytes / 16) * 16),
      usage: usage | GPUBufferUsage.COPY_DST | GPUBufferUsage.COPY_SRC,
    });
    if (typeof data !== "number") this.device.queue.writeBuffer(buffer, 0, data);
    this.made.push(buffer);
    return buffer;
  }

  destroy() {
    for (const buffer of this.made) buffer.destroy();
  }
}

/** Compiles a candidate with automatic layout off, so that unused bindings do not matter. */
export async function prepare(device, candidate, buffers) {
  const types = { read: "read-only-storage", write: "storage", uniform: "uniform" };
  const layout = device.createBindGroupLayout({
    entries: candidate.bindings.map((access, binding) => ({
      binding,
      visibility: GPUShaderStage.COMPUTE,
      buffer: { type: types[access] },
    })),
  });
  const pipeline = await device.createComputePipelineAsync({
    layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
    compute: {
      module: device.createShaderModule({ code: candidate.wgsl }),
      entryPoint: candidate.name,
    },
  });
  const entries = buffers.map((buffer, binding) => ({ binding, resource: { buffer } }));
  return { pipeline, group: device.createBindGroup({ layout, entries }) };
}

/** Times a sequence of kernels, a round at a time. */
class Timer {
  /** Microseconds of a turn: the best of all rounds. */
  microseconds = Number.POSITIVE_INFINITY;
  #device;
  #kernels;
  #turns;
  #estimate;

  constructor(device, kernels, turns) {
    this.#device = device;
    this.#kernels = kernels;
    this.#turns = turns;
  }

  /** Compiles `sequence`, pairs of a candidate and its buffers, one for each binding. */
  static async of(device, sequence, turns) {
    const kernels = [];
    for (const [candidate, buffers] of sequence) {
      kernels.push({ grid: candidate.grid, ...(await prepare(device, candidate, buffers)) });
    }
    return new Timer(device, kernels, turns);
  }

  /** A slow kernel needs no turns and no second round to be measured, and would take minutes. */
  get slow() {
    return this.#estimate > LONG;
  }

  async round() {
    const estimate = async (warmUp) => Math.max(await this.#measure(warmUp, 1, 1), 1);
    this.#estimate ??= await estimate(0);
    const awake = performance.now() + (performance.now() - busyUntil > IDLE ? WAKING : 0);
    while (performance.now() < awake) {
      this.#estimate = await estimate(this.#turnsOf(WARM_UP));
    }
    const count = Math.max(1, Math.min(this.#turns, Math.floor(LONG / this.#estimate)));
    const passes = this.slow ? 1 : MEASURED;
    const measured = await this.#measure(this.#turnsOf(WARM_UP), passes, count);
    this.microseconds = Math.min(this.microseconds, measured);
    // The first run may have met a GPU that was just waking: later rounds' warm-up would fall short.
    this.#estimate = Math.max(1, Math.min(this.#estimate, measured));
    busyUntil = performance.now();
  }

  #turnsOf(milliseconds) {
    return Math.min(MOST_WARM_UP, Math.ceil((milliseconds * 1000) / this.#estimate));
  }

  #run(pass, count) {
    for (let turn = 0; turn < count; turn++) {
      for (const { pipeline, group, grid } of this.#kernels) {
        pass.setPipeline(pipeline);
        pass.setBindGroup(0, group);
        pass.dispatchWorkgroups(...grid);
      }
    }
    pass.end();
  }

  /** Microseconds of a turn in the best of `passes`, behind turns that warm the GPU up. */
  async #measure(warmUp, passes, count) {
    const device = this.#device;
    const queries = device.createQuerySet({ type: "timestamp", count: passes * 2 });
    const bytes = passes * 16;
    const { QUERY_RESOLVE, COPY_SRC, COPY_DST, MAP_READ } = GPUBufferUsage;
    const resolved = device.createBuffer({ size: bytes, usage: QUERY_RESOLVE | COPY_SRC });
    const staging = device.createBuffer({ size: bytes, usage: MAP_READ | COPY_DST });
    const encoder = device.createCommandEncoder();
    if (warmUp > 0) this.#run(encoder.beginComputePass(), warmUp);
    for (let i = 0; i < passes; i++) {
      const timestampWrites = {
        querySet: queries,
        beginningOfPassWriteIndex: i * 2,
        endOfPassWriteIndex: i * 2 + 1,
      };
      this.#run(encoder.beginComputePass({ timestampWrites }), count);
    }
    encoder.resolveQuerySet(queries, 0, passes * 2, resolved, 0);
    encoder.copyBufferToBuffer(resolved, 0, staging, 0, bytes);
    device.queue.submit([encoder.finish()]);
    await staging.mapAsync(GPUMapMode.READ);
    const stamps = new BigInt64Array(staging.getMappedRange().slice(0));
    staging.unmap();
    for (const made of [resolved, staging, queries]) made.destroy();
    const lengths = Array.from({ length: passes }, (_, i) =>
      Number(stamps[i * 2 + 1] - stamps[i * 2]),
    );
    return Math.min(...lengths) / 1000 / count;
  }
}

/**
 * Microseconds of each sequence of kernels. They are measured in turns: a GPU's clock also dips by
 * itself, for a second at times, and what is compared must not be compared across a dip.
 *
 * @param sequences - each a list of pairs of a candidate and its buffers, one for each binding.
 */
export async function timeInTurns(device, sequences, turns = TURNS) {
  const timers = [];
  // A kernel that the device refuses takes no time.
  device.pushErrorScope("validation");
  for (const sequence of sequences) timers.push(await Timer.of(device, sequence, turns));
  for (let round = 0; round < ROUNDS; round++) {
    for (const timer of timers) {
      if (round === 0 || !timer.slow) await timer.round();
    }
  }
  const refused = await device.popErrorScope();
  if (refused) throw new Error(refused.message);
  return timers.map(({ microseconds }) => microseconds);
}

/** The step uniform (`shaders/lib/step.wgsl`) of so many tokens from a position on, in room for all its fields. */
export function stepOf(tokens, position = 0) {
  const step = new Uint32Array(64);
  step.set([tokens, position]);
  return step;
}

/** Microseconds of one sequence of kernels. */
export async function time(device, sequence, turns = TURNS) {
  const [microseconds] = await timeInTurns(device, [sequence], turns);
  return microseconds;
}

/** Products of tokens × tokens / 2 × head_dim that each kernel of attention makes, for each head. */
const PRODUCTS = {
  attention_forward: 2,
  attention_delta_backward: 0,
  attention_group_sum: 0,
  attention_backward_query: 3,
  attention_backward_key_value: 4,
};

/**
 * Every variant of the training kernels of attention over causal documents of one length.
 *
 * @param module - the testing module; @param runtime - its RawRuntime.
 * @param work - `{ heads, kvHeads, headDim, tokens, documents = 1 }`, and with `half`, `halves` and `gradients` what
 *   may be rounded to f16, and what lies in it.
 * @param change - what to measure instead of the candidates, for experiments.
 * @returns rows `{ kernel, variant, picked, microseconds, teraflops }`, the causal half counted.
 */
export async function attention(module, runtime, work, change = (all) => all) {
  const device = runtime.device();
  const { heads, kvHeads, headDim, tokens, documents = 1 } = work;
  const buffers = new Buffers(device);
  const stride = (heads + 2 * kvHeads) * headDim;
  const rows = (elements, half) => (half ? halfNoise(2 * elements) : noise(elements));
  const qkv = buffers.make(rows(tokens * stride, work.halves));
  const output = buffers.make(rows(tokens * heads * headDim, work.halves));
  const dOutput = buffers.make(rows(tokens * heads * headDim, work.gradients));
  const bounds = new Uint32Array(2 * tokens);
  const length = tokens / documents;
  for (let i = 0; i < tokens; i++) {
    bounds[i] = i - (i % length);
    bounds[tokens + i] = bounds[i] + length;
  }
  const starts = buffers.make(bounds);
  const lse = buffers.make(new Float32Array(tokens * heads).fill(9));
  const delta = buffers.make(tokens * heads * 4);
  // Also takes the parts of each query head, where those are more.
  const dQkv = buffers.make(tokens * Math.max(stride, 2 * heads * headDim) * 4);
  const result = buffers.make(tokens * heads * headDim * 4);
  const resultLse = buffers.make(tokens * heads * 4);
  const step = buffers.make(stepOf(tokens), GPUBufferUsage.UNIFORM);
  const backward = [qkv, dOutput, lse, delta, starts, dQkv, step];
  const bound = {
    attention_forward: [qkv, qkv, starts, result, resultLse, step],
    attention_delta_backward: [output, dOutput, delta, step],
    attention_group_sum: [dQkv, buffers.make(tokens * stride * 4), step],
    attention_backward_query: backward,
    attention_backward_key_value: backward,
  };
  const candidates = change(JSON.parse(module.testing_attention(runtime, JSON.stringify(work))));
  const times = await timeInTurns(
    device,
    candidates.map((one) => [[one, bound[one.name]]]),
  );
  buffers.destroy();
  return candidates.map(({ name: kernel, variant, picked }, i) => {
    const flops = PRODUCTS[kernel] * tokens * length * heads * headDim;
    const microseconds = times[i];
    return {
      ...work,
      kernel,
      variant,
      picked,
      microseconds,
      teraflops: flops / microseconds / 1e6,
    };
  });
}

/** Halves from ±0.125 to ±1, two a word. */
export function halfNoise(bytes) {
  let state = 4711;
  return Uint16Array.from({ length: bytes / 2 }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return 0x3000 + ((state >>> 8) % 0xc00) + (state & 0x80000000 ? 0x8000 : 0);
  });
}

/**
 * Attention over tensors of one item in each storage and kind of mask, and softmax by itself.
 *
 * @returns rows `{ kernel, variant, picked, microseconds, teraflops }`, the causal half counted
 *   whatever the mask and the backward pass as 2.5 × forward; of softmax `gigabytesPerSecond`.
 */
export async function tensors(module, runtime, work) {
  const device = runtime.device();
  const { heads, headDim, tokens } = work;
  const rows = [];
  for (const call of JSON.parse(module.testing_tensors(runtime, JSON.stringify(work)))) {
    const { pass, element, mask, stages, maskWords, geometryWords } = call;
    const buffers = new Buffers(device);
    const filled = {
      mask: () => new Uint32Array(maskWords),
      logsumexp: (bytes) => new Float32Array(bytes / 4).fill(9),
      statistics: (bytes) => bytes,
    };
    const named = {
      geometry: buffers.make(new Uint32Array(geometryWords), GPUBufferUsage.UNIFORM),
    };
    const any = (bytes) => (element === "f16" ? halfNoise(bytes) : noise(bytes / 4));
    const sequence = stages.map(({ candidate, operands }) => {
      const bound = operands.map(([name, bytes]) => {
        named[name] ??= buffers.make((filled[name] ?? any)(bytes));
        return named[name];
      });
      return [candidate, bound];
    });
    const microseconds = await time(device, sequence);
    const variant = `${element}, ${mask}: ${stages.at(-1).candidate.variant}`;
    const row = { ...work, kernel: `tensors ${pass}`, variant, picked: true, microseconds };
    if (pass === "softmax") {
      rows.push({ ...row, gigabytesPerSecond: (8 * tokens * tokens) / microseconds / 1e3 });
    } else {
      const flops = (pass === "forward" ? 2 : 5) * tokens * tokens * heads * headDim;
      rows.push({ ...row, teraflops: flops / microseconds / 1e6 });
    }
    buffers.destroy();
  }
  return rows;
}

/** Bytes that a decode reads before it meets the first cache again: more than any GPU keeps near. */
const FAR = 512 << 20;

/**
 * Every form of one decoded token's attention over a cache of `tokens` tokens. The caches take
 * turns, so that they come from memory.
 *
 * @returns rows `{ kernel, variant, picked, microseconds, gigabytesPerSecond }`.
 */
export async function decode(module, runtime, work, change = (all) => all) {
  const device = runtime.device();
  const { heads, kvHeads, headDim, tokens } = work;
  const buffers = new Buffers(device);
  const query = buffers.make(noise((heads + 2 * kvHeads) * headDim));
  const output = buffers.make(heads * headDim * 4);
  const step = buffers.make(stepOf(1, tokens - 1), GPUBufferUsage.UNIFORM);
  const candidates = change(JSON.parse(module.testing_decode(runtime, JSON.stringify(work))));
  const partials = buffers.make(Math.max(...candidates.map(({ partialBytes }) => partialBytes)));
  const rows = [];
  // Candidates of one form of the cache side by side, over the same caches.
  for (const form of new Set(candidates.map(({ cache }) => cache))) {
    const alike = candidates.filter(({ cache }) => cache === form);
    const [{ cacheBytes }] = alike;
    const copies = Math.max(1, Math.min(64, Math.ceil(FAR / cacheBytes)));
    const formBuffers = new Buffers(device);
    const caches = Array.from({ length: copies }, () => formBuffers.make(cacheBytes));
    const sequences = alike.map(({ stages: [first, second] }) =>
      caches.flatMap((cache) => [
        [first, [query, cache, second ? partials : output, step]],
        ...(second ? [[second, [partials, output, step]]] : []),
      ]),
    );
    const times = await timeInTurns(device, sequences, Math.ceil(TURNS / copies));
    formBuffers.destroy();
    for (const [i, { ranges, picked, stages }] of alike.entries()) {
      const microseconds = times[i] / copies;
      rows.push({
        ...work,
        kernel: "attention_decode",
        variant: `${form}, at most ${ranges} ranges: ${stages[0].variant}`,
        picked,
        microseconds,
        gigabytesPerSecond: cacheBytes / microseconds / 1e3,
      });
    }
  }
  buffers.destroy();
  return rows;
}

/** Invocations of the kernel below, its chains of multiply-adds, and their length. */
const PEAK = { groups: 2048, size: 256, chains: 8, turns: 512 };

/** TFLOP/s of multiply-adds that wait for no memory: what the arithmetic allows. */
export async function arithmeticPeak(device) {
  const { groups, size, chains, turns } = PEAK;
  const each = (line) => Array.from({ length: chains }, (_, i) => line(i)).join(" ");
  const buffers = new Buffers(device);
  const values = buffers.make(noise(groups * size * 4));
  const chain = {
    name: "chain",
    grid: [groups],
    bindings: ["write"],
    wgsl: `@group(0) @binding(0) var<storage, read_write> values: array<vec4<f32>>;
      @compute @workgroup_size(${size})
      fn chain(@builtin(global_invocation_id) id: vec3<u32>) {
        let factor = values[id.x] * 1e-3;
        ${each((i) => `var x${i} = factor + ${i}.0;`)}
        for (var turn = 0u; turn < ${turns}u; turn++) { ${each((i) => `x${i} = fma(x${i}, factor, factor);`)} }
        values[id.x] = ${each((i) => `x${i} +`)} factor;
      }`,
  };
  const microseconds = await time(device, [[chain, [values]]]);
  buffers.destroy();
  return (2 * 4 * groups * size * chains * turns) / microseconds / 1e6;
}

/** Gigabytes per second, read and written, of a plain copy. No kernel can move more. */
export async function copyBandwidth(device, bytes = 256 << 20) {
  const size = Math.min(bytes, device.limits.maxStorageBufferBindingSize);
  const buffers = new Buffers(device);
  const groups = 4096;
  const copy = {
    name: "copy",
    grid: [groups],
    bindings: ["read", "write"],
    wgsl: `@group(0) @binding(0) var<storage, read> source: array<vec4<f32>>;
      @group(0) @binding(1) var<storage, read_write> target_: array<vec4<f32>>;
      @compute @workgroup_size(256)
      fn copy(@builtin(global_invocation_id) id: vec3<u32>) {
        for (var i = id.x; i < ${size / 16}u; i += ${groups * 256}u) { target_[i] = source[i]; }
      }`,
  };
  const microseconds = await time(device, [[copy, [buffers.make(size), buffers.make(size)]]]);
  buffers.destroy();
  return (2 * size) / microseconds / 1e3;
}
