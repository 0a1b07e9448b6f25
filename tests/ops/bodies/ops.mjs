// Attention on tensors: against PyTorch, against plain loops, and at the edges.
import { equal, ok, refuses, sameBytes } from "../../api/bodies/assert.mjs";
import { openFile } from "../../api/bodies/kit.mjs";
import { readReference } from "../../api/bodies/reference.mjs";
import { apart, attend, noise } from "./attention-reference.mjs";

/** The oracle of tests/reference by case: options, shapes and numbers. */
async function readCases() {
  const { header, data } = openFile(await readReference("attention/oracle.safetensors"));
  const listed = JSON.parse(new TextDecoder().decode(await readReference("attention/cases.json")));
  const of = (prefix) =>
    Object.fromEntries(
      Object.entries(header)
        .filter(([name]) => name.startsWith(`${prefix}.`))
        .map(([name, { dtype, shape, data_offsets: range }]) => {
          const { buffer } = data.slice(...range);
          const types = { U32: Uint32Array, U8: Uint8Array, F32: Float32Array };
          return [name.slice(prefix.length + 1), { shape, data: new types[dtype](buffer) }];
        }),
    );
  return Object.entries(listed).map(([name, { inputs, options }]) => ({
    name,
    options,
    ...of(inputs),
    ...of(name),
  }));
}

/** The options as the API takes them: masks that are arrays come from the oracle's. */
function optionsOf({ options, mask, words }) {
  const { tree, boolean, additive, ...rest } = options;
  return {
    ...rest,
    ...(tree && { tree: { words: words.data } }),
    ...(boolean && { boolean: mask }),
    ...(additive && { additive: mask }),
  };
}

/** Tensors of the case's inputs. */
function inputs(runtime, oracle, element) {
  const names = ["query", "key", "value", "d_output"];
  return names.map((name) => runtime.tensor(oracle[name].data, oracle[name].shape, { element }));
}

const free = (...tensors) => {
  for (const one of tensors.flatMap((tensor) => (tensor.shape ? [tensor] : Object.values(tensor))))
    one.free();
};

/** Natural logarithms of sums: rows that see nothing to the bit, the others in L2. */
function checkSums(got, expected, tolerance) {
  const seen = [...expected.keys()].filter((at) => expected[at] > -1e29);
  for (const at of expected.keys())
    ok(expected[at] > -1e29 || got[at] === Math.fround(-1e30), `logsumexp[${at}] is ${got[at]}`);
  const pick = (values) => Float64Array.from(seen, (at) => values[at]);
  const error = apart(pick(got), pick(expected));
  ok(error <= tolerance, `logsumexp is ${error} off in L2`);
}

/** Forward and backward of a case; gives the largest error of each. */
async function compare({ tinyloom, runtime }, oracle, element, allowed) {
  const { attention } = tinyloom.ops;
  const [query, key, value, dOutput] = inputs(runtime, oracle, element);
  const options = optionsOf(oracle);
  const saved = await attention.forward(query, key, value, options);
  equal(saved.output.element, element);
  const forward = apart(await saved.output.data(), oracle.output.data);
  ok(forward <= allowed.forward, `output is ${forward} off in L2`);
  checkSums(await saved.logsumexp.data(), oracle.logsumexp.data, allowed.forward);
  const gradients = await attention.backward(dOutput, query, key, value, { ...options, ...saved });
  let backward = 0;
  for (const [name, tensor] of Object.entries(gradients)) {
    const expected = oracle[`d_${name.slice(1).toLowerCase()}`];
    equal([tensor.shape, tensor.element], [expected.shape, element], name);
    const error = apart(await tensor.data(), expected.data);
    ok(error <= allowed.gradient, `${name} is ${error} off in L2`);
    backward = Math.max(backward, error);
  }
  free(query, key, value, dOutput, saved, gradients);
  return [forward, backward];
}

async function fixtures(host, element, allowed) {
  let worst = [0, 0];
  const failures = [];
  for (const oracle of await readCases()) {
    try {
      const errors = await compare(host, oracle, element, allowed);
      worst = worst.map((most, at) => Math.max(most, errors[at]));
    } catch (error) {
      failures.push(`${oracle.name}: ${error.code ?? ""} ${error.message}`);
    }
  }
  equal(failures, [], "cases that differ");
  const [forward, backward] = worst.map((error) => error.toExponential(1));
  return `outputs within ${forward}, gradients within ${backward}`;
}

