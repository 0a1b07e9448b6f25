// Trains by GRPO in Node with Dawn and keeps all of it below the folder that is named, for check_grpo.py: weights before
// and after, the texts with their rewards, the metrics of each step. Then it stores a run, ends it in the middle and goes
// on, and prints as JSON whether that gave the same as a run in one piece.
import { createHash } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Adapter, Dataset, Model, Runtime, Trainer } from "tinyloom";
import { distill, dpo, grpo, kto } from "tinyloom/align";
import { Runs } from "tinyloom/storage";
import { connect } from "tinyloom/worker";
import { create } from "webgpu";

const [folder] = process.argv.slice(2);
const config = {
  vocab_size: 32,
  hidden_size: 32,
  intermediate_size: 48,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  max_position_embeddings: 32,
  tie_word_embeddings: true,
};
const prompts = [[1, 2, 3], [4, 5], [6, 7, 8, 9], [10], [11, 12]];
/** Texts that end with 3 and have much of 7 to 12 are good. */
const reward = ({ tokens, finished }) =>
  tokens.reduce((sum, id) => sum + (id > 6 && id < 13 ? 0.25 : 0), 0) + (finished ? 0.5 : 0);

/** Plain gradient descent, so that an update is its gradient. */
const descent = {
  optimizer: "sgd",
  momentum: 0,
  weightDecay: 0,
  maxGradNorm: null,
  schedule: "constant",
  warmupSteps: 0,
  tokensPerStep: 192,
};
const KINDS = {
  "grpo with a reference": {
    trainer: { learningRate: 2, gradientAccumulation: 2 },
    grpo: { loss: "grpo", klCoefficient: 0.3, updates: 2, temperature: 0.8, promptsPerStep: 2 },
  },
  "clipping over five updates": {
    trainer: { learningRate: 1 },
    grpo: { loss: "dapo", updates: 5, clip: 0.1, clipHigh: 0.15, promptsPerStep: 3, group: 5 },
  },
  "dr_grpo scaled by the batch": {
    trainer: { learningRate: 4 },
    grpo: { loss: "dr_grpo", updates: 2, advantages: "batch", promptsPerStep: 3, clip: 0.05 },
  },
};

const write = (name, file, content) => {
  mkdirSync(join(folder, name), { recursive: true });
  writeFileSync(join(folder, name, file), content);
};
const runtime = await Runtime.create({ gpu: create([]) });

for (const [name, kind] of Object.entries(KINDS)) {
  const model = await Model.create(runtime, config, { seed: 3 });
  const reference = await Model.create(runtime, config, { seed: 4 });
  for (const [of, which] of [
    [model, "before"],
    [reference, "reference"],
  ]) {
    const files = await of.save();
    write(name, `${which}.safetensors`, files["model.safetensors"]);
    write(name, "config.json", files["config.json"]);
  }
  const trainer = await Trainer.create(model, { ...descent, ...kind.trainer, seed: 5 });
  const { klCoefficient } = kind.grpo;
  const own = { group: 4, maxTokens: 8, stopToken: 3, ...kind.grpo };
  const texts = [];
  const noting = async (rollout) => {
    const given = reward(rollout);
    texts.push({ ...rollout, prompt: [...rollout.prompt], tokens: [...rollout.tokens], given });
    return given;
  };
  const asked = { ...own, reward: noting, steps: 10, ...(klCoefficient && { reference }) };
  const rounds = [];
  for await (const metrics of grpo(trainer, prompts, asked)) {
    if (texts.length > 0) rounds.push({ texts: texts.splice(0), steps: [] });
    rounds.at(-1).steps.push(metrics);
  }
  write(name, "after.safetensors", (await model.save())["model.safetensors"]);
  const { gradientAccumulation = 1 } = kind.trainer;
  const told = { clip: 0.2, temperature: 1, klCoefficient: 0, advantages: "group", ...own };
  write(name, "run.json", JSON.stringify({ ...told, gradientAccumulation, rounds }));
  for (const one of [model, reference]) one.free();
}

const here = { Adapter, Dataset, Model, Runs, Trainer };

/** An adapter's run with a stored checkpoint after every second step, whose texts are trained on twice. */
async function stored(parts, { Adapter, Model, Runs, Trainer } = here, own = runtime) {
  const runs = await Runs.open("grpo", { memory: true });
  const run = await runs.create(`in ${parts.length}`);
  const model = await Model.create(own, config, { seed: 3 });
  const adapter = await Adapter.create(model, { rank: 4, seed: 6 });
  const options = { learningRate: 0.02, tokensPerStep: 160, totalSteps: 12, seed: 5 };
  let trainer = await Trainer.create(adapter, options);
  const how = { reward, group: 4, maxTokens: 8, stopToken: 3, promptsPerStep: 2, updates: 2 };
  for (const [at, steps] of parts.entries()) {
    if (at > 0) {
      await trainer.free();
      trainer = await Trainer.resume(model, run);
    }
    const checkpoint = { run, every: 3 };
    const asked = { ...how, klCoefficient: 0.05, steps, checkpoint };
    for await (const _ of grpo(trainer, prompts, asked));
  }
  const metrics = await run.metrics();
  const files = await trainer.save();
  const hash = createHash("sha256");
  for (const file of Object.keys(files).sort()) hash.update(files[file]);
  const checkpoints = (await run.checkpoints()).map(({ step }) => step);
  await run.close();
  model.free();
  const clock = ["milliseconds", "generationMilliseconds"];
  const same = metrics.map((one) => ({ ...one, ...Object.fromEntries(clock.map((k) => [k, 0])) }));
  return { metrics: same, hash: hash.digest("hex"), checkpoints };
}

/** A step of each of the other trainers. */
async function others({ Dataset, Model, Trainer }, own) {
  const [model, other] = [3, 4].map((seed) => Model.create(own, config, { seed }));
  const reference = await other;
  const options = { learningRate: 0.02, tokensPerStep: 160, totalSteps: 12, seed: 5 };
  const trainer = await Trainer.create(await model, options);
  const [prompt, chosen, rejected] = prompts;
  const texts = [chosen, rejected].map((completion, i) => ({
    prompt,
    completion,
    desirable: i > 0,
  }));
  const ids = Array.from({ length: 200 }, (_, i) => (i * i) % 32);
  const data = await Dataset.fromTokens(ids, { sequenceLength: 16 });
  const found = [];
  for (const run of [
    dpo(trainer, [{ prompt, chosen, rejected }], { steps: 1, reference }),
    kto(trainer, texts, { steps: 1, reference, textsPerStep: 2 }),
    distill(trainer, reference, data, { steps: 1 }),
  ]) {
    for await (const { milliseconds: _, ...metrics } of run) found.push(metrics);
  }
  return found;
}

const { whole, parted } = { whole: await stored([8]), parted: await stored([4, 4]) };
const worker = await connect();
const there = await worker.Runtime.create();
const remote = { whole: await stored([8], worker, there), others: await others(worker, there) };
process.send({ whole, parted, others: await others(here, runtime), remote });
process.exit(0); // Dawn's threads would keep the process alive
