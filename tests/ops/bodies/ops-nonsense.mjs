// Attention asked for what cannot be: refused by name, before anything reaches the GPU.
import { equal, refuses } from "../../api/bodies/assert.mjs";

const SHAPE = [2, 4, 6, 8];
const NAN = Number.NaN;

/** Tensors of zeros for six queries and nine keys. */
function tensors(runtime) {
  const query = runtime.tensor(null, SHAPE);
  const [key, value] = [0, 1].map(() => runtime.tensor(null, [2, 2, 9, 8]));
  return [query, key, value];
}

const wrong = (words, work) => refuses("invalid-options", words, work);

/** [words of the message, options of attention.forward] */
const OPTIONS = [
  [["casual", "causal"], { casual: true }],
  [["causal", "1"], { causal: 1 }],
  [["window", "0"], { window: 0 }],
  [["window", "2.5"], { window: 2.5 }],
  [["softCap", "0"], { softCap: 0 }],
  [["softCap", "NaN"], { softCap: NAN }],
  [["scale", "-1"], { scale: -1 }],
  [["scale", "Infinity"], { scale: Infinity }],
  [["queryOffset", "causal"], { queryOffset: 2 }],
  [["queryOffset", "0.5"], { causal: true, queryOffset: 0.5 }],
  [["queryOffset", "2"], { causal: true, queryOffset: [1] }],
  [["queryOffset[1]", "NaN"], { causal: true, queryOffset: [1, NAN] }],
  [["documents", "6", "9"], { documents: new Uint32Array(6) }],
  [["keyLengths", "2"], { keyLengths: [9] }],
  [["keyLengths[1]", "10", "9"], { keyLengths: [9, 10] }],
  [["keyLengths[0]", "-1"], { keyLengths: [-1, 9] }],
  [["keyLengths", "Uint32Array"], { keyLengths: 9 }],
  [["tree", "boolean"], { tree: {}, boolean: {} }],
  [["tree.words", "undefined"], { tree: {} }],
  [["tree", "rows"], { tree: { rows: 1 } }],
  [["tree.words", "5", "6"], { tree: { words: new Uint32Array(5) } }],
  [["tree.words", "2"], { tree: { words: [new Uint32Array(6)] } }],
  [["tree.words[1]", "4"], { tree: { words: [new Uint32Array(6), 4] } }],
  [["boolean.shape", "3, 9"], { boolean: { data: new Uint8Array(27), shape: [3, 9] } }],
  [["boolean.shape", "undefined"], { boolean: { data: new Uint8Array(54) } }],
  [["boolean.data", "53", "54"], { boolean: { data: new Uint8Array(53), shape: [6, 9] } }],
  [["boolean.data", "Float32Array"], { boolean: { data: new Float32Array(9), shape: [9] } }],
  [["boolean.data[1]", "false"], { boolean: { data: [false, "false"], shape: [1, 2] } }],
  [["additive.data[2]", "NaN"], { additive: { data: [0, 1, NAN], shape: [1, 9] } }],
  [["additive.data[0]", "Infinity"], { additive: { data: [Infinity], shape: [1] } }],
  [["additive.data[0]", "10000000"], { additive: { data: [1e7], shape: [1] } }],
  [["additive.shape", "1, 1, 1, 1, 1"], { additive: { data: [1], shape: [1, 1, 1, 1, 1] } }],
  [["additive", "Map"], { additive: new Map() }],
  [["into", "dQuery"], { into: { dQuery: null } }],
  [["output", "null"], { into: { output: null } }],
];

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["node"],
  why: "refused in TypeScript and in the module, before the GPU",
  smoke: ["the other passes"],
};

