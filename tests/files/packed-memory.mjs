// A process of its own that loads a model packed, and tells the most bytes of JavaScript's memory, of the module's
// and of the GPU's meanwhile. The checkpoint lies in a file, as scripts/random-checkpoint.mjs writes it.
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { create } from "webgpu";
import { Model, Runtime } from "../../pkg/dist/index.js";
import { runtimes } from "../../pkg/dist/internal.js";
import { writeCheckpoint } from "../../scripts/random-checkpoint.mjs";

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc");

const [weights] = process.argv.slice(2);
const config = {
  model_type: "qwen3",
  vocab_size: 20_001,
  hidden_size: 1024,
  intermediate_size: 1024,
  num_hidden_layers: 4,
  num_attention_heads: 8,
  num_key_value_heads: 4,
  head_dim: 128,
  max_position_embeddings: 256,
  tie_word_embeddings: true,
};
const folder = mkdtempSync(join(tmpdir(), "tinyloom-packed-"));
await writeCheckpoint(folder, config);
const file = statSync(join(folder, "model.safetensors")).size;
const runtime = await Runtime.create({ gpu: create([]), recover: false });
const { counters } = runtimes.of(runtime);
const held = () => process.memoryUsage().arrayBuffers - counters().wasmBytes;
collect();
const before = { host: held(), module: counters().wasmBytes, gpu: counters().gpuBytes };
const peak = { ...before };
const model = await Model.fromPretrained(runtime, pathToFileURL(`${folder}/`), {
  weights,
  onProgress() {
    collect(); // what is garbage is held by nobody
    peak.host = Math.max(peak.host, held());
    peak.module = Math.max(peak.module, counters().wasmBytes);
    peak.gpu = Math.max(peak.gpu, counters().gpuBytes);
  },
});
const grown = Object.fromEntries(Object.keys(peak).map((key) => [key, peak[key] - before[key]]));
rmSync(folder, { recursive: true, force: true });
const { parameterCount, gpuBytes } = model;
await new Promise((sent) => process.send({ file, parameterCount, gpuBytes, grown }, sent));
process.exit(0); // Dawn's threads would keep the process alive