/** Tensors of random numbers for the sizes. */
function random(runtime, sizes, seed = 1) {
  const { batch, heads, kvHeads, queryRows, keyRows, headDim } = sizes;
  const shapes = [
    [batch, heads, queryRows, headDim],
    [batch, kvHeads, keyRows, headDim],
    [batch, kvHeads, keyRows, headDim],
  ];
  const data = shapes.map((shape, at) =>
    noise(
      10 * seed + at,
      shape.reduce((a, b) => a * b, 1),
    ),
  );
  return { data, tensors: data.map((one, at) => runtime.tensor(one, shapes[at])) };
}

/** A mask function as the API takes it, over the axes where `shape` is not 1. */
function spread(of, shape, Type) {
  const [batch, heads, rows, keys] = shape;
  const data = Type.from({ length: batch * heads * rows * keys }, (_, at) => {
    const index = [heads * rows * keys, rows * keys, keys, 1];
    return of(...index.map((size, axis) => Math.floor(at / size) % shape[axis]));
  });
  return { data, shape };
}

const SIZES = { batch: 2, heads: 4, kvHeads: 2, queryRows: 35, keyRows: 70, headDim: 16 };
const BIAS = (_, head, query, key) => -Math.abs(query + 35 - key) * 2 ** -(head + 1);
const HOLES = (item, _, query, key) => (query * 7 + key * 3 + item) % 5 !== 0;

/** Options that work together, with the shape of the dense mask. */
const TOGETHER = [
  { keyLengths: [60, 40], causal: true, window: 30, queryOffset: [25, 5] },
  { keyLengths: [70, 33], window: 40, queryOffset: 20 },
  { causal: true, window: 9, additive: BIAS, shape: [1, 4, 35, 70] },
  { keyLengths: [12, 70], boolean: HOLES, shape: [2, 1, 35, 70] },
  { boolean: (_, __, ___, key) => key % 3 > 0, shape: [1, 1, 1, 70] },
  { boolean: (_, __, query) => query !== 4, shape: [1, 1, 35, 1], causal: true, softCap: 2 },
  { additive: (item, head) => item - head, shape: [2, 4, 1, 1], scale: 0.1 },
];

async function together({ tinyloom, runtime }, { shape, ...options }, at) {
  const { data, tensors } = random(runtime, SIZES, at + 1);
  const { boolean, additive } = options;
  const given = {
    ...options,
    ...(boolean && { boolean: spread(boolean, shape, Uint8Array) }),
    ...(additive && { additive: spread(additive, shape, Float32Array) }),
  };
  const result = await tinyloom.ops.attention.forward(...tensors, given);
  const expected = attend(...data, SIZES, options);
  const error = apart(await result.output.data(), expected.output);
  ok(error <= 4e-6, `${Object.keys(options)}: output is ${error} off in L2`);
  checkSums(await result.logsumexp.data(), expected.logsumexp, 2e-6);
  const weights = noise(100 + at, data[0].length);
  const dOutput = runtime.tensor(weights, tensors[0].shape);
  const gradients = await tinyloom.ops.attention.backward(dOutput, ...tensors, {
    ...given,
    ...result,
  });
  for (const [index, name] of ["dQuery", "dKey", "dValue"].entries()) {
    const loss = (values) => {
      const { output } = attend(...data.with(index, values), SIZES, options);
      return output.reduce((sum, x, i) => sum + x * weights[i], 0);
    };
    const gradient = await gradients[name].data();
    const error = slopeError(gradient, data[index], noise(200 + at, gradient.length), loss);
    ok(error <= 1e-5, `${Object.keys(options)}: ${name}'s slope is ${error} off`);
  }
  free(...tensors, result, dOutput, gradients);
}

/** How far a gradient's slope along a direction is from a central difference of fourth order. */
function slopeError(gradient, at, direction, loss) {
  const step = 1e-3;
  const moved = (by) => loss(Float64Array.from(at, (x, i) => x + by * step * direction[i]));
  const numeric = (8 * (moved(1) - moved(-1)) - (moved(2) - moved(-2))) / (12 * step);
  const parts = Float64Array.from(gradient, (x, i) => x * direction[i]);
  const slope = parts.reduce((sum, x) => sum + x, 0);
  return Math.abs(slope - numeric) / Math.sqrt(parts.reduce((sum, x) => sum + x * x, 0));
}

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["node", "firefox"],
  why: "PyTorch's numbers are to come out of each compiler and adapter: Chromium has Node's",
  core: 6,
  smoke: ["PyTorch's outputs and gradients", "calls run in their order"],
};

