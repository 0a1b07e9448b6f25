// node parts.mjs PKG NAME COUNT: microseconds of each kind of dispatch of a pass, by timestamps around each dispatch, and of
// the pass as the sum; also of the prompts. A dispatch in a pass of its own costs more than in a long one.
import { open, median } from "./common.mjs";
import { globals } from "webgpu";
const [pkg, name, count] = process.argv.slice(2);
const MOST = 4096;
const tags = new WeakMap(); let on = false, set, resolved, readable, used = 0, labels = [], device;
const made = globals.GPUAdapter.prototype.requestDevice;
globals.GPUAdapter.prototype.requestDevice = async function (d = {}) { const features = new Set(d.requiredFeatures ?? []); if (this.features.has("timestamp-query")) features.add("timestamp-query"); device = await made.call(this, { ...d, requiredFeatures: [...features] }); return device; };
const proto = globals.GPUDevice.prototype;
for (const method of ["createComputePipeline", "createComputePipelineAsync"]) { const f = proto[method]; proto[method] = function (d) { const tag = d.compute.entryPoint; const p = f.call(this, d); if (p?.then) return p.then((x) => (tags.set(x, tag), x)); tags.set(p, tag); return p; }; }
const begin = globals.GPUCommandEncoder.prototype.beginComputePass;
globals.GPUCommandEncoder.prototype.beginComputePass = function (d) {
  if (!on) return begin.call(this, d);
  const encoder = this; let pipeline; const groups = new Map();
  return { label: "", setPipeline(p) { pipeline = p; }, setBindGroup(i, ...g) { groups.set(i, g); },
    dispatchWorkgroups(...a) {
      const measured = used + 2 <= MOST;
      const pass = begin.call(encoder, measured ? { timestampWrites: { querySet: set, beginningOfPassWriteIndex: used, endOfPassWriteIndex: used + 1 } } : {});
      if (measured) { labels.push(`${tags.get(pipeline)} ${a.join("x")}`); used += 2; }
      pass.setPipeline(pipeline); for (const [i, g] of groups) pass.setBindGroup(i, ...g);
      pass.dispatchWorkgroups(...a); pass.end();
    }, end() {}, pushDebugGroup() {}, popDebugGroup() {}, insertDebugMarker() {} };
};
const { model, prompts } = await open(pkg);
const run = async (most) => { let n = 0; for await (const _ of model.generateBatch(prompts(Number(count)), { maxTokens: most, temperature: 0.8 })) n++; return n; };
await run(40); await run(40);
if (!device?.features.has("timestamp-query")) { console.log("PARTS: no timestamps here"); process.exit(0); }
set = device.createQuerySet({ type: "timestamp", count: MOST });
resolved = device.createBuffer({ size: MOST * 8, usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC });
readable = device.createBuffer({ size: MOST * 8, usage: GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ });
for (const [what, most] of [["prompts and 1 pass", 1], ["prompts and 17 passes", 17]]) {
  used = 0; labels = []; on = true; await run(most); on = false;
  const encoder = device.createCommandEncoder(); encoder.resolveQuerySet(set, 0, used, resolved, 0); encoder.copyBufferToBuffer(resolved, 0, readable, 0, used * 8); device.queue.submit([encoder.finish()]);
  await readable.mapAsync(GPUMapMode.READ); const times = new BigInt64Array(readable.getMappedRange().slice(0)); readable.unmap();
  const by = new Map(); let sum = 0;
  for (const [i, label] of labels.entries()) { const us = Number(times[2 * i + 1] - times[2 * i]) / 1000; sum += us; if (!by.has(label)) by.set(label, []); by.get(label).push(us); }
  console.log(`PARTS ${name} ${count} texts, ${what}: ${labels.length} dispatches measured, ${sum.toFixed(0)} us in all`);
  for (const [label, list] of [...by].sort((a, b) => b[1].reduce((x, y) => x + y) - a[1].reduce((x, y) => x + y))) { const all = list.reduce((x, y) => x + y); console.log(`   ${label.padEnd(44)} ${String(list.length).padStart(5)} × ${median(list).toFixed(2).padStart(8)} us = ${all.toFixed(0).padStart(7)}`); }
}
process.exit(0);
