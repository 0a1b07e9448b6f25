// Tensors: data, views, the raw buffer, their life; and softmax.
import { equal, ok, refuses } from "../../api/bodies/assert.mjs";
import { apart, noise } from "./attention-reference.mjs";

const list = async (tensor) => [...(await tensor.data())];
const counting = (count) => Float32Array.from({ length: count }, (_, i) => i);

/** Softmax of rows in doubles. */
function softmaxOf(values, columns) {
  return Float64Array.from(values, (value, at) => {
    const row = values.slice(at - (at % columns), at - (at % columns) + columns);
    const largest = row.reduce((most, x) => Math.max(most, x), -Infinity);
    return Math.exp(value - largest) / row.reduce((sum, x) => sum + Math.exp(x - largest), 0);
  });
}

/** What the page itself copies out of a buffer. */
async function copied(device, buffer, bytes) {
  const staging = device.createBuffer({ size: bytes, usage: 0x9 }); // MAP_READ | COPY_DST
  const encoder = device.createCommandEncoder();
  encoder.copyBufferToBuffer(buffer, 0, staging, 0, bytes);
  device.queue.submit([encoder.finish()]);
  await staging.mapAsync(1);
  const data = staging.getMappedRange().slice(0);
  staging.destroy();
  return data;
}

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["node", "chromium", "firefox"],
  why: "buffers, views and reads are the host's; the whole is quick",
};