export const cases = {
  "PyTorch's outputs and gradients": (host) =>
    fixtures(host, "f32", { forward: 2e-6, gradient: 1e-5 }),

  "PyTorch's outputs and gradients in f16": (host) =>
    fixtures(host, "f16", { forward: 2e-3, gradient: 2e-3 }),

  async "masks that work together"(host) {
    for (const [at, options] of TOGETHER.entries()) await together(host, options, at);
  },

  async "layouts without a copy give the same numbers"({ tinyloom, runtime }) {
    const { attention } = tinyloom.ops;
    const sizes = { batch: 2, heads: 2, kvHeads: 2, queryRows: 9, keyRows: 9, headDim: 8 };
    const { tensors } = random(runtime, sizes);
    const dOutput = runtime.tensor(noise(5, 2 * 2 * 9 * 8), [2, 2, 9, 8]);
    const options = { causal: true };
    const plain = await attention.forward(...tensors, options);
    const expected = await attention.backward(dOutput, ...tensors, { ...options, ...plain });
    // [batch, tokens, which, heads, head_dim], as one product gives query, key and value.
    const fused = runtime.tensor(null, [2, 9, 3, 2, 8]);
    const parts = [];
    for (const [at, tensor] of tensors.entries()) {
      const part = partOf(fused, at);
      await part.write(await tensor.data());
      parts.push(part);
    }
    // A cache with room for more, and results in [batch, tokens, heads, head_dim].
    const caches = tensors.slice(1).map(() => runtime.tensor(null, [2, 2, 16, 8]));
    const used = caches.map((cache) => cache.slice(2, 0, 9));
    for (const [at, view] of used.entries()) await view.write(await tensors[at + 1].data());
    const made = () => runtime.tensor(null, [2, 9, 2, 8]);
    for (const [query, key, value] of [parts, [parts[0], ...used]]) {
      const output = made();
      const into = { output: output.transpose(1, 2) };
      const result = await attention.forward(query, key, value, { ...options, into });
      ok(result.output === into.output, "the tensor of into comes back");
      sameBytes(await result.output.data(), await plain.output.data(), "output");
      sameBytes(await result.logsumexp.data(), await plain.logsumexp.data(), "logsumexp");
      const [dQuery, dKey, dValue] = [made(), made(), made()];
      const gradients = await attention.backward(dOutput, query, key, value, {
        ...options,
        ...result,
        into: {
          dQuery: dQuery.transpose(1, 2),
          dKey: dKey.transpose(1, 2),
          dValue: dValue.transpose(1, 2),
        },
      });
      for (const name of ["dQuery", "dKey", "dValue"])
        sameBytes(await gradients[name].data(), await expected[name].data(), name);
      free(result, gradients);
    }
    free(...tensors, dOutput, plain, expected, fused, ...caches);
  },

  async "a row that sees nothing is zeros, and so are its gradients"({ tinyloom, runtime }) {
    const { attention } = tinyloom.ops;
    const sizes = { batch: 1, heads: 2, kvHeads: 1, queryRows: 3, keyRows: 5, headDim: 8 };
    const { tensors } = random(runtime, sizes);
    const dOutput = runtime.tensor(noise(6, 48), [1, 2, 3, 8]);
    for (const options of [
      { keyLengths: [0] },
      { causal: true, queryOffset: -3 },
      { boolean: { data: new Uint8Array(1), shape: [1] } },
      { additive: { data: [-Infinity], shape: [1, 1] } },
      { additive: { data: [-1e9], shape: [1, 1] } },
      { tree: { words: new Uint32Array(3) }, keyLengths: [0] },
    ]) {
      const what = JSON.stringify(options);
      const saved = await attention.forward(...tensors, options);
      const found = await attention.backward(dOutput, ...tensors, { ...options, ...saved });
      for (const [name, tensor] of Object.entries({ output: saved.output, ...found }))
        ok(
          (await tensor.data()).every((x) => x === 0),
          `${name} under ${what} is not zero`,
        );
      const sums = await saved.logsumexp.data();
      ok(
        sums.every((x) => x === Math.fround(-1e30)),
        `logsumexp under ${what} is ${sums[0]}`,
      );
      free(saved, found);
    }
    free(...tensors, dOutput);
  },

  async "scores of ±10,000 stay finite"({ tinyloom, runtime }) {
    const { attention } = tinyloom.ops;
    const sizes = { batch: 1, heads: 1, kvHeads: 1, queryRows: 6, keyRows: 40, headDim: 4 };
    const { data, tensors } = random(runtime, sizes);
    const [query, key, value] = tensors;
    // scale · query · key: 0.5 · 4 · (±100 · 50), the largest once in each row.
    data[0].fill(100);
    data[1].forEach((_, at) => {
      data[1][at] = Math.floor(at / 4) === 17 ? 50 : -50 + Math.floor(at / 4);
    });
    await query.write(data[0]);
    await key.write(data[1]);
    const saved = await attention.forward(query, key, value);
    const sums = await saved.logsumexp.data();
    ok(
      sums.every((x) => x === 10_000),
      `logsumexp is ${sums[0]}`,
    );
    const expected = attend(...data, sizes);
    const error = apart(await saved.output.data(), expected.output);
    ok(error <= 2e-6, `output is ${error} off in L2`);
    const dOutput = runtime.tensor(noise(3, 24), [1, 1, 6, 4]);
    const found = await attention.backward(dOutput, query, key, value, saved);
    for (const [name, tensor] of Object.entries(found))
      ok((await tensor.data()).every(Number.isFinite), `${name} is finite`);
    free(...tensors, dOutput, saved, found);
  },

  async "decoding is the last row of attention"({ tinyloom, runtime }) {
    const { attention } = tinyloom.ops;
    const shape = { batch: 3, heads: 4, kvHeads: 2, queryRows: 1, headDim: 32 };
    // One range of keys, and several whose results are merged.
    for (const [element, keyRows] of [
      ["f32", 150],
      ["f32", 600],
      ["f16", 600],
    ]) {
      const sizes = { ...shape, keyRows };
      const { data, tensors: wide } = random(runtime, sizes, 4);
      const tensors = wide.map((one, at) => runtime.tensor(data[at], one.shape, { element }));
      for (const one of data.keys()) data[one] = await tensors[one].data();
      for (const options of [
        {},
        { window: 20 },
        { keyLengths: [keyRows, 1, 64] },
        { keyLengths: [keyRows, 0, 70], window: 7, scale: 0.3, softCap: 5 },
      ]) {
        const { window, keyLengths } = options;
        const result = await attention.decode(...tensors, options);
        const first = (item) => (window ? (keyLengths?.[item] ?? keyRows) - window : 0);
        const expected = attend(...data, sizes, {
          ...options,
          window: undefined,
          boolean: (item, _, __, key) => key >= first(item),
        });
        const what = `${element} ${keyRows} ${JSON.stringify(options)}`;
        const error = apart(await result.output.data(), expected.output);
        ok(error <= (element === "f16" ? 2e-3 : 4e-6), `${what}: output is ${error} off in L2`);
        checkSums(await result.logsumexp.data(), expected.logsumexp, 2e-6);
        free(result);
      }
      free(...wide, ...tensors);
    }
  },

  async "a gradient follows finite differences"({ tinyloom, runtime }) {
    const { attention } = tinyloom.ops;
    const sizes = { batch: 1, heads: 2, kvHeads: 1, queryRows: 5, keyRows: 9, headDim: 8 };
    const { data, tensors } = random(runtime, sizes, 7);
    const weights = noise(8, data[0].length);
    const dOutput = runtime.tensor(weights, tensors[0].shape);
    const options = { causal: true, window: 4, softCap: 3 };
    const saved = await attention.forward(...tensors, options);
    const found = await attention.backward(dOutput, ...tensors, { ...options, ...saved });
    for (const [at, name] of ["dQuery", "dKey", "dValue"].entries()) {
      const direction = noise(20 + at, data[at].length);
      const along = async (step) => {
        await tensors[at].write(data[at].map((x, i) => x + step * direction[i]));
        const { output, logsumexp } = await attention.forward(...tensors, options);
        const loss = (await output.data()).reduce((sum, x, i) => sum + x * weights[i], 0);
        free(output, logsumexp);
        return loss;
      };
      const step = 1 / 64;
      const numeric =
        (8 * ((await along(step)) - (await along(-step))) -
          ((await along(2 * step)) - (await along(-2 * step)))) /
        (12 * step);
      await tensors[at].write(data[at]);
      const gradient = await found[name].data();
      const slope = gradient.reduce((sum, x, i) => sum + x * direction[i], 0);
      const scale = Math.sqrt(gradient.reduce((sum, x, i) => sum + (x * direction[i]) ** 2, 0));
      const error = Math.abs(slope - numeric) / scale;
      ok(error <= 5e-4, `${name}: slope ${slope}, by differences ${numeric}`);
    }
    free(...tensors, dOutput, saved, found);
  },

  async "equal calls share a plan, whatever their tensors"({ tinyloom, runtime }) {
    const { attention, softmax } = tinyloom.ops;
    const sizes = { batch: 1, heads: 1, kvHeads: 1, queryRows: 20, keyRows: 28, headDim: 12 };
    const shape = [1, 1, 20, 12];
    // A value of its own in each call: with equal keys, the output is the value.
    const key = runtime.tensor(null, [1, 1, 28, 12]);
    const values = Array.from({ length: 10 }, (_, at) =>
      runtime.tensor(new Float32Array(28 * 12).fill(at + 1), [1, 1, 28, 12]),
    );
    const query = runtime.tensor(null, shape);
    const mask = (at) => ({ causal: at % 2 === 0, scale: 0.75, keyLengths: [28 - (at % 3)] });
    const built = async (work) => {
      const { schedules } = runtime._counters();
      await work();
      return runtime._counters().schedules - schedules;
    };
    const forward = async () => {
      for (let at = 0; at < 100; at++) {
        const result = await attention.forward(query, key, values[at % 10], mask(at));
        const got = await result.output.data();
        ok(
          got.every((x) => Math.abs(x - 1 - (at % 10)) < 1e-5),
          `call ${at} gave ${got[0]}`,
        );
        free(result);
      }
    };
    equal(await built(forward), 1, "schedules of 100 equal calls");
    equal(await built(forward), 0, "schedules of 100 more");
    const keys = random(runtime, { ...sizes, keyRows: 64 }).tensors.slice(1);
    const one = query.slice(2, 0, 1);
    const decode = async () => {
      for (let length = 33; length <= 64; length++) {
        const used = keys.map((tensor) => tensor.slice(2, 0, length));
        free(await attention.decode(one, ...used));
      }
    };
    equal(await built(decode), 1, "schedules of decoding from 33 to 64 keys");
    const other = async () => {
      free(await attention.forward(query, key, values[0], { scale: 0.5, keyLengths: [28] }));
      free(await softmax(query), await softmax(query));
    };
    equal(await built(other), 2, "schedules of another scale, and of a softmax");
    free(query, key, ...values, ...keys);
  },

  async "plans and their memory stay bounded"({ tinyloom, runtime }) {
    const all = runtime.tensor(null, [300]);
    const { gpuBytes } = runtime._counters();
    const round = async () => {
      for (let length = 1; length <= 300; length++) {
        free(await tinyloom.ops.softmax(all.slice(0, 0, length).reshape([length, 1])));
      }
      await runtime.device.queue.onSubmittedWorkDone();
      return runtime._counters().gpuBytes - gpuBytes;
    };
    const [first, second] = [await round(), await round()];
    ok(first <= 64 * 256, `300 shapes leave ${first} bytes`);
    equal(second, first, "bytes after 300 more");
    all.free();
  },

  async "calls run in their order"({ tinyloom, runtime }) {
    const { attention } = tinyloom.ops;
    const sizes = { batch: 1, heads: 1, kvHeads: 1, queryRows: 4, keyRows: 4, headDim: 4 };
    const { data, tensors } = random(runtime, sizes);
    const [query, key, value] = tensors;
    const first = attention.forward(query, key, value);
    const written = value.write(data[2].map((x) => 2 * x));
    const second = attention.forward(query, key, value);
    await written;
    const [once, twice] = [await (await first).output.data(), await (await second).output.data()];
    equal([...twice], [...once.map((x) => 2 * x)], "the second call saw the write, the first not");
    const late = attention.forward(query, key, value);
    const later = attention.forward(query, key, value);
    key.free();
    await refuses("freed", "Tensor", () => later);
    await late.catch((error) => equal(error.code, "freed"));
    free(query, value, await first, await second);
  },
};

/** A fused tensor's part as [batch, heads, tokens, head_dim]. */
function partOf(fused, at) {
  const [batch, tokens, , heads, headDim] = fused.shape;
  const flat = fused.reshape([batch, tokens, 3 * heads, headDim]);
  return flat.slice(2, at * heads, (at + 1) * heads).transpose(1, 2);
}
