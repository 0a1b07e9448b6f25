// Parameters by their names, in every format, and embeddings beside those of transformers.
import { close, equal, ok, refuses, sameBytes } from "../../api/bodies/assert.mjs";
import { batch, config, openFile, trainerOptions } from "../../api/bodies/kit.mjs";
import { readReference } from "../../api/bodies/reference.mjs";

export const place = {
  whole: ["node"],
  why: "the kernels are the lanes', and the order of numbers is the module's",
  core: 2,
  smoke: ["a parameter is read as saved, and set"],
};

const NORM = "model.norm.weight";
const EMBEDDING = "model.embed_tokens.weight";

/** Each tensor of a saved model. */
async function savedTensors(model) {
  const { header, data } = openFile((await model.save({ dtype: "f32" }))["model.safetensors"]);
  return Object.entries(header)
    .filter(([name]) => name !== "__metadata__")
    .map(([name, { shape, data_offsets: range }]) => {
      return { name, shape, values: new Float32Array(data.slice(...range).buffer) };
    });
}

async function fixture(name) {
  const read = (file) => readReference(`${name}/${file}`);
  const files = {};
  for (const file of ["config.json", "model.safetensors"]) files[file] = await read(file);
  return files;
}

const furthest = (a, b) => a.reduce((most, x, i) => Math.max(most, Math.abs(x - b[i])), 0);

