// node whole.mjs PKG NAME COUNTS PACKED: tokens per second of generateBatch. FORM: another form of products.
import { open, median, TOKENS, kernels, tiny } from "./common.mjs";
import { globals } from "webgpu";
const [pkg, name, counts, packed] = process.argv.slice(2);
let swapped = 0;
if (process.env.FORM) {
  const all = kernels(); const by = new Map();
  for (const k of all.filter((k) => k.form === "picked" && k.weights === "f32")) {
    const other = all.find((o) => o.product === k.product && o.rows === k.rows && o.weights === "f32" && o.form === process.env.FORM);
    if (other) by.set(k.wgsl, other);
  }
  const grids = new WeakMap(), modules = new WeakMap();
  const device = globals.GPUDevice.prototype, old = device.createShaderModule;
  device.createShaderModule = function (d) { const other = by.get(d.code); const made = old.call(this, other ? { ...d, code: other.wgsl } : d); if (other) { swapped++; modules.set(made, other.grid); } return made; };
  for (const method of ["createComputePipeline", "createComputePipelineAsync"]) { const f = device[method]; device[method] = function (d) { const grid = modules.get(d.compute.module); const made = f.call(this, d); if (!grid) return made; if (made?.then) return made.then((p) => (grids.set(p, grid), p)); grids.set(made, grid); return made; }; }
  const pass = globals.GPUComputePassEncoder.prototype; let grid; const set = pass.setPipeline, go = pass.dispatchWorkgroups;
  pass.setPipeline = function (p) { grid = grids.get(p); return set.call(this, p); };
  pass.dispatchWorkgroups = function (...a) { return grid ? go.call(this, ...grid) : go.apply(this, a); };
}
const { model, prompts, adapter } = await open(pkg);
if (name === "new") console.log("ADAPTER", JSON.stringify(adapter));
const timed = async (count, weights) => {
  const begun = performance.now(); let [first, tokens] = [0, 0];
  for await (const _ of model.generateBatch(prompts(count), { maxTokens: TOKENS, temperature: 0.8, weights })) if (++tokens === 1) first = performance.now();
  const end = performance.now();
  return { tokens, whole: end - begun, first: first - begun, decoding: end - first };
};
const row = async (count, weights) => {
  await timed(count, weights); await timed(count, weights);
  const runs = []; for (let i = 0; i < (tiny ? 1 : 3); i++) runs.push(await timed(count, weights));
  const rate = median(runs.map((r) => (1000 * r.tokens) / r.whole)), behind = median(runs.map((r) => (1000 * r.tokens) / r.decoding));
  console.log(`WHOLE ${name} ${count} texts ${weights}: ${rate.toFixed(0)} tokens/s, ${behind.toFixed(0)} behind the prompts; first token ${median(runs.map((r) => r.first)).toFixed(1)} ms; a pass ${((1e6 * count) / behind).toFixed(0)} us by that, ${((1e6 * count * TOKENS) / behind / Math.max(1, TOKENS - 16)).toFixed(0)} if the first token came behind 16; ${runs.map((r) => r.whole.toFixed(0)).join(" ")} ms`);
};
for (const count of counts.split(",").map(Number)) await row(count, "f32");
for (const count of packed ? packed.split(",").map(Number) : []) for (const weights of ["f16", "int8", "int4"]) await row(count, weights);
if (process.env.FORM) console.log(`   (${swapped} texts in place of others)`);
// What one text gives alone, greedily, against the batch.
if (name === "new" || name === "old") {
  const some = prompts(4); const together = some.map(() => []);
  for await (const { index, token } of model.generateBatch(some, { maxTokens: TOKENS, temperature: 0 })) together[index].push(token);
  let equal = 0;
  for (const [i, { prompt }] of some.entries()) { const alone = []; for await (const { token } of model.generate(prompt, { maxTokens: TOKENS, temperature: 0 })) alone.push(token); if (alone.join() === together[i].join()) equal++; else console.log(`   text ${i} differs from token ${alone.findIndex((t, j) => t !== together[i][j])} on`); }
  console.log(`TEXTS ${name}: ${equal} of ${some.length} greedy texts of ${TOKENS} tokens are generate's`);
}
process.exit(0);
