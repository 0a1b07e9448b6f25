// The tables of the documents, made from results in bench/results. A document has a table between two
// comments: <!-- table: NAME --> and <!-- end of table -->.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "../../scripts/lib.mjs";
import { limitsTable } from "../../tests/reliability/limits-table.mjs";
import { alignTable } from "../align/tables.mjs";
import { SERVING_TEXTS, servingTable } from "../serving/table.mjs";
import { markdown } from "./markdown.mjs";
import { HEADS, reliabilityRows } from "./reliability.mjs";
import { newest, newestOf } from "./sources.mjs";

/** The documents that have tables. */
export const DOCUMENTS = [
  "README.md",
  "docs/attention.md",
  "docs/guides/browsers.md",
  "docs/guides/objectives.md",
  "docs/guides/preferences.md",
  "docs/reliability.md",
  "docs/speed.md",
];

const H200 = "headless Chromium, NVIDIA H200";
const PLACE = "chromium-nvidia-h200";

/** A number with three significant digits, and no fewer than its whole part has. */
function short(value) {
  if (value === undefined) return "–";
  const digits = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return value.toLocaleString("en", {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  });
}

const megabytes = (bytes) => `${Math.round(bytes / 1e6).toLocaleString("en")} MB`;

/** The paragraph before a table: what its numbers are, and where and when they were measured. */
const caption = (text, where, ...files) =>
  `${text} Measured in ${where}, on ${files[0].date} (${files.map(({ file }) => `\`${file}\``).join(", ")}).\n\n`;

const PEERS = [
  ["tinyloom", "**tinyloom**"],
  ["webgpu-llm", "webgpu-llm 0.1.0"],
  ["jax", "jax-js 0.1.25"],
  ["tfjs", "tfjs-backend-webgpu 4.22"],
];

function peers() {
  const source = newest("peers");
  const find = (peer, workload) =>
    source.results.results.find((one) => one.peer === peer && one.workload === workload);
  const rows = PEERS.map(([peer, name]) => [
    name,
    ...["tiny", "mid", "seed"].map((size) => short(find(peer, `train ${size}`)?.milliseconds)),
    ...["tiny", "seed"].map((size) => {
      const speed = find(peer, `decode ${size}`)?.tokensPerSecond;
      return speed === undefined ? "–" : Math.round(speed).toLocaleString("en");
    }),
  ]);
  const heads = [
    "",
    "tiny: 4 layers, width 128, 256 tokens",
    "mid: 6 layers, width 384, 256 tokens",
    "seed: 12 layers, width 768, 512 tokens",
    "decode tiny",
    "decode seed",
  ];
  const text =
    "Milliseconds per training step with the loss read back after each step, and tokens per second decoded " +
    "after a prompt of 128 tokens. All libraries ran in one session.";
  return caption(text, H200, source) + markdown(heads, rows);
}

/** What the suite `serving` found. */
function serving(name) {
  const source = newest("serving");
  return caption(SERVING_TEXTS[name], H200, source) + servingTable(name, source.results);
}

/** Seconds of training to nanoGPT's loss, by precision. */
function nanogpt() {
  const sources = ["mixed", "f32"].map((precision) => newest(`nanogpt-llama-${precision}`));
  const rows = sources.flatMap(({ results }) =>
    results.rows.map(({ options, evaluations, wanted, secondsToWanted, ...run }) => [
      options.precision,
      `${options.seed}`,
      short(run.millisecondsPerStep),
      evaluations.find(({ loss }) => loss <= wanted)?.step.toLocaleString("en") ?? "–",
      short(secondsToWanted),
    ]),
  );
  const [{ parameters, validationTargets, wanted }] = sources[0].results.rows;
  const text =
    `nanoGPT's \`shakespeare_char\` with Llama's blocks: ${(parameters / 1e6).toFixed(1)} million weights, 64 windows of ` +
    `256 characters a step, dropout 0.2. Steps and seconds of training until the loss over all ` +
    `${validationTargets.toLocaleString("en")} targets of the validation split is nanoGPT's, ${wanted}. It was asked ` +
    "every 100 steps in mixed precision, which had subgroup matrices, and every 250 in f32.";
  const heads = ["precision", "seed", "ms per step", "steps", "seconds"];
  return caption(text, H200, ...sources) + markdown(heads, rows);
}

