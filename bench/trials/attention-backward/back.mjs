// node gpu/attention-backward/back.mjs [--tiny]: attention's gradients in f32 and by matrices, each tile, each in a
// process of its own, held against the f32 kernels; then whole mixed steps of seed. Below four minutes on an H100: after
// 200 s it leaves out what is left of the kernels. Needs beside it what pack.sh copies.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
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
      { heads: 12, kvHeads: 4, headDim: 64, documents: 8, length: 512 },
      { heads: 12, kvHeads: 4, headDim: 64, documents: 1, length: 512 },
      { heads: 6, kvHeads: 2, headDim: 128, documents: 8, length: 512 },
    ];
const LONGEST = 200_000;

function child(args) {
  const flags = tiny ? ["--tiny"] : [];
  const options = { encoding: "utf8", timeout: 90_000, maxBuffer: 1 << 26 };
  const run = spawnSync(process.execPath, [fileURLToPath(import.meta.url), ...args, ...flags], options);
  if (run.status !== 0) return { error: `${run.signal ?? run.status} ${run.stderr.slice(-400)}` };
  return JSON.parse(run.stdout.trim().split("\n").at(-1));
}

async function open() {
  const { create, globals } = await import("webgpu");
  Object.assign(globalThis, globals);
  globalThis.keep = create(FLAGS);
  return globalThis.keep;
}

const QUERY = "attention_backward_query";
const KEYS = "attention_backward_key_value";
const byHead = ({ wgsl }) => /const MEMBERS\s*:\s*u32\s*=\s*1u/.test(wgsl);

/** The testing module with its device, the candidates, and buffers of one batch. */
class Bench {
  static async open(job) {
    const bench = new Bench();
    const gpu = await open();
    await (await load("pkg/dist/host.js")).prepareHost(gpu);
    bench.testing = await load("target/testing-wasm/tinyloom.js");
    await bench.testing.default({
      module_or_path: readFileSync(join(here, "target/testing-wasm/tinyloom_bg.wasm")),
    });
    bench.kernels = await load("bench/kernels.mjs");
    bench.runtime = await bench.testing.RawRuntime.create(gpu, await gpu.requestAdapter(), "{}");
    bench.device = bench.runtime.device();
    bench.job = job;
    bench.tokens = job.documents * job.length;
    bench.stride = (job.heads + 2 * job.kvHeads) * job.headDim;
    bench.width = job.heads * job.headDim;
    return bench;
  }

  candidates({ half, halves, gradients }) {
    const { heads, kvHeads, headDim } = this.job;
    const work = { heads, kvHeads, headDim, tokens: this.tokens, half, halves, gradients };
    return JSON.parse(this.testing.testing_attention(this.runtime, JSON.stringify(work)));
  }

  make(data, usage = GPUBufferUsage.STORAGE) {
    const bytes = typeof data === "number" ? data : data.byteLength;
    const { COPY_DST, COPY_SRC } = GPUBufferUsage;
    const buffer = this.device.createBuffer({ size: bytes, usage: usage | COPY_DST | COPY_SRC });
    if (typeof data !== "number") this.device.queue.writeBuffer(buffer, 0, data);
    return buffer;
  }

  /** Halves of ±0.125 to ±1, as such or in f32. */
  noise(elements, seed, half) {
    let state = seed;
    const bits = Uint16Array.from({ length: elements }, () => {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      return 0x3000 + ((state >>> 8) % 0xc00) + (state & 0x80000000 ? 0x8000 : 0);
    });
    return half ? bits : Float32Array.from(bits, float);
  }

  get starts() {
    const { documents, length } = this.job;
    const words = new Uint32Array(2 * this.tokens);
    for (let i = 0; i < this.tokens; i++) {
      words[i] = i - (i % length);
      words[this.tokens + i] = words[i] + length;
    }
    return this.make(words);
  }

  get step() {
    return this.make(new Uint32Array([this.tokens, ...Array(15).fill(0)]), GPUBufferUsage.UNIFORM);
  }

  async read(buffer) {
    const { MAP_READ, COPY_DST } = GPUBufferUsage;
    const staging = this.device.createBuffer({ size: buffer.size, usage: MAP_READ | COPY_DST });
    const encoder = this.device.createCommandEncoder();
    encoder.copyBufferToBuffer(buffer, 0, staging, 0, buffer.size);
    this.device.queue.submit([encoder.finish()]);
    await staging.mapAsync(GPUMapMode.READ);
    return staging.getMappedRange().slice(0);
  }

