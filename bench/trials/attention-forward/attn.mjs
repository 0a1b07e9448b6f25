// node gpu/attention-forward/attn.mjs [--tiny]: attention's forward pass in f32 and by matrices, each tile, operands in
// f32 and in f16, each in a process of its own; then whole mixed steps of seed. Below four minutes on an H100.
// Needs beside it: pkg/dist (npm run build -- --testing), target/testing-wasm, bench (copies; see pack.sh).
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const load = (path) => import(pathToFileURL(join(here, path)).href);
const tiny = process.argv.includes("--tiny");
const [what, json] = process.argv.slice(2).filter((x) => !x.startsWith("--"));
const FLAGS = [
  "enable-dawn-features=allow_unsafe_apis,vulkan_enable_f16_on_nvidia",
  "disable-dawn-features=timestamp_quantization",
];
const SHAPES = tiny
  ? [{ heads: 2, kvHeads: 1, headDim: 64, documents: 2, length: 48 }]
  : [
      { heads: 12, kvHeads: 4, headDim: 64, documents: 1, length: 512 },
      { heads: 12, kvHeads: 4, headDim: 64, documents: 8, length: 512 },
      { heads: 6, kvHeads: 2, headDim: 128, documents: 8, length: 512 },
    ];
const TILES = 8;

function child(args) {
  const flags = tiny ? ["--tiny"] : [];
  const options = { encoding: "utf8", timeout: 60_000 };
  const run = spawnSync(process.execPath, [fileURLToPath(import.meta.url), ...args, ...flags], options);
  if (run.status !== 0) return { error: `${run.signal ?? run.status} ${run.stderr.slice(-300)}` };
  return JSON.parse(run.stdout.trim().split("\n").at(-1));
}

async function open() {
  const { create, globals } = await import("webgpu");
  Object.assign(globalThis, globals);
  globalThis.keep = create(FLAGS);
  return globalThis.keep;
}

