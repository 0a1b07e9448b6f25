// What needs no model: option objects, tokenizer, runtime, life.

import { breaches, watching, withTexts } from "../../reliability/limits-cell.mjs";
import { equal, ok, refuses } from "./assert.mjs";
import { config, text, trainerOptions } from "./kit.mjs";

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  early: true,
  whole: ["node", "chromium", "firefox"],
  why: "adapters, limits and the loss of a device are the host's; the rest is quick",
};

export const cases = {
  async "capabilities are plain data"({ runtime }) {
    const { adapter, limits, features, subgroupSize } = runtime.capabilities;
    equal(typeof adapter.vendor, "string");
    ok(limits.maxStorageBuffersPerShaderStage >= 8, "storage buffers of at least WebGPU's floor");
    equal(typeof features.subgroups, "boolean");
    equal(subgroupSize.length, 2);
    equal(JSON.parse(JSON.stringify(runtime.capabilities)), runtime.capabilities);
    for (const [name, value] of Object.entries(limits)) {
      equal(value, runtime.device.limits[name], `${name}, as the raw device has it`);
    }
  },

  async "limits default and features false are honoured"({ tinyloom, gpu }) {
    const runtime = await tinyloom.Runtime.create({ gpu, limits: "default", features: false });
    const { limits, features } = runtime.capabilities;
    const names = ["subgroups", "subgroupId", "f16", "timestamps", "subgroupMatrix"];
    equal(features, Object.fromEntries(names.map((name) => [name, false])));
    equal(limits.maxComputeWorkgroupStorageSize, 16_384);
    equal(limits.maxStorageBufferBindingSize, 134_217_728);
    equal(runtime.device.features.has("subgroups"), false);
    runtime.destroy();
  },

  async "subgroup matrices are listed where they are in use, and can be switched off"(host) {
    const { Runtime } = host.tinyloom;
    const seen = host.runtime.capabilities;
    equal(seen.subgroupMatrixConfigs !== undefined, seen.features.subgroupMatrix);
    const features = { subgroupMatrix: false };
    const runtime = await Runtime.create({ gpu: host.gpu, features });
    equal(runtime.capabilities.features.subgroupMatrix, false);
    equal(runtime.capabilities.subgroupMatrixConfigs, undefined);
    runtime.destroy();
  },

  async "caps on limits are respected, by the plan and by what reaches the GPU"(host) {
    const { Runtime, Model, Trainer } = host.tinyloom;
    const limits = {
      maxComputeInvocationsPerWorkgroup: 64,
      maxStorageBuffersPerShaderStage: 6,
      maxStorageBufferBindingSize: 65_536,
    };
    const runtime = await Runtime.create({ gpu: host.gpu, limits });
    let plan;
    const seen = await watching(runtime.device, async () => {
      const model = await Model.create(runtime, config);
      plan = withTexts(await Trainer.create(model, { tokensPerStep: 16 }));
    });
    const { capabilities } = runtime;
    for (const [name, value] of Object.entries(limits)) equal(capabilities.limits[name], value);
    equal(breaches(capabilities, seen, plan), [], "beyond the caps");
    const less = { maxComputeInvocationsPerWorkgroup: 2, maxComputeWorkgroupStorageSize: 0 };
    const lower = { ...capabilities.limits, ...less, maxStorageBuffersPerShaderStage: 5 };
    const told = breaches({ ...capabilities, limits: lower }, seen, plan).join();
    for (const name of [...Object.keys(less), "maxStorageBuffersPerShaderStage"]) {
      ok(told.includes(name), `what is beyond ${name} is seen`);
    }
    runtime.destroy();
    return `${seen.texts.size} texts, bindings of ${seen.binding} bytes at most`;
  },

  async "what a cap forbids is refused by name"({ tinyloom, gpu }) {
    const { Runtime, Model, Trainer } = tinyloom;
    const model = async (name, value) =>
      Model.create(await Runtime.create({ gpu, limits: { [name]: value } }), config);
    const binding = await model("maxStorageBufferBindingSize", 32_768);
    await refuses("limit-exceeded", ["maxStorageBufferBindingSize", "32768"], () =>
      Trainer.create(binding, { tokensPerStep: 64 }),
    );
    const trainer = await Trainer.create(binding, { tokensPerStep: 16 });
    ok(trainer.plan().length > 0, "the model stays usable with smaller steps");
    for (const [name, value] of [
      ["maxComputeWorkgroupStorageSize", 16],
      ["maxStorageBuffersPerShaderStage", 4],
    ]) {
      const capped = await model(name, value);
      await refuses("limit-exceeded", [name, String(value)], () => capped.logits([1]));
      equal(typeof (await capped.save())["model.safetensors"].length, "number", "still usable");
    }
  },

  async "products of sizes past 32 bits are refused, not wrapped"({ tinyloom, runtime }) {
    // 2^24 tokens of 2^8 columns are 2^32 elements: none, in 32 bits.
    const model = await tinyloom.Model.create(runtime, {
      ...config,
      hidden_size: 256,
      intermediate_size: 256,
    });
    await refuses("limit-exceeded", ["maxStorageBufferBindingSize", "17179869184"], () =>
      tinyloom.Trainer.create(model, { tokensPerStep: 2 ** 24 }),
    );
    model.free();
  },

  async "weights are counted before a model is made"({ tinyloom, runtime }) {
    const { Model } = tinyloom;
    const model = await Model.create(runtime, config);
    equal(Model.countParameters(runtime, config), model.parameterCount, "weights");
    model.free();
    equal(Model.countParameters(runtime, {}), 6_738_415_616, "the defaults, which are 7 B");
    await refuses("invalid-config", "hidden_size", () =>
      Model.countParameters(runtime, { hidde_size: 64 }),
    );
    await refuses("invalid-config", "object", () => Model.countParameters(runtime, 5));
  },

  async "lost settles after destroy"({ tinyloom, gpu }) {
    const runtime = await tinyloom.Runtime.create({ gpu });
    runtime.destroy();
    runtime.destroy();
    const { reason } = await runtime.lost;
    equal(reason, "destroyed");
    await refuses("freed", "Runtime", () => runtime.device);
    await refuses("freed", "Runtime", () => tinyloom.Model.create(runtime, config));
  },

  async "no WebGPU and no adapter are told apart"({ tinyloom }) {
    const { Runtime } = tinyloom;
    await refuses("webgpu-unavailable", "navigator.gpu", () => Runtime.create({ gpu: null }));
    const none = { requestAdapter: async () => null, getPreferredCanvasFormat: () => "rgba8unorm" };
    const inPage = typeof Window !== "undefined";
    const advice = inPage ? "hardware acceleration" : "VK_ICD_FILENAMES";
    const words = ["adapter", advice];
    const userAgent = globalThis.navigator?.userAgent ?? "";
    if (inPage && /Firefox/.test(userAgent)) words.push("gfx.webgpu.ignore-blocklist");
    if (inPage && /Linux.*Chrome/.test(userAgent)) {
      words.push("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader");
    }
    const missing = await refuses("adapter-unavailable", words, () =>
      Runtime.create({ gpu: none }),
    );
    ok(!("cause" in missing), "no cause, where there is none");
    const broken = {
      requestAdapter: async () => {
        throw new DOMException("the GPU process is gone", "AbortError");
      },
    };
    const gone = ["the GPU process is gone", advice];
    await refuses("adapter-unavailable", gone, () => Runtime.create({ gpu: broken }));
  },

  async "a memory budget refuses before anything is allocated or downloaded"(host) {
    const { tinyloom, gpu } = host;
    const { Adapter, estimate, Model, Runtime, Trainer } = tinyloom;
    const { bytes } = await estimate(
      config,
      { trainer: trainerOptions },
      host.runtime.capabilities,
    );
    const budgeted = (memoryBudget) => Runtime.create({ gpu, memoryBudget, recover: false });
    const refused = (words, call) =>
      refuses("out-of-memory", [...words, "memoryBudget allows", "MB"], call);
    const runtime = await budgeted(bytes.total);
    equal(runtime.capabilities.memoryBudget, bytes.total, "capabilities");
    equal(host.runtime.capabilities.memoryBudget, undefined, "without a budget");
    const model = await Model.create(runtime, config);
    const trainer = await Trainer.create(model, trainerOptions);
    equal(runtime._counters().gpuBytes, bytes.total, "the budget is full");
    const files = await trainer.save();
    const made = () => {
      const { buffers, bindGroups, pipelines, gpuBytes } = runtime._counters();
      return { buffers, bindGroups, pipelines, gpuBytes };
    };
    const before = made();
    await refused(["the model takes", "weights"], () => Model.create(runtime, config));
    await refused(["the adapter takes", "rank"], () => Adapter.create(model));
    await refused(["the trainer takes", "activations"], () => Trainer.create(model, {}));
    await refused(["the tensor takes", "shape"], async () => runtime.tensor(null, [4]));
    equal(made(), before, "what the runtime has made");
    runtime.destroy();

    // Of what does not fit no file is asked for but those that tell how large it is.
    const { "config.json": named, "trainer_state.json": state } = files;
    const tight = await budgeted(bytes.total - 4);
    const run = { "config.json": named, "trainer_state.json": state };
    await refused(["the trainer takes", "optimizer state"], () => Trainer.resume(tight, run));
    const large = JSON.stringify({ ...config, hidden_size: 640, num_attention_heads: 20 });
    const alone = { "config.json": new Blob([large]) };
    await refused(["the model takes"], () => Model.fromPretrained(tight, alone));
    equal(tight._counters().buffers, 0, "buffers made");
    tight.destroy();
  },

  async "the adapter is asked for once, as preferred"({ tinyloom }) {
    const asked = [];
    const gpu = {
      requestAdapter: async (options) => {
        asked.push(options.powerPreference);
        return null;
      },
    };
    for (const powerPreference of [undefined, "low-power"]) {
      const options = { gpu, ...(powerPreference && { powerPreference }) };
      await refuses("adapter-unavailable", "found none", () => tinyloom.Runtime.create(options));
    }
    equal(asked.join(), "high-performance,low-power");
  },

  async "wrong options are named, with what is allowed"({ tinyloom, gpu, runtime }) {
    const { Runtime, Model, Trainer, Dataset, ByteTokenizer } = tinyloom;
    const wrong = (words, work) => refuses("invalid-options", words, work);
    await wrong(["gpus", "powerPreference"], () => Runtime.create({ gpus: gpu }));
    await wrong(["gpu", '"x"'], () => Runtime.create({ gpu: "x" }));
    await wrong(["powerPreference", "low-power"], () =>
      Runtime.create({ gpu, powerPreference: "fast" }),
    );
    for (const memoryBudget of [0, -1, 1.5, "4 GB", Number.NaN, 1e300]) {
      await wrong(["memoryBudget", "a whole number of at least 1"], () =>
        Runtime.create({ gpu, memoryBudget }),
      );
    }
    await wrong(["limits", "max"], () => Runtime.create({ gpu, limits: "max" }));
    await wrong("maxBufferSize", () => Runtime.create({ gpu, limits: { maxBufferSize: -1 } }));
    const limits = { maxBufferSize: 2 ** 60 };
    await wrong("at most 9007199254740991", () => Runtime.create({ gpu, limits }));
    await wrong("subgroups", () => Runtime.create({ gpu, features: { subgroups: true } }));
    await wrong("wasm", () => Runtime.create({ gpu, wasm: 5 }));
    await wrong(["seed", "-1"], () => Model.create(runtime, config, { seed: -1 }));
    await wrong("Runtime", () => Model.create({}, config));
    await wrong("Model", () => Trainer.create({}, {}));
    await wrong("Runtime.create takes", () => Runtime.create("fast"));
    const model = await Model.create(runtime, config);
    for (const [name, value] of [
      ["learningRate", "1e-3"],
      ["learningRate", Number.NaN],
      ["schedule", "step"],
      ["warmupSteps", 1.5],
      ["totalSteps", 0],
      ["weightDecay", -0.1],
      ["beta1", 1],
      ["epsilon", 0],
      ["epsilon", 1e-46],
      ["gradientAccumulation", 0],
      ["tokensPerStep", 0],
      ["recompute", "yes"],
      ["lastLayers", -1],
      ["precision", "f16"],
      ["lr", 1e-3],
    ]) {
      await wrong(name, () => Trainer.create(model, { [name]: value }));
    }
    for (const [name, value] of [
      ["maxTokens", 0],
      ["temperature", -1],
      ["topK", 1.5],
      ["topP", 0],
      ["minP", 1],
      ["repetitionPenalty", 0],
      ["stopTokens", [-1]],
      ["stopTokens has 256", [255, 256]],
      ["signal", {}],
      ["top_k", 5],
    ]) {
      await wrong(name, () => model.generate([1], { [name]: value }));
    }
    await wrong("sequenceLength", () => Dataset.fromTokens([1, 2], { sequenceLength: 0 }));
    await wrong("validationFraction", () => Dataset.fromTokens([1, 2], { validationFraction: 1 }));
    await wrong("tokenizer", () => Dataset.fromText(text, {}));
    await wrong("string", () => Dataset.fromText(5, new ByteTokenizer()));
    await refuses("invalid-tokens", "empty", () => Dataset.fromText("", new ByteTokenizer()));
    equal((await model.logits([1, 2])).length, 512, "the model stays usable");
    model.free();
  },

  async "an optimizer takes its own options and refuses others'"({ tinyloom, runtime }) {
    const { estimate, Model, Trainer } = tinyloom;
    const model = await Model.create(runtime, config);
    const held = model.gpuBytes;
    const refused = (words, options) =>
      refuses("invalid-options", words, () => Trainer.create(model, options));
    await refused(["optimizer", "adam", '"sgd"'], { optimizer: "adam" });
    for (const [optimizer, name] of [
      ["adamw", "momentum"],
      ["adamw8bit", "momentum"],
      ["lion", "epsilon"],
      ["sgd", "beta2"],
    ]) {
      await refused([name, optimizer], { optimizer, [name]: 0.5 });
      const trainer = { optimizer, [name]: 0.5 };
      await refuses("invalid-options", [name, optimizer], () => estimate(config, { trainer }));
    }
    for (const [name, value] of [
      ["momentum", 1],
      ["labelSmoothing", 1],
      ["zLoss", -1],
      ["zLoss", 1e-46],
      ["dropout", 1],
      ["dropout", "0.1"],
      ["dropout", null],
      ["dropout", { attention: -0.1 }],
      ["dropout", { hidden: 0.1 }],
      ["dropout", { residual: null }],
      ["dropout", []],
      ["dropout", new Map()],
      ["zLoss", 1.8e38],
    ]) {
      await refused(name, { optimizer: "sgd", [name]: value });
    }
    await refused(["dropout", '"embeddings"', "embedding, att"], { dropout: { embeddings: 0.1 } });
    await refused(["dropout", "attention is 1;", "below 1"], { dropout: { attention: 1 } });
    equal(model.gpuBytes, held, "nothing is held");
    for (const [optimizer, wanted] of [
      ["adamw", { learningRate: 1e-3, weightDecay: 0.1, beta1: 0.9, beta2: 0.95, epsilon: 1e-8 }],
      [
        "muon",
        {
          learningRate: 1e-3,
          weightDecay: 0.1,
          beta1: 0.9,
          beta2: 0.95,
          epsilon: 1e-8,
          momentum: 0.95,
        },
      ],
      ["lion", { learningRate: 1e-4, weightDecay: 1, beta1: 0.9, beta2: 0.99 }],
      ["sgd", { learningRate: 0.1, weightDecay: 1e-3, momentum: 0.9 }],
    ]) {
      const { options } = await Trainer.create(model, { optimizer, tokensPerStep: 16 });
      const names = ["learningRate", "weightDecay", "beta1", "beta2", "epsilon", "momentum"];
      const own = Object.fromEntries(names.map((name) => [name, options[name]]));
      const all = Object.fromEntries(names.map((name) => [name, wanted[name]]));
      equal([options.optimizer, own], [optimizer, all], optimizer);
    }
    const most = await Trainer.create(model, { zLoss: 1.7e38, tokensPerStep: 16 });
    equal(most.options.zLoss, 1.7e38, "the largest factor compiles");
    model.free();
  },

  async "the byte tokenizer gives back every text"({ tinyloom }) {
    const tokenizer = new tinyloom.ByteTokenizer();
    equal(tokenizer.vocabSize, 256);
    for (const one of ["", "abc", "héllo – 😀\n", "\ufeffa mark first", "one \ufeff within"]) {
      equal(tokenizer.decode(tokenizer.encode(one)), one);
      const stream = tokenizer.decoder();
      const pieces = [...tokenizer.encode(one)].map((token) => stream.push(token));
      equal(pieces.join("") + stream.end(), one, "a stream");
    }
    equal([...tokenizer.encode("é")], [0xc3, 0xa9]);
    await refuses("invalid-tokens", "256", () => tokenizer.decode([256]));
    const decoder = tokenizer.decoder();
    const pieces = [...tokenizer.encode("aé😀")].map((token) => decoder.push(token));
    equal(pieces, ["a", "", "é", "", "", "", "😀"], "pieces of a stream");
    decoder.push(0xc3);
    equal(decoder.end(), "\ufffd", "a character that was cut off");
    await refuses("invalid-tokens", "256", () => decoder.push(256));
  },
};
