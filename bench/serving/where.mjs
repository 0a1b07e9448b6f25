// Where the time of decoding goes: the decoding benchmark's way of counting, and others step by step towards what a
// page's clock says of a text that is read and written.
import configs from "../configs.json" with { type: "json" };
import { batch, median } from "../workloads.mjs";
import { arrivals } from "./measure.mjs";
import { idsOf } from "./prompts.mjs";
import { subjectOf } from "./tinyloom.mjs";

const CONTEXT = 128;
const TIMES = 5;
const FORMAT = { weights: "f16" };
/** Tokens after which the clock is read. */
const READ = [1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256];

/** Tokens per second of each way, in turns, and when tokens of one text come. */
export async function where(row) {
  const { Model, Runtime } = await import("/pkg/index.js");
  const runtime = await Runtime.create();
  const folder = new URL(`/weights/${row.model}/`, location.href);
  const { vocab_size, num_hidden_layers } = await (await fetch(`${folder}config.json`)).json();
  const loaded = await Model.fromPretrained(runtime, folder, FORMAT);
  const config = { ...configs[row.model].config, vocab_size, num_hidden_layers };
  const made = await Model.create(runtime, config, { seed: 1 });
  const drawn = { temperature: 0.8, seed: 0 };
  const subjects = {
    greedy: subjectOf(runtime, loaded),
    drawing: subjectOf(runtime, loaded, drawn),
    benchmark: subjectOf(runtime, made, { ...drawn, ...FORMAT }),
  };
  let seed = 0;
  const other = () => idsOf(vocab_size, CONTEXT, ++seed);
  const ways = waysOf(subjects, () => batch(CONTEXT, vocab_size).tokens, other);
  for (let time = 0; time <= TIMES; time++)
    for (const { rate, rates } of ways) {
      const found = await rate();
      if (time > 0) rates.push(found);
    }
  const times = await arrivals(subjects.greedy, other(), READ.at(-1) + 1);
  return {
    ...row,
    ways: ways.map(({ what, rates }) => ({ what, tokensPerSecond: median(rates), rates })),
    firstMilliseconds: times[0],
    arrivals: READ.map((tokens) => ({ tokens, milliseconds: times[tokens] - times[0] })),
  };
}

/** Each changes one thing of the way before it. */
function waysOf({ greedy, drawing, benchmark }, same, other) {
  const ways = {
    "as the decoding benchmark: f32 with packed copies, one prompt, drawn, 256 tokens less a call of one":
      lessOne(benchmark, same, 256),
    "loaded in f16": lessOne(drawing, same, 256),
    "128 tokens": lessOne(drawing, same, 128),
    "another prompt each time, from the first token to the last": afterFirst(drawing, other, 128),
    "the likeliest token each time, as in the table": afterFirst(greedy, other, 128),
    "with the prompt's time counted": withPrompt(greedy, other, 128),
  };
  return Object.entries(ways).map(([what, rate]) => ({ what, rate, rates: [] }));
}

/** A call of one token taken off a longer one, both over a prompt whose keys and values are kept. */
const lessOne = (subject, prompt, tokens) => async () => {
  await arrivals(subject, prompt(), 1);
  const short = (await arrivals(subject, prompt(), 1)).at(-1);
  const long = (await arrivals(subject, prompt(), tokens + 1)).at(-1);
  return (1000 * tokens) / (long - short);
};

const afterFirst = (subject, prompt, tokens) => async () => {
  const times = await arrivals(subject, prompt(), tokens + 1);
  return (1000 * tokens) / (times.at(-1) - times[0]);
};

const withPrompt = (subject, prompt, tokens) => async () => {
  const times = await arrivals(subject, prompt(), tokens + 1);
  return (1000 * (tokens + 1)) / times.at(-1);
};