  async run(sequence) {
    const prepared = [];
    for (const [one, buffers] of sequence) {
      prepared.push([one.grid, await this.kernels.prepare(this.device, one, buffers)]);
    }
    const encoder = this.device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    for (const [grid, { pipeline, group }] of prepared) {
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, group);
      pass.dispatchWorkgroups(...grid);
    }
    pass.end();
    this.device.queue.submit([encoder.finish()]);
  }

  /** A backward kernel and, of heads, the sum behind it; and the buffer with the result. */
  sequence(one, all, { qkv, dOutput, lse, delta, gradientBytes }) {
    const gradient = this.make(gradientBytes);
    const bound = (to) => [qkv, dOutput, lse, delta, this.starts, to, this.step];
    const kept = Array.from({ length: one.bindings.length - 7 }, () =>
      this.make(this.job.heads * Math.ceil(this.tokens / 32) ** 2 * 4096),
    );
    if (one.name === KEYS && byHead(one)) {
      const parts = this.make(this.tokens * 2 * this.width * 4);
      const sum = all.find(({ name }) => name === "attention_group_sum");
      return [[[one, [...bound(parts), ...kept]], [sum, [parts, gradient, this.step]]], gradient];
    }
    return [[[one, [...bound(gradient), ...kept]]], gradient];
  }
}

const float = (h) =>
  (h & 0x8000 ? -1 : 1) *
  ((h >> 10) & 31 ? 2 ** (((h >> 10) & 31) - 15) * (1 + (h & 1023) / 1024) : ((h & 1023) / 1024) * 2 ** -14);

/** What the f32 kernels make of the batch: logsumexp, row sums and gradient, left in files. */
async function reference({ folder, ...job }) {
  const bench = await Bench.open(job);
  const all = bench.candidates({});
  const plain = (name) => all.find((one) => one.name === name && one.bindings.length <= 7 && !(one.name === KEYS && byHead(one) && job.heads > job.kvHeads && !all.some((x) => x.name === "attention_group_sum")));
  const { tokens, stride, width } = bench;
  const [qkv, dOutput] = [bench.make(bench.noise(tokens * stride, 4711)), bench.make(bench.noise(tokens * width, 815))];
  const [output, lse, delta] = [width, job.heads, job.heads].map((n) => bench.make(tokens * n * 4));
  await bench.run([
    [plain("attention_forward"), [qkv, qkv, bench.starts, output, lse, bench.step]],
    [plain("attention_delta_backward"), [output, dOutput, delta, bench.step]],
  ]);
  const given = { qkv, dOutput, lse, delta, gradientBytes: tokens * stride * 4 };
  const whole = new Float32Array(tokens * stride);
  for (const name of [QUERY, KEYS]) {
    const [sequence, gradient] = bench.sequence(plain(name), all, given);
    await bench.run(sequence);
    new Float32Array(await bench.read(gradient)).forEach((x, i) => {
      if ((i % stride < width) === (name === QUERY)) whole[i] = x;
    });
  }
  for (const [name, data] of [["lse", await bench.read(lse)], ["delta", await bench.read(delta)], ["gradient", whole.buffer]]) {
    writeFileSync(join(folder, name), Buffer.from(data));
  }
  const picks = all.filter(({ picked, name }) => picked && [QUERY, KEYS].includes(name));
  const count = (options) => bench.candidates(options).map(({ name, variant, picked, wgsl }) => ({ name, variant, picked, head: byHead({ wgsl }) }));
  const caps = JSON.parse(bench.runtime.capabilities());
  return { adapter: caps.adapter, features: caps.features, f32: count({}), matrices: caps.features.subgroupMatrix ? count({ half: true, halves: true }) : [], picks: picks.length };
}

