// Models that hold their matrices packed: what they give, what they refuse, and what they come back from.
import { equal, ok, refuses, sameBytes } from "../../api/bodies/assert.mjs";
import {
  batch,
  collect,
  concat,
  config,
  convert,
  dataset,
  makeFile,
  openFile,
  trainerOptions,
  unpacked,
} from "../../api/bodies/kit.mjs";

const FORMATS = ["f16", "int8", "int4"];
const LORA = { rank: 4, alpha: 8, seed: 9 };
const PROMPT = [116, 104, 101];

/** The same checkpoint with each matrix at numbers that packing keeps. */
function kept(files, format) {
  const { header, data } = openFile(files["model.safetensors"]);
  const pieces = [];
  for (const [name, entry] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const values = new Float32Array(data.slice(...entry.data_offsets).buffer);
    const half = (x) => Math.fround(Math.round(x * 4096) / 4096);
    let own = values;
    if (entry.shape.length === 2)
      own = format === "f16" ? values.map(half) : unpacked(values, format);
    pieces.push(new Uint8Array(own.buffer));
  }
  delete header.__metadata__; // its checksums are those of other numbers
  return { ...files, "model.safetensors": makeFile(header, concat(pieces)) };
}

/** A checkpoint whose weights are spread as a trained model's, and not as a new one's. */
async function checkpoint({ tinyloom, runtime }, more = {}, base = config) {
  const shape = { ...base, initializer_range: 0.2, vocab_size: 257, ...more };
  const model = await tinyloom.Model.create(runtime, shape, { seed: 42 });
  const files = await model.save();
  model.free();
  return files;
}

const textOf = (model, options = {}) =>
  collect(model.generate(PROMPT, { maxTokens: 12, temperature: 0, stopTokens: [], ...options }));

const tokensOf = (drawn) => drawn.map(({ token }) => token);

/** Checkpoints that have matrices in another order than kernels: by inputs, and head by head. */
const REORDERED = {
  gpt2: { model_type: "gpt2", vocab_size: 257, n_embd: 64, n_layer: 2, n_head: 4, n_positions: 64 },
  gpt_neox: {
    model_type: "gpt_neox",
    vocab_size: 257,
    hidden_size: 64,
    intermediate_size: 96,
    num_hidden_layers: 2,
    num_attention_heads: 4,
    max_position_embeddings: 64,
  },
};

/** An adapter's files with numbers in B too, as if it had been trained. */
async function adapterFiles({ Adapter }, model, options) {
  const adapter = await Adapter.create(model, { ...LORA, ...options });
  const files = await adapter.save();
  adapter.free();
  const { header, data } = openFile(files["adapter_model.safetensors"]);
  const [pieces, names] = [[], Object.keys(header).filter((name) => name !== "__metadata__")];
  for (const name of names) {
    const values = new Float32Array(data.slice(...header[name].data_offsets).buffer);
    const own = name.includes("lora_B") ? values.map((_, at) => Math.sin(7 * at + 1) / 8) : values;
    pieces.push(new Uint8Array(own.buffer));
  }
  delete header.__metadata__;
  return { ...files, "adapter_model.safetensors": makeFile(header, concat(pieces)) };
}

