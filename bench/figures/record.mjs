// Records the opening run for the loom: `node bench/figures/record.mjs [ADAPTER]`. Trains it with the package in Node
// with Dawn on this machine's GPU, and writes the weights every few steps to www/src/loom/recorded.bin, whose form
// recorded.ts describes. `--kept` stores the run anew that target/recording has from the last time.
import { fork } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { constants, deflateRawSync } from "node:zlib";
import { main, root, step, target } from "../../scripts/lib.mjs";
import { dawnEnv } from "../../scripts/machine.mjs";
import { pageModule } from "../../tests/page/page-module.mjs";
import { presets } from "../../www/src/sizes.mjs";

const folder = join(target, "recording");
const file = join(root, "www/src/loom/recorded.bin");
/** Weights are stored as multiples of it: fine enough that at most two of 128 answers change. */
const GRAIN = 0.014;
/** Steps whose weights are kept: each of the first ones, later fewer. */
const STEPS = [
  0, 1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 72, 80, 90, 100, 112, 124, 136,
  150, 165, 180, 195, 210, 225, 240, 255, 270, 285, 300, 320, 340,
];

const { reverse } = await pageModule("src/tasks/reverse");
const { EXAM, END, HELD_OUT, problemText, readProblems } = await pageModule("src/tasks/task");

/** Trains in this process, and keeps the weights in the folder. */
async function train() {
  const [{ create }, { ByteTokenizer, Dataset, Model, Runtime, Trainer }] = await Promise.all([
    import("webgpu"),
    import("../../pkg/dist/index.js"),
  ]);
  const { thimble } = presets;
  const runtime = await Runtime.create({ gpu: create([]) });
  const problems = readProblems(reverse, await problemText(reverse, 1));
  const dataset = await Dataset.fromDocuments(problems, new ByteTokenizer(), {
    endToken: END,
    validationFraction: HELD_OUT,
    seed: 1,
  });
  const model = await Model.create(runtime, thimble.config, { seed: 1 });
  const { tokensPerStep, learningRate, minLearningRate, steps: totalSteps } = thimble;
  const options = { tokensPerStep, learningRate, minLearningRate, totalSteps, seed: 1 };
  const trainer = await Trainer.create(model, options);
  mkdirSync(folder, { recursive: true });
  const keep = async (at) => {
    const files = await model.save();
    writeFileSync(join(folder, `${at}.safetensors`), files["model.safetensors"]);
  };
  const losses = [];
  await keep(0);
  for await (const { step: at, loss } of trainer.run(dataset, { until: totalSteps })) {
    losses.push(loss);
    if (STEPS.includes(at)) await keep(at);
    if (at === STEPS.at(-1)) break;
  }
  const { adapter, software } = runtime.capabilities;
  const about = {
    adapter: software ? "SwiftShader, which computes on the CPU" : adapter.description,
    config: thimble.config,
    losses: losses.map((loss) => Math.round(loss * 1000)),
    words: problems.slice(-EXAM).map(({ prompt }) => prompt.slice(0, -1)),
  };
  writeFileSync(join(folder, "about.json"), JSON.stringify(about));
  process.exit(0); // Dawn's threads would keep the process alive
}

/** Stores what the folder has. */
async function store(adapter) {
  const { narrowed, numbersOf, sizeOf, weavable, weightsOf, widened } =
    await pageModule("src/loom/weights");
  const { answer, questionsOf } = await pageModule("src/loom/ask");
  const about = JSON.parse(readFileSync(join(folder, "about.json"), "utf8"));
  const shape = weavable(about.config);
  const problems = about.words.map((word) => ({
    prompt: word + reverse.mark,
    completion: reverse.solve(word),
  }));
  const questions = questionsOf(problems);
  const weights = new Float32Array(sizeOf(shape));
  const [frames, bodies] = [[], []];
  for (const at of STEPS) {
    const saved = readFileSync(join(folder, `${at}.safetensors`));
    const numbers = numbersOf(shape, saved, new Float32Array(sizeOf(shape)));
    const change = Int8Array.from(numbers, (value, i) =>
      Math.max(-127, Math.min(127, Math.round((value - weights[i]) / GRAIN))),
    );
    for (const [i, one] of change.entries()) weights[i] += one * GRAIN;
    const packed = [constants.Z_DEFAULT_STRATEGY, constants.Z_HUFFMAN_ONLY].map((strategy) =>
      deflateRawSync(change, { level: 9, strategy }),
    );
    const body = packed.reduce((a, b) => (a.length <= b.length ? a : b));
    // The page rounds its snapshots to 16 bits.
    const stored = weightsOf(shape, widened(narrowed(weights)));
    const answers = questions.map((question) => answer(stored, question));
    const right = answers.map((one) => (one.right ? "1" : "0")).join("");
    const stops = answers.filter((one) => one.stops).length;
    const exact = questions.filter((one) => answer(weightsOf(shape, numbers), one).right).length;
    step(
      `step ${at}: ${right.replaceAll("0", "").length} right, ${exact} of the run; ${body.length} bytes`,
    );
    frames.push({ step: at, bytes: body.length, right, stops });
    bodies.push(body);
  }
  const date = new Date().toISOString().slice(0, 10);
  const header = { date, ...about, ...(adapter && { adapter }), grain: GRAIN, frames };
  const text = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(4);
  length.writeUInt32LE(text.length);
  const all = Buffer.concat([length, text, ...bodies]);
  writeFileSync(file, all);
  step(`${all.length} bytes`);
}

await main(async () => {
  if (process.argv[2] === "--train") return train();
  const given = process.argv.slice(2);
  if (!given.includes("--kept")) {
    const child = fork(import.meta.filename, ["--train"], {
      env: { ...process.env, ...dawnEnv() },
    });
    const code = await new Promise((ended) => child.once("exit", ended));
    if (code !== 0) throw new Error(`the training ended with ${code}`);
  }
  await store(given.find((one) => !one.startsWith("--")));
});
