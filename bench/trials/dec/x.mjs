// node gpu/dec/x.mjs [quick]: forms of decoding side by side in Node with Dawn. Each case runs in a process of its own:
// tokens per second, the GPU's time of a token and of each kind of dispatch by timestamps (chained as recorded), and the
// greedy text of 256 tokens as a hash, beside that of the build before (gpu/dec/base).
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { pathToFileURL } from "node:url";

// rows, packed rows, invocations of a workgroup, subgroups wanted, near ranges, invocations of a draw.
export const FORMS = {
  base: null, // the build before
  shared: [0, 0, 128, 512, 1, 256],
  draw512: [0, 0, 128, 512, 1, 512],
  draw: [0, 0, 128, 512, 1, 1024],
  rows1: [1, 1, 128, 512, 1, 1024],
  "rows1/64": [1, 1, 64, 512, 1, 1024],
  rows2: [2, 2, 128, 512, 1, 1024],
  packed4: [0, 4, 128, 512, 1, 1024],
  "packed4/64": [0, 4, 64, 512, 1, 1024],
  "packed4/256": [0, 4, 256, 512, 1, 1024],
  near4: [0, 0, 128, 512, 4, 1024],
  near8: [0, 0, 128, 512, 8, 1024],
  "near8/64": [0, 0, 64, 512, 8, 1024],
  "near8/256": [0, 0, 256, 512, 8, 1024],
  near16: [0, 0, 128, 512, 16, 1024],
  all: [0, 4, 128, 512, 8, 1024],
  "all/256": [0, 4, 256, 512, 8, 1024],
  "all/64": [0, 4, 64, 512, 8, 1024],
  "all rows1": [1, 4, 128, 512, 8, 1024],
};
const CASES = [
  ["seed", "f32", "base,shared,draw512,draw,rows1,rows1/64,rows2,near4,near8,near8/64,near8/256,near16,all rows1"],
  ["seed", "int4", "base,shared,draw,rows1,packed4,packed4/64,packed4/256,near8,all,all/256,all/64"],
  ["seed", "f16", "base,shared,packed4,all"],
  ["seed", "int8", "base,shared,packed4,all"],
  ["smol", "f16", "base,shared,draw,packed4,near8,all,all/256"],
];
const quick = process.argv.includes("quick");
const [, , job, form, config, weights] = process.argv;
if (job === "child") await child();
else {
  const texts = new Map();
  const began = Date.now();
  for (const [config, weights, forms] of CASES)
    for (const form of forms.split(",")) {
      if (quick && !["base", "shared", "all"].includes(form)) continue;
      if (quick && (config !== "seed" || weights !== "int4")) continue;
      if (Date.now() - began > 225_000) { console.log(`LEFT OUT for want of time: ${config} ${weights} ${form}`); continue; }
      const args = [process.argv[1], "child", form, config, weights, ...(quick ? ["quick"] : [])];
      const made = spawnSync(process.execPath, args, { encoding: "utf8", timeout: quick ? 380_000 : 40_000 });
      const text = /TEXT (\S+)/.exec(made.stdout)?.[1];
      const key = `${config} ${weights}`;
      if (!texts.has(key)) texts.set(key, text);
      const same = text === undefined ? "NO TEXT" : text === texts.get(key) ? "same text" : "ANOTHER TEXT";
      process.stdout.write(made.stdout.replace(/TEXT (\S+)/, `TEXT $1 ${same}`) || `FAILED ${args.join(" ")}: ${made.stderr.slice(-400)}\n`);
      if (made.status !== 0) console.log("  stderr:", made.stderr.slice(-600));
    }
  console.log(`${((Date.now() - began) / 1000).toFixed(0)} s`);
}