/** One kernel: its time, and how far its gradient is from that in f32. */
async function kernel({ folder, index, options, ...job }) {
  const bench = await Bench.open(job);
  const all = bench.candidates(options);
  const one = all[index];
  const { tokens, stride, width } = bench;
  const file = (name) => {
    const bytes = readFileSync(join(folder, name));
    return new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
  };
  const given = {
    qkv: bench.make(bench.noise(tokens * stride, 4711, options.halves)),
    dOutput: bench.make(bench.noise(tokens * width, 815, options.gradients)),
    lse: bench.make(file("lse")),
    delta: bench.make(file("delta")),
    gradientBytes: tokens * stride * (options.gradients ? 2 : 4),
  };
  const [sequence, gradient] = bench.sequence(one, all, given);
  const began = performance.now();
  await bench.run(sequence);
  const bytes = await bench.read(gradient);
  const compiled = performance.now() - began;
  const got = options.gradients ? Float32Array.from(new Uint16Array(bytes), float) : new Float32Array(bytes);
  const expected = file("gradient");
  let [distance, square] = [0, 0];
  for (let i = 0; i < got.length; i++) {
    if ((i % stride < width) !== (one.name === QUERY)) continue;
    distance += (got[i] - expected[i]) ** 2;
    square += expected[i] ** 2;
  }
  const microseconds = await bench.kernels.time(bench.device, sequence, tiny ? 1 : undefined);
  const pairs = (job.documents * job.length * (job.length + 1)) / 2;
  // Kernels that read kept scores have two products, and those results mean nothing alone.
  const products = one.name === QUERY ? 3 : one.bindings.length > 7 && one.bindings[7] === "read" ? 2 : 4;
  return {
    name: one.name, variant: one.variant, picked: one.picked, microseconds, compiled,
    teraflops: (2 * products * pairs * job.headDim * job.heads) / microseconds / 1e6,
    off: Math.sqrt(distance / square),
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
  let [made, mats, busy, count] = [0, 0, 0, 0];
  const others = {};
  for (const { kernel, variant, reason, gpuMicroseconds = 0, flops } of await trainer.profile()) {
    busy += gpuMicroseconds / 1000;
    count += 1;
    if (/^(attention|rope)/.test(kernel)) parts[`${kernel} [${variant}]`] = (parts[`${kernel} [${variant}]`] ?? 0) + gpuMicroseconds / 1000;
    if (!/^(attention_(forward|backward_)|matmul)/.test(kernel)) continue;
    made += flops;
    if (variant.startsWith("matrix")) mats += flops;
    else others[`${kernel} [${variant}] ${reason ?? ""}`] = (others[`${kernel} [${variant}] ${reason ?? ""}`] ?? 0) + flops;
  }
  return { milliseconds: Math.min(...all), all, loss: last.loss, norm: last.gradNorm, skipped: last.skipped, parts, busy, count, matrices: (100 * mats) / made, others, bytes: model.gpuBytes };
}

function show(r) {
  if (r.error) return console.log(`  FAILED ${r.error}`);
  const us = r.microseconds.toFixed(1).padStart(8);
  console.log(`  ${us} us ${r.teraflops.toFixed(1).padStart(6)} TFLOP/s ${r.picked ? "PICK" : "    "} ${r.name.slice(19)} ${r.head ? "by head, with the sum " : ""}${r.variant}; ${r.off === null ? "not a number" : r.off.toExponential(1)} from f32, ${(r.compiled / 1000).toFixed(1)} s to compile and run`);
}

function kernelsOf(shape, began) {
  const { heads, kvHeads, headDim, documents, length } = shape;
  console.log(`\n${documents} x ${length} tokens, ${heads}/${kvHeads} heads of ${headDim}`);
  const folder = mkdtempSync(join(tmpdir(), "back-"));
  const found = child(["reference", JSON.stringify({ ...shape, folder })]);
  if (found.error) return console.log(`  FAILED ${found.error}`);
  console.log(`adapter ${JSON.stringify(found.adapter)}, ${JSON.stringify(found.features)}`);
  const jobs = [];
  const wanted = ({ name }) => name === QUERY || name === KEYS;
  found.f32.forEach((one, index) => {
    if (wanted(one) && one.picked) jobs.push([one, index, {}]);
  });
  const matrices = { half: true, halves: true, gradients: false };
  found.matrices.forEach((one, index) => {
    if (wanted(one)) jobs.push([one, index, matrices]);
  });
  // What gradients in f16 would save, with what is picked.
  found.matrices.forEach((one, index) => {
    if (wanted(one) && one.picked) jobs.push([one, index, { ...matrices, gradients: true }]);
  });
  jobs.sort(([a], [b]) => Number(b.picked) - Number(a.picked));
  for (const [one, index, options] of jobs) {
    if (performance.now() - began > LONGEST) return console.log("  (no time for the others)");
    const rows = options.gradients ? ", gradients in f16" : options.half ? ", rows in f16" : ", f32";
    const r = child(["kernel", JSON.stringify({ ...shape, folder, index, options })]);
    show(r.error ? r : { ...r, head: one.head && one.name === KEYS, variant: r.variant + rows });
  }
}

if (what) {
  console.log(JSON.stringify(await { reference, kernel, step }[what](JSON.parse(json))));
} else {
  const began = performance.now();
  for (const documents of tiny ? [2] : [8, 1]) {
    const r = child(["step", JSON.stringify({ documents, precision: "mixed" })]);
    if (r.error) {
      console.log(`step of ${documents}: FAILED ${r.error}`);
      continue;
    }
    console.log(`step of ${documents} documents, mixed: ${r.milliseconds.toFixed(2)} ms (${r.all.map((x) => x.toFixed(2))}), ${r.count} kernels ${r.busy.toFixed(2)} ms, ${r.matrices.toFixed(1)} % on matrices, loss ${r.loss}, norm ${r.norm}, skipped ${r.skipped}, ${r.bytes} bytes`);
    for (const [name, ms] of Object.entries(r.parts)) console.log(`  ${ms.toFixed(3)} ms ${name}`);
    for (const name of Object.keys(r.others)) console.log(`  not on matrices: ${name}`);
  }
  for (const shape of SHAPES) kernelsOf(shape, began);
  console.log(`\n${((performance.now() - began) / 1000).toFixed(0)} s`);
}
process.exit(0);
