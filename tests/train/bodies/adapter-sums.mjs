// Several adapters of one call: beside PEFT's sum of them, and one for each text of a batch.
import { equal, ok, refuses, sameBytes } from "../../api/bodies/assert.mjs";
import { collect, config, makeFile, openFile } from "../../api/bodies/kit.mjs";
import { readReference } from "../../api/bodies/reference.mjs";

export const place = {
  whole: ["node"],
  why: "a sum is an adapter, whose kernels are the lanes'",
  smoke: ["what is no sum of adapters is refused"],
};

const read = async (folder, names) => {
  const files = {};
  for (const name of names) files[name] = await readReference(`${folder}/${name}`);
  return files;
};
const adapterFiles = (folder) =>
  read(`adapters/${folder}`, ["adapter_config.json", "adapter_model.safetensors"]);

/** An adapter's file with other numbers than zero in each B. */
function fillB(file, seed, size = 0.3) {
  // Without the checksums of the numbers that it had.
  const { header: whole, data: saved } = openFile(file);
  const { __metadata__: _, ...header } = whole;
  const data = saved.slice();
  for (const [name, { data_offsets: at }] of Object.entries(header)) {
    if (!name.includes(".lora_B.")) continue;
    const values = Float32Array.from(
      { length: (at[1] - at[0]) / 4 },
      (_, i) => size * Math.sin(seed * 7 + i * 1.7),
    );
    data.set(new Uint8Array(values.buffer), at[0]);
  }
  return makeFile(header, data);
}

