// Times kernels alone, by timestamps of the GPU: raw WebGPU around WGSL that the testing module
// composes, importable in a page and in Node.

const MEASURED = 5;
/** Dispatches of a pass, and milliseconds of work before it: an idle GPU lowers its clock. */
const DISPATCHES = 8;
const WARM_UP = 60;

/** A buffer of random normal-like floats in ±1, made once and cut to size by its users. */
function noise(elements) {
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
async function prepare(device, candidate, buffers) {
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
    compute: { module: device.createShaderModule({ code: candidate.wgsl }), entryPoint: candidate.name },
  });
  const entries = buffers.map((buffer, binding) => ({ binding, resource: { buffer } }));
  return { pipeline, group: device.createBindGroup({ layout, entries }) };
}

/**
 * Microseconds of one dispatch: the best of a few passes of several dispatches each.
 *
 * @param buffers - one for each binding.
 */
export async function time(device, candidate, buffers, dispatches = DISPATCHES) {
  const { pipeline, group } = await prepare(device, candidate, buffers);
  const count = MEASURED * 2;
  const queries = device.createQuerySet({ type: "timestamp", count });
  const resolved = device.createBuffer({
    size: count * 8,
    usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC,
  });
  const staging = device.createBuffer({
    size: count * 8,
    usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST,
  });
  const busy = performance.now();
  do {
    const warm = device.createCommandEncoder();
    const pass = warm.beginComputePass();
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, group);
    for (let j = 0; j < dispatches * 4; j++) pass.dispatchWorkgroups(...candidate.grid);
    pass.end();
    device.queue.submit([warm.finish()]);
    await device.queue.onSubmittedWorkDone();
  } while (performance.now() - busy < WARM_UP);
  const encoder = device.createCommandEncoder();
  for (let i = 0; i < MEASURED; i++) {
    const pass = encoder.beginComputePass({
      timestampWrites: {
        querySet: queries,
        beginningOfPassWriteIndex: i * 2,
        endOfPassWriteIndex: i * 2 + 1,
      },
    });
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, group);
    for (let j = 0; j < dispatches; j++) pass.dispatchWorkgroups(...candidate.grid);
    pass.end();
  }
  encoder.resolveQuerySet(queries, 0, count, resolved, 0);
  encoder.copyBufferToBuffer(resolved, 0, staging, 0, count * 8);
  device.queue.submit([encoder.finish()]);
  await staging.mapAsync(GPUMapMode.READ);
  const stamps = new BigInt64Array(staging.getMappedRange().slice(0));
  staging.unmap();
  for (const made of [resolved, staging, queries]) made.destroy();
  const passes = Array.from({ length: MEASURED }, (_, i) => Number(stamps[i * 2 + 1] - stamps[i * 2]));
  return Math.min(...passes) / 1000 / dispatches;
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
 * Every variant of the training kernels of attention over one causal document.
 *
 * @param module - the testing module; @param runtime - its RawRuntime.
 * @param work - `{ heads, kvHeads, headDim, tokens }`.
 * @param change - what to measure in place of the candidates, for experiments.
 * @returns rows `{ kernel, variant, picked, microseconds, teraflops }`, the causal half counted.
 */
export async function attention(module, runtime, work, change = (all) => all) {
  const device = runtime.device();
  const { heads, kvHeads, headDim, tokens } = work;
  const buffers = new Buffers(device);
  const stride = (heads + 2 * kvHeads) * headDim;
  const qkv = buffers.make(noise(tokens * stride));
  const output = buffers.make(noise(tokens * heads * headDim));
  const dOutput = buffers.make(noise(tokens * heads * headDim));
  const documents = new Uint32Array(2 * tokens);
  documents.fill(tokens, tokens);
  const starts = buffers.make(documents);
  const lse = buffers.make(new Float32Array(tokens * heads).fill(9));
  const delta = buffers.make(tokens * heads * 4);
  // Also takes the parts of each query head, where those are more.
  const dQkv = buffers.make(tokens * Math.max(stride, 2 * heads * headDim) * 4);
  const result = buffers.make(tokens * heads * headDim * 4);
  const resultLse = buffers.make(tokens * heads * 4);
  const step = buffers.make(new Uint32Array([tokens, ...Array(15).fill(0)]), GPUBufferUsage.UNIFORM);
  const backward = [qkv, dOutput, lse, delta, starts, dQkv, step];
  const bound = {
    attention_forward: [qkv, qkv, starts, result, resultLse, step],
    attention_delta_backward: [output, dOutput, delta, step],
    attention_group_sum: [dQkv, buffers.make(tokens * stride * 4), step],
    attention_backward_query: backward,
    attention_backward_key_value: backward,
  };
  const rows = [];
  const candidates = JSON.parse(module.testing_attention(runtime, JSON.stringify(work)));
  for (const candidate of change(candidates)) {
    const microseconds = await time(device, candidate, bound[candidate.name]);
    const flops = PRODUCTS[candidate.name] * tokens * tokens * heads * headDim;
    const { name: kernel, variant, picked } = candidate;
    rows.push({ ...work, kernel, variant, picked, microseconds, teraflops: flops / microseconds / 1e6 });
  }
  buffers.destroy();
  return rows;
}
