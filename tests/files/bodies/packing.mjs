// What a checkpoint's numbers become in each format, to the bit: numbers at the edges, from files of each type.
import { equal, refuses, sameBytes } from "../../api/bodies/assert.mjs";
import { concat, config, GROUP, makeFile, openFile, unpacked } from "../../api/bodies/kit.mjs";

export const place = {
  whole: ["node"],
  why: "the module's vectors are the same in every browser",
  core: 2,
  smoke: ["numbers at the edges are packed to the bit"],
};

const NAME = "model.layers.0.mlp.down_proj.weight";

/** A number of f16 by its bits. */
function halfOf(bits) {
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
  const magnitude =
    exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15);
  return bits & 0x8000 ? -magnitude : magnitude;
}

/** Finite halves in their order. */
const HALVES = Float64Array.from({ length: 0x7c00 }, (_, bits) => halfOf(bits));

/** The nearest half, ties to even; the largest one for what is beyond it. */
function nearestHalf(value) {
  const magnitude = Math.min(Math.abs(value), HALVES.at(-1));
  let [low, high] = [0, HALVES.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (HALVES[middle] <= magnitude) low = middle;
    else high = middle - 1;
  }
  const next = Math.min(low + 1, HALVES.length - 1);
  const [below, above] = [magnitude - HALVES[low], HALVES[next] - magnitude];
  const chosen = above < below || (above === below && next % 2 === 0) ? next : low;
  return value < 0 || Object.is(value, -0) ? -HALVES[chosen] : HALVES[chosen];
}

function expected(values, format) {
  return format === "f16" ? Float32Array.from(values, nearestHalf) : unpacked(values, format);
}

/** Halves and what lies between two of them; numbers that f16 has not; ties of codes; groups of zeros and of almost none. */
function edges(count) {
  const values = new Float32Array(count);
  const put = (group, numbers) => values.set(numbers, group * GROUP);
  const row = (make) => Float32Array.from({ length: GROUP }, (_, i) => make(i));
  let group = 0;
  for (let bits = 0; bits < 0x7c00; bits += 997) {
    put(
      group++,
      row((i) => (i % 2 ? -1 : 1) * halfOf(Math.min(bits + i, 0x7bff))),
    );
    put(
      group++,
      row((i) => (halfOf(bits) + halfOf(bits + 1)) / 2 + ((i % 3) - 1) * halfOf(bits) * 2 ** -20),
    );
  }
  put(
    group++,
    row((i) => (i % 2 ? -1 : 1) * 2 ** (i - 30)),
  );
  put(
    group++,
    row((i) => (i % 2 ? -1 : 1) * (65504 + i)),
  );
  put(
    group++,
    row((i) => ((i % 2 ? -1 : 1) * 3e38) / (i + 1)),
  );
  for (const unit of [1, -1, 2 ** -20]) {
    put(
      group++,
      row((i) => unit * (i === 7 ? -8 : (i - 15) / 2)),
    );
    put(
      group++,
      row((i) => unit * (i === 3 ? 127 : i * 4 - 62.5)),
    );
    put(
      group++,
      row((i) => unit * (i < 2 ? [8, -8][i] : i / 4)),
    );
  }
  put(
    group++,
    row(() => -0),
  );
  put(
    group++,
    row((i) => (i - 16) * 5e-32),
  );
  put(
    group++,
    row((i) => (i === 31 ? -1e-30 : 0)),
  );
  put(
    group++,
    row((i) => (i - 16) * 1e-37),
  );
  for (; group < count / GROUP; group++)
    put(
      group,
      row((i) => Math.sin(group * GROUP + i) / 9),
    );
  return values;
}