export const cases = {
  async "data goes in and comes out"({ runtime }) {
    const tensor = runtime.tensor(counting(6), [2, 3]);
    equal([tensor.shape, tensor.strides, tensor.offset], [[2, 3], [3, 1], 0]);
    equal(tensor.element, "f32");
    equal(await list(tensor), [0, 1, 2, 3, 4, 5]);
    await tensor.write([5, 4, 3, 2, 1, 0.5]);
    equal(await list(tensor), [5, 4, 3, 2, 1, 0.5]);
    const data = counting(6);
    const written = tensor.write(data);
    data.fill(9);
    await written;
    equal(await list(tensor), [0, 1, 2, 3, 4, 5], "what was given at the call");
    for (const element of ["f32", "f16"]) {
      for (const count of [1, 2, 3, 5]) {
        const zeros = runtime.tensor(null, [count], { element });
        equal(await list(zeros), Array(count).fill(0), `${count} zeros in ${element}`);
        await zeros.write(Array(count).fill(-1.5));
        equal(await list(zeros), Array(count).fill(-1.5), `${count} written in ${element}`);
        zeros.free();
      }
    }
    tensor.free();
  },

  async "views share the buffer"({ runtime }) {
    const tensor = runtime.tensor(counting(24), [2, 3, 4]);
    const swapped = tensor.transpose(0, 2);
    equal(
      [swapped.shape, swapped.strides],
      [
        [4, 3, 2],
        [1, 4, 12],
      ],
    );
    equal((await list(swapped)).slice(0, 6), [0, 12, 4, 16, 8, 20]);
    const part = tensor.slice(1, 1, 3).slice(2, 1, 2);
    equal([part.shape, part.offset], [[2, 2, 1], 5]);
    equal(await list(part), [5, 9, 17, 21]);
    equal(await list(tensor.slice(0, 1).reshape([12])), [...counting(24)].slice(12));
    await part.write([-5, -9, -17, -21]);
    const expected = [...counting(24)].map((x) => ([5, 9, 17, 21].includes(x) ? -x : x));
    equal(await list(tensor), expected, "written through a view");
    await swapped.slice(0, 0, 1).write([1, 1, 1, 1, 1, 1]);
    equal(
      (await list(tensor)).filter((_, i) => i % 4 === 0),
      Array(6).fill(1),
    );
    ok(tensor.buffer === part.buffer, "one buffer");
    part.free();
    await refuses("freed", "Tensor", () => tensor.data());
    await refuses("freed", "Tensor", () => tensor.slice(0, 0));
    await refuses("freed", "Tensor", async () => tensor.buffer);
  },

  async "f16 rounds to the nearest even and holds what it can"({ runtime }) {
    const [tiny, least] = [2 ** -24, 2 ** -14];
    const pairs = [
      [1 + 2 ** -11, 1],
      [1 + 3 * 2 ** -11, 1 + 2 ** -9],
      [-(1 + 2 ** -11 + 2 ** -20), -(1 + 2 ** -10)],
      [tiny / 2, 0],
      [tiny * 0.5001, tiny],
      [tiny * 2.5, tiny * 2],
      [least - tiny / 2, least],
      [1e-30, 0],
      [65_519, 65_504],
      [Infinity, Infinity],
      [-Infinity, -Infinity],
    ];
    const tensor = runtime.tensor(
      pairs.map(([given]) => given),
      [pairs.length],
      { element: "f16" },
    );
    equal(
      await list(tensor),
      pairs.map(([, kept]) => kept),
    );
    tensor.free();
    const bits = Uint16Array.from({ length: 65_536 }, (_, i) => i);
    const all = runtime.tensor(bits, [256, 256], { element: "f16" });
    const values = await all.data();
    const finite = values.filter(Number.isFinite);
    equal(finite.length, 2 * 31 * 1024, "finite halves");
    equal([values[0x3c00], values[0x8001], values[0x7bff]], [1, -(2 ** -24), 65_504]);
    const again = runtime.tensor(finite, [finite.length], { element: "f16" });
    equal(apart(await again.data(), finite), 0, "every half goes back to itself");
    for (const tensor of [all, again]) tensor.free();
    for (const value of [65_520, -1e6]) {
      await refuses("invalid-options", ["data[1]", String(value), "65504"], async () =>
        runtime.tensor([1, value], [2], { element: "f16" }),
      );
    }
  },

  async "the raw buffer is the page's to use"({ runtime }) {
    const { device } = runtime;
    const tensor = runtime.tensor(counting(6), [2, 3]);
    ok(tensor.buffer.size >= 24, `a buffer of ${tensor.buffer.size} bytes`);
    const bytes = await copied(device, tensor.buffer, 24);
    equal([...new Float32Array(bytes)], [0, 1, 2, 3, 4, 5]);
    device.queue.writeBuffer(tensor.buffer, 8, Float32Array.of(20, 30));
    equal(await list(tensor), [0, 1, 20, 30, 4, 5], "what the page wrote");
    tensor.free();
  },

  async "tensors that cannot be"({ runtime }) {
    const wrong = (words, work) => refuses("invalid-options", words, async () => work());
    await wrong(["shape", "[]"], () => runtime.tensor(null, []));
    await wrong(["shape", "0"], () => runtime.tensor(null, [2, 0]));
    await wrong(["shape", "1.5"], () => runtime.tensor(null, [1.5]));
    await wrong(["shape", "6"], () => runtime.tensor(null, 6));
    await wrong("shape", () => runtime.tensor(null, Array(9).fill(1)));
    await wrong(["5", "6"], () => runtime.tensor(counting(5), [2, 3]));
    await wrong("Float64Array", () => runtime.tensor(new Float64Array(2), [2]));
    await wrong(["data[1]", "undefined"], () => runtime.tensor([1, undefined], [2]));
    await wrong("Uint16Array", () => runtime.tensor(new Uint16Array(2), [2]));
    await wrong(["element", "f64"], () => runtime.tensor(null, [2], { element: "f64" }));
    await wrong("dtype", () => runtime.tensor(null, [2], { dtype: "f32" }));
    await refuses("limit-exceeded", "4294967296", async () =>
      runtime.tensor(null, [65_536, 65_536]),
    );
    const most = runtime.capabilities.limits.maxStorageBufferBindingSize;
    await refuses("limit-exceeded", "maxStorageBufferBindingSize", async () =>
      runtime.tensor(null, [Math.floor(most / 4) + 1]),
    );
    const tensor = runtime.tensor(counting(24), [2, 3, 4]);
    await wrong(["axis", "3"], () => tensor.slice(3, 0));
    await wrong(["start", "3"], () => tensor.slice(1, 3));
    await wrong(["end", "4"], () => tensor.slice(1, 0, 4));
    await wrong(["end", "1"], () => tensor.slice(1, 1, 1));
    await wrong(["b", "-1"], () => tensor.transpose(0, -1));
    await wrong(["24", "25"], () => tensor.reshape([5, 5]));
    await wrong("one after the other", () => tensor.transpose(0, 1).reshape([24]));
    await wrong(["3", "24"], () => tensor.write([1, 2, 3]));
    tensor.free();
    const halves = runtime.tensor(null, [3, 3], { element: "f16" });
    await wrong("pairs", () => halves.slice(0, 1, 2).write([1, 2, 3]));
    await halves.slice(0, 2).write([1, 2, 3]); // ends with the buffer
    equal(await list(halves), [0, 0, 0, 0, 0, 0, 1, 2, 3]);
    halves.free();
  },

  async "memory comes back, and a runtime takes its tensors along"({ tinyloom, gpu, runtime }) {
    await runtime.device.queue.onSubmittedWorkDone();
    const { gpuBytes } = runtime._counters();
    const tensor = runtime.tensor(null, [1024, 256]);
    ok(runtime._counters().gpuBytes - gpuBytes >= 1 << 20, "a tensor counts");
    tensor.free();
    tensor.free();
    await runtime.device.queue.onSubmittedWorkDone();
    equal(runtime._counters().gpuBytes, gpuBytes, "bytes after free");
    const other = await tinyloom.Runtime.create({ gpu });
    const gone = other.tensor(null, [4]);
    other.destroy();
    await refuses("freed", "Tensor", () => gone.data());
    await refuses("freed", "Runtime", async () => other.tensor(null, [4]));
  },

  async "softmax of rows of any length"({ tinyloom, runtime }) {
    const { softmax } = tinyloom.ops;
    let worst = 0;
    for (const [rows, columns] of [
      [1, 1],
      [3, 5],
      [4, 64],
      [5, 1027],
    ]) {
      for (const element of ["f32", "f16"]) {
        const input = runtime.tensor(noise(columns, rows * columns), [rows, columns], { element });
        const output = await softmax(input);
        equal([output.shape, output.element], [[rows, columns], element]);
        const expected = softmaxOf(await input.data(), columns);
        const error = apart(await output.data(), expected);
        ok(error <= (element === "f16" ? 5e-4 : 2e-6), `${rows}x${columns} ${element}: ${error}`);
        if (element === "f32") worst = Math.max(worst, error);
        for (const tensor of [input, output]) tensor.free();
      }
    }
    const masked = runtime.tensor([-1e30, -1e30, -1e30, -1e30, 1e4, -1e4, 0, -1e30], [2, 4]);
    equal(await list(await softmax(masked)), [0.25, 0.25, 0.25, 0.25, 1, 0, 0, 0], "masked rows");
    equal(await list(await softmax(masked.slice(0, 1))), [1, 0, 0, 0], "a part");
    await refuses("invalid-options", "softmax", () => softmax([1, 2]));
    await refuses("invalid-options", "strides", () => softmax(masked.transpose(0, 1)));
    masked.free();
    await refuses("freed", "Tensor", () => softmax(masked));
    return `within ${worst.toExponential(1)}`;
  },
};
