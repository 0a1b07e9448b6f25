// Activation patching (Meng et al., "Locating and Editing Factual Associations in GPT", 2022): a state of one prompt is put
// into another, at one layer and position at a time, to see where the answer is decided.
//
//   node patching.mjs [PICTURE.svg] [STEPS]
import { writeFileSync } from "node:fs";
import { Model, Runtime, Trainer } from "tinyloom";
import { create } from "webgpu";
import { picture } from "./chart.mjs";

const [path, steps = "80"] = process.argv.slice(2);
const PEOPLE = ["Anna", "Boris", "Carla", "David", "Elena", "Felix"];
const TOWNS = ["Rome", "Paris", "Oslo", "Lima", "Cairo", "Delhi"];
const WORDS = [...PEOPLE, ...TOWNS, "my", "friend", "lives", "in", "."];
const ids = (text) => Uint32Array.from(text.split(" "), (word) => WORDS.indexOf(word));

const runtime = await Runtime.create({ gpu: create([]) });
const model = await Model.create(
  runtime,
  {
    vocab_size: WORDS.length,
    hidden_size: 32,
    intermediate_size: 64,
    num_hidden_layers: 4,
    num_attention_heads: 2,
    max_position_embeddings: 16,
    tie_word_embeddings: false,
  },
  { seed: 2 },
);

// Who lives where: one document each.
const texts = PEOPLE.map((person, i) => ids(`my friend ${person} lives in ${TOWNS[i]} .`));
const tokens = Uint32Array.from(texts.flatMap((text) => [...text]));
const documents = Uint32Array.from(tokens, (_, i) => i - (i % 7));
const targets = Uint32Array.from(tokens, (_, i) => (i % 7 === 6 ? 0xffffffff : tokens[i + 1]));
const trainer = await Trainer.create(model, {
  learningRate: 1e-2,
  schedule: "constant",
  tokensPerStep: tokens.length,
});
for (let step = 0; step <= Number(steps); step++) {
  const { loss } = await trainer.step({ tokens, targets, documents });
  if (step % 20 === 0) console.log(`step ${step}: loss ${loss.toFixed(3)}`);
}

const [clean, other] = ["my friend Anna lives in", "my friend Boris lives in"].map(ids);
const [right, wrong] = ["Rome", "Paris"].map((town) => WORDS.indexOf(town));
const { residual } = await model.capture(clean, { residual: true });
const width = model.config.hidden_size;

/** By how much the logit of Anna's town is above that of Boris's, after the last word. */
async function difference(prompt, interventions = []) {
  const logits = await model.logits(prompt, { from: prompt.length - 1, interventions });
  return logits[right] - logits[wrong];
}

const [most, least] = [await difference(clean), await difference(other)];
console.log(`Anna ${most.toFixed(2)}, Boris ${least.toFixed(2)}`);
const layers = Object.keys(residual).map(Number);
const values = [];
for (const layer of layers) {
  values.push([]);
  for (let position = 0; position < other.length; position++) {
    const set = residual[layer].slice(position * width, (position + 1) * width);
    const patched = await difference(other, [
      { at: "residual", layer, set, positions: [position] },
    ]);
    values.at(-1).push((patched - least) / (most - least));
  }
  console.log(
    `layer ${layer}: ${values
      .at(-1)
      .map((x) => x.toFixed(2))
      .join(" ")}`,
  );
}

// The same question of the gradient: how much a state moves the difference, to first order.
const gradients = await model.attribute(other, { target: right, against: wrong });
const { residual: states } = await model.capture(other, { residual: true });
const guessed = layers.map((layer) =>
  Array.from({ length: other.length }, (_, position) => {
    let sum = 0;
    for (let i = position * width; i < (position + 1) * width; i++) {
      sum += gradients[layer][i] * (residual[layer][i] - states[layer][i]);
    }
    return sum / (most - least);
  }),
);

if (path) {
  const rows = layers.map((layer) => (layer === 0 ? "embedding" : `layer ${layer}`));
  const columns = "my friend Boris lives in".split(" ");
  const said = (all) => all.map((row) => row.map((x) => x.toFixed(2)));
  writeFileSync(
    path,
    picture([
      {
        kind: "squares",
        title: "Anna's state in Boris's text: the move to Rome",
        columns,
        rows,
        values,
        said: said(values),
      },
      {
        kind: "squares",
        title: "The same, guessed by gradients",
        columns,
        rows,
        values: guessed,
        said: said(guessed),
      },
    ]),
  );
}
runtime.destroy();
process.exit(0);