/** A checkpoint of f32 whose one matrix has these numbers, all of it in a type. */
async function checkpoint({ tinyloom, runtime }, change, dtype = "F32") {
  const model = await tinyloom.Model.create(runtime, { ...config, vocab_size: 257 }, { seed: 4 });
  const files = await model.save();
  await model.free();
  const { header, data } = openFile(files["model.safetensors"]);
  delete header.__metadata__;
  let values;
  const [made, pieces] = [{}, []];
  let end = 0;
  for (const [name, { shape, data_offsets }] of Object.entries(header)) {
    let numbers = new Float32Array(data.slice(...data_offsets).buffer);
    if (name === NAME) {
      numbers = change(numbers.length);
      values = numbers;
    }
    const piece = stored(numbers, dtype);
    made[name] = { dtype, shape, data_offsets: [end, end + piece.length] };
    end += piece.length;
    pieces.push(piece);
  }
  return { values, files: { ...files, "model.safetensors": makeFile(made, concat(pieces)) } };
}

function stored(numbers, dtype) {
  if (dtype === "F32") return new Uint8Array(numbers.buffer);
  const words = new Uint32Array(numbers.buffer);
  if (dtype === "BF16")
    return new Uint8Array(Uint16Array.from(words, (word) => word >>> 16).buffer);
  const bits = Uint16Array.from(numbers, (value) => bitsOf(value));
  return new Uint8Array(bits.buffer);
}

/** The bits of a number that f16 holds, or that of the nearest one. */
function bitsOf(value) {
  if (Number.isNaN(value)) return 0x7e00;
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  if (Math.abs(value) === Number.POSITIVE_INFINITY) return sign | 0x7c00;
  return sign | HALVES.indexOf(Math.abs(nearestHalf(value)));
}

const load = ({ tinyloom, runtime }, files, weights) =>
  tinyloom.Model.fromPretrained(runtime, files, { weights });

export const cases = {
  async "numbers at the edges are packed to the bit"(host) {
    const { values, files } = await checkpoint(host, edges);
    for (const weights of ["f32", "f16", "int8", "int4"]) {
      const model = await load(host, files, weights);
      const wanted = weights === "f32" ? values : expected(values, weights);
      sameBytes(await model.parameter(NAME), wanted, `${weights} from F32`);
      await model.free();
    }
  },

  async "a file of 16 bits gives what its numbers give"(host) {
    const finite = (count) => edges(count).map((x) => nearestHalf(x));
    const { values: halves, files: f16 } = await checkpoint(host, finite, "F16");
    const cut = (count) => {
      const words = new Uint32Array(edges(count).buffer);
      return new Float32Array(words.map((word) => word & 0xffff0000).buffer);
    };
    const { values: brains, files: bf16 } = await checkpoint(host, cut, "BF16");
    for (const [dtype, files, values] of [
      ["F16", f16, halves],
      ["BF16", bf16, brains],
    ]) {
      for (const weights of ["f32", "f16", "int8", "int4"]) {
        const model = await load(host, files, weights);
        const wanted = weights === "f32" ? values : expected(values, weights);
        sameBytes(await model.parameter(NAME), wanted, `${weights} from ${dtype}`);
        await model.free();
      }
    }
  },

  async "a number that is not finite is refused at its place"(host) {
    for (const [dtype, bad] of [
      ["F16", Number.NEGATIVE_INFINITY],
      ["F16", Number.NaN],
      ["BF16", Number.POSITIVE_INFINITY],
      ["F32", Number.NaN],
    ]) {
      const change = (count) => {
        const values = edges(count).map((x) => nearestHalf(x));
        values[2 * config.intermediate_size + 5] = bad;
        return values;
      };
      const { files } = await checkpoint(host, change, dtype);
      for (const weights of ["f32", "f16", "int4"]) {
        await refuses("invalid-checkpoint", [NAME, "[2, 5]", "finite"], () =>
          load(host, files, weights),
        );
      }
    }
    const { files } = await checkpoint(host, edges);
    const model = await load(host, files, "f16");
    equal(model.weights, "f16", "a load after all these");
    await model.free();
  },
};