export const cases = {
  async "logits and text are those of PEFT's sum"({ tinyloom, runtime }) {
    const { Model, Adapter } = tinyloom;
    const base = await read("llama", ["config.json", "model.safetensors"]);
    const { header, data } = openFile(await readReference("adapters/sum/oracle.safetensors"));
    const tensor = (name) => data.slice(...header[name].data_offsets).buffer;
    const tokens = new Uint32Array(tensor("tokens"));
    const expected = new Float32Array(tensor("logits"));
    const greedy = JSON.parse(
      new TextDecoder().decode(await readReference("adapters/sum/greedy.json")),
    );
    const model = await Model.fromPretrained(runtime, base);
    const loaded = ["llama", "sum"].map(async (folder) =>
      Adapter.load(model, await adapterFiles(folder)),
    );
    const adapters = (await Promise.all(loaded)).map((adapter, index) => ({
      adapter,
      scale: greedy.scales[index],
    }));
    const before = model.gpuBytes;
    const logits = await model.logits(tokens, { adapters });
    const apart = logits.reduce((most, x, i) => Math.max(most, Math.abs(x - expected[i])), 0);
    ok(apart <= 1e-4, `the logits differ by ${apart}`);
    equal(model.gpuBytes, before, "memory behind the call");
    const options = { adapters, temperature: 0, maxTokens: greedy.tokens.length, stopTokens: [] };
    const tokensOf = (drawn) => drawn.map(({ token }) => token);
    equal(tokensOf(await collect(model.generate(greedy.prompt, options))), greedy.tokens, "text");
    const batch = await collect(model.generateBatch([greedy.prompt, [1, 2]], options));
    equal(tokensOf(batch.filter(({ index }) => index === 0)), greedy.tokens, "text of a batch");
    const [{ adapter }] = adapters;
    const alone = await model.loss(tokens, undefined, { adapter });
    const one = await model.loss(tokens, undefined, { adapters: [{ adapter }] });
    ok(Math.abs(one - alone) <= 1e-5, `loss ${one} with one of one, ${alone} with it alone`);
    const twice = [
      { adapter, scale: 0.5 },
      { adapter, scale: 0.5 },
    ];
    const both = await model.loss(tokens, undefined, { adapters: twice });
    ok(Math.abs(both - alone) <= 1e-5, `loss ${both} with two halves, ${alone} with it alone`);
    sameBytes(await model.logits(tokens, { adapters }), logits, "logits again");
    model.free();
    return `logits within ${apart.toExponential(1)}`;
  },

  async "each text of a batch may have its own adapter"({ tinyloom, runtime }) {
    const { Model, Adapter } = tinyloom;
    const model = await Model.create(runtime, { ...config, initializer_range: 0.3 }, { seed: 1 });
    const made = [1, 2].map(async (seed) => {
      const adapter = await Adapter.create(model, { rank: 3, alpha: 12, seed });
      // B begins at zero, and such an adapter changes nothing.
      const { "adapter_model.safetensors": file, ...rest } = await adapter.save();
      const filled = fillB(file, seed);
      adapter.free();
      return Adapter.load(model, { ...rest, "adapter_model.safetensors": filled });
    });
    const [a, b] = await Promise.all(made);
    const [prompt, other] = [
      [5, 6, 7],
      [9, 8],
    ];
    const sum = [{ adapter: a, scale: 0.5 }, { adapter: b }];
    const prompts = [
      { prompt, adapter: a },
      { prompt, adapter: b },
      prompt,
      { prompt: other, adapter: a, maxTokens: 4 },
      { prompt, adapters: sum },
      { prompt: other, adapters: sum.map((one) => ({ ...one })), seed: 3, temperature: 1 },
      other,
      { prompt, adapters: [{ adapter: a, scale: 2 }, { adapter: b }] },
    ];
    const options = { maxTokens: 9, temperature: 0, stopTokens: [] };
    const drawn = async (given, more) => {
      const texts = given.map(() => []);
      for await (const { index, ...token } of model.generateBatch(given, { ...options, ...more }))
        texts[index].push(token);
      return texts;
    };
    const texts = await drawn(prompts);
    const before = model.gpuBytes; // caches of the model and of each adapter stay
    equal(await drawn(prompts), texts, "the same again");
    equal(model.gpuBytes, before, "memory behind the call");
    for (const [index, one] of prompts.entries()) {
      const { prompt, ...own } = one.prompt ? one : { prompt: one };
      equal(await drawn([prompt], own), [texts[index]], `text ${index} in a batch of its own`);
      const alone = await collect(model.generate(prompt, { ...options, ...own }));
      const ids = (all) => all.map(({ token }) => token);
      equal(ids(texts[index]), ids(alone), `text ${index} by generate`);
    }
    const same = [0, 1, 2, 4, 7].map((index) => JSON.stringify(texts[index]));
    equal(new Set(same).size, 5, "texts of one prompt");
    const given = await drawn([prompt, { prompt, adapters: sum }, prompts[1]], { adapter: a });
    equal(
      given,
      [0, 4, 1].map((index) => texts[index]),
      "an adapter for those that have none",
    );
    const order = async () =>
      (await collect(model.generateBatch(prompts, options))).map((t) => t.index);
    const first = await order();
    equal(await order(), first, "the order of tokens");
    equal(
      [...new Set(first.slice(0, 8))].sort(),
      [0, 1, 2, 3, 4, 5, 6, 7],
      "all texts go on together",
    );
    for await (const { index } of model.generateBatch(prompts, options)) if (index === 4) break;
    equal(model.gpuBytes, before, "memory behind a loop that was left");
    model.free();
  },

  async "an adapter of one text that is none is refused with the text's number"(host) {
    const { Model, Adapter } = host.tinyloom;
    const model = await Model.create(host.runtime, config, { seed: 1 });
    const foreign = await Model.create(host.runtime, config, { seed: 2 });
    const [adapter, other, freed] = [
      await Adapter.create(model),
      await Adapter.create(foreign),
      await Adapter.create(model),
    ];
    freed.free();
    const prompt = [5, 6];
    const refused = (code, words, one) =>
      refuses(code, words, () => collect(model.generateBatch([prompt, one], { maxTokens: 2 })));
    const wrong = "invalid-options";
    await refused(wrong, ["prompts[1]", "another model"], { prompt, adapter: other });
    const both = { prompt, adapter, adapters: [{ adapter }] };
    await refused(wrong, ["prompts[1]", "both given"], both);
    await refused(wrong, ["prompts[1]", "adapter"], { prompt, adapter: model });
    await refused(wrong, ["adapters[0]"], { prompt, adapters: [{}] });
    await refused("freed", "freed", { prompt, adapter: freed });
    model.free();
    foreign.free();
  },

  async "a text whose adapter gives no number ends alone, and is named"({ tinyloom, runtime }) {
    const { Model, Adapter } = tinyloom;
    const model = await Model.create(runtime, config, { seed: 1 });
    const adapter = await Adapter.create(model, { rank: 2, seed: 1 });
    const { "adapter_model.safetensors": file, ...rest } = await adapter.save();
    const broken = fillB(file, 1, 1e38);
    const other = await Adapter.load(model, { ...rest, "adapter_model.safetensors": broken });
    const prompts = [[1], [2, 3], { prompt: [4], adapter: other }, [5]];
    const options = { maxTokens: 5, temperature: 0, stopTokens: [] };
    const counts = prompts.map(() => 0);
    await refuses("non-finite", "prompts[2]", async () => {
      for await (const { index } of model.generateBatch(prompts, options)) counts[index] += 1;
    });
    equal(counts, [5, 5, 0, 5], "tokens");
    model.free();
  },

  async "what is no sum of adapters is refused"({ tinyloom, runtime }) {
    const { Model, Adapter } = tinyloom;
    const model = await Model.create(runtime, config, { seed: 1 });
    const other = await Model.create(runtime, config, { seed: 2 });
    const [adapter, foreign] = await Promise.all([Adapter.create(model), Adapter.create(other)]);
    const tokens = [1, 2, 3];
    const refused = (words, options) =>
      refuses("invalid-options", words, () => model.logits(tokens, options));
    await refused("adapters", { adapters: [] });
    await refused("adapters", { adapters: adapter });
    await refused("adapters", { adapters: [{ adapter, scale: Number.NaN }] });
    await refused("another model", { adapters: [{ adapter: foreign }] });
    await refused("both given", { adapter, adapters: [{ adapter }] });
    await refuses("invalid-options", "another model", () =>
      model.generate(tokens, { adapters: [{ adapter: foreign }] }),
    );
    adapter.free();
    await refuses("freed", "freed", () => model.logits(tokens, { adapters: [{ adapter }] }));
    model.free();
    other.free();
  },
};
