// A model of a gigabyte is saved to files and loaded from them, each in a Node process of its own, whose memory is
// sampled. On a software adapter the GPU's buffers lie in that process: their bytes are taken off.
import { fork } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { target } from "../../scripts/lib.mjs";
import { dawnEnv } from "../../scripts/machine.mjs";
import { adapterName, keep } from "./results.mjs";

/** 252 million weights: 1.007 GB in f32. */
const CONFIG = {
  vocab_size: 16_384,
  hidden_size: 1024,
  intermediate_size: 4096,
  num_hidden_layers: 14,
  num_attention_heads: 16,
  max_position_embeddings: 128,
  tie_word_embeddings: true,
};
const SMALL = { ...CONFIG, vocab_size: 256, hidden_size: 64, intermediate_size: 128 };

/** Bytes that a process may take beyond the GPU's. */
const MOST = 256e6;

/** Milliseconds between two samples, and until a process is ended. */
const [PACE, LONGEST] = [5, 280_000];

/** Bytes of a process in memory (Linux). */
function resident({ pid }) {
  const [, pages] = readFileSync(`/proc/${pid}/statm`, "utf8").split(" ");
  return Number(pages) * 4096;
}

/** One process: what it found, with the highest sample of its memory. */
async function measured(work, folder) {
  const child = fork(join(import.meta.dirname, "large-node.mjs"), {
    env: { ...process.env, ...dawnEnv() },
    execArgv: ["--expose-gc"],
  });
  const timer = setTimeout(() => child.kill("SIGKILL"), LONGEST);
  let [found, sampling, peak, samples] = [undefined, undefined, 0, 0];
  const sample = () => {
    peak = Math.max(peak, resident(child));
    samples++;
  };
  child.on("message", (message) => {
    if (message.phase === "begin") {
      sample();
      sampling = setInterval(sample, PACE);
      child.send(0);
    } else if (message.phase === "end") {
      sample();
      clearInterval(sampling);
      child.send(peak);
    } else found = { ...message, samples };
  });
  child.send({ work, folder, config: CONFIG, small: SMALL });
  const code = await new Promise((done) => child.once("exit", (one, by) => done(by ?? one)));
  clearTimeout(timer);
  clearInterval(sampling);
  if (!found) throw new Error(`large: the process that was to ${work} ended with ${code}`);
  const { before, after } = found;
  // What the GPU took for the work, where its buffers lie in the process.
  const gpu = found.software ? after.gpu - before.gpu : 0;
  return { work, ...found, beyond: found.peak - before.resident - gpu };
}

/** What is wrong, if anything. */
export function judge(rows) {
  const wrong = rows
    .filter(({ beyond }) => !(beyond < MOST))
    .map(({ work, beyond }) => `${work} took ${beyond} bytes beyond the GPU's`);
  const small = rows.find(({ bytes }) => !(bytes >= 1e9));
  return small ? [...wrong, `the model has ${small.bytes} bytes`] : wrong;
}

/** Memory that a save and a load of a gigabyte take beyond the GPU's. */
export async function large() {
  const folder = join(target, "large");
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(join(folder, "small"), { recursive: true });
  try {
    const rows = [await measured("save", folder)];
    const file = statSync(join(folder, "model.safetensors")).size;
    rows.push(await measured("load", folder));
    const wrong = judge(rows);
    const [{ adapter, software }] = rows;
    const how =
      "resident bytes of the process, sampled every 5 ms: the highest, less those before" +
      (software ? ", less the GPU's buffers that are there afterwards and were not before" : "");
    keep("large", "node", adapter, { host: "node", how, fileBytes: file, rows, wrong });
    for (const { work, beyond, seconds, samples } of rows) {
      console.log(
        `large: ${adapterName(adapter)}: ${work} of ${(file / 1e9).toFixed(3)} GB in ${seconds.toFixed(1)} s: ` +
          `${(beyond / 1e6).toFixed(0)} MB beyond the GPU's, in ${samples} samples`,
      );
    }
    for (const line of wrong) console.log(`  ${line}`);
    return wrong.length === 0;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
