// LoRA adapters: what programs do with them, and what is refused.
import { equal, ok, refuses, sameBytes, sameFiles } from "../../api/bodies/assert.mjs";
import {
  batch,
  collect,
  config,
  dataset,
  makeFile,
  openFile,
  sameSnapshot,
  trainerOptions,
  waitFor,
} from "../../api/bodies/kit.mjs";
import { fixture, PEFT } from "./peft.mjs";

/** An adapter that changes something from its first step on. */
const SMALL = { rank: 4, alpha: 8, targets: ["q_proj", "down_proj"], seed: 9 };

const furthest = (a, b) => a.reduce((most, x, i) => Math.max(most, Math.abs(x - b[i])), 0);
const digits = (x) => x.toExponential(1);

const PROMPT = [116, 104, 101];

/** A greedy text. */
const textOf = async (model, adapter) =>
  collect(model.generate(PROMPT, { maxTokens: 12, temperature: 0, ...(adapter && { adapter }) }));

/** An adapter after some steps. */
async function trained({ tinyloom }, model, options = SMALL, steps = 3) {
  const adapter = await tinyloom.Adapter.create(model, options);
  const trainer = await tinyloom.Trainer.create(adapter, { ...trainerOptions, learningRate: 0.02 });
  for (let at = 0; at < steps; at++) await trainer.step(batch(48, 40 * at));
  trainer.free();
  return adapter;
}

const create = ({ tinyloom, runtime }) => tinyloom.Model.create(runtime, config, { seed: 42 });

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["firefox"],
  why: "which weights are read, trained and saved is decided in the module and in TypeScript",
  core: 6,
  smoke: ["a merge is done once"],
};

