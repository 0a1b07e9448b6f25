// node tests/lanes/node.mjs [--full] [--matrices] [PART OF A NAME]
// Runs the kernel cases in Node with Dawn on this machine's GPU, from target/testing-wasm: by hand,
// where there is a real GPU; with a part of a name, what each case measured is printed. `npm test`
// leaves it out, `npm run test:full` has it. With --matrices Dawn offers subgroup matrices and f16 (on NVIDIA under
// Linux behind a flag), and a GPU without them fails.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { commandLine } from "../../scripts/lib.mjs";
import { endProgress, ofShard, seed, shard, showProgress, wanted } from "./level.mjs";

const { values, positionals } = commandLine({
  options: {
    full: { type: "boolean", default: false },
    matrices: { type: "boolean", default: false },
  },
  allowPositionals: true,
});
const root = join(import.meta.dirname, "../..");
const load = (path) => import(pathToFileURL(join(root, path)).href);

const EXPERIMENTS = "enable-dawn-features=allow_unsafe_apis,vulkan_enable_f16_on_nvidia";
const gpu = (await import("webgpu")).create(values.matrices ? [EXPERIMENTS] : []);
await (await load("pkg/dist/host.js")).prepareHost(gpu);
const testing = await load("target/testing-wasm/tinyloom.js");
const wasm = readFileSync(join(root, "target/testing-wasm/tinyloom_bg.wasm"));
await testing.default({ module_or_path: wasm });
const runtime = await testing.RawRuntime.create(gpu, await gpu.requestAdapter(), "{}");
const { adapter, features } = JSON.parse(runtime.capabilities());
if (values.matrices && !(features.subgroupMatrix && features.f16)) {
  console.error("this GPU has no subgroup matrices of f16", adapter, features);
  process.exit(1);
}

const every = JSON.parse(testing.testing_cases(values.full));
const names = ofShard(
  every.filter((name) => name.includes(positionals[0] ?? wanted)),
  shard,
);
const began = Date.now();
let failed = 0;
let pipelines = 0;
for (const [index, name] of names.entries()) {
  showProgress("node", `${index + 1}/${names.length} ${name}`);
  const results = new testing.TestingResults();
  const report = JSON.parse(await testing.testing_run(runtime, name, seed, results, "run"));
  results.free();
  pipelines += report.pipelines;
  if (report.ok) {
    if (positionals.length > 0) console.log(`ok ${name}: ${report.detail}`);
    continue;
  }
  failed += 1;
  console.error(`FAILED ${name}: ${report.detail}`);
}
endProgress();
const seconds = Math.round((Date.now() - began) / 1000);
console.log(
  `${names.length} cases, ${failed} failed, ${pipelines} pipelines, ${seconds} s`,
  adapter,
  features,
);
process.exit(failed === 0 && names.length > 0 ? 0 : 1);
