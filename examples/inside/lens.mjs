// The logit lens (nostalgebraist, "interpreting GPT: the logit lens", 2020): what a model would say after each layer.
//
//   node lens.mjs [PICTURE.svg] [STEPS]
import { writeFileSync } from "node:fs";
import { ByteTokenizer, Dataset, Model, Runtime, Trainer } from "tinyloom";
import { create } from "webgpu";
import { picture } from "./chart.mjs";

const [path, steps = "140"] = process.argv.slice(2);
const TEXT = "The cat sat on the mat. The dog ran in the sun. The owl hid in the oak.\n".repeat(60);

const runtime = await Runtime.create({ gpu: create([]) });
const tokenizer = new ByteTokenizer();
const model = await Model.create(
  runtime,
  {
    vocab_size: 256,
    hidden_size: 48,
    intermediate_size: 96,
    num_hidden_layers: 4,
    num_attention_heads: 4,
    max_position_embeddings: 128,
    tie_word_embeddings: true,
  },
  { seed: 1 },
);
const dataset = await Dataset.fromText(TEXT, tokenizer, { sequenceLength: 64 });
const trainer = await Trainer.create(model, { learningRate: 5e-3, tokensPerStep: 256 });
for await (const { step, loss } of trainer.run(dataset, { steps: Number(steps) })) {
  if (step % 20 === 0) console.log(`step ${step}: loss ${loss.toFixed(3)}`);
}

const text = "The dog ran in ";
const tokens = tokenizer.encode(text);
const right = [...tokenizer.encode("he dog ran in t")];
const lens = await model.lens(tokens, { top: 1, targets: right });
const shown = (id) => {
  const letter = tokenizer.decode([id]);
  return /^[!-~]$/.test(letter) ? letter : letter === " " ? "␣" : "·";
};
const said = lens.map(({ top }) => [...top.ids].map(shown));
const values = lens.map(({ logprobs }) => [...logprobs].map(Math.exp));
for (const [index, { layer }] of lens.entries()) {
  const mean = values[index].reduce((sum, x) => sum + x, 0) / tokens.length;
  console.log(`after layer ${layer}: "${said[index].join("")}", right by ${mean.toFixed(3)}`);
}
if (path) {
  const rows = lens.map(({ layer }) => (layer === 0 ? "embedding" : `layer ${layer}`));
  const columns = [...tokens].map(shown);
  const title =
    "The likeliest next letter after each layer; the darker, the likelier the right one";
  writeFileSync(path, picture([{ kind: "squares", title, columns, rows, values, said, wide: 40 }]));
}
runtime.destroy();
process.exit(0);
