// Times matrix products alone: every tile with every split of K, and the one that selection picks.
import { Buffers, halfNoise, noise, prepare, stepOf, timeInTurns } from "./kernels.mjs";
import { median } from "./workloads.mjs";

const cube = (side) => [side, side, side];

/**
 * `[m, n, k]` of C[m, n]; the training shapes are those of 512 and of 4,096 tokens of the seed
 * configuration.
 */
const SHAPES = {
  matmul_t: [
    ...[512, 1024, 2048, 4096].map(cube),
    [512, 768, 768],
    [512, 2048, 768],
    [512, 1280, 768],
    [512, 4096, 768],
    [512, 768, 2048],
    [512, 8192, 768],
    [4096, 768, 768],
    [4096, 1280, 768],
    [4096, 768, 2048],
    [4096, 4096, 768],
    [256, 256, 128],
    [256, 1024, 384],
  ],
  matmul: [
    ...[512, 1024, 2048, 4096].map(cube),
    [512, 768, 768],
    [512, 768, 1280],
    [512, 768, 4096],
    [512, 2048, 768],
    [512, 768, 8192],
    [4096, 768, 768],
    [4096, 768, 1280],
    [4096, 2048, 768],
    [4096, 768, 4096],
    [256, 384, 2048],
  ],
  matmul_at: [
    ...[512, 1024, 2048, 4096].map(cube),
    [768, 768, 512],
    [1280, 768, 512],
    [4096, 768, 512],
    [768, 2048, 512],
    [8192, 768, 512],
    [768, 768, 4096],
    [1280, 768, 4096],
    [768, 2048, 4096],
    [4096, 768, 4096],
    [384, 1024, 256],
  ],
};

/** Shapes that were not used to fit the rule. */
const OTHERS = [
  [300, 1000, 600],
  [2048, 640, 1536],
  [1536, 1536, 320],
  [640, 5120, 1280],
];

/** Products whose second operand, the weights, lies in f16, as `precision: "mixed"` has them. */
const HALF = ["matmul_t", "matmul"].flatMap((form) =>
  [...[512, 1024, 2048, 4096].map(cube), [512, 4096, 768]].map((sides) => [form, sides]),
);

/** The gradients of outputs that lie in f32, in a mixed step of seed with eight documents. */
const ROUNDED = [
  ["matmul", [4096, 768, 768]],
  ["matmul", [4096, 2048, 768]],
  ["matmul_at", [768, 768, 4096]],
  ["matmul_at", [768, 2048, 4096]],
];

/** Products on subgroup matrices, where the device has them: f16 in, f32 sums; or the first operand rounded on its way. */
const MATRIX = [
  ...Object.entries(SHAPES).flatMap(([form, shapes]) => shapes.map((sides) => [form, sides, true])),
  ...ROUNDED.map(([form, sides]) => [form, sides, false]),
];

/** All products of the suite as `{ form, m, n, k, half, matrix, halves }`. */
export const PRODUCTS = [
  ...Object.entries(SHAPES).flatMap(([form, shapes]) =>
    [...shapes, ...OTHERS].map(([m, n, k]) => ({ form, m, n, k, half: false })),
  ),
  ...HALF.map(([form, [m, n, k]]) => ({ form, m, n, k, half: true })),
  ...MATRIX.map(([form, [m, n, k], halves]) => {
    return { form, m, n, k, half: false, matrix: true, halves };
  }),
];

/** Milliseconds from the submit of a product to the arrival of its last four results. */
async function toReadback(device, sequence, target, bytes) {
  const prepared = [];
  for (const [candidate, buffers] of sequence) {
    prepared.push({ grid: candidate.grid, ...(await prepare(device, candidate, buffers)) });
  }
  const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
  const staging = device.createBuffer({ size: 16, usage });
  const times = [];
  for (let turn = 0; turn < 12; turn++) {
    const started = performance.now();
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    for (const { pipeline, group, grid } of prepared) {
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, group);
      pass.dispatchWorkgroups(...grid);
    }
    pass.end();
    encoder.copyBufferToBuffer(target, bytes - 16, staging, 0, 16);
    device.queue.submit([encoder.finish()]);
    await staging.mapAsync(GPUMapMode.READ);
    staging.unmap();
    times.push(performance.now() - started);
  }
  staging.destroy();
  return median(times);
}

/** The uniform of a kernel that leaves sizes open: it is bound last. */
const sizes = (buffers, candidate) =>
  candidate.sizes ? [buffers.make(new Uint32Array(candidate.sizes), GPUBufferUsage.UNIFORM)] : [];

/** How a product's operands lie, in words. */
export function way({ half, matrix = false, halves = false }) {
  if (matrix) return halves ? " by matrices" : " by matrices, rounded";
  return half ? " by f16" : "";
}

/**
 * Every tile and split of one product.
 *
 * @returns rows `{ kernel, variant, picked, m, n, k, microseconds, teraflops }`, of the pick of a
 *   large product also `readbackMilliseconds`.
 */
export async function products(module, runtime, work) {
  const device = runtime.device();
  const { form, m, n, k, half, matrix = false, halves = false } = work;
  const buffers = new Buffers(device);
  const a = buffers.make(halves ? halfNoise(2 * m * k) : noise(m * k));
  const b = buffers.make(half || matrix ? halfNoise(2 * n * k) : noise(n * k));
  const c = buffers.make(m * n * 4);
  const tokens = form === "matmul_at" ? k : m;
  const step = buffers.make(stepOf(tokens), GPUBufferUsage.UNIFORM);
  const columns = form === "matmul_t" ? n : k;
  const range = buffers.make(new Uint32Array([0, tokens, 0, columns]), GPUBufferUsage.UNIFORM);
  const candidates = JSON.parse(module.testing_linear(runtime, JSON.stringify(work)));
  const most = Math.max(...candidates.map(({ partsBytes }) => partsBytes));
  const parts = most > 0 ? buffers.make(most) : c;
  const sequences = candidates.map(({ partsBytes, stages: [first, second] }) =>
    partsBytes > 0
      ? [
          [first, [a, b, parts, step, range]],
          [second, [parts, c, step, range]],
        ]
      : [[first, [a, b, c, step, range, ...sizes(buffers, first)]]],
  );
  const times = await timeInTurns(device, sequences);
  const rows = [];
  for (const [i, { picked, stages }] of candidates.entries()) {
    const microseconds = times[i];
    const row = {
      ...work,
      kernel: form + way(work),
      variant: stages[0].variant,
      picked,
      microseconds,
      teraflops: (2 * m * n * k) / microseconds / 1e6,
    };
    if (picked && m * n * k >= 2 ** 33) {
      row.readbackMilliseconds = await toReadback(device, sequences[i], c, m * n * 4);
    }
    rows.push(row);
  }
  buffers.destroy();
  return rows;
}
