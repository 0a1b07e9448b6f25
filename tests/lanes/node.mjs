// node tests/lanes/node.mjs [PART OF A NAME]
// Runs the kernel cases in Node with Dawn on this machine's GPU, from target/testing-wasm: by hand,
// where a real GPU is at hand. It is no lane of `npm test`, whose machines have none.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const root = join(import.meta.dirname, "../..");
const load = (path) => import(pathToFileURL(join(root, path)).href);

const gpu = (await import("webgpu")).create([]);
await (await load("pkg/dist/host.js")).prepareHost(gpu);
const testing = await load("target/testing-wasm/tinyloom.js");
const wasm = readFileSync(join(root, "target/testing-wasm/tinyloom_bg.wasm"));
await testing.default({ module_or_path: wasm });
const runtime = await testing.RawRuntime.create(gpu, "{}");
const { adapter, features } = JSON.parse(runtime.capabilities());

const names = JSON.parse(testing.testing_cases()).filter((name) =>
  name.includes(process.argv[2] ?? ""),
);
let failed = 0;
let pipelines = 0;
for (const name of names) {
  const report = JSON.parse(await testing.testing_run(runtime, name));
  pipelines += report.pipelines;
  if (report.ok) continue;
  failed += 1;
  console.error(`FAILED ${name}: ${report.detail}`);
}
console.log(`${names.length} cases, ${failed} failed, ${pipelines} pipelines`, adapter, features);
process.exit(failed === 0 && names.length > 0 ? 0 : 1);
