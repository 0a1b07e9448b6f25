// node products.mjs PRODUCT: each form of a product of few rows, microseconds per dispatch; the matrix from HBM (copies of it
// beyond the L2 cache in turns); results against the picked form's.
import { kernels, gpu, median, tiny } from "./common.mjs";
const [product] = process.argv.slice(2);
const adapter = await gpu.requestAdapter({ powerPreference: "high-performance" });
const features = ["subgroups", "timestamp-query", "shader-f16"].filter((f) => adapter.features.has(f));
const device = await adapter.requestDevice({ requiredFeatures: features, requiredLimits: { maxStorageBufferBindingSize: adapter.limits.maxStorageBufferBindingSize, maxBufferSize: adapter.limits.maxBufferSize } });
device.onuncapturederror = (e) => console.log("ERROR", e.error.message.slice(0, 300));
const list = kernels().filter((k) => k.product === product).filter((k, i) => i < (Number(process.env.ONLY) || 1e9));
const ROTATE = tiny ? 1 << 20 : 160 << 20, REPEATS = tiny ? 8 : 96;
const buffer = (size, usage = 0) => device.createBuffer({ size: Math.ceil(size / 16) * 16, usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST | GPUBufferUsage.COPY_SRC | usage });
const fill = (b, f) => { const n = Math.min(b.size, 1 << 24) / 4; const data = new Float32Array(n); for (let i = 0; i < n; i++) data[i] = f(i); for (let at = 0; at < b.size; at += n * 4) device.queue.writeBuffer(b, at, data.buffer, 0, Math.min(n * 4, b.size - at)); return b; };
let seed = 1; const random = () => ((seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0) / 2 ** 32 - 0.5);
const set = features.includes("timestamp-query") ? device.createQuerySet({ type: "timestamp", count: 2 }) : undefined;
const resolved = device.createBuffer({ size: 16, usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC }), readable = device.createBuffer({ size: 16, usage: GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ });
const matrices = new Map();
const grouped = new Map(); for (const k of list) { const key = `${k.rows} ${k.weights}`; if (!grouped.has(key)) grouped.set(key, []); grouped.get(key).push(k); }
for (const entries of grouped.values()) {
  const { n, k, rows, stride, weights, each } = entries[0];
  const perMatrix = n * each * k * { f32: 4, f16: 2, int8: 1.25, int4: 0.75 }[weights];
  const copies = Math.max(1, Math.min(64, Math.ceil(ROTATE / perMatrix)));
  if (!matrices.has(weights)) { const all = Array.from({ length: copies }, () => buffer(perMatrix)); fill(all[0], weights === "f32" ? () => random() / Math.sqrt(k) : () => 0.01); matrices.set(weights, all); }
  const packedMatrices = matrices.get(weights);
  // All copies hold what the first holds.
  { const e = device.createCommandEncoder(); for (const b of packedMatrices.slice(1)) e.copyBufferToBuffer(packedMatrices[0], 0, b, 0, b.size); device.queue.submit([e.finish()]); }
  const own = { a: fill(buffer(rows * k * 4), random), c: buffer(rows * stride * 4), norm_weight: fill(buffer(k * 4), () => 1), table: fill(buffer(4096 * 64 * 4), () => 1), cache: buffer(rows * 512 * 2048 * 4), documents: buffer(rows * 4), residual: fill(buffer(rows * stride * 4), random), bias: buffer(stride * 4) };
  device.queue.writeBuffer(own.documents, 0, Uint32Array.from({ length: rows }, (_, t) => t - 7));
  const range = device.createBuffer({ size: 64, usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST }); device.queue.writeBuffer(range, 0, new Uint32Array([0, rows, 0, n]));
  const step = device.createBuffer({ size: 64, usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST }); const words = new Uint32Array(16); words[0] = rows; words[14] = 512; device.queue.writeBuffer(step, 0, words);
  const compiled = await Promise.all(entries.map(async (e) => { try { return await device.createComputePipelineAsync({ layout: "auto", compute: { module: device.createShaderModule({ code: e.wgsl }), entryPoint: e.entry } }); } catch (error) { console.log(`   ${e.form}: ${String(error.message ?? error).slice(0, 200)}`); } }));
  let reference; const told = [];
  for (const [i, e] of entries.entries()) {
    const pipeline = compiled[i]; if (!pipeline) continue;
    const groups = packedMatrices.map((matrix) => device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries: e.bindings.map(([name], binding) => ({ binding, resource: { buffer: name === "range" ? range : name === "step" ? step : name === "b" || name === "packed" ? matrix : own[name] } })) }));
    const go = async (repeats) => {
      const encoder = device.createCommandEncoder(); const pass = encoder.beginComputePass(set ? { timestampWrites: { querySet: set, beginningOfPassWriteIndex: 0, endOfPassWriteIndex: 1 } } : {});
      pass.setPipeline(pipeline); for (let r = 0; r < repeats; r++) { pass.setBindGroup(0, groups[r % groups.length]); pass.dispatchWorkgroups(...e.grid); } pass.end();
      if (set) { encoder.resolveQuerySet(set, 0, 2, resolved, 0); encoder.copyBufferToBuffer(resolved, 0, readable, 0, 16); }
      const at = performance.now(); device.queue.submit([encoder.finish()]); await device.queue.onSubmittedWorkDone(); const ms = performance.now() - at;
      if (!set) return (1000 * ms) / repeats;
      await readable.mapAsync(GPUMapMode.READ); const t = new BigInt64Array(readable.getMappedRange().slice(0)); readable.unmap(); return Number(t[1] - t[0]) / 1000 / repeats;
    };
    await go(4); const times = []; for (let r = 0; r < 5; r++) times.push(await go(REPEATS)); const us = median(times);
    const back = device.createBuffer({ size: own.c.size, usage: GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ }); const encoder = device.createCommandEncoder(); encoder.copyBufferToBuffer(own.c, 0, back, 0, own.c.size); device.queue.submit([encoder.finish()]); await back.mapAsync(GPUMapMode.READ); const got = new Float32Array(back.getMappedRange().slice(0)); back.destroy();
    reference ??= got; let off = 0; for (let j = 0; j < got.length; j++) off = Math.max(off, Math.abs(got[j] - reference[j])); const wrong = !(off < 1e-3);
    told.push([us, `${us.toFixed(2).padStart(8)} us ${(perMatrix / us / 1e6).toFixed(2).padStart(6)} TB/s ${((2 * rows * n * each * k) / us / 1e6).toFixed(1).padStart(6)} TFLOP/s  ${e.form.padEnd(14)} ${e.grid.join("x").padStart(7)} ${e.variant}${weights === "f32" && wrong ? `  WRONG by ${off}` : ""}`]);
  }
  console.log(`PRODUCT ${product} ${n * each} x ${k}, ${rows} rows, ${weights}, ${(perMatrix / 1e6).toFixed(1)} MB, ${copies} copies, ${adapter.info.vendor} ${adapter.info.architecture} ${adapter.info.description}`);
  for (const [, line] of told.sort((x, y) => x[0] - y[0]).slice(0, rows === 16 && weights === "f32" ? 100 : 8)) console.log(line);
  for (const b of Object.values(own)) b.destroy();
}
process.exit(0);