async function child() {
  const { create, globals } = await import("webgpu");
  Object.assign(globalThis, globals);
  const folder = form === "base" ? "base" : "pkg";
  if (FORMS[form]) globalThis.tinyloomDecoding = FORMS[form];
  const here = new URL(".", import.meta.url).pathname;
  const at = (path) => import(pathToFileURL(path).href);
  // What every pipeline is, and every dispatch.
  const codes = new Map(), tags = new Map();
  let device, recording = false, log = [];
  const proto = globals.GPUDevice.prototype;
  const size = (code, name) => new RegExp(`const ${name}: ?u32 ?= ?(\\d+)`).exec(code)?.[1];
  const tag = (d) => {
    const code = codes.get(d.compute.module) ?? "";
    const [n, k] = [size(code, "N"), size(code, "K")];
    return d.compute.entryPoint + (n ? ` ${n}x${k}${/fn activate\(/.test(code) ? " gated" : ""}` : "");
  };
  const shader = proto.createShaderModule;
  proto.createShaderModule = function (d) { device = this; const m = shader.call(this, d); codes.set(m, d.code); return m; };
  for (const name of ["createComputePipeline", "createComputePipelineAsync"]) {
    const old = proto[name];
    proto[name] = function (d) { const t = tag(d); const made = old.call(this, d); if (made?.then) return made.then((p) => (tags.set(p, t), p)); tags.set(made, t); return made; };
  }
  const pass = globals.GPUComputePassEncoder.prototype;
  const { setPipeline, setBindGroup, dispatchWorkgroups } = pass;
  let pipeline;
  const groups = new Map();
  const kept = (x) => (ArrayBuffer.isView(x) ? x.slice() : x); // a view of wasm's memory does not stay
  pass.setPipeline = function (p) { pipeline = p; return setPipeline.call(this, p); };
  pass.setBindGroup = function (...a) { groups.set(a[0], a.map(kept)); return setBindGroup.apply(this, a); };
  pass.dispatchWorkgroups = function (...a) { if (recording) log.push({ pipeline, groups: [...groups.values()], a, tag: tags.get(pipeline) ?? "?" }); return dispatchWorkgroups.apply(this, a); };

  const tl = await at(`${here}${folder}/index.js`);
  const w = await at(`${process.cwd()}/bench/workloads.mjs`);
  const { MODELS } = await at(`${process.cwd()}/scripts/random-checkpoint.mjs`);
  w.CONFIGS.smol = { tokens: 512, config: MODELS["SmolLM2-135M"] };
  w.CONFIGS.small = { tokens: 64, config: { ...w.CONFIGS.seed.config, num_hidden_layers: 1, vocab_size: 512, hidden_size: 256, intermediate_size: 256, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 64 } };
  const name = quick ? "small" : config;
  const runtime = await tl.Runtime.create({ gpu: create(["disable-dawn-features=timestamp_quantization"]), recover: false });
  const tokens = quick ? 8 : 256;
  const { model, draw, perToken } = await w.createDecoding(tl, runtime, name, { weights, tokens, context: quick ? 16 : 128 });
  const info = runtime.capabilities?.adapter ?? {};
  await draw(quick ? 2 : 200);
  const times = [];
  for (let i = 0; i < (quick ? 1 : 5); i++) times.push(1000 * (await perToken()));
  times.sort((x, y) => x - y);
  const median = times[times.length >> 1];
  recording = true; await draw(6); recording = false;
  const ends = log.flatMap((d, i) => (d.tag.startsWith("sample_forward") ? [i] : []));
  const token = log.slice(ends.at(-2) + 1, ends.at(-1) + 1);
  const kinds = [...new Set(token.map((d) => d.tag))];
  console.log(`ROW ${config} ${weights} ${form}: ${(1e6 / median).toFixed(0)} tokens/s in Node (${median.toFixed(1)} us, least ${times[0].toFixed(1)}), ${token.length} dispatches; adapter ${JSON.stringify(info).slice(0, 120)} features ${[...device.features].includes("timestamp-query") ? "timestamps" : "no timestamps"}, subgroups ${[...device.features].includes("subgroups")}`);
  const timed = await timer(device, { setPipeline, setBindGroup, dispatchWorkgroups });
  const steps = token.filter((d) => !d.tag.startsWith("sample_forward"));
  const all = await timed(steps);
  const rows = [];
  for (const kind of kinds) {
    const own = token.filter((d) => d.tag === kind);
    const alone = await timed(own);
    const without = kind.startsWith("sample_forward") ? NaN : all - (await timed(steps.filter((d) => d.tag !== kind)));
    rows.push(`   ${kind.padEnd(34)} ${String(own.length).padStart(3)} of ${own[0].a.join("x").padEnd(8)} chained ${(alone / own.length).toFixed(2)} us each, ${alone.toFixed(1)} in all; left out ${without.toFixed(1)}`);
  }
  console.log(`   GPU alone, without the draw: ${all.toFixed(1)} us per token`);
  console.log(rows.join("\n"));
  // The greedy text.
  const { config: model_config } = w.CONFIGS[name];
  const prompt = w.batch(quick ? 16 : 128, model_config.vocab_size).tokens;
  const ids = [];
  for await (const t of model.generate(prompt, { maxTokens: quick ? 8 : 256, temperature: 0, weights })) ids.push(t.token ?? t.id ?? t);
  console.log(`   TEXT ${createHash("sha256").update(ids.join()).digest("hex").slice(0, 12)} (${ids.length} tokens, ${new Set(ids).size} distinct)`);
  process.exit(0);
}

/** Microseconds of a list of dispatches, repeated in one pass as dependent ones. */
async function timer(device, { setPipeline, setBindGroup, dispatchWorkgroups }) {
  const stamps = [...device.features].includes("timestamp-query");
  const query = stamps && device.createQuerySet({ type: "timestamp", count: 2 });
  const U = globalThis.GPUBufferUsage;
  const resolved = stamps && device.createBuffer({ size: 16, usage: U.QUERY_RESOLVE | U.COPY_SRC });
  const read = stamps && device.createBuffer({ size: 16, usage: U.MAP_READ | U.COPY_DST });
  const once = async (list, repeat) => {
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass(stamps ? { timestampWrites: { querySet: query, beginningOfPassWriteIndex: 0, endOfPassWriteIndex: 1 } } : {});
    for (let r = 0; r < repeat; r++)
      for (const { pipeline, groups, a } of list) {
        setPipeline.call(pass, pipeline);
        for (const g of groups) setBindGroup.apply(pass, g);
        dispatchWorkgroups.apply(pass, a);
      }
    pass.end();
    if (stamps) { encoder.resolveQuerySet(query, 0, 2, resolved, 0); encoder.copyBufferToBuffer(resolved, 0, read, 0, 16); }
    const began = performance.now();
    device.queue.submit([encoder.finish()]);
    if (!stamps) { await device.queue.onSubmittedWorkDone(); return 1000 * (performance.now() - began); }
    await read.mapAsync(1);
    const [x, y] = new BigUint64Array(read.getMappedRange().slice(0));
    read.unmap();
    return Number(y - x) / 1000;
  };
  return async (list) => {
    if (list.length === 0) return 0;
    const repeat = quick ? 1 : Math.max(2, Math.ceil(1200 / list.length));
    const times = [];
    for (let i = 0; i < (quick ? 1 : 3); i++) times.push((await once(list, repeat)) / repeat);
    times.sort((x, y) => x - y);
    return times[times.length >> 1];
  };
}
