// What a save writes its weights in, and that it leaves the thread to others meanwhile.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { convert, makeFile, openFile } from "../api/bodies/kit.mjs";
import { config, newModel, parsed, refuses, runtime, tinyloom } from "./kit.mjs";

const { Adapter, Model } = tinyloom;
const source = await newModel();
const f32 = await source.save();
const files = (dtype) => ({
  ...f32,
  "model.safetensors": convert(f32["model.safetensors"], dtype),
});
/** Types, shapes and bytes of a file, without its checksums. */
function tensors(saved) {
  const { header, data } = openFile(saved["model.safetensors"]);
  const { __metadata__: _, ...entries } = header;
  return Object.fromEntries(
    Object.entries(entries).map(([name, { dtype, shape, data_offsets }]) => [
      name,
      { dtype, shape, bytes: Buffer.from(data.slice(...data_offsets)).toString("hex") },
    ]),
  );
}
const types = (saved) => [...new Set(Object.values(tensors(saved)).map(({ dtype }) => dtype))];
const NAMES = { f32: "float32", f16: "float16", bf16: "bfloat16" };

test("a created model is saved in f32, and in what is asked for", async () => {
  assert.deepEqual(types(f32), ["F32"]);
  for (const [dtype, name] of Object.entries(NAMES)) {
    const saved = await source.save({ dtype });
    assert.deepEqual(types(saved), [dtype.toUpperCase()]);
    const { dtype: own, torch_dtype } = parsed(saved["config.json"]);
    assert.deepEqual([own, torch_dtype], [name, name]);
    const loaded = await Model.fromPretrained(runtime, saved);
    assert.deepEqual(await loaded.save(), saved, "and loads and saves as it is, checksums and all");
    loaded.free();
  }
});

for (const dtype of ["F16", "BF16"]) {
  test(`a ${dtype} checkpoint stays what it is, merged too`, async () => {
    const given = files(dtype);
    const model = await Model.fromPretrained(runtime, given);
    assert.deepEqual(tensors(await model.save()), tensors(given), "saved");
    assert.deepEqual(types(await model.save({ dtype: "f32" })), ["F32"]);
    const adapter = await Adapter.create(model);
    assert.deepEqual(tensors(await adapter.saveMerged(given)), tensors(given), "merged with zero");
    assert.deepEqual(types(await adapter.saveMerged(given, { dtype: "f32" })), ["F32"]);
    const own = await adapter.save();
    assert.deepEqual(types({ "model.safetensors": own["adapter_model.safetensors"] }), ["F32"]);
    const trainer = await tinyloom.Trainer.create(model, { tokensPerStep: 32 });
    assert.deepEqual(types(await trainer.save()), ["F32"], "a trainer goes on to the bit");
    model.free();
  });
}

test("tensors of several types are saved in f32, which holds them all", async () => {
  const { header, data } = openFile(files("F16")["model.safetensors"]);
  const name = "model.norm.weight";
  const { shape, data_offsets } = header[name];
  const [begin, end] = data_offsets;
  // The norm comes in F32 behind the others, in the place of its halves.
  const own = openFile(f32["model.safetensors"]);
  const whole = own.data.slice(...own.header[name].data_offsets);
  const entries = { ...header };
  delete entries.__metadata__;
  const moved = Object.entries(entries).map(
    ([
      one,
      {
        data_offsets: [from, to],
        ...rest
      },
    ]) => {
      const shift = from >= end ? end - begin : 0;
      return [one, { ...rest, data_offsets: [from - shift, to - shift] }];
    },
  );
  const bytes = new Uint8Array(data.length - (end - begin) + whole.length);
  bytes.set(data.subarray(0, begin));
  bytes.set(data.subarray(end), begin);
  bytes.set(whole, data.length - (end - begin));
  const at = data.length - (end - begin);
  const made = {
    ...Object.fromEntries(moved),
    [name]: { dtype: "F32", shape, data_offsets: [at, at + whole.length] },
  };
  const model = await Model.fromPretrained(runtime, {
    ...f32,
    "model.safetensors": makeFile(made, bytes),
  });
  assert.deepEqual(types(await model.save()), ["F32"]);
  model.free();
});