export const cases = {
  async "base and two adapters take turns while one is trained"(host) {
    const { Adapter, Trainer } = host.tinyloom;
    const model = await create(host);
    const [first, second] = [
      await trained(host, model),
      await trained(host, model, { rank: 2, targets: "all-linear", seed: 3 }),
    ];
    const { rank, alpha, rsLora, dropout, targets, seed } = first.options;
    equal({ rank, alpha, targets, seed }, SMALL, "options");
    equal([rsLora, dropout], [false, 0], "defaults");
    equal(second.options.targets, ["all-linear"]);
    const expected = [await textOf(model), await textOf(model, first), await textOf(model, second)];
    ok(JSON.stringify(expected[0]) !== JSON.stringify(expected[1]), "the first changes the text");
    ok(JSON.stringify(expected[1]) !== JSON.stringify(expected[2]), "the second another way");
    const third = await Adapter.create(model, SMALL);
    const trainer = await Trainer.create(third, trainerOptions);
    equal([trainer.model === model, trainer.adapter === third], [true, true], "what is trained");
    const steps = collect(trainer.run(await dataset(host.tinyloom), { steps: 3 }));
    const texts = await Promise.all([textOf(model), textOf(model, first), textOf(model, second)]);
    equal(texts, expected, "texts beside a run");
    equal((await steps).length, 3, "steps");
    const tokens = batch(16).tokens;
    const states = await model.hiddenStates(tokens, { layer: 2, adapter: first });
    ok(furthest(states, await model.hiddenStates(tokens, { layer: 2 })) > 0, "hidden states");
    ok(
      (await model.loss(tokens, undefined, { adapter: first })) !== (await model.loss(tokens)),
      "loss",
    );
    model.free();
  },

  async "an adapter takes what it says, and estimate() says so before"(host) {
    const { Adapter, Trainer, estimate } = host.tinyloom;
    const model = await create(host);
    const alone = model.gpuBytes;
    const { hidden_size: width, intermediate_size: inner } = config;
    for (const more of [{}, { ema: 0.99 }, { optimizer: "adamw8bit" }]) {
      const trainer = { tokensPerStep: 64, ...more };
      const told = await estimate(config, { adapter: SMALL, trainer }, host.runtime.capabilities);
      const adapter = await Adapter.create(model, SMALL);
      await Trainer.create(adapter, trainer);
      equal(adapter.gpuBytes + model.gpuBytes, told.bytes.total, "bytes");
      equal(model.gpuBytes, alone, "the model's own");
      equal(adapter.parameterCount, 2 * 4 * (2 * width + width + inner), "weights of A and B");
      equal([told.parameters, told.trainable], [model.parameterCount, adapter.parameterCount]);
      const what = `a snapshot with ${JSON.stringify(more)}`;
      await sameSnapshot(host.tinyloom, host.runtime, adapter, told.snapshots, what);
      adapter.free();
    }
    await refuses("invalid-options", ["adapter: rank", "0"], () =>
      estimate(config, { adapter: { rank: 0 } }),
    );
    model.free();
  },

  async "a run is resumed to the bit, on its own base alone"(host) {
    const { Adapter, Model, Trainer } = host.tinyloom;
    const model = await create(host);
    const data = await dataset(host.tinyloom);
    const dropped = { ...SMALL, dropout: 0.1 };
    const make = async () => Trainer.create(await Adapter.create(model, dropped), trainerOptions);
    const whole = await make();
    const expected = (await collect(whole.run(data, { steps: 6 }))).map((m) => m.loss);
    const half = await make();
    const before = (await collect(half.run(data, { steps: 3 }))).map((m) => m.loss);
    const files = await half.save();
    equal(Object.keys(files), [...PEFT, "optimizer.safetensors", "trainer_state.json"]);
    half.adapter.free();
    const again = await Trainer.resume(model, files);
    equal([again.model === model, again.steps], [true, 3], "what was resumed");
    const after = (await collect(again.run(data, { steps: 3 }))).map((m) => m.loss);
    equal([...before, ...after], expected, "losses");
    sameFiles(await again.save(), await whole.save(), "files of both");
    const other = await Model.create(host.runtime, config, { seed: 43 });
    const refused = () => Trainer.resume(other, files);
    await refuses("invalid-checkpoint", ["other weights", "base"], refused);
    const without = () => Trainer.resume(host.runtime, files);
    await refuses("invalid-options", ["adapter's", "Trainer.resume"], without);
    const loaded = () => Model.fromPretrained(host.runtime, files);
    await refuses("invalid-options", ["adapter's", "Adapter.load"], loaded);
    equal(
      other.gpuBytes,
      (await Model.create(host.runtime, config)).gpuBytes,
      "nothing is left over",
    );
    // The base is changed: it is another one.
    await (await trained(host, model)).merge();
    await refuses("invalid-checkpoint", "other weights", () => Trainer.resume(model, files));
    model.free();
    other.free();
  },

  async "after a lost device it goes on to the bit"({ tinyloom, gpu }) {
    const { Adapter, Model, Runtime, Trainer } = tinyloom;
    const tokens = batch(16).tokens;
    const data = await dataset(tinyloom);
    const run = async (lose) => {
      const runtime = await Runtime.create({ gpu });
      tinyloom.internal.runtimes.of(runtime).recovery.pace = { least: 0, share: 100 };
      const model = await Model.create(runtime, config, { seed: 42 });
      const adapter = await Adapter.create(model, { ...SMALL, dropout: 0.1 });
      const trainer = await Trainer.create(adapter, trainerOptions);
      const losses = [];
      let recovered = 0;
      for await (const m of trainer.run(data, { steps: 8 })) {
        losses.push(m.loss);
        if (m.recovered) recovered += 1;
        if (lose && [1, 5].includes(m.step)) runtime.simulateLoss();
      }
      const files = await trainer.save();
      const beside = [
        ...(await model.logits(tokens)),
        ...(await model.logits(tokens, { adapter })),
      ];
      const sibling = await Adapter.create(model, { ...SMALL, seed: 2 });
      const { step } = await (await Trainer.create(sibling, trainerOptions)).step(batch(48));
      equal(step, 1, "a step of another adapter");
      await adapter.merge();
      if (lose) runtime.simulateLoss();
      const merged = [...(await model.logits(tokens))];
      const other = [...(await model.logits(tokens, { adapter: sibling }))];
      runtime.destroy();
      return { recovered, losses, files, beside, merged, other };
    };
    const [calm, rough] = [await run(false), await run(true)];
    equal([calm.recovered, rough.recovered], [0, 2], "recoveries");
    equal(rough.losses, calm.losses, "losses");
    sameFiles(rough.files, calm.files, "files");
    equal(rough.beside, calm.beside, "logits without the adapter, and with it");
    equal(rough.merged, calm.merged, "logits of the merged model");
    equal(rough.other, calm.other, "logits of the other adapter");
  },

  async "an adapter whose model does not come back says so, and its last snapshot is saved"({
    tinyloom,
    gpu,
  }) {
    const { Adapter, Model, Runtime, Trainer } = tinyloom;
    const states = [];
    const recover = { onState: (state) => states.push(state) };
    const runtime = await Runtime.create({ gpu, recover });
    tinyloom.internal.runtimes.of(runtime).recovery.pace = { least: 0, share: 100 };
    const files = await (await Model.create(runtime, config, { seed: 42 })).save();
    const weights = files["model.safetensors"].slice();
    const model = await Model.fromPretrained(runtime, { ...files, "model.safetensors": weights });
    const adapter = await Adapter.create(model, SMALL);
    const trainer = await Trainer.create(adapter, trainerOptions);
    const data = await dataset(tinyloom);
    const losses = (await collect(trainer.run(data, { steps: 8 }))).map(({ loss }) => loss);
    await waitFor("a snapshot after a step", () => states.some(({ steps }) => steps?.[0] > 0));

    structuredClone(weights.buffer, { transfer: [weights.buffer] }); // the source is gone
    runtime.simulateLoss();
    const gone = ["the adapter does not come back", "source", "transferred"];
    await refuses("device-lost", gone, () => trainer.step(batch(16)));
    await refuses("device-lost", gone, () => model.loss([1, 2, 3], undefined, { adapter }));
    await refuses("device-lost", ["the model does not come back"], () => model.loss([1, 2, 3]));
    const saved = await trainer.save();
    await refuses("device-lost", gone, () => adapter.save());

    const again = await Trainer.resume(await Model.fromPretrained(runtime, files), saved);
    const from = again.steps;
    ok(from > 0, `the snapshot is of step ${from}`);
    const rest = (await collect(again.run(data, { until: 8 }))).map(({ loss }) => loss);
    equal(rest, losses.slice(from), "losses from the snapshot on");
    runtime.destroy();
  },

  async "what cannot be is refused, and changes nothing"(host) {
    const { Adapter, Trainer } = host.tinyloom;
    const model = await create(host);
    const other = await create(host);
    const bytes = model.gpuBytes;
    for (const [options, ...words] of [
      [{ rank: 0 }, "rank is 0"],
      [{ rank: 2.5 }, "rank is 2.5"],
      [{ alpha: 0 }, "alpha is 0"],
      [{ dropout: 1 }, "dropout is 1"],
      [{ dropout: -0.1 }, "dropout is -0.1"],
      [{ targets: [] }, "targets"],
      [{ targets: ["q_proj", "lm_head"] }, "lm_head", "q_proj, k_proj, v_proj, o_proj"],
      [{ targets: ["w_proj"] }, "w_proj", "down_proj"],
      [{ lora_alpha: 8 }, "lora_alpha", "rsLora"],
    ]) {
      await refuses("invalid-options", words, () => Adapter.create(model, options));
    }
    await refuses("invalid-options", "takes a Model first", () => Adapter.create(host.runtime));
    await refuses("aborted", "Adapter.create", () =>
      Adapter.create(model, { signal: AbortSignal.abort() }),
    );
    const adapter = await trained(host, model);
    const kept = await adapter.save();
    await refuses("invalid-options", "takes a Model first", () => Adapter.create(adapter));
    await refuses("invalid-options", "another model", () =>
      other.loss([1, 2], undefined, { adapter }),
    );
    await refuses("invalid-options", "another model", () => textOf(other, adapter));
    await refuses("invalid-options", "an Adapter of this model", () =>
      model.logits([1], { adapter: model }),
    );
    await refuses("invalid-options", "a Model or an Adapter", () => Trainer.create({}));
    const { message } = await refuses("invalid-options", "for each file", () =>
      adapter.save({ to: 5 }),
    );
    ok(!message.includes("config.json"), message);
    await refuses("invalid-options", ["Model of an adapter's run", "(Adapter)"], async () =>
      Trainer.resume(adapter, await adapter.save()),
    );
    sameFiles(await adapter.save(), kept, "the adapter");
    adapter.free();
    adapter.free();
    await refuses("freed", "Adapter", () => adapter.gpuBytes);
    await refuses("freed", "Adapter", () => textOf(model, adapter));
    equal(model.gpuBytes, bytes, "bytes of the model");
    // A base freed under its adapter.
    const orphan = await Adapter.create(other, SMALL);
    const trainer = await Trainer.create(orphan, trainerOptions);
    const lost = trainer.step(batch(16));
    other.free();
    await lost.catch(({ code }) => equal(code, "freed", "a step under way"));
    await refuses("freed", "model under the Adapter", () => orphan.save());
    await refuses("freed", "model under the Adapter", () => trainer.step(batch(16)));
    await refuses("freed", "model under the Adapter", () => textOf(other, orphan));
    await refuses("freed", "Model", () => Adapter.create(other));
    model.free();
  },

  async "a merge is done once"(host) {
    const model = await create(host);
    const adapter = await trained(host, model);
    const sibling = await host.tinyloom.Adapter.create(model, SMALL);
    const trainer = await host.tinyloom.Trainer.create(adapter, trainerOptions);
    const tokens = batch(32).tokens;
    const [plain, both] = [await model.logits(tokens), await model.logits(tokens, { adapter })];
    await refuses("aborted", "merge", () => adapter.merge({ signal: AbortSignal.abort() }));
    sameBytes(await model.logits(tokens), plain, "after a merge that was stopped");
    // With its last progress it is done: a promise that fails then comes too late.
    await adapter.merge({
      onProgress: async ({ loaded, total }) => {
        if (loaded === total) throw new Error("too late");
      },
    });
    const merged = await model.logits(tokens);
    const off = furthest(merged, both);
    ok(off <= 1e-4 && furthest(merged, plain) > 1e-3, `the merged model is ${off} off`);
    await refuses("freed", "merged into its model", () => adapter.merge());
    await refuses("freed", "merged into its model", () => adapter.save());
    await refuses("freed", "merged into its model", () => trainer.step(batch(16)));
    sameBytes(await model.logits(tokens), merged, "after a second merge");
    sameBytes(await model.logits(tokens, { adapter: sibling }), merged, "of another adapter");
    model.free();
    return `within ${digits(off)}`;
  },

  async "PEFT's files that are not such an adapter's are refused by name"(host) {
    const { Adapter } = host.tinyloom;
    const { model, adapter, files } = await fixture(host, "llama");
    const bytes = model.gpuBytes;
    adapter.free();
    const text = JSON.parse(new TextDecoder().decode(files["adapter_config.json"]));
    const load = (changed, weights) =>
      Adapter.load(model, {
        "adapter_config.json": new TextEncoder().encode(JSON.stringify({ ...text, ...changed })),
        "adapter_model.safetensors": weights ?? files["adapter_model.safetensors"],
      });
    for (const [field, value] of [
      ["use_dora", true],
      ["modules_to_save", ["lm_head"]],
      ["bias", "lora_only"],
      ["rank_pattern", { q_proj: 2 }],
      ["peft_type", "IA3"],
      ["of_another_year", 1],
    ]) {
      await refuses("invalid-config", field, () => load({ [field]: value }));
    }
    await refuses("invalid-checkpoint", "lora_A", () => load({ r: 5 }));
    await refuses("invalid-options", "w_proj", () => load({ target_modules: ["w_proj"] }));
    const { header, data } = openFile(files["adapter_model.safetensors"]);
    const first = Object.keys(header).find((key) => key !== "__metadata__");
    const foreign = "base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector";
    const { [first]: moved, ...rest } = header;
    const renamed = makeFile({ ...rest, [foreign]: moved }, data);
    await refuses("invalid-checkpoint", foreign, () => load({}, renamed));
    await refuses("invalid-checkpoint", first, () => load({}, makeFile({}, new Uint8Array(0))));
    await refuses("invalid-checkpoint", "adapter_config.json", () => Adapter.load(model, {}));
    await refuses("invalid-checkpoint", "adapter_model.safetensors", () =>
      Adapter.load(model, { "adapter_config.json": files["adapter_config.json"] }),
    );
    equal(model.gpuBytes, bytes, "bytes of the model");
    // Made with dropout: another may stand in for it.
    equal((await load({ lora_dropout: 0.1 })).options.dropout, 0.1);
    const without = await Adapter.load(
      model,
      {
        ...files,
        "adapter_config.json": new TextEncoder().encode(
          JSON.stringify({ ...text, lora_dropout: 0.1 }),
        ),
      },
      { dropout: 0 },
    );
    equal(without.options.dropout, 0, "dropout that was given");
    const trainer = await host.tinyloom.Trainer.create(without, { tokensPerStep: 16 });
    equal((await trainer.step({ tokens: [1, 2, 3], targets: [2, 3, 4] })).step, 1, "a step");
    model.free();
  },
};
