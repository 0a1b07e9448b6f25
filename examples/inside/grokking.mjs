// Grokking (Power et al., arXiv:2201.02177): a small model learns most sums modulo a prime by heart, and only later,
// and only with weight decay, the rule, which gives it the others.
//
//   node grokking.mjs [PICTURE.svg] [STEPS]
import { writeFileSync } from "node:fs";
import { Model, Runtime, Trainer } from "tinyloom";
import { create } from "webgpu";
import { picture } from "./chart.mjs";

const [path, steps = "345"] = process.argv.slice(2);
const STEPS = Number(steps);
const PRIME = 29;
const DECAY = 4;
/** How many pairs say how much a model knows: those of one batch of prompts. */
const ASKED = 128;

// All pairs in an order that looks random, and is the same each time. Each is there once, the smaller number first: whoever
// knows a + b by heart would know b + a.
const pairs = Array.from({ length: PRIME * PRIME }, (_, i) => [
  Math.floor(i / PRIME),
  i % PRIME,
]).filter(([a, b]) => a <= b);
let state = 7;
for (let i = pairs.length - 1; i > 0; i--) {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  const other = state % (i + 1);
  [pairs[i], pairs[other]] = [pairs[other], pairs[i]];
}
const most = Math.floor(0.66 * pairs.length);
const [learned, unseen] = [pairs.slice(0, most), pairs.slice(most)];

// Each sum is a document of its own: a, b, "=". The answer is the target after "=".
const tokens = Uint32Array.from(learned.flatMap(([a, b]) => [a, b, PRIME]));
const documents = Uint32Array.from(tokens, (_, i) => i - (i % 3));
const targets = Uint32Array.from(tokens, (_, i) => {
  const [a, b] = learned[Math.floor(i / 3)];
  return i % 3 === 2 ? (a + b) % PRIME : 0xffffffff;
});

const runtime = await Runtime.create({ gpu: create([]) });

async function known(model, all) {
  const asked = all.slice(0, ASKED);
  const prompts = asked.map(([a, b]) => Uint32Array.of(a, b, PRIME));
  let right = 0;
  for await (const { index, token } of model.generateBatch(prompts, {
    maxTokens: 1,
    temperature: 0,
    stopTokens: [],
  })) {
    const [a, b] = asked[index];
    if (token === (a + b) % PRIME) right++;
  }
  return right / asked.length;
}

async function grok(weightDecay) {
  const model = await Model.create(
    runtime,
    {
      vocab_size: PRIME + 1,
      hidden_size: 48,
      intermediate_size: 96,
      num_hidden_layers: 1,
      num_attention_heads: 4,
      max_position_embeddings: 8,
      tie_word_embeddings: false,
    },
    { seed: 1 },
  );
  const trainer = await Trainer.create(model, {
    learningRate: 1e-2,
    schedule: "constant",
    warmupSteps: 10,
    beta2: 0.98,
    weightDecay,
    tokensPerStep: tokens.length,
  });
  const curves = { learned: [], unseen: [] };
  for (let step = 0; step <= STEPS; step++) {
    if (step % Math.round(STEPS / 15) === 0) {
      curves.learned.push([step, await known(model, learned)]);
      curves.unseen.push([step, await known(model, unseen)]);
      const [of, other] = [curves.learned, curves.unseen].map((curve) =>
        curve.at(-1)[1].toFixed(2),
      );
      console.log(`weight decay ${weightDecay}, step ${step}: learned ${of}, unseen ${other}`);
    }
    await trainer.step({ tokens, targets, documents });
  }
  model.free();
  return curves;
}

const [decayed, plain] = [await grok(DECAY), await grok(0)];
if (path) {
  const panel = (title, { learned, unseen }) => ({
    kind: "curves",
    title,
    x: "step",
    y: "share of right answers",
    most: 1,
    series: [
      { name: "sums that it has learned", points: learned },
      { name: "sums that it has never seen", points: unseen },
    ],
  });
  const panels = [panel(`weight decay ${DECAY}`, decayed), panel("no weight decay", plain)];
  writeFileSync(path, picture(panels));
}
runtime.destroy();
process.exit(0);