test("rounding is to the nearest, ties to even, and what does not fit is refused", async () => {
  const { narrowed } = await import("../../pkg/dist/narrow.js");
  const given = Float32Array.of(
    1,
    1 + 2 ** -8,
    1 + 3 * 2 ** -8,
    -3.1401,
    1e-40,
    0,
    -0,
    65504,
    2 ** -25,
  );
  const values = (list) => {
    const header = {
      w: { dtype: "F32", shape: [list.length], data_offsets: [0, 4 * list.length] },
    };
    return {
      saveHeader: () => makeFile(header),
      tensorCount: () => 1,
      readPiece: async (_, begin, end) => new Uint8Array(list.buffer.slice(begin, end)),
    };
  };
  const read = async (list, dtype) =>
    Array.from(
      new Uint16Array(
        (await narrowed(values(list), dtype).readPiece(0, 0, 2 * list.length)).slice().buffer,
      ),
    );
  const bf16 = await read(given, "bf16");
  // By arithmetic on the exact values: the two neighbours with 8 bits, and the nearer.
  const brain = (x) => {
    const word = new Uint32Array(Float32Array.of(x).buffer)[0];
    const [low, high] = [word & 0xffff0000, (word & 0xffff0000) + 0x10000].map(
      (bits) => new Float32Array(Uint32Array.of(bits >>> 0).buffer)[0],
    );
    const [down, up] = [Math.abs(x - low), Math.abs(high - x)];
    const upper = (word >>> 16) & 1;
    return (word >>> 16) + (up < down || (up === down && upper) ? 1 : 0);
  };
  assert.deepEqual(bf16, Array.from(given, brain));
  assert.deepEqual((await read(given, "f16")).slice(0, 3), [0x3c00, 0x3c04, 0x3c0c]);
  assert.deepEqual((await read(given, "f16")).slice(5), [0, 0x8000, 0x7bff, 0]);
  const large = makeLarge(70_000);
  const model = await Model.fromPretrained(runtime, large);
  await refuses(
    "invalid-options",
    ["model.norm.weight", "70000", "float16", 'dtype: "f32" or "bf16"'],
    () => model.save({ dtype: "f16" }),
  );
  assert.deepEqual(types(await model.save({ dtype: "bf16" })), ["BF16"]);
  model.free();
  await refuses("invalid-options", ["dtype", "f8"], () => source.save({ dtype: "f8" }));
  await refuses("invalid-options", ["dtype", "type"], () =>
    source.save({ dtype: "f16", format: "gguf", tokenizer: null }),
  );
});

/** The files with one weight of the last norm changed. */
function makeLarge(value) {
  const { header, data } = openFile(f32["model.safetensors"]);
  const { __metadata__: _, ...entries } = header;
  const bytes = data.slice();
  new DataView(bytes.buffer).setFloat32(entries["model.norm.weight"].data_offsets[0], value, true);
  return { ...f32, "model.safetensors": makeFile(entries, bytes) };
}

