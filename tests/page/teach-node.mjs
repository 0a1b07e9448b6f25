// A Node process with Dawn that teaches a model of the built-in stories by hand, with a rule in the visitor's place.
// node tests/page/teach-node.mjs RULE SEEDS STEPS [reward]: STEPS are the model's own. Prints a line of JSON a seed.
import * as tinyloom from "tinyloom";
import { create } from "webgpu";
import { pageModule } from "./page-module.mjs";

const { generateStories } = await pageModule("stories/generate");
const { presets } = await pageModule("src/presets");
const { beginningsOf, unitOf } = await pageModule("src/teach/beginnings");
const { StoryJudge, tally } = await pageModule("stories/score");
const { ruleOf } = await pageModule("src/teach/rules");
const { shareOf, Teaching } = await pageModule("src/teach/teaching");

const [rule, seeds, steps, how = "marks"] = process.argv.slice(2);
const { holds } = ruleOf(rule);
/** Samples that are marked, and beginnings that are not. */
const [MARKED, UNMARKED] = [40, 64];

const runtime = await tinyloom.Runtime.create({ gpu: create([]) });
const tokenizer = new tinyloom.ByteTokenizer();
const codec = {
  tokenizer,
  encode: async (text) => tokenizer.encode(text),
  decoder: async () => tokenizer.decoder(),
};
const { Model, Trainer, Dataset } = tinyloom;

/** A model of the stories, as the page trains it. */
async function learned() {
  const { config, sequenceLength, tokensPerStep, learningRate } = presets["story-small"];
  const dataset = await Dataset.fromText(generateStories(1, 250_000), tokenizer, {
    sequenceLength,
  });
  const model = await Model.create(runtime, config, { seed: 1 });
  const options = { learningRate, tokensPerStep, totalSteps: Number(steps), seed: 1 };
  const trainer = await Trainer.create(model, options);
  let last;
  for await (const { loss } of trainer.run(dataset, { until: Number(steps) })) last = loss;
  const files = await model.save();
  model.free();
  return { files, loss: last, context: sequenceLength, dataset };
}

const { files, loss, context, dataset } = await learned();
for (const seed of seeds.split(",").map(Number)) {
  // Of another seed than the text that was learned.
  const text = generateStories(100 + seed, 20_000);
  const unit = unitOf(text);
  const model = await Model.fromPretrained(runtime, files);
  const taught = { lab: { ...tinyloom, runtime }, codec, unit, context, dataset, seed };
  const teaching = await Teaching.begin(taught, model);
  const beginnings = beginningsOf(text, unit, seed);
  const toMark = beginnings.slice(0, MARKED);
  const unmarked = beginnings.slice(MARKED, MARKED + UNMARKED);
  /** The share that is wanted, and of what the grammar of the stories takes. */
  const shares = async (adapted) => {
    const written = await teaching.write(unmarked, { adapted, seed: 1000 });
    const parses = ({ text }) => tally(new StoryJudge("").judge(text, true)).grammatical > 0;
    return [shareOf(written, { holds }), written.filter(parses).length / written.length];
  };
  const before = await shares(false);
  const samples = await teaching.write(toMark, { adapted: false, seed });
  const marks = samples.map((sample) => ({ ...sample, good: holds(sample.text) }));
  const learns = how === "marks" ? teaching.learn(marks) : teaching.reward({ holds }, toMark);
  for await (const _ of learns);
  const result = { seed, loss, before, after: await shares(true), base: await shares(false) };
  const both = unmarked.filter((one) => toMark.includes(one)).length;
  const counts = { marks: marks.length, unmarked: unmarked.length, both };
  console.log(JSON.stringify({ ...result, ...counts }));
  await teaching.free();
}
process.exit(0); // Dawn's threads would keep the process alive