function options() {
  const source = newest("models");
  const floor = newest("models-default");
  const matrices = newestOf("models-matrices").filter(({ place }) => place === PLACE);
  const of = ({ results }, name) => results.results.find(({ workload }) => workload === name);
  const ms = (name, key = "milliseconds", from = source) => `${short(of(from, name)[key])} ms`;
  const bytes = (name) => megabytes(of(source, name).gpuBytes);
  const ahead = "pipelinedMilliseconds";
  const speed = (name) => Math.round(of(source, name).tokensPerSecond).toLocaleString("en");
  const steps = ["tiny", "mid", "seed"].map((size) => [
    `\`stepsAhead: 4\`, a step of ${size}`,
    ms(`train ${size}`),
    ms(`train ${size}`, ahead),
  ]);
  const packed = ["f16", "int8", "int4"].map((format) => [
    `\`weights: "${format}"\`, tokens per second of seed`,
    speed("decode seed"),
    speed(`decode seed ${format}`),
  ]);
  const mixed = (what, name, from) => [
    `\`precision: "mixed"\` with subgroup matrices, ${what}`,
    ms(name, "milliseconds", from),
    ms(`${name} mixed`, "milliseconds", from),
  ];
  const rows = [
    ...steps,
    [
      "`recompute`, seed with eight documents",
      ms("train seed x 8"),
      ms("train seed x 8 recomputed"),
    ],
    ["the same, GPU memory", bytes("train seed x 8"), bytes("train seed x 8 recomputed")],
    ['`precision: "mixed"`, seed', ms("train seed"), ms("train seed mixed")],
    [
      '`precision: "mixed"`, seed with eight documents',
      ms("train seed x 8"),
      ms("train seed x 8 mixed"),
    ],
    ...matrices.flatMap((from) => [
      mixed("seed", "train seed", from),
      mixed("seed with eight documents", "train seed x 8", from),
    ]),
    ["`tune`, seed", ms("train seed"), ms("train seed tuned")],
    [
      "`tune` at WebGPU's default limits, seed",
      ...["train seed", "train seed tuned"].map((name) => ms(name, "milliseconds", floor)),
    ],
    ...packed,
  ];
  const text =
    "Runs of the benchmark: at the adapter's limits, at the default limits, and with subgroup matrices where a row says so.";
  return (
    caption(text, H200, source, floor, ...matrices) + markdown(["option", "without", "with"], rows)
  );
}

/** Distances of training in mixed precision from that in f32. */
function precision(workload, what) {
  const source = newest(workload);
  const [, mixed, control] = source.results.results;
  const percent = (share) => `${(100 * share).toFixed(2)} %`;
  const signed = (share) => `${share < 0 ? "−" : "+"}${percent(Math.abs(share))}`;
  const both = (show) => [mixed, control].map(show);
  const rows = [
    ["largest distance of the mean curve", ...both((one) => percent(one.curveApart))],
    ["mean distance of the mean curve", ...both((one) => signed(one.curveAbove))],
    ["largest distance of a single seed's curve", ...both((one) => percent(one.singleApart))],
    ["validation loss, largest distance of a seed", ...both((one) => percent(one.validationApart))],
    [
      "validation loss, mean distance and its standard error",
      ...both((one) => `${signed(one.validationAbove)} ± ${percent(one.validationError)}`),
    ],
  ];
  const { steps } = source.results.settings;
  const text =
    `${what}: distance from the twin run in f32, over ${steps.toLocaleString("en")} steps and ${mixed.seeds} seeds, in ` +
    `means of ${source.results.window} steps.`;
  return caption(text, H200, source) + markdown(["", "mixed", "f32, learning rate × 1.0001"], rows);
}

