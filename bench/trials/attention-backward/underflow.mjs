// node gpu/attention-backward/underflow.mjs [--tiny]: gradients of one step of seed in mixed precision beside f32, by
// layer: distance relative in L2, and the share of numbers that are zero where f32 has none. With the package here, whose
// gradients are scaled by a power of two, and with the one in before/, whose are not (pack.sh copies both). At the start
// and behind some steps, with one document and with eight. Each in a process of its own.
import { spawnSync } from "node:child_process";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const tiny = process.argv.includes("--tiny");
const [json] = process.argv.slice(2).filter((x) => !x.startsWith("--"));

async function compare({ from, documents, behind }) {
  const { create, globals } = await import("webgpu");
  Object.assign(globalThis, globals);
  const load = (path) => import(pathToFileURL(join(here, path)).href);
  const gpu = create(["enable-dawn-features=allow_unsafe_apis,vulkan_enable_f16_on_nvidia"]);
  globalThis.keep = gpu;
  const { Model, Trainer, Runtime } = await load(join(from, "pkg/dist/index.js"));
  const { batch, CONFIGS } = await load("bench/workloads.mjs");
  const runtime = await Runtime.create({ gpu, recover: false });
  const { config, tokens } = CONFIGS[tiny ? "tiny" : "seed"];
  const length = (tiny ? 32 : tokens) * documents;
  const data = batch(length, config.vocab_size, documents);
  const found = {};
  const losses = {};
  for (const precision of ["f32", "mixed"]) {
    const model = await Model.create(runtime, config, { seed: 1 });
    const options = { tokensPerStep: length, schedule: "constant" };
    if (behind > 0) {
      const first = await Trainer.create(model, { ...options, learningRate: 3e-4, precision: "f32" });
      for (let i = 0; i < behind; i++) await first.step(data);
      first.free();
    }
    const trainer = await Trainer.create(model, { ...options, learningRate: 1e-9, precision });
    const { loss, gradNorm, skipped } = await trainer.step(data);
    losses[precision] = { loss, gradNorm, skipped };
    found[precision] = await trainer.gradients();
    trainer.free();
    model.free();
  }
  const layers = new Map();
  for (const [name, a] of Object.entries(found.f32)) {
    const b = found.mixed[name];
    const kind = /layers\.(\d+)\.(mlp|self_attn)/.exec(name);
    const key = kind ? `layer ${kind[1].padStart(2)} ${kind[2]}` : name.replace(/layers\.\d+\./, "norms ");
    const sums = layers.get(key) ?? { distance: 0, square: 0, zero: 0, count: 0 };
    for (let i = 0; i < a.length; i++) {
      if (a[i] === 0) continue;
      sums.distance += (a[i] - b[i]) ** 2;
      sums.square += a[i] ** 2;
      sums.zero += b[i] === 0;
      sums.count += 1;
    }
    layers.set(key, sums);
  }
  const rows = [...layers].map(([key, s]) => [key, Math.sqrt(s.distance / s.square), s.zero / s.count]);
  return { losses, rows };
}

if (json) console.log(JSON.stringify(await compare(JSON.parse(json))));
else {
  const began = performance.now();
  for (const documents of tiny ? [2] : [8, 1]) {
    for (const behind of tiny ? [0] : [0, 100]) {
      for (const from of ["before", "."]) {
        const flags = tiny ? ["--tiny"] : [];
        const job = JSON.stringify({ from, documents, behind: Math.ceil(behind / documents) });
        const run = spawnSync(process.execPath, [fileURLToPath(import.meta.url), job, ...flags], { encoding: "utf8", timeout: 90_000 });
        const title = `${documents} documents behind ${Math.ceil(behind / documents)} steps, gradients ${from === "." ? "scaled" : "as they are"}`;
        if (run.status !== 0) {
          console.log(`${title}: FAILED ${run.signal ?? run.status} ${run.stderr.slice(-400)}`);
          continue;
        }
        const { losses, rows } = JSON.parse(run.stdout.trim().split("\n").at(-1));
        console.log(`\n${title}: ${JSON.stringify(losses)}`);
        for (const [key, distance, zero] of rows) console.log(`  ${key.padEnd(40)} ${distance.toExponential(2)}  zeros ${(100 * zero).toFixed(3)} %`);
      }
    }
  }
  console.log(`\n${((performance.now() - began) / 1000).toFixed(0)} s`);
}
process.exit(0);