/** Holds what saveMerged gives to what merging in f32 and saving gives; gives the largest difference. */
export async function exportedAsMerged(
  { tinyloom, runtime },
  source,
  { weights, ...options } = {},
) {
  const { Adapter, Model } = tinyloom;
  const model = await Model.fromPretrained(runtime, source, { weights });
  const files = await adapterFiles(tinyloom, model, options);
  const exported = await (await Adapter.load(model, files)).saveMerged(source, { dtype: "f32" });
  model.free();
  const whole = await Model.fromPretrained(runtime, source);
  const before = openFile((await whole.save({ dtype: "f32" }))["model.safetensors"]);
  await (await Adapter.load(whole, files)).merge();
  const merged = await whole.save({ dtype: "f32" });
  whole.free();
  sameBytes(exported["config.json"], merged["config.json"], "config");
  const [own, wanted] = [exported, merged].map((all) => openFile(all["model.safetensors"]));
  const names = Object.keys(wanted.header);
  equal(Object.keys(own.header).sort(), names.toSorted(), "names");
  let [worst, changed] = [0, 0];
  for (const name of names.filter((one) => one !== "__metadata__")) {
    equal(own.header[name].shape, wanted.header[name].shape, `the shape of ${name}`);
    const values = ({ header, data }) =>
      new Float32Array(data.slice(...header[name].data_offsets).buffer);
    const [mine, theirs, plain] = [own, wanted, before].map(values);
    const off = mine.reduce((most, x, at) => Math.max(most, Math.abs(x - theirs[at])), 0);
    ok(off <= 2e-6, `${name} differs by ${off}`);
    worst = Math.max(worst, off);
    if (mine.some((x, at) => Math.abs(x - plain[at]) > 1e-2)) changed += 1;
  }
  return { worst, changed };
}

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["firefox"],
  why: "what is packed and what is refused is decided in the module; peft holds PEFT's numbers, some of them in Node and samples in the browsers",
  core: 12,
  smoke: ["texts are those of an f32 model that reads the same format"],
};