/** Loss and perplexity through packed weights, or through packed caches. */
function packed(kind, other) {
  const source = newest("cache", "node-nvidia");
  const rows = source.results.results.filter((one) => one[other] === "f32");
  const base = rows.find((one) => one[kind] === "f32").perplexity;
  const lines = rows.map((one) => {
    const change = (100 * (one.perplexity / base - 1)).toFixed(3).replace("-", "−");
    return [one[kind], one.loss.toFixed(6), `${one.perplexity.toFixed(4)} (${change} %)`];
  });
  const text =
    `A model of 4 layers and width 128, trained for ${source.results.steps} steps on tinyshakespeare, read ` +
    `${rows[0].tokens.toLocaleString("en")} other tokens of it.`;
  const heads = [
    kind === "weights" ? "weights" : "cache",
    "loss, nats per token",
    "perplexity (change)",
  ];
  return caption(text, "Node with Dawn, NVIDIA H200", source) + markdown(heads, lines);
}

const SHAPES = [
  [8, 32],
  [12, 64],
  [8, 80],
  [8, 96],
  [8, 128],
  [8, 256],
];
const LENGTHS = [128, 512, 1024, 2048, 4096, 8192];

/** Rows of the attention results at a shape with as many key-value heads as query heads. */
function attentionRows(source, heads, headDim, tokens, kernel) {
  return source.results.results.filter(
    (one) =>
      one.heads === heads &&
      one.kvHeads === heads &&
      one.headDim === headDim &&
      one.tokens === tokens &&
      one.kernel === kernel,
  );
}

function attentionLengths() {
  const source = newest("attention");
  const rows = SHAPES.map(([heads, headDim]) => [
    `${heads} of ${headDim}`,
    ...LENGTHS.map((tokens) => {
      const found = attentionRows(source, heads, headDim, tokens, "attention_forward");
      return short(found.find(({ picked }) => picked)?.teraflops);
    }),
  ]);
  const text =
    "TFLOP/s of the forward kernel that selection picks, counting the causal half of the scores.";
  const heads = ["heads", ...LENGTHS.map((tokens) => `${tokens.toLocaleString("en")} tokens`)];
  return caption(text, H200, source) + markdown(heads, rows);
}

/** Variants that a workgroup's tile tells apart, and where its rows lie. */
const TILES = /^tiled \S+ by \S+(, rows resident)?$/;
const TRAINING = ["attention_forward", "attention_backward_query", "attention_backward_key_value"];

function attentionVariants() {
  const source = newest("attention");
  const at = TRAINING.map((kernel) => attentionRows(source, 12, 64, 4096, kernel));
  const all = at.flat().map(({ variant }) => variant);
  const variants = [...new Set(all)].filter((variant) => TILES.test(variant));
  const rows = variants.map((variant) => [
    variant,
    ...at.map((found) => {
      const one = found.find((row) => row.variant === variant);
      return one?.picked ? `**${short(one.teraflops)}**` : short(one?.teraflops);
    }),
  ]);
  const text =
    "TFLOP/s at 12 heads of 64 and 4,096 tokens. The rows and columns of a tile come first, the threads " +
    "of its workgroup second. Of these kernels selection picks the bold ones.";
  return (
    caption(text, H200, source) +
    markdown(["variant", "forward", "queries", "keys and values"], rows)
  );
}

function attentionMasks() {
  const source = newest("attention");
  const [forward, backward] = ["tensors forward", "tensors backward"].map((kernel) =>
    attentionRows(source, 12, 64, 4096, kernel),
  );
  const rows = forward.map((one, index) => [
    one.variant.split(":")[0],
    short(one.microseconds),
    short(backward[index].microseconds),
  ]);
  const text = "Microseconds over tensors of 12 heads of 64 and 4,096 tokens.";
  return caption(text, H200, source) + markdown(["element and mask", "forward", "backward"], rows);
}