export const cases = {
  async "a parameter is read as saved, and set"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config, { seed: 5 });
    for (const { name, shape, values } of await savedTensors(model)) {
      equal(model.parameters[name], shape, `shape of ${name}`);
      sameBytes(await model.parameter(name), values, name);
    }
    const { tokens } = batch(9);
    const before = await model.logits(tokens);
    const values = (await model.parameter(EMBEDDING)).map((x, i) => x + Math.sin(i) / 8);
    const given = values.slice();
    const set = model.setParameter(EMBEDDING, given);
    given.fill(0); // the call has copied them
    await set;
    sameBytes(await model.parameter(EMBEDDING), values, EMBEDDING);
    const after = await model.logits(tokens);
    ok(furthest(before, after) > 1e-3, "the logits are those of the old numbers");
    const saved = await tinyloom.Model.fromPretrained(runtime, await model.save({ dtype: "f32" }));
    sameBytes(await saved.logits(tokens), after, "logits of the saved model");
    await refuses("invalid-options", ["model.head", "model.parameters"], () =>
      model.parameter("model.head"),
    );
    await refuses("invalid-options", ["3 values", NORM], () => model.setParameter(NORM, [1, 2, 3]));
    const bad = new Float32Array(config.hidden_size).fill(Number.NaN);
    await refuses("invalid-options", ["values[0]", "finite"], () => model.setParameter(NORM, bad));
    await refuses("invalid-options", ["Float32Array"], () => model.setParameter(NORM, "1"));
    sameBytes(await model.logits(tokens), after, "logits after refusals");
    model.free();
    saved.free();
  },

  async "GPT-2's and GPT-NeoX's parameters have the checkpoint's order"({ tinyloom, runtime }) {
    for (const name of ["gpt2", "gpt-neox"]) {
      const files = await fixture(name);
      const { header, data } = openFile(files["model.safetensors"]);
      const model = await tinyloom.Model.fromPretrained(runtime, files);
      for (const [tensor, { data_offsets: range }] of Object.entries(header)) {
        if (tensor === "__metadata__") continue;
        const values = new Float32Array(data.slice(...range).buffer);
        sameBytes(await model.parameter(tensor), values, tensor);
        const turned = values.toReversed();
        await model.setParameter(tensor, turned);
        sameBytes(await model.parameter(tensor), turned, `${tensor}, set`);
      }
      model.free();
    }
  },

  async "packed matrices are read as their codes, and packed when they are set"(host) {
    const { tinyloom, runtime } = host;
    const wide = { ...config, hidden_size: 64, intermediate_size: 96, num_attention_heads: 4 };
    const whole = await tinyloom.Model.create(runtime, wide, { seed: 6 });
    const files = await whole.save({ dtype: "f32" });
    const name = "model.layers.0.mlp.down_proj.weight";
    const values = await whole.parameter(name);
    for (const [weights, allowed] of [
      ["f16", 1e-3],
      ["int8", 1e-2],
      ["int4", 0.15],
    ]) {
      const packed = await tinyloom.Model.fromPretrained(runtime, files, { weights });
      const largest = furthest(values, new Float32Array(values.length));
      const read = await packed.parameter(name);
      ok(furthest(read, values) <= allowed * largest, `${weights}: ${furthest(read, values)}`);
      await packed.setParameter(name, read.toReversed());
      await packed.setParameter(name, read);
      // What the codes stand for is packed to the same codes.
      const apart = furthest(await packed.parameter(name), read);
      ok(apart <= 1e-6 * largest, `${weights}: ${apart} apart when set again`);
      await packed.setParameter(
        name,
        values.map((x) => -x),
      );
      const negated = await packed.parameter(name);
      ok(
        furthest(
          negated,
          values.map((x) => -x),
        ) <=
          allowed * largest,
        `${weights}: set`,
      );
      packed.free();
    }
    whole.free();
  },

  async "a lost device brings a set parameter back"({ tinyloom, gpu }) {
    const runtime = await tinyloom.Runtime.create({ gpu });
    const model = await tinyloom.Model.create(runtime, config, { seed: 7 });
    const trainer = await tinyloom.Trainer.create(model, trainerOptions);
    await trainer.step(batch(16));
    const before = await model.parameter(EMBEDDING);
    for (const factor of [3, 2])
      await model.setParameter(
        EMBEDDING,
        before.map((x) => factor * x),
      );
    await trainer.step(batch(16, 3));
    const expected = await model.parameter(EMBEDDING);
    runtime.simulateLoss();
    sameBytes(await model.parameter(EMBEDDING), expected, "after the loss");
    runtime.destroy();
  },

  async "embeddings are those of transformers"({ tinyloom, runtime }) {
    const read = async (file) => await readReference(`embedding/${file}`);
    const { task, queries, documents, end } = JSON.parse(
      new TextDecoder().decode(await read("texts.json")),
    );
    const { header, data } = openFile(await read("oracle.safetensors"));
    const oracle = (name) => new Float32Array(data.slice(...header[name].data_offsets).buffer);
    const model = await tinyloom.Model.fromPretrained(runtime, await fixture("embedding"));
    const tokenizer = { encode: (text) => [...new TextEncoder().encode(text), end] };
    const reports = [];
    const onProgress = ({ loaded, total, stage }) => reports.push([loaded, total, stage]);
    const asked = { tokenizer, instruction: task };
    const found = [
      ...(await model.embed(queries, { ...asked, onProgress })),
      ...(await model.embed(documents.map(tokenizer.encode))),
    ];
    equal(reports, [
      [0, 2, "embed"],
      [1, 2, "embed"],
      [2, 2, "embed"],
    ]);
    let worst = 0;
    const compare = (vectors, expected, what) => {
      const all = Float32Array.from(vectors.flatMap((vector) => [...vector]));
      equal(all.length, expected.length, what);
      worst = Math.max(worst, furthest(all, expected));
      ok(worst <= 1e-4, `${what} differ by ${worst}`);
    };
    compare(found, oracle("last"), "embeddings");
    for (const vector of found) close(Math.hypot(...vector), 1, 1e-6, "length");
    const all = async (options) => [
      ...(await model.embed(queries, { ...asked, ...options })),
      ...(await model.embed(documents, { tokenizer, ...options })),
    ];
    compare(await all({ normalize: false }), oracle("raw"), "states");
    compare(await all({ normalize: false, pooling: "mean" }), oracle("mean"), "means");
    await refuses("invalid-options", ["texts[0]", "tokenizer"], () => model.embed(["a"]));
    await refuses("invalid-options", ["array"], () => model.embed("a", { tokenizer }));
    await refuses("invalid-options", ["pooling"], () => model.embed([[1]], { pooling: "max" }));
    model.free();
    return `within ${worst.toExponential(1)}`;
  },
};
