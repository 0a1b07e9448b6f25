// The tables of the suite `serving`.
import { markdown } from "../figures/markdown.mjs";
import { nameOf } from "./rows.mjs";

/** What stands above each table. */
export const SERVING_TEXTS = {
  serving:
    "Random weights in Qwen3-0.6B's sizes, the same for all, read from localhost, each row in a fresh browser: from the " +
    "import to the model; from the call to the first token after a prompt of 512; then the tokens after a prompt of " +
    "128. Greedy tokens are the same, or part in a tie.",
  "serving in full":
    "Random weights in the models' sizes, the same for all, read from localhost; each row in a fresh browser with an " +
    "empty profile. Seconds from the import to the model, and to the first token of a prompt of 128. Milliseconds from " +
    "the call to the first token of a prompt of 512, the median of 5 after 2. Tokens per second of 128 tokens after " +
    "the first one, after a prompt of 128, the median of 3. Greedy tokens are compared after a prompt of 64; where they " +
    "part, tinyloom's likeliest token is so far ahead of the second in log-probability, and ± says by how much the two " +
    "libraries differ about that before: a tie where that is more.",
  "where decoding goes":
    "Qwen3-0.6B's sizes in f16, ways of counting in turns in one page, medians of 5. Each row changes one thing of the " +
    "row above.",
};

const PEERS = {
  tinyloom: () => "**tinyloom**",
  transformers: (versions) => `transformers.js ${versions["@huggingface/transformers"]}`,
  wllama: (versions) => `wllama ${versions["@wllama/wllama"]}`,
};

const whole = (value) => Math.round(value).toLocaleString("en");
const tenths = (value) => (value < 100 ? value.toFixed(1) : whole(value));

/** How many of the greedy tokens are tinyloom's. Where they part: tinyloom's gap, and how far apart gaps are before. */
function equal(row, agreements) {
  const found = agreements.find((one) => one.row === nameOf(row));
  if (!found) return "–";
  const { tokens, equal, gaps, apart } = found;
  if (!gaps) return `${equal} of ${tokens}`;
  const tie = gaps[1] <= apart ? "a tie, " : "";
  return `${equal} of ${tokens}, then ${tie}${gaps[1].toFixed(3)} ± ${apart.toFixed(3)}`;
}

/** With the day of a row that was taken over from an earlier visit. */
const libraryOf = ({ peer, matrices, date }, versions) =>
  PEERS[peer](versions) + (matrices ? "" : ", without matrices") + (date ? ` (${date})` : "");

function cells(row, { versions, agreements }) {
  const name = libraryOf(row, versions);
  if (row.refused) return [name, "–", "–", "–", "–", "–"];
  const { loadSeconds, firstSeconds, prompt, decode } = row;
  return [
    name,
    loadSeconds.toFixed(1),
    firstSeconds.toFixed(1),
    tenths(prompt.milliseconds),
    whole(decode.tokensPerSecond),
    equal(row, agreements),
  ];
}

const HEADS = [
  "",
  "load, s",
  "load and first token, s",
  "prompt of 512, ms",
  "tokens per second",
  "tokens as tinyloom's",
];

/** The README's: the larger model in 16 and in 4 bits, a row for each library. */
function readmeTable({ results, versions }) {
  const find = (bits, { peer, matrices }) =>
    results.find((one) => {
      const alike = one.model === "Qwen3-0.6B" && one.bits === bits;
      return alike && one.peer === peer && one.matrices === matrices;
    });
  const ways = results.filter((row) => row.workload === "Qwen3-0.6B, 16 bits");
  const parts = [
    ["load, s", ({ loadSeconds }) => loadSeconds.toFixed(1)],
    ["prompt, ms", ({ prompt }) => tenths(prompt.milliseconds)],
    ["tokens per second", ({ decode }) => whole(decode.tokensPerSecond)],
  ];
  const columns = parts.flatMap(([head, show]) => [16, 4].map((bits) => ({ head, show, bits })));
  return markdown(
    ["", ...columns.map(({ head, bits }) => `${head}: ${bits} bits`)],
    ways.map((way) => [
      libraryOf(way, versions),
      ...columns.map(({ show, bits }) => show(find(bits, way))),
    ]),
  );
}

/** The table of that name. */
export function servingTable(name, results) {
  if (name === "where decoding goes") return whereTable(results);
  if (name === "serving") return readmeTable(results);
  const rows = results.results.filter((row) => !row.ways);
  return markdown(
    ["model", ...HEADS],
    rows.map((row) => [row.workload, ...cells(row, results)]),
  );
}

/** Each way in which the time of decoding was counted. */
function whereTable({ results }) {
  const { ways } = results.find((row) => row.ways);
  return markdown(
    ["counted", "tokens per second"],
    ways.map(({ what, tokensPerSecond }) => [what, whole(tokensPerSecond)]),
  );
}