function attentionDecode() {
  const source = newest("attention");
  const picked = source.results.results.filter(
    (one) => one.kernel === "attention_decode" && one.picked && one.headDim === 64,
  );
  const shapes = [
    ...new Set(picked.map(({ heads, kvHeads, tokens }) => `${heads}/${kvHeads}/${tokens}`)),
  ];
  const rows = shapes.map((shape) => {
    const [heads, kvHeads, tokens] = shape.split("/").map(Number);
    const at = picked.filter(
      (one) => one.heads === heads && one.kvHeads === kvHeads && one.tokens === tokens,
    );
    const time = (format) =>
      short(at.find(({ variant }) => variant.startsWith(format))?.microseconds);
    const ofKind = `${heads} query heads, ${kvHeads} key-value heads`;
    return [
      `${tokens.toLocaleString("en")} tokens, ${ofKind}`,
      ...["f32", "f16", "int8"].map(time),
    ];
  });
  const text = "Microseconds of decode attention over a cache, heads of 64.";
  return caption(text, H200, source) + markdown(["cache", "f32", "f16", "int8"], rows);
}

function memory() {
  const source = newest("models");
  const rows = source.results.results
    .filter(({ workload }) => workload.startsWith("memory "))
    .map(({ tokens, gpuBytes }) => [tokens.toLocaleString("en"), megabytes(gpuBytes)]);
  const text = "GPU memory of a model of 2 layers and width 768 with its trainer.";
  return caption(text, H200, source) + markdown(["tokens per step", "memory"], rows);
}

/** What stands above the tables of `bench/align.mjs`. */
const ALIGN_TEXTS = {
  sums: "The share of right answers to 200 sums that no training has seen, drawn at temperature 1.",
  kinds:
    "Four texts for each of 128 prompts that no training has seen, drawn at temperature 1; from before DPO to after it.",
  chain:
    "Validation losses of equal steps on equal data, each way at its best of three learning rates.",
  speed:
    "Medians of milliseconds and their quartiles. The two works of a row take turns, and the ratio is that of each round. The loss beside itself says how much of a ratio is chance.",
};

/** What `bench/align.mjs` found: on a GPU, or where there is none on the software adapter; what is there until it ran. */
function align(name) {
  const found = newestOf(`align-${name}`);
  const source = found.find(({ results }) => !results.software) ?? found[0];
  if (!source) return undefined;
  const { adapter, software, results } = source.results;
  const gpu = adapter.device.replace("nvidia-h200", "NVIDIA H200") || adapter.vendor;
  const where = `Node with Dawn, ${software ? "on SwiftShader, which runs on the CPU" : gpu}`;
  return caption(ALIGN_TEXTS[name], where, source) + alignTable(name, results);
}

/** Each table by name. */
export const TABLES = {
  peers,
  nanoGPT: nanogpt,
  ...Object.fromEntries(Object.keys(SERVING_TEXTS).map((name) => [name, () => serving(name)])),
  options,
  precision: () => precision("precision", "The built-in task"),
  "precision of seed": () =>
    precision("precision-seed", "Seed with 512 tokens per step, on tinyshakespeare"),
  "packed weights": () => packed("weights", "kvCache"),
  "packed caches": () => packed("kvCache", "weights"),
  "attention by length": attentionLengths,
  "attention by variant": attentionVariants,
  "attention by mask": attentionMasks,
  "attention decoding": attentionDecode,
  memory,
  ...Object.fromEntries(
    Object.keys(ALIGN_TEXTS).map((name) => [`align ${name}`, () => align(name)]),
  ),
  limits: limitsTable,
  reliability: () => markdown(HEADS, reliabilityRows()),
};

const REGION = /(<!-- table: ([\w ]+) -->\n)[\s\S]*?(<!-- end of table -->)/g;

/** A document's text with its tables as the newest results have them. */
export function withTables(text) {
  return text.replace(REGION, (all, begin, name, end) => {
    if (!TABLES[name]) throw new Error(`there is no table "${name}"; tables.mjs lists them`);
    const made = TABLES[name]();
    return made === undefined ? all : `${begin}\n${made}\n\n${end}`;
  });
}

/** The text of a document, and what it should be. */
export function documentWithTables(path) {
  const text = readFileSync(join(root, path), "utf8");
  return { text, wanted: withTables(text) };
}