test("a merge of matrices larger than a part of the work is the one that merge() makes", async () => {
  // Parts of 65,536 elements begin within a row of 96.
  const model = await newModel({
    hidden_size: 96,
    intermediate_size: 768,
    initializer_range: 0.02,
  });
  const adapter = await Adapter.create(model, { rank: 2 });
  const trainer = await tinyloom.Trainer.create(adapter, { tokensPerStep: 16, learningRate: 0.05 });
  const tokens = Uint32Array.from({ length: 16 }, (_, i) => (i * 37) % 256);
  for (let step = 0; step < 2; step++) await trainer.step({ tokens, targets: tokens });
  const before = await model.save();
  const written = openFile((await adapter.saveMerged(before))["model.safetensors"]);
  await adapter.merge();
  const [plain, made] = [before, await model.save()].map((f) => openFile(f["model.safetensors"]));
  const values = ({ header, data }, name) =>
    new Float32Array(data.slice(...header[name].data_offsets).buffer);
  const apart = (a, b) => a.reduce((most, x, i) => Math.max(most, Math.abs(x - b[i])), 0);
  const { __metadata__: _, ...tensors } = made.header;
  let large = 0;
  for (const name of Object.keys(tensors)) {
    const [merged, base] = [values(made, name), values(plain, name)];
    const off = apart(values(written, name), merged);
    assert.ok(off <= 1e-6, `${name} is ${off} apart`);
    if (merged.length > 65_536 && apart(merged, base) > 1e-3) large += 1;
  }
  assert.ok(large > 0, "no large matrix was changed");
  model.free();
});

test("a GGUF file carries the model's name", async () => {
  const nameOf = async (fields, options = {}) => {
    const model = await newModel(fields);
    const made = await model.save({ format: "gguf", tokenizer: null, ...options });
    model.free();
    const text = Buffer.from(made["model.gguf"].slice(0, 4096)).toString("latin1");
    const at = text.indexOf("general.name") + "general.name".length + 4;
    return text.slice(at + 8, at + 8 + text.charCodeAt(at));
  };
  assert.equal(await nameOf({}), "llama");
  assert.equal(await nameOf({ _name_or_path: "org/Some-Name/" }), "Some-Name");
  assert.equal(await nameOf({ _name_or_path: "org/Some-Name" }, { name: "Mine 1" }), "Mine 1");
  await refuses("invalid-options", ["name"], () =>
    source.save({ format: "gguf", tokenizer: null, name: "" }),
  );
  await refuses("invalid-options", ["name", "gguf"], () => source.save({ name: "x" }));
});

/** Milliseconds of this thread's own work, however busy the machine is; of the clock where the system tells none. */
function worked() {
  try {
    return Number(readFileSync("/proc/thread-self/schedstat", "utf8").split(" ")[0]) / 1e6;
  } catch {
    return performance.now();
  }
}

/** The longest task of this thread while the work runs, and all of them together. */
async function tasks(work) {
  let [last, longest, all, on] = [worked(), 0, 0, true];
  const tick = () => {
    const now = worked();
    longest = Math.max(longest, now - last);
    all += now - last;
    last = now;
    if (on) setImmediate(tick);
  };
  setImmediate(tick);
  await work();
  on = false;
  await new Promise((turn) => setTimeout(turn, 5));
  return { longest: Math.round(longest), all: Math.round(all) };
}

test("no part of a save holds the thread for long", async (t) => {
  const wide = {
    ...config,
    vocab_size: 8192,
    hidden_size: 512,
    intermediate_size: 1024,
    num_hidden_layers: 2,
  };
  const model = await newModel(wide);
  const saved = await model.save();
  const adapter = await Adapter.create(model);
  const sink = () => ({
    "config.json": new WritableStream(),
    "model.safetensors": new WritableStream(),
  });
  for (const [name, work] of [
    ["save", () => model.save({ to: sink() })],
    ["save in bf16", () => model.save({ dtype: "bf16" })],
    ["save in f16", () => model.save({ dtype: "f16" })],
    ["saveMerged", () => adapter.saveMerged(saved)],
    ["saveMerged to streams", () => adapter.saveMerged(saved, { to: sink() })],
    ["a GGUF file in q4_0", () => model.save({ format: "gguf", type: "q4_0", tokenizer: null })],
  ]) {
    if (name.includes("GGUF")) adapter.free();
    const { longest, all } = await tasks(work);
    t.diagnostic(`${name}: the longest of ${all} ms took ${longest} ms`);
    // In one task, a merge of these seven million weights took 400 to 700 ms.
    assert.ok(longest < 100, `${name}: ${longest} ms of ${all}`);
  }
  model.free();
});
