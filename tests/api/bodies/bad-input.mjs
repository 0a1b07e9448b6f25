// Wrong configs, tokens and uses: a TinyloomError each, and the object stays usable.
import { equal, ok, refuses, sameFiles } from "./assert.mjs";
import { batch, config, dataset } from "./kit.mjs";

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["node"],
  why: "refused in the module, before the GPU",
  smoke: ["batches that cannot be", "free before a call begins and while it runs"],
};

export const cases = {
  async "configs that cannot be"({ tinyloom, runtime }) {
    const make = (change) => () => tinyloom.Model.create(runtime, { ...config, ...change });
    const wrong = (words, change) => refuses("invalid-config", words, make(change));
    await wrong("num_attention_heads", { num_attention_heads: 3, num_key_value_heads: 1 });
    await wrong("num_key_value_heads", { num_attention_heads: 2, num_key_value_heads: 3 });
    await wrong("head_dim", { head_dim: 25 });
    await wrong("head_dim", { head_dim: 512 });
    await wrong("hidden_size", { hidden_size: 0 });
    await wrong("vocab_size", { vocab_size: -5 });
    await wrong("num_hidden_layers", { num_hidden_layers: 1.5 });
    await wrong("model_type", { model_type: "gptj" });
    await wrong("hidden_act", { hidden_act: "mystery" });
    await wrong("rope_type", { rope_scaling: { rope_type: "spiral", factor: 4 } });
    await wrong("short_factor", { rope_scaling: { rope_type: "longrope", factor: 4 } });
    await wrong("attention_bias", { model_type: "mistral", attention_bias: true });
    await refuses("invalid-config", "object", () => tinyloom.Model.create(runtime, "llama"));
    const huge = {
      hidden_size: 65_536,
      intermediate_size: 262_144,
      num_attention_heads: 512,
      head_dim: 128,
    };
    // Judged by the config alone: no adapter has a say.
    await wrong(["query, key and value weights", "4311744512", "2147483647"], {
      ...huge,
      num_hidden_layers: 200,
      vocab_size: 10_000,
    });
    const model = await make({})();
    equal((await model.logits([1])).length, 256, "the runtime stays usable");
    model.free();
  },

  async "token lists that cannot be"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config, { seed: 1 });
    const before = await model.logits([1, 2, 3]);
    const wrong = (words, work) => refuses("invalid-tokens", words, work);
    await wrong("256", () => model.logits([1, 256]));
    await wrong("empty", () => model.logits([]));
    await wrong("-1", () => model.logits([-1]));
    await wrong("1.5", () => model.logits([1.5]));
    await wrong("tokens", () => model.logits("abc"));
    await wrong("empty", () => model.loss([]));
    await wrong("targets", () => model.loss([1, 2, 3], [1, 2]));
    await wrong("300", () => model.loss([1, 2], [1, 300]));
    await wrong("empty", () => model.generate([]));
    await wrong("999", () => model.generate([999]));
    equal([...(await model.logits([1, 2, 3]))], [...before], "the model is as it was");
    model.free();
  },

  async "batches that cannot be"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config, { seed: 1 });
    const trainer = await tinyloom.Trainer.create(model, { tokensPerStep: 16 });
    const before = await trainer.save();
    const { tokens, targets } = batch(8);
    const wrong = (words, work) => refuses("invalid-tokens", words, work);
    await wrong("empty", () => trainer.step({ tokens: [], targets: [] }));
    await wrong("targets", () => trainer.step({ tokens, targets: targets.slice(1) }));
    await wrong("targets", () => trainer.step({ tokens }));
    await wrong("documents", () => trainer.step({ tokens, targets, documents: [0, 0] }));
    const forward = [0, 0, 5, 3, 3, 3, 3, 3];
    await wrong("documents", () => trainer.step({ tokens, targets, documents: forward }));
    await wrong("tokensPerStep", () => trainer.step(batch(17)));
    await wrong("256", () => trainer.step({ tokens: tokens.map(() => 256), targets }));
    await refuses("invalid-options", "target", () => trainer.step({ tokens, target: targets }));
    await refuses("invalid-options", "Dataset", () => trainer.evaluate({}));
    await refuses("invalid-options", "Dataset", () => trainer.run([1, 2], { steps: 1 }));
    sameFiles(await trainer.save(), before, "the trainer is as it was");
    equal((await trainer.step(batch(16))).step, 1, "the trainer stays usable");
    model.free();
  },

  async "use after free"({ tinyloom, runtime }) {
    const { Model, Trainer } = tinyloom;
    const data = await dataset(tinyloom);
    const model = await Model.create(runtime, config);
    const trainer = await Trainer.create(model, { tokensPerStep: 16 });
    trainer.free();
    await refuses("freed", "Trainer", () => trainer.step(batch(4)));
    await refuses("freed", "Trainer", () => trainer.run(data, { steps: 1 }));
    await refuses("freed", "Trainer", () => trainer.plan());
    equal((await model.logits([1])).length, 256, "the model outlives its trainer");
    const second = await Trainer.create(model, { tokensPerStep: 16 });
    model.free();
    model.free();
    await refuses("freed", "Model", () => model.logits([1]));
    await refuses("freed", "Model", () => model.gpuBytes);
    await refuses("freed", "Model", () => model.generate([1]));
    await refuses("freed", "Model", () => Trainer.create(model));
    await refuses("freed", "Trainer", () => second.step(batch(4)));
    data.free();
    const third = await Trainer.create(await Model.create(runtime, config), { tokensPerStep: 16 });
    await refuses("freed", "Dataset", () => third.evaluate(data));
    third.model.free();
  },

  async "free before a call begins and while it runs"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config);
    const expected = await model.logits([1, 2, 3]);
    const submits = () => runtime._counters().submits;
    const before = submits();
    const running = model.logits([1, 2, 3]);
    const waiting = model.logits([1, 2, 3]);
    waiting.catch(() => {}); // awaited below
    // Until the first is on the GPU, in microtasks alone: it cannot end before this goes on.
    for (let turn = 0; turn < 1000 && submits() === before; turn++) await Promise.resolve();
    ok(submits() > before, "the first call has begun");
    model.free();
    await refuses("freed", "Model", () => waiting);
    equal([...(await running)], [...expected], "the running call ends whole");

    const other = await tinyloom.Model.create(runtime, config);
    const early = other.logits([1, 2, 3]);
    other.free();
    await refuses("freed", "Model", () => early);
  },
};
