// node bench/serving/gguf.mjs FOLDER…
// Adds to each folder of weights.py the GGUF files of its model, as `model.save` writes them, in Node on this machine's GPU.
import { createWriteStream } from "node:fs";
import { join, resolve } from "node:path";
import { Writable } from "node:stream";
import { pathToFileURL } from "node:url";
import { main, root } from "../../scripts/lib.mjs";
import { dawnEnv } from "../../scripts/machine.mjs";

const TYPES = ["f16", "q8_0", "q4_0"];

await main(async () => {
  const built = join(root, "pkg", "dist", "index.js");
  const { Model, Runtime } = await import(pathToFileURL(built).href);
  Object.assign(process.env, dawnEnv());
  const { create } = await import("webgpu"); // reads the environment
  const runtime = await Runtime.create({ gpu: create([]) });
  for (const name of process.argv.slice(2)) {
    const folder = resolve(name);
    const model = await Model.fromPretrained(runtime, folder);
    for (const type of TYPES) {
      const began = performance.now();
      const file = join(folder, `${type}.gguf`);
      const to = { "model.gguf": Writable.toWeb(createWriteStream(file)) };
      await model.save({ format: "gguf", type, tokenizer: folder, to });
      console.log(`${file} after ${((performance.now() - began) / 1000).toFixed(1)} s`);
    }
    await model.free();
  }
  runtime.destroy();
});
