// A Node process with Dawn that runs the test bodies named on its command line. Models that they save
// are kept for check_saved.py.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as tinyloom from "tinyloom";
import * as align from "tinyloom/align";
import * as ops from "tinyloom/ops";
import { create, globals } from "webgpu";
// The very module that the package uses: its link in node_modules leads to pkg.
import * as internals from "../../pkg/dist/internal.js";
import { stored } from "../../pkg/dist/stored-runs.js";
import { Kernels } from "../gate/made.mjs";
import { watch } from "../gate/record.mjs";
import { runBody } from "./bodies/run.mjs";

const [saved, chosen] = process.argv.slice(2);

function keep(name, files, tokens, logits) {
  const folder = join(saved, name);
  mkdirSync(folder, { recursive: true });
  for (const [file, bytes] of Object.entries(files)) writeFileSync(join(folder, file), bytes);
  writeFileSync(join(folder, "logits.f32"), logits);
  const expected = { tokens: [...tokens], logits: "logits.f32" };
  writeFileSync(join(folder, "expected.json"), JSON.stringify(expected));
}

const kernels = new Kernels();
let texts = [];
const forget = watch(globals, (kernel) => texts.push(kernel));

const gpu = create([]);
for (const { name: body, core } of JSON.parse(chosen)) {
  const options = { host: "node", core, keep };
  const internal = { ...internals, stored };
  const results = await runBody({ ...tinyloom, ops, align, internal }, gpu, body, options);
  const message = { body, results, kernels: kernels.of(texts) };
  texts = [];
  forget();
  await new Promise((sent) => process.send(message, sent));
}
process.exit(0); // Dawn's threads would keep the process alive
