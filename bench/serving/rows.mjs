// What the suite `serving` measures. Node lists the rows; each runs in a browser of its own.

/** The libraries that bench/peers/build.mjs bundles for this suite. */
export const SERVING = ["wllama", "transformers"];

const QWEN = "Qwen3-0.6B";
const SMOL = "SmolLM2-135M";

/** The name that each library has for a format, by its bits. */
const FORMATS = {
  16: { tinyloom: "f16", wllama: "f16", transformers: "fp16" },
  8: { tinyloom: "int8", wllama: "q8_0", transformers: "int8" },
  4: { tinyloom: "int4", wllama: "q4_0", transformers: "q4f16" },
};

/** What is measured of a model's format. Without matrices a page sees no subgroup matrices, as without flags. */
const WAYS = [
  { peer: "tinyloom", matrices: true },
  { peer: "tinyloom", matrices: false },
  { peer: "transformers", matrices: true },
  { peer: "wllama", matrices: true },
];
const PEERS_WITHOUT = SERVING.map((peer) => ({ peer, matrices: false }));

const row = (model, bits, { peer, matrices }) => ({
  workload: `${model}, ${bits} bits`,
  model,
  bits,
  peer,
  format: FORMATS[bits][peer],
  matrices,
});

/** What names a row. */
export const nameOf = ({ workload, peer, matrices }) =>
  `${peer} ${workload}${matrices ? "" : ", without matrices"}`;

/** All rows whose name contains `only`; what may be left out where time is short stands last. */
export function rows(only = "") {
  const of = (models, bits, ways) =>
    models.flatMap((model) => bits.flatMap((each) => ways.map((way) => row(model, each, way))));
  const all = [
    ...of([QWEN, SMOL], [16, 4], WAYS),
    { workload: "where decoding's time goes", model: QWEN, peer: "tinyloom", matrices: true },
    ...of([QWEN, SMOL], [8], WAYS),
    ...of([QWEN, SMOL], [16, 4], PEERS_WITHOUT),
  ];
  return all.filter((one) => nameOf(one).includes(only));
}
