// Induction heads (Olsson et al., "In-context Learning and Induction Heads", 2022): a model of two layers learns to
// continue a text that repeats itself. Heads appear that look at what came after the token the last time; without them
// the model cannot.
//
//   node induction.mjs [PICTURE.svg] [STEPS]
import { writeFileSync } from "node:fs";
import { Model, Runtime, Trainer } from "tinyloom";
import { create } from "webgpu";
import { picture } from "./chart.mjs";

const [path, steps = "100"] = process.argv.slice(2);
const STEPS = Number(steps);
const [IDS, LENGTH, TEXTS] = [16, 12, 32];

let state = 3;
function random() {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return state / 2 ** 32;
}

/** Random tokens, and the same again. */
function repeated() {
  const first = Array.from({ length: LENGTH }, () => Math.floor(random() * IDS));
  return [...first, ...first];
}

/** A batch of texts, each a document. The model learns the second half of each text. */
function batch() {
  const texts = Array.from({ length: TEXTS }, repeated);
  const tokens = Uint32Array.from(texts.flat());
  const documents = Uint32Array.from(tokens, (_, i) => i - (i % (2 * LENGTH)));
  const targets = Uint32Array.from(tokens, (_, i) => {
    const at = i % (2 * LENGTH);
    return at >= LENGTH && at + 1 < 2 * LENGTH ? tokens[i + 1] : 0xffffffff;
  });
  return { tokens, documents, targets };
}

const runtime = await Runtime.create({ gpu: create([]) });
const model = await Model.create(
  runtime,
  {
    vocab_size: IDS,
    hidden_size: 32,
    intermediate_size: 32,
    num_hidden_layers: 2,
    num_attention_heads: 2,
    max_position_embeddings: 2 * LENGTH,
    tie_word_embeddings: false,
  },
  { seed: 1 },
);
const trainer = await Trainer.create(model, {
  learningRate: 1e-2,
  schedule: "constant",
  weightDecay: 0.01,
  tokensPerStep: TEXTS * 2 * LENGTH,
});

const tests = Array.from({ length: 6 }, repeated);

/** How much each head attends, from the second half, to what came after the same token the last time. */
async function scores() {
  const found = {};
  for (const tokens of tests) {
    const { attention } = await model.capture(tokens, { attention: true });
    const count = tokens.length;
    for (const [layer, shares] of Object.entries(attention)) {
      for (let head = 0; head < 2; head++) {
        let sum = 0;
        for (let row = LENGTH; row < count - 1; row++) {
          sum += shares[(head * count + row) * count + row - LENGTH + 1];
        }
        const name = `${layer}.${head}`;
        found[name] = (found[name] ?? 0) + sum / (LENGTH - 1) / tests.length;
      }
    }
  }
  return found;
}

/** The mean loss of the second half, with some heads off. */
async function loss(off = []) {
  const interventions = off.map((name) => {
    const [layer, head] = name.split(".").map(Number);
    return { at: "head", layer, head, scale: 0 };
  });
  let sum = 0;
  for (const tokens of tests) {
    const { logprobs } = await model.score(tokens, { interventions });
    sum -= logprobs.subarray(LENGTH, -1).reduce((all, x) => all + x, 0) / (LENGTH - 1);
  }
  return sum / tests.length;
}

const curve = [];
const seen = {};
for (let step = 0; step <= STEPS; step++) {
  if (step % Math.round(STEPS / 10) === 0) {
    curve.push([step, await loss()]);
    for (const [name, score] of Object.entries(await scores())) {
      seen[name] ??= [];
      seen[name].push([step, score]);
    }
    console.log(`step ${step}: loss ${curve.at(-1)[1].toFixed(3)}`);
  }
  await trainer.step(batch());
}

const whole = await loss();
const found = Object.entries(await scores()).sort(([, a], [, b]) => b - a);
const rows = [{ name: "none", value: whole }];
for (const [name, score] of found) {
  rows.push({ name: `head ${name}`, value: await loss([name]) });
  console.log(
    `head ${name}: score ${score.toFixed(2)}, loss without it ${rows.at(-1).value.toFixed(3)}`,
  );
}
// The heads of the second layer that look there, all off.
const inducing = found
  .filter(([name, score]) => score > 0.3 && name.startsWith("1."))
  .map(([name]) => name);
if (inducing.length === 0) throw new Error("no induction head has appeared: train longer");
const without = await loss(inducing);
rows.push({ name: "all that induce", value: without });
console.log(`whole ${whole.toFixed(3)}, without ${inducing.join(" and ")} ${without.toFixed(3)}`);

if (path) {
  const named = Object.entries(seen).map(([name, points]) => ({ name: `head ${name}`, points }));
  writeFileSync(
    path,
    picture([
      {
        kind: "curves",
        title: "Loss where the text repeats",
        x: "step",
        y: "nats",
        series: [{ name: "loss", points: curve }],
      },
      {
        kind: "curves",
        title: "Attention to what came after the token before",
        x: "step",
        y: "share",
        most: 1,
        series: named,
      },
      { kind: "bars", title: "Loss with heads off", rows },
    ]),
  );
}
runtime.destroy();
process.exit(0);