export const cases = {
  async "options that cannot be"({ tinyloom, runtime }) {
    const { attention } = tinyloom.ops;
    const given = tensors(runtime);
    const { gpuBytes } = runtime._counters();
    for (const [words, options] of OPTIONS) {
      await wrong(["attention.forward", ...words], () => attention.forward(...given, options));
    }
    await wrong("options", () => attention.forward(...given, "causal"));
    const square = [0, 1, 2].map(() => runtime.tensor(null, [1, 1, 4, 8]));
    for (const [words, documents] of [
      [
        ["documents[2]", "3"],
        [0, 0, 3, 3],
      ],
      [
        ["documents[3]", "1"],
        [0, 0, 2, 1],
      ],
      [
        ["documents[1]", "-1"],
        [0, -1, 0, 0],
      ],
      [
        ["documents[0]", "1"],
        [1, 1, 1, 1],
      ],
      [
        ["documents", "3", "4"],
        [0, 0, 0],
      ],
      [
        ["documents", "2", "1"],
        [new Uint32Array(4), new Uint32Array(4)],
      ],
      [["documents[0]", "null"], [null]],
    ]) {
      await wrong(words, () => attention.forward(...square, { documents }));
    }
    for (const tensor of square) tensor.free();
    await runtime.device.queue.onSubmittedWorkDone();
    equal(runtime._counters().gpuBytes, gpuBytes, "bytes after refusals");
    const result = await attention.forward(...given);
    equal((await result.output.data()).length, 384, "the tensors stay usable");
    for (const tensor of [...given, ...Object.values(result)]) tensor.free();
  },

  async "tensors that do not fit"({ tinyloom, gpu, runtime }) {
    const { attention } = tinyloom.ops;
    const [query, key, value] = tensors(runtime);
    const forward = (q, k = key, v = value, options = {}) => attention.forward(q, k, v, options);
    const zeros = (shape, element = "f32") => runtime.tensor(null, shape, { element });
    const like = (shape) => [zeros(shape), zeros(shape)];
    await wrong(["query", "Float32Array"], () => forward(new Float32Array(384)));
    await wrong(["key", "undefined"], () => attention.forward(query));
    await wrong(["query", "8,6,8"], () => forward(query.reshape([8, 6, 8])));
    await wrong(["head_dim", "6"], () => forward(zeros([2, 4, 6, 6]), ...like([2, 2, 9, 6])));
    await wrong(["head_dim", "260"], () => forward(zeros([1, 1, 1, 260]), ...like([1, 1, 1, 260])));
    await wrong(["key", "1,2,9,8"], () => forward(query, ...like([1, 2, 9, 8])));
    await wrong(["4 heads", "3"], () => forward(query, ...like([2, 3, 9, 8])));
    await wrong(["value", "2,2,8,8"], () => forward(query, key, zeros([2, 2, 8, 8])));
    await wrong(["key", "f16", "f32"], () => forward(query, zeros([2, 2, 9, 8], "f16")));
    await wrong(["query", "gaps"], () => forward(zeros([2, 4, 8, 6]).transpose(2, 3)));
    const narrow = zeros([2, 4, 6, 10]).slice(3, 0, 8);
    await wrong(["query", "multiples of 4"], () => forward(narrow));
    await wrong(["query", "offset 2"], () => forward(zeros([386]).slice(0, 2).reshape(SHAPE)));
    const other = await tinyloom.Runtime.create({ gpu });
    await wrong(["value", "another runtime"], () =>
      forward(query, key, other.tensor(null, [2, 2, 9, 8])),
    );
    other.destroy();
    const into = (words, results) =>
      wrong(words, () => forward(query, key, value, { into: results }));
    await into(["output", "shares", "query"], { output: query });
    const both = zeros([2, 2, 4, 6, 8]);
    const [output] = [both.slice(0, 0, 1).reshape(SHAPE)];
    await into(["output", "2,4,6", "2,4,6,8"], { output: zeros([2, 4, 6]) });
    await into(["logsumexp", "2,4,6"], { logsumexp: zeros([2, 4, 6, 1]) });
    await into(["logsumexp", "begins where its buffer does"], {
      logsumexp: zeros([3, 4, 6]).slice(0, 1),
    });
    const sums = both.reshape([768]).slice(0, 0, 48).reshape([2, 4, 6]);
    await into(["logsumexp", "shares", "output"], { output, logsumexp: sums });
    value.free();
    await refuses("freed", "Tensor", () => forward(query));
    for (const tensor of [query, key]) tensor.free();
  },

  async "the other passes"({ tinyloom, runtime }) {
    const { attention } = tinyloom.ops;
    const given = tensors(runtime);
    const [query, key] = given;
    const saved = await attention.forward(...given);
    const back = (options, dOutput = query) => attention.backward(dOutput, ...given, options);
    await wrong(["output", "undefined"], () => back());
    await wrong(["logsumexp", "undefined"], () => back({ output: saved.output }));
    await wrong(["logsumexp", "2,4,6,8"], () => back({ ...saved, logsumexp: saved.output }));
    await wrong(["dOutput", "2,2,9,8"], () => back(saved, key));
    await wrong(["into", "dKey", "2,2,9,8"], () =>
      back({ ...saved, into: { dKey: runtime.tensor(null, SHAPE) } }),
    );
    const shared = runtime.tensor(null, [2, 2, 2, 9, 8]);
    const [dKey, dValue] = [0, 1].map((at) => shared.slice(0, at, at + 1).reshape([2, 2, 9, 8]));
    await wrong(["dValue", "shares", "dKey"], () => back({ ...saved, into: { dKey, dValue } }));
    await wrong(["dQuery", "shares", "output"], () =>
      back({ ...saved, into: { dQuery: saved.output } }),
    );
    await wrong(["softmax", "last axis"], () => tinyloom.ops.softmax(query, { axis: 0 }));
    await wrong(["shape", "whole numbers"], () => runtime.tensor(null, new Array(2)));
    await wrong(["one query", "6"], () => attention.decode(...given));
    const one = query.slice(2, 0, 1);
    await wrong(["causal", "window"], () =>
      attention.decode(one, ...given.slice(1), { causal: true }),
    );
    await wrong(["keyLengths", "2"], () =>
      attention.decode(one, ...given.slice(1), { keyLengths: [] }),
    );
    for (const tensor of [...given, ...Object.values(saved), shared]) tensor.free();
    await refuses("freed", "Tensor", () => back(saved));
  },
};
