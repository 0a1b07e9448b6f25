// Several adapters of one call, beside PEFT's sum of them.
import { equal, ok, refuses, sameBytes } from "../../api/bodies/assert.mjs";
import { collect, config, openFile } from "../../api/bodies/kit.mjs";
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