export const cases = {
  async "texts are those of an f32 model that reads the same format"(host) {
    const { Model } = host.tinyloom;
    const files = await checkpoint(host, { tie_word_embeddings: false });
    for (const weights of FORMATS) {
      const source = kept(files, weights);
      const [whole, packed] = [
        await Model.fromPretrained(host.runtime, source),
        await Model.fromPretrained(host.runtime, source, { weights }),
      ];
      equal([whole.weights, packed.weights], ["f32", weights]);
      ok(packed.gpuBytes < whole.gpuBytes * 0.6, `${packed.gpuBytes} of ${whole.gpuBytes} bytes`);
      const expected = tokensOf(await textOf(whole, { weights }));
      equal(tokensOf(await textOf(packed)), expected, weights);
      equal(tokensOf(await textOf(packed, { weights })), expected, `${weights}, asked for`);
      const { tokens } = batch(40);
      const losses = [await packed.loss(tokens), await whole.loss(tokens, undefined, { weights })];
      ok(Math.abs(losses[0] - losses[1]) < 1e-5, `${losses} in ${weights}`);
      for (const model of [whole, packed]) model.free();
    }
  },

  async "an adapter is trained on it, saved, and resumed on the same base alone"(host) {
    const { Adapter, Model, Trainer } = host.tinyloom;
    const source = await checkpoint(host);
    const load = (weights) => Model.fromPretrained(host.runtime, source, { weights });
    const model = await load("int4");
    const adapter = await Adapter.create(model, LORA);
    const trainer = await Trainer.create(adapter, { ...trainerOptions, learningRate: 0.02 });
    const plain = await textOf(model);
    const metrics = await collect(trainer.run(await dataset(host.tinyloom), { until: 8 }));
    ok(metrics.at(-1).loss < metrics[0].loss - 0.3, `${metrics[0].loss} to ${metrics.at(-1).loss}`);
    equal(await textOf(model), plain, "the model's own text");
    const files = await trainer.save();
    const again = await Trainer.resume(model, files);
    const step = (one) => one.step(batch(64));
    const [here, there] = [await step(trainer), await step(again)];
    equal(there.loss, here.loss, "the step after a resume");
    for (const weights of ["int8", "f32"]) {
      const other = await load(weights);
      await refuses("invalid-checkpoint", "other weights", () => Trainer.resume(other, files));
      other.free();
    }
    model.free();
  },

  async "bytes are those of estimate()"(host) {
    const { Adapter, Model, Trainer, estimate } = host.tinyloom;
    const source = await checkpoint(host);
    const shape = JSON.parse(new TextDecoder().decode(source["config.json"]));
    const trainer = { tokensPerStep: 64 };
    for (const weights of ["f32", ...FORMATS]) {
      const generate = { tokens: 60 };
      const options = { weights, adapter: LORA, trainer, generate };
      const told = await estimate(shape, options, host.runtime.capabilities);
      const model = await Model.fromPretrained(host.runtime, source, { weights });
      const adapter = await Adapter.create(model, LORA);
      await Trainer.create(adapter, trainer);
      await collect(
        model.generate(PROMPT, { maxTokens: 57, temperature: 0, stopTokens: [], adapter }),
      );
      equal(model.gpuBytes + adapter.gpuBytes, told.bytes.total, weights);
      model.free();
    }
  },

  async "what needs the checkpoint's own numbers is refused, and nothing changes"(host) {
    const { Adapter, Model, Trainer, estimate } = host.tinyloom;
    const source = await checkpoint(host);
    const model = await Model.fromPretrained(host.runtime, source, { weights: "int8" });
    const adapter = await Adapter.create(model, LORA);
    const [before, bytes] = [await textOf(model, { adapter }), model.gpuBytes];
    const words = ["int8", "leave weights out"];
    const { tokens } = batch(9);
    for (const weights of ["f32", "f16", "int4"]) {
      await refuses("invalid-options", words, () => model.generate(PROMPT, { weights, adapter }));
      const { message } = await refuses("invalid-options", words, () =>
        model.loss(tokens, undefined, { weights }),
      );
      // What was given, and what to load the model with.
      equal(message.split('"f32"').length, weights === "f32" ? 3 : 2, message);
      await refuses("invalid-options", words, () => model.logits(tokens, { weights }));
      const options = { weights: "int8", generate: { tokens: 32, weights } };
      await refuses("invalid-options", words, () => estimate(model.config, options));
    }
    await refuses("invalid-options", ["int8", "adapter"], () => Trainer.create(model, {}));
    const written = [];
    const stream = () => new WritableStream({ write: (bytes) => void written.push(bytes) });
    const to = { "config.json": stream(), "model.safetensors": stream() };
    await refuses("invalid-options", ["int8", "saveMerged"], () => model.save({ to }));
    await refuses("invalid-options", ["int8", "saveMerged"], () => adapter.merge());
    equal(written, [], "what a refused save has written");
    const other = await checkpoint(host, { num_hidden_layers: 1 });
    await refuses("invalid-checkpoint", "another model", () => adapter.saveMerged(other));
    for (const weights of ["int2", 4, null]) {
      const load = () => Model.fromPretrained(host.runtime, source, { weights });
      await refuses("invalid-options", "weights", load);
    }
    equal(await textOf(model, { adapter }), before, "the text");
    equal(model.gpuBytes, bytes, "bytes");
    equal(tokensOf(await textOf(model)).length, 12);
    model.free();
  },

  async "an adapter is added to a checkpoint that has its matrices in another order"(host) {
    for (const shape of Object.values(REORDERED)) {
      const source = await checkpoint(host, shape, shape);
      for (const dtype of ["F32", "BF16", "F16"]) {
        const bytes = source["model.safetensors"];
        const converted = dtype === "F32" ? bytes : convert(bytes, dtype);
        const files = { ...source, "model.safetensors": converted };
        for (const weights of dtype === "F32" ? ["f32", ...FORMATS] : ["int8"]) {
          const { changed } = await exportedAsMerged(host, files, { weights });
          // Four matrices of both layers.
          equal(changed, 8, `${shape.model_type}: changed tensors`);
        }
      }
    }
  },

  async "so is one whose matrices are larger than a piece"(host) {
    const shape = { ...REORDERED.gpt2, vocab_size: 64, n_embd: 768, n_layer: 1 };
    const source = await checkpoint(host, shape, shape);
    const options = { weights: "int8", rank: 2, targets: ["c_fc", "c_attn"] };
    const { changed } = await exportedAsMerged(host, source, options);
    equal(changed, 2, "changed tensors");
  },

  async "after a lost device it comes back from its source, or says that this is gone"(host) {
    const { Adapter, Model, Runtime, Trainer } = host.tinyloom;
    const runtime = await Runtime.create({ gpu: host.gpu });
    const source = await checkpoint({ ...host, runtime });
    const model = await Model.fromPretrained(runtime, source, { weights: "int4" });
    const adapter = await Adapter.create(model, LORA);
    const trainer = await Trainer.create(adapter, { ...trainerOptions, learningRate: 0.02 });
    for (let at = 0; at < 3; at++) await trainer.step(batch(48, 40 * at));
    const [plain, adapted] = [await textOf(model), await textOf(model, { adapter })];
    runtime.simulateLoss();
    equal(await textOf(model), plain, "the text of the model that came back");
    equal(await textOf(model, { adapter }), adapted, "with its adapter");
    equal([model.weights, trainer.steps], ["int4", 3]);
    runtime.destroy();
  },

  async "a file that is no number is refused before it is packed"(host) {
    const { Model } = host.tinyloom;
    const source = await checkpoint(host);
    const { header, data } = openFile(source["model.safetensors"]);
    const [begin] = header["model.layers.1.mlp.up_proj.weight"].data_offsets;
    const bad = data.slice();
    new DataView(bad.buffer).setFloat32(begin + 400, Number.NaN, true);
    delete header.__metadata__;
    const files = { ...source, "model.safetensors": makeFile(header, bad) };
    const load = () => Model.fromPretrained(host.runtime, files, { weights: "int4" });
    await refuses("invalid-checkpoint", ["up_proj", "finite"], load);
  },

  async "a damaged checkpoint gets no adapter"(host) {
    const { Adapter, Model } = host.tinyloom;
    const source = await checkpoint(host, {
      hidden_size: 512,
      intermediate_size: 4608,
      num_hidden_layers: 1,
    });
    const model = await Model.fromPretrained(host.runtime, source, { weights: "int8" });
    const adapter = await Adapter.create(model, LORA);
    const whole = source["model.safetensors"];
    const { header, data } = openFile(whole);
    const name = "model.layers.0.mlp.up_proj.weight";
    const [begin, end] = header[name].data_offsets;
    ok(end - begin > 8 << 20, `${end - begin} bytes of ${name} are more than a piece`);
    const changed = (at, change) => {
      const bytes = whole.slice();
      change(new DataView(bytes.buffer), bytes.length - data.length + at);
      return { ...source, "model.safetensors": bytes };
    };
    const refused = async (words, files) => {
      const closed = [];
      const stream = (file) => new WritableStream({ close: () => void closed.push(file) });
      const to = Object.fromEntries(Object.keys(source).map((file) => [file, stream(file)]));
      const told = ["model.safetensors", name, ...words];
      for (const options of [{}, { to }])
        await refuses("invalid-checkpoint", told, () => adapter.saveMerged(files, options));
      equal(closed, [], "streams that ended well");
    };
    for (const at of [begin, begin + (8 << 20), end - 4]) {
      const flip = (view, byte) => view.setUint8(byte, view.getUint8(byte) ^ 1);
      await refused(["damaged", "CRC-32"], changed(at, flip));
    }
    // Of another program, without checksums.
    const { __metadata__: _, ...plain } = header;
    for (const [row, column, value] of [
      [0, 100, Number.NaN],
      [4607, 509, Number.NEGATIVE_INFINITY],
    ]) {
      const bad = data.slice();
      new DataView(bad.buffer).setFloat32(begin + 4 * (512 * row + column), value, true);
      const words = [`${value} at [${row}, ${column}]`, "finite"];
      await refused(words, { ...source, "model.safetensors": makeFile(plain, bad) });
    }
    equal(Object.keys(await adapter.saveMerged(source)), Object.keys(source), "the good files");
    model.free();
  },
};