/** One kernel: its time, and a sum of what it wrote. */
async function kernel({ heads, kvHeads, headDim, documents, length, half, halves, index }) {
  const gpu = await open();
  await (await load("pkg/dist/host.js")).prepareHost(gpu);
  const testing = await load("target/testing-wasm/tinyloom.js");
  await testing.default({ module_or_path: readFileSync(join(here, "target/testing-wasm/tinyloom_bg.wasm")) });
  const { time } = await load("bench/kernels.mjs");
  const runtime = await testing.RawRuntime.create(gpu, await gpu.requestAdapter(), "{}");
  const device = runtime.device();
  const tokens = documents * length;
  const work = { heads, kvHeads, headDim, tokens, half, halves };
  const all = JSON.parse(testing.testing_attention(runtime, JSON.stringify(work)))
    .filter(({ name }) => name === "attention_forward");
  const one = half ? all[index] : all.find(({ picked }) => picked);
  if (!one) return { none: true };
  const stride = (heads + 2 * kvHeads) * headDim;
  const make = (data, usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC) => {
    const bytes = typeof data === "number" ? data : data.byteLength;
    const buffer = device.createBuffer({ size: bytes, usage: usage | GPUBufferUsage.COPY_DST });
    if (typeof data !== "number") device.queue.writeBuffer(buffer, 0, data);
    return buffer;
  };
  let state = 4711;
  const draw = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    // Halves of ±0.125 to ±1.
    return 0x3000 + ((state >>> 8) % 0xc00) + (state & 0x80000000 ? 0x8000 : 0);
  };
  const bits = Uint16Array.from({ length: tokens * stride }, draw);
  const float = (h) => (h & 0x8000 ? -1 : 1) * 2 ** (((h >> 10) & 31) - 15) * (1 + (h & 1023) / 1024);
  const qkv = make(halves ? bits : Float32Array.from(bits, float));
  const starts = make(Uint32Array.from({ length: tokens }, (_, i) => i - (i % length)));
  const elements = tokens * heads * headDim;
  const output = make(elements * (halves ? 2 : 4));
  const lse = make(tokens * heads * 4);
  const step = make(new Uint32Array([tokens, ...Array(15).fill(0)]), GPUBufferUsage.UNIFORM);
  const began = performance.now();
  const microseconds = await time(device, [[one, [qkv, qkv, starts, output, lse, step]]], tiny ? 1 : undefined);
  const staging = device.createBuffer({ size: lse.size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
  const outStaging = device.createBuffer({ size: output.size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
  const encoder = device.createCommandEncoder();
  encoder.copyBufferToBuffer(lse, 0, staging, 0, lse.size);
  encoder.copyBufferToBuffer(output, 0, outStaging, 0, output.size);
  device.queue.submit([encoder.finish()]);
  await staging.mapAsync(GPUMapMode.READ);
  await outStaging.mapAsync(GPUMapMode.READ);
  const sum = (values) => values.reduce((a, x) => a + Math.abs(x), 0) / values.length;
  const out = outStaging.getMappedRange();
  const read = (h) => ((h >> 10) & 31 ? float(h) : 0);
  const mean = sum(halves ? Float64Array.from(new Uint16Array(out), read) : Float64Array.from(new Float32Array(out)));
  const pairs = (documents * length * (length + 1)) / 2;
  return {
    variant: one.variant,
    picked: one.picked,
    microseconds,
    teraflops: (4 * pairs * headDim * heads) / microseconds / 1e6,
    mean,
    lse: sum(Float64Array.from(new Float32Array(staging.getMappedRange()))),
    seconds: (performance.now() - began) / 1e3,
    adapter: JSON.parse(runtime.capabilities()).adapter,
  };
}

/** A training step of seed, and what its profile gives for attention. */
async function step({ documents, precision }) {
  const gpu = await open();
  const { Model, Trainer, Runtime } = await load("pkg/dist/index.js");
  const { batch, CONFIGS } = await load("bench/workloads.mjs");
  const runtime = await Runtime.create({ gpu, recover: false });
  const { config, tokens } = CONFIGS[tiny ? "tiny" : "seed"];
  const length = (tiny ? 32 : tokens) * documents;
  const model = await Model.create(runtime, config, { seed: 1 });
  const options = { tokensPerStep: length, learningRate: 1e-4, schedule: "constant", precision };
  const trainer = await Trainer.create(model, options);
  const data = batch(length, config.vocab_size, documents);
  let last;
  const turn = async (steps) => {
    const began = performance.now();
    for (let i = 0; i < steps; i++) last = await trainer.step(data);
    return (performance.now() - began) / steps;
  };
  await turn(tiny ? 1 : 12);
  const all = [];
  for (let i = 0; i < 3; i++) all.push(await turn(tiny ? 1 : 20));
  const parts = {};
  let [made, mats, busy] = [0, 0, 0];
  const others = new Map();
  for (const row of await trainer.profile()) {
    const { kernel, variant, reason, gpuMicroseconds = 0, flops } = row;
    busy += gpuMicroseconds / 1000;
    if (/^(attention|rope)/.test(kernel)) {
      parts[`${kernel} [${variant}]`] = (parts[`${kernel} [${variant}]`] ?? 0) + gpuMicroseconds / 1000;
    }
    if (!/^(attention|matmul)/.test(kernel)) continue;
    made += flops;
    if (variant.startsWith("matrix")) mats += flops;
    else others.set(`${kernel} [${variant}] ${reason ?? ""}`, (others.get(`${kernel} [${variant}] ${reason ?? ""}`) ?? 0) + flops);
  }
  return {
    milliseconds: Math.min(...all), all, loss: last.loss, parts, busy, matrices: (100 * mats) / made,
    others: [...others].map(([name, flops]) => `${((100 * flops) / made).toFixed(2)} % ${name}`),
    bytes: model.gpuBytes,
  };
}

if (what === "kernel") console.log(JSON.stringify(await kernel(JSON.parse(json))));
else if (what === "step") console.log(JSON.stringify(await step(JSON.parse(json))));
else {
  const began = performance.now();
  let said = false;
  for (const shape of SHAPES) {
    const { heads, kvHeads, headDim, documents, length } = shape;
    console.log(`\n${documents} x ${length} tokens, ${heads}/${kvHeads} heads of ${headDim}`);
    const f32 = child(["kernel", JSON.stringify({ ...shape, half: false, halves: false })]);
    if (!said) console.log(`adapter ${JSON.stringify(f32.adapter)}`);
    said = true;
    const row = (name, r) => {
      if (r.none) return;
      if (r.error) return console.log(`  ${name}: FAILED ${r.error}`);
      const off = [r.mean / f32.mean - 1, r.lse / f32.lse - 1].map((x) => x.toExponential(1)).join(", ");
      const us = r.microseconds.toFixed(1).padStart(8);
      console.log(`  ${us} us ${r.teraflops.toFixed(1).padStart(6)} TFLOP/s ${r.picked ? "PICK" : "    "} ${name}: ${r.variant}; from f32 ${off}`);
    };
    row("f32", f32);
    for (const halves of [true, false]) {
      for (let index = 0; index < (halves || documents > 1 ? TILES : 0); index++) {
        const r = child(["kernel", JSON.stringify({ ...shape, half: true, halves, index })]);
        row(halves ? "rows in f16" : "rows in f32", r);
      }
    }
  }
  for (const documents of tiny ? [2] : [8, 1]) {
    for (const precision of ["mixed", "f32"]) {
      const r = child(["step", JSON.stringify({ documents, precision })]);
      if (r.error) {
        console.log(`step ${documents} ${precision}: FAILED ${r.error}`);
        continue;
      }
      console.log(`\nstep of ${documents} documents, ${precision}: ${r.milliseconds.toFixed(2)} ms (${r.all.map((x) => x.toFixed(2))}), kernels ${r.busy.toFixed(2)} ms, ${r.matrices.toFixed(1)} % on matrices, loss ${r.loss}, ${r.bytes} bytes`);
      for (const [name, ms] of Object.entries(r.parts)) console.log(`  ${ms.toFixed(3)} ms ${name}`);
      if (precision === "mixed") for (const other of r.others) console.log(`  not on matrices: ${other}`);
    }
  }
  console.log(`\n${((performance.now() - began) / 1000).toFixed(0)} s`);
}
process.exit(0);
