// A newcomer's mistakes: each is told what was meant, by the names that the caller knows.
import { equal, ok, refuses } from "./assert.mjs";
import { collect, config, dataset } from "./kit.mjs";

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["node"],
  why: "refused in TypeScript; how words load with a failure is the host's",
  smoke: ["names that another library has are told by their name here", "after destroy()"],
};

/** A refusal of an option, which names another one. */
const meant = (name, other, work) =>
  refuses("invalid-options", [`no option "${name}"`, `did you mean ${other}?`, "it takes"], work);

export const cases = {
  async "names that another library has are told by their name here"({ tinyloom, gpu, runtime }) {
    const { Adapter, BpeTokenizer, Dataset, Model, Runtime, Trainer, estimate } = tinyloom;
    await meant("powerpreference", "powerPreference", () =>
      Runtime.create({ gpu, powerpreference: "low-power" }),
    );
    const model = await Model.create(runtime, config);
    const trainer = await Trainer.create(model, { tokensPerStep: 16 });
    const data = await dataset(tinyloom);
    const tokenizer = new tinyloom.ByteTokenizer();
    for (const [name, other] of [
      ["lr", "learningRate"],
      ["learningrate", "learningRate"],
      ["learning_rate", "learningRate"],
      ["lerningRate", "learningRate"],
      ["weight_decay", "weightDecay"],
      ["batchSize", "tokensPerStep"],
      ["per_device_train_batch_size", "tokensPerStep"],
      ["optim", "optimizer"],
    ]) {
      await meant(name, other, () => Trainer.create(model, { [name]: 1 }));
      await meant(name, other, () => estimate(config, { trainer: { [name]: 1 } }));
    }
    for (const name of ["epochs", "num_train_epochs", "max_steps", "step"]) {
      await meant(name, "steps", () => trainer.run(data, { [name]: 1 }));
    }
    const messages = [{ role: "user", content: "hello" }];
    for (const [name, other] of [
      ["max_tokens", "maxTokens"],
      ["max_new_tokens", "maxTokens"],
      ["top_p", "topP"],
      ["temprature", "temperature"],
      ["do_sample", "temperature"],
      ["stop_sequences", "stop"],
    ]) {
      await meant(name, other, () => model.generate([1], { [name]: 1 }));
      await meant(name, other, () => model.generateBatch([[1]], { [name]: 1 }));
      await meant(name, other, () => tinyloom.chat(model, tokenizer, messages, { [name]: 1 }));
    }
    await meant("r", "rank", () => Adapter.create(model, { r: 8 }));
    await meant("target_modules", "targets", () => Adapter.create(model, { target_modules: [] }));
    await meant("input_ids", "tokens", () => trainer.step({ input_ids: [1], labels: [2] }));
    await meant("dtype", "weights", () => Model.fromPretrained(runtime, {}, { dtype: "f16" }));
    await meant("seq_len", "sequenceLength", () =>
      Dataset.fromText("abc", tokenizer, { seq_len: 2 }),
    );
    await meant("vocab_size", "vocabSize", () => BpeTokenizer.train("abc", { vocab_size: 300 }));
    // Of another call, and of none.
    await refuses(
      "invalid-options",
      ['no option "epochs"', "steps is an option of trainer.run"],
      () => Trainer.create(model, { epochs: 3 }),
    );
    await refuses("invalid-options", "learningRate is an option of Trainer.create", () =>
      trainer.run(data, { lr: 1e-3 }),
    );
    for (const name of ["zzzzzzzz", "x".repeat(1e6), "constructor", "__proto__ "]) {
      const { message } = await refuses("invalid-options", "it takes", () =>
        model.generate([1], { [name]: 1 }),
      );
      ok(!/did you mean|is an option of/.test(message), message.slice(-200));
    }
    const { num_attention_heads: heads, ...rest } = config;
    await refuses("invalid-config", ["num_atention_heads", "num_attention_heads"], () =>
      Model.create(runtime, { ...rest, num_atention_heads: heads }),
    );
    model.free();
  },

  async "classes that tinyloom alone makes"({ tinyloom, runtime }) {
    for (const [name, how] of [
      ["Runtime", "await Runtime.create("],
      ["Model", "await Model.create("],
      ["Trainer", "await Trainer.create("],
      ["Adapter", "await Adapter.create("],
      ["Dataset", "await Dataset.fromText("],
      ["Tensor", "runtime.tensor("],
      ["Tokenizer", "await Tokenizer.fromPretrained("],
      ["BpeTokenizer", "BpeTokenizer.train("],
    ]) {
      const made = (...values) => new tinyloom[name](...values);
      await refuses("invalid-options", how, async () => made());
      await refuses("invalid-options", how, async () => made(runtime, config));
    }
    class Letters extends tinyloom.Tokenizer {
      vocabSize = 26;
    }
    equal(new Letters().vocabSize, 26, "a tokenizer of the caller's own");
  },

  async "a promise is told to be awaited"({ tinyloom, gpu, runtime }) {
    const { Adapter, Dataset, Model, Runtime, Trainer, chat, estimate } = tinyloom;
    const model = await Model.create(runtime, config);
    const trainer = await Trainer.create(model, { tokensPerStep: 16 });
    const data = await dataset(tinyloom);
    const tokenizer = new tinyloom.ByteTokenizer();
    const later = async (value) => value;
    const messages = [{ role: "user", content: "hello" }];
    const steps = { steps: 1 };
    for (const [code, call] of [
      ["invalid-options", () => Runtime.create({ gpu: later(gpu) })],
      ["invalid-options", () => Model.create(later(runtime), config)],
      ["invalid-config", () => Model.create(runtime, later(config))],
      ["invalid-options", () => Model.create(runtime, config, later({}))],
      ["invalid-options", () => Model.fromPretrained(later(runtime), {})],
      ["invalid-options", () => Model.fromPretrained(runtime, later({}))],
      ["invalid-options", () => Model.fromPretrained(runtime, { "config.json": later("{}") })],
      ["invalid-options", () => Trainer.create(later(model))],
      ["invalid-options", () => Trainer.resume(later(runtime), {})],
      ["invalid-options", () => Trainer.findLearningRate(later(model), data)],
      ["invalid-options", () => Adapter.create(later(model))],
      ["invalid-options", () => trainer.run(later(data), steps)],
      ["invalid-options", () => trainer.evaluate(later(data))],
      ["invalid-options", () => trainer.run(data, { ...steps, evaluateOn: later(data) })],
      ["invalid-options", () => trainer.step(later({}))],
      ["invalid-tokens", () => model.generate(later([1]))],
      ["invalid-options", () => model.generate("a", { tokenizer: later(tokenizer) })],
      ["invalid-options", () => model.generate([1], { adapter: later(model) })],
      ["invalid-tokens", () => model.logits(later([1]))],
      ["invalid-options", () => chat(later(model), tokenizer, messages)],
      ["invalid-options", () => chat(model, later(tokenizer), messages)],
      ["invalid-options", () => Dataset.fromText("abc", later(tokenizer))],
      ["invalid-options", () => Dataset.fromText(later("abc"), tokenizer)],
      ["invalid-config", () => estimate(later(config))],
    ]) {
      await refuses(code, "a promise (await it first)", call);
    }
    model.free();
  },

  async "what a prompt may be"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config);
    const tokenizer = new tinyloom.ByteTokenizer();
    const wrong = (words, work) => refuses("invalid-tokens", words, work);
    for (const prompt of [undefined, null, 7, {}]) {
      for (const options of [{}, { tokenizer }]) {
        await wrong(["prompt is", "a text, with the option tokenizer", "token ids"], () =>
          model.generate(prompt, options),
        );
      }
    }
    await wrong(["prompts[1] is undefined", "a text"], () => model.generateBatch([[1], undefined]));
    const messages = [{ role: "user", content: "hello" }];
    const chat = "chat(model, tokenizer, messages)";
    await wrong(chat, () => model.generate(messages, { tokenizer }));
    await wrong(chat, () => model.generate(messages[0], { tokenizer }));
    await wrong(chat, () => model.generate({ messages }, { tokenizer }));
    await wrong(["prompts[0]", chat], () => model.generateBatch([messages], { tokenizer }));
    await wrong("generateBatch takes several", () => model.generate(["one", "two"], { tokenizer }));
    await wrong("tokenizer.encode(text)", () => model.logits("hello"));
    await wrong(["prompt[1] is 1.5", "whole number"], () => model.generate([1, 1.5]));
    model.free();
  },

  async "ids that the model has not are named by their argument"({ tinyloom, runtime }) {
    const { Model, Adapter } = tinyloom;
    const model = await Model.create(runtime, { ...config, vocab_size: 100 });
    const wrong = (words, work) => refuses("invalid-tokens", [...words, "999", "0 to 99"], work);
    await wrong(["prompt[0] is"], () => model.generate([999]));
    await wrong(["prompt[2] is"], () => model.generate([1, 2, 999], { bias: [[1, 2]] }));
    await wrong(["prompts[1][1] is"], () => model.generateBatch([[1], [2, 999]]));
    await wrong(["texts[0][1] is"], () => model.embed([[1, 999]]));
    const adapter = await Adapter.create(model, { rank: 2 });
    await wrong(["prompt[0] is"], () => model.generate([999], { adapter }));
    // Of a text the ids are the tokenizer's: é is 195, 169.
    const words = ["tokenizer's prompt[1] is 195", "vocab_size is 100"];
    const tokenizer = new tinyloom.ByteTokenizer();
    await refuses("invalid-tokens", words, () => model.generate("aé", { tokenizer }));
    equal((await collect(model.generate([99], { maxTokens: 2, stopTokens: [] }))).length, 2);
    model.free();
  },

  async "after destroy()"({ tinyloom, gpu }) {
    const { Adapter, Model, Runtime, Trainer } = tinyloom;
    const runtime = await Runtime.create({ gpu });
    const model = await Model.create(runtime, config);
    const trainer = await Trainer.create(model, { tokensPerStep: 16 });
    const adapter = await Adapter.create(model, { rank: 2 });
    const tensor = runtime.tensor([1, 2], [2]);
    const batch = { tokens: [1], targets: [2] };
    const begun = model.generate([1], { maxTokens: 40, stopTokens: [] });
    await begun.next();
    runtime.destroy();
    for (const [name, work] of [
      ["Model", () => begun],
      ["Model", () => model.logits([1])],
      ["Model", async () => model.gpuBytes],
      ["Model", () => Trainer.create(model)],
      ["Trainer", () => trainer.step(batch)],
      ["Adapter", () => adapter.save()],
      ["Tensor", () => tensor.data()],
    ]) {
      const words = `this ${name} was freed when its Runtime was destroyed`;
      await refuses("freed", words, work);
    }
    await refuses("freed", "this Runtime was destroyed", () => Model.create(runtime, config));
    await refuses("freed", "this Runtime was destroyed", async () => runtime.device);
  },

  async "after free()"({ tinyloom, runtime }) {
    const { Adapter, Model, Trainer } = tinyloom;
    const model = await Model.create(runtime, config);
    const adapter = await Adapter.create(model, { rank: 2 });
    const over = await Trainer.create(adapter, { tokensPerStep: 16 });
    const trainer = await Trainer.create(model, { tokensPerStep: 16 });
    const batch = { tokens: [1], targets: [2] };
    adapter.free();
    await refuses("freed", "this Trainer was freed with its Adapter", () => over.step(batch));
    await refuses("freed", "this Adapter was freed;", () => adapter.save());
    model.free();
    await refuses("freed", "this Trainer was freed with its Model", () => trainer.step(batch));
    await refuses("freed", "this Model was freed;", () => model.logits([1]));
  },
};
