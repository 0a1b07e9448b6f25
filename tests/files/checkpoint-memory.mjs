// A process of its own that saves a run into a folder and resumes it, and tells the most bytes of JavaScript's memory,
// and the largest piece that went to the disk or came from it.
import { mkdtempSync, rmSync } from "node:fs";
import fs from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { create } from "webgpu";
import * as tinyloom from "../../pkg/dist/index.js";
import { runtimes } from "../../pkg/dist/internal.js";
import * as storage from "../../pkg/dist/storage/index.js";

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc");
const seen = { piece: 0, bytes: 0, peak: 0 };
let counters = () => ({ wasmBytes: 0 });

/** Bytes of arrays, without the module's own memory. */
const held = () => process.memoryUsage().arrayBuffers - counters().wasmBytes;

function note(bytes) {
  collect(); // what is garbage is held by nobody
  seen.piece = Math.max(seen.piece, bytes);
  seen.bytes += bytes;
  seen.peak = Math.max(seen.peak, held());
}

const { open } = fs;
fs.open = async (...options) => {
  const file = await open(...options);
  const { read, write } = file;
  file.read = (bytes, at, length, ...more) => {
    note(length);
    return read.call(file, bytes, at, length, ...more);
  };
  file.write = (bytes, at, length, ...more) => {
    note(length);
    return write.call(file, bytes, at, length, ...more);
  };
  return file;
};
syncBuiltinESMExports();

/** What `work` reads and writes, and by how much it raises the memory. */
async function measured(work) {
  collect();
  const before = held();
  Object.assign(seen, { piece: 0, bytes: 0, peak: before });
  const result = await work();
  return { result, piece: seen.piece, bytes: seen.bytes, grown: seen.peak - before };
}

const [hidden] = process.argv.slice(2).map(Number);
const config = {
  vocab_size: 256,
  hidden_size: hidden,
  intermediate_size: 4 * hidden,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  tie_word_embeddings: true,
};
const { Model, Runtime, Trainer } = tinyloom;
const root = mkdtempSync(join(tmpdir(), "tinyloom-memory-"));
// Snapshots of a lost device's recovery are kept in memory, and have a bound of their own.
const runtime = await Runtime.create({ gpu: create([]), recover: false });
({ counters } = runtimes.of(runtime));
const model = await Model.create(runtime, config);
const trainer = await Trainer.create(model, { tokensPerStep: 4 });
const runs = await storage.Runs.open("memory", { folder: root });
const run = await runs.create("one");
const saved = await measured(() => trainer.save({ to: run }));
model.free();
const loaded = await measured(() => Trainer.resume(runtime, run));
const { parameterCount } = loaded.result.model;
const [save, resume] = [saved, loaded].map(({ piece, bytes, grown }) => ({ piece, bytes, grown }));
rmSync(root, { recursive: true, force: true });
await new Promise((sent) => process.send({ checkpoint: 12 * parameterCount, save, resume }, sent));
process.exit(0); // Dawn's threads would keep the process alive
