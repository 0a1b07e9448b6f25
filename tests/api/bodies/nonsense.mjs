// Nonsense from outside: sizes that nothing holds, hostile files, broken adapters, callbacks that
// throw. Each is refused with a fitting code, and the objects stay as they were.
import { equal, ok, refuses, sameFiles } from "./assert.mjs";
import { batch, collect, config, dataset, makeFile, openFile, text } from "./kit.mjs";

const parse = (bytes) => JSON.parse(new TextDecoder().decode(bytes));
const encode = (value) => new TextEncoder().encode(JSON.stringify(value));
const tiny = { ...config, hidden_size: 4, intermediate_size: 4, head_dim: 4, num_hidden_layers: 1 };

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["node"],
  why: "refused in the module, but for what adapters and errors of the host are like",
  smoke: [
    "sizes that no memory holds",
    "errors of the page's own use of the device",
    "adapters that are none",
    "a model freed while its trainer is made",
  ],
};

export const cases = {
  async "sizes that no memory holds"({ tinyloom, runtime }) {
    // Fields that are not given are transformers' own: seven billion weights.
    if (runtime.capabilities.software)
      await refuses("out-of-memory", ["27.0 GB", "CPU"], () => tinyloom.Model.create(runtime, {}));
    const wide = { ...tiny, vocab_size: 1 << 20, max_position_embeddings: 2048 };
    const model = await tinyloom.Model.create(runtime, wide);
    const tokens = new Uint32Array(1024);
    await refuses("out-of-memory", ["1024 tokens", "1048576", "4294967296 bytes"], () =>
      model.logits(tokens),
    );
    equal((await model.logits([1])).length, 1 << 20, "the model stays usable");
    model.free();
    const far = { ...tiny, head_dim: 64, max_position_embeddings: 1 << 24 };
    const long = await tinyloom.Model.create(runtime, far);
    const prompt = new Uint32Array((1 << 24) - 1);
    await refuses("limit-exceeded", [], () => long.generate(prompt));
    equal((await collect(long.generate([1], { maxTokens: 2 }))).length, 2, "a short text goes");
    // The cache grows with the text: nothing is reserved for tokens that nobody waits for.
    const { gpuBytes } = long;
    for await (const _ of long.generate([1], { maxTokens: 0xffff_ffff })) break;
    equal(long.gpuBytes, gpuBytes, "bytes for the beginning of a text without end");
    long.free();
  },

  async "texts far longer than the model's positions are refused before they are copied"(host) {
    const { tinyloom, runtime } = host;
    const model = await tinyloom.Model.create(runtime, config);
    const { wasmBytes } = runtime._counters();
    const length = 50_000_000;
    // Of the list there is no element: who reads it says so.
    for (const text of [new Uint32Array(length), new Array(length)]) {
      for (const work of [
        () => model.generate(text),
        () => model.generateBatch([[1], text]),
        () => model.generateBatch([{ prompt: text }]),
        () => model.loss(text),
        () => model.loss([1], text),
        () => model.logits(text),
        () => model.hiddenStates(text, { layer: 1 }),
        () => model.attention(text, { layer: 0, head: 0 }),
        () => model.capture(text, { residual: true }),
        () => model.lens(text),
        () => model.attribute(text, { target: 1 }),
      ]) {
        const words = [`${length} tokens`, "max_position_embeddings, 64", "shorter text"];
        await refuses("invalid-tokens", words, work);
      }
    }
    equal(runtime._counters().wasmBytes, wasmBytes, "bytes of the module's memory");
    model.free();
    const { hidden_size: n_embd, num_attention_heads: n_head, vocab_size } = config;
    const old = { model_type: "gpt2", n_embd, n_head, n_layer: 1, n_positions: 16, vocab_size };
    const other = await tinyloom.Model.create(runtime, old);
    await refuses("invalid-tokens", ["17 tokens", "n_positions, 16"], () =>
      other.loss(new Uint8Array(17)),
    );
    other.free();
  },

  async "nothing is allocated before a checkpoint's headers are read"({ tinyloom, runtime }) {
    const before = runtime._counters().buffers;
    const source = { "config.json": encode(tiny), "model.safetensors": makeFile({}) };
    await refuses("invalid-checkpoint", "missing", () =>
      tinyloom.Model.fromPretrained(runtime, source),
    );
    equal(runtime._counters().buffers, before, "buffers made");
  },

  async "configs that JSON would silently change"({ tinyloom, runtime }) {
    const wrong = (words, value) =>
      refuses("invalid-config", words, () => tinyloom.Model.create(runtime, value));
    await wrong("Map", new Map());
    await wrong("array", []);
    await wrong("Date", new Date());
    for (const value of [Number.NaN, Number.POSITIVE_INFINITY, () => 4, Symbol("x"), 4n]) {
      await wrong("head_dim", { ...config, head_dim: value });
    }
    await wrong("rope_scaling.factor", { ...config, rope_scaling: { factor: 8 } });
    const circle = { ...config };
    circle.self = circle;
    ok((await wrong("JSON", circle)).cause instanceof TypeError, "the cause is kept");
    const getter = {
      ...config,
      get boom() {
        throw new Error("boom");
      },
    };
    equal((await wrong("boom", getter)).cause.message, "boom", "the cause is kept");
    await wrong("toJSON", { ...config, toJSON: () => undefined });
    await refuses("invalid-options", "Map", () =>
      tinyloom.Model.create(runtime, config, new Map()),
    );
  },

  async "errors of the page's own use of the device"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config);
    const trainer = await tinyloom.Trainer.create(model, { tokensPerStep: 16 });
    const { device } = runtime;
    let heard = 0;
    const hush = (event) => {
      event.preventDefault();
      heard += 1;
    };
    device.addEventListener("uncapturederror", hush);
    for (let step = 1; step <= 3; step++) {
      device.createBuffer({ size: 16, usage: 1 << 19 });
      device.createBindGroup({
        layout: device.createBindGroupLayout({ entries: [] }),
        entries: [{ binding: 7, resource: { buffer: device.createBuffer({ size: 4, usage: 8 }) } }],
      });
      equal((await trainer.step(batch(8))).step, step, "the step counts");
    }
    device.removeEventListener("uncapturederror", hush);
    model.free();
    ok(heard > 0, "the page hears of its own errors");
  },

  async "hostile headers"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config);
    const files = await model.save();
    model.free();
    const { header, data } = openFile(files["model.safetensors"]);
    const wrong = (words, head) =>
      refuses("invalid-checkpoint", ["model.safetensors", ...words], () => {
        const bytes = makeFile(head, data);
        return tinyloom.Model.fromPretrained(runtime, { ...files, "model.safetensors": bytes });
      });
    const json = JSON.stringify(header);
    await wrong(["__metadata__"], { ...header, __metadata__: Array(1e5).fill({ "": 0 }) });
    await wrong(["__metadata__"], { ...header, __metadata__: { format: 1 } });
    await wrong(["twice"], `${json.slice(0, -1)},${json.slice(1)}`);
    await wrong(["header"], json + " ".repeat(4 << 20));
  },

  async "states that no run can have saved"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config);
    const trainer = await tinyloom.Trainer.create(model, { tokensPerStep: 16 });
    await trainer.step(batch(16));
    const files = await trainer.save();
    model.free();
    const resume = (change) => () => tinyloom.Trainer.resume(runtime, { ...files, ...change });
    const wrong = (words, change) => refuses("invalid-checkpoint", words, resume(change));
    const optimizer = files["optimizer.safetensors"];
    const { header, data } = openFile(optimizer);
    for (const [suffix, value] of [
      ["exp_avg", Number.NaN],
      ["exp_avg_sq", Number.POSITIVE_INFINITY],
      ["exp_avg_sq", -1],
    ]) {
      const name = `model.norm.weight.${suffix}`;
      const bytes = optimizer.slice();
      const at = bytes.length - data.length + header[name].data_offsets[0];
      new DataView(bytes.buffer).setFloat32(at, value, true);
      await wrong([name, "optimizer.safetensors"], { "optimizer.safetensors": bytes });
    }
    const state = parse(files["trainer_state.json"]);
    const progress = (change) => {
      const value = { ...state, progress: { ...state.progress, ...change } };
      return { "trainer_state.json": encode(value) };
    };
    await wrong("step", progress({ step: 2 ** 60 }));
    await wrong("microStep", progress({ microStep: 1 }));
    const optimizerBits = [0x7fc0_0000, ...state.optimizer.slice(1)];
    await wrong("optimizer", {
      "trainer_state.json": encode({ ...state, optimizer: optimizerBits }),
    });
    const resumed = await resume({})();
    equal((await resumed.step(batch(16))).step, 2, "the good files resume");
    resumed.model.free();
  },

  async "an accumulation that fails or is stopped is undone"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config);
    const { Dataset, Trainer } = tinyloom;
    const options = { tokensPerStep: 8, gradientAccumulation: 4, seed: 1 };
    const trainer = await Trainer.create(model, options);
    const bytes = [...new TextEncoder().encode(text.slice(0, 400))];
    const spoilt = bytes.map((byte, index) => (index % 50 === 49 ? 300 : byte));
    const split = { sequenceLength: 8, validationFraction: 0 };
    const bad = Dataset.fromTokens(spoilt, split);
    await refuses("invalid-tokens", "300", () => trainer.run(bad, { steps: 20 }));
    const { progress } = parse((await trainer.save())["trainer_state.json"]);
    equal(progress.microStep, 0, "micro-steps done");
    equal(progress.cursor, progress.step * 4, "batches drawn");
    ok(progress.step > 0 || progress.cursor === 0, "only whole steps count");
    trainer.free();

    const good = Dataset.fromTokens(bytes, split);
    const long = await Trainer.create(model, { ...options, gradientAccumulation: 65_536 });
    for (const way of ["signal", "free"]) {
      const controller = new AbortController();
      const stop = () => (way === "signal" ? controller.abort() : long.free());
      setTimeout(stop, 300);
      const began = performance.now();
      await refuses(way === "signal" ? "aborted" : "freed", [], () =>
        long.run(good, { steps: 1, signal: controller.signal }),
      );
      ok(performance.now() - began < 60_000, `${way} stops between micro-steps`);
      if (way === "free") continue;
      const { progress: after } = parse((await long.save())["trainer_state.json"]);
      equal([after.step, after.microStep, after.cursor], [0, 0, 0], "nothing counts");
    }
    await refuses("invalid-options", "gradientAccumulation", () =>
      Trainer.create(model, { gradientAccumulation: 2 ** 32 - 1 }),
    );
    model.free();
  },

  async "adapters that are none"({ tinyloom, gpu }) {
    const real = await gpu.requestAdapter();
    const { features, limits, info } = real;
    const good = { features, limits, info, requestDevice: (wanted) => real.requestDevice(wanted) };
    const open = (adapter) => () =>
      tinyloom.Runtime.create({ gpu: { requestAdapter: async () => adapter } });
    const wrong = (words, adapter) => refuses("adapter-unavailable", words, open(adapter));
    await wrong("info", {});
    await wrong("features", { ...good, features: undefined });
    await wrong("info", { ...good, info: undefined });
    await wrong("description", { ...good, info: { vendor: "", architecture: "", device: "" } });
    await wrong("limits", { ...good, limits: undefined });
    await wrong("features", { ...good, features: {} });
    await wrong("requestDevice", { ...good, requestDevice: undefined });
    await wrong("no GPUDevice", { ...good, requestDevice: async () => null });
    const throws = () => {
      throw new Error("boom");
    };
    await wrong("boom", { ...good, requestDevice: throws });
    await wrong("boom", { ...good, requestDevice: async () => throws() });
    const message = await open({ ...good, requestDevice: throws })().catch((e) => e.message);
    equal(message.split("\n").length, 1, "lines of a refused device's message");
    const runtime = await open(good)();
    runtime.destroy();
    // An adapter gives one device, as WebGPU has it: a second one is refused, or is lost from the start.
    // Where a browser gives another all the same, it has to work.
    const again = await open(good)().catch((error) => error);
    if (again instanceof tinyloom.TinyloomError) {
      equal(again.code, "adapter-unavailable", again.message);
      return "a used adapter is refused";
    }
    const logitsOn = async (runtime) => {
      const model = await tinyloom.Model.create(runtime, config, { seed: 1 });
      return model.logits([1, 2, 3]);
    };
    try {
      const other = await tinyloom.Runtime.create({ gpu });
      const first = await logitsOn(other);
      other.destroy();
      equal([...(await logitsOn(again))], [...first], "logits on a used adapter's device");
      again.destroy();
      return "a used adapter gives a device that works";
    } catch (error) {
      equal(error.code, "device-lost", error.stack);
      ok((await again.lost).reason, "why it is lost");
      return "a used adapter gives a lost device";
    }
  },

  async "an evaluation that cannot be is refused before the first step"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config);
    const trainer = await tinyloom.Trainer.create(model, { tokensPerStep: 16 });
    const tokens = Uint32Array.from({ length: 200 }, (_, i) => i % config.vocab_size);
    const data = tinyloom.Dataset.fromTokens(tokens, { sequenceLength: 8, validationFraction: 0 });
    await refuses("invalid-options", "validation split", () =>
      collect(trainer.run(data, { steps: 3, evaluateEvery: 2 })),
    );
    const state = parse((await trainer.save())["trainer_state.json"]);
    equal([state.progress.step, state.options.totalSteps], [0, null], "steps and total steps");
    equal((await collect(trainer.run(data, { steps: 3 }))).length, 3, "steps without evaluations");
    model.free();
  },

  async "a model freed while its trainer is made"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config);
    const { gpuBytes } = runtime._counters();
    const making = tinyloom.Trainer.create(model, { tokensPerStep: 16 });
    // Until the call has begun below.
    for (let turn = 0; turn < 5; turn++) await Promise.resolve();
    model.free();
    await refuses("freed", "Model", () => making);
    for (let turn = 0; turn < 100 && runtime._counters().gpuBytes >= gpuBytes; turn++) {
      await new Promise((next) => setTimeout(next, 10));
    }
    const left = runtime._counters().gpuBytes;
    ok(left < gpuBytes, `${left} bytes are left of ${gpuBytes} and a trainer`);
  },

  async "callbacks and tokenizers that throw"({ tinyloom, runtime }) {
    const { Dataset, Model, ByteTokenizer } = tinyloom;
    const boom = () => {
      throw new Error("boom");
    };
    const wrong = async (words, work) =>
      equal((await refuses("invalid-options", words, work)).cause?.message, "boom", "the cause");
    const model = await Model.create(runtime, config);
    const files = await model.save();
    await wrong(["onProgress", "boom"], () => model.save({ onProgress: boom }));
    await wrong("onProgress", () => Model.fromPretrained(runtime, files, { onProgress: boom }));
    await wrong("encode", () => Dataset.fromText("abc", { encode: boom }));
    const unread = new Blob(["abc"]);
    unread.stream = boom;
    await wrong("Blob", () => Dataset.fromText(unread, new ByteTokenizer()));
    const broken = new Blob([files["model.safetensors"]]);
    broken.slice = boom;
    await refuses("invalid-checkpoint", ["model.safetensors", "boom"], () =>
      Model.fromPretrained(runtime, { ...files, "model.safetensors": broken }),
    );
    const detached = files["model.safetensors"].slice().buffer;
    structuredClone(detached, { transfer: [detached] });
    await refuses("invalid-checkpoint", "model.safetensors", () =>
      Model.fromPretrained(runtime, { ...files, "model.safetensors": detached }),
    );
    const handle = { getFile: async () => undefined };
    await refuses("invalid-checkpoint", ["config.json", "handle", "undefined"], () =>
      Model.fromPretrained(runtime, { ...files, "config.json": handle }),
    );
    await refuses("invalid-options", "undefined", async () => new ByteTokenizer().encode());
    await refuses("invalid-tokens", "-1", async () => new ByteTokenizer().decode([-1]));
    sameFiles(await model.save(), files, "the model is as it was");
    model.free();
  },

  async "values that change or throw when they are read again"({ tinyloom, runtime, gpu }) {
    const model = await tinyloom.Model.create(runtime, config);
    /** A list of one element, which is another at each reading. */
    const list = (...values) => {
      let at = 0;
      const get = () => {
        const value = values[Math.min(at++, values.length - 1)];
        if (value instanceof Error) throw value;
        return value;
      };
      return Object.defineProperty([0], 0, { get });
    };
    const tokenizer = new tinyloom.ByteTokenizer();
    const boom = new Error("boom");
    for (const made of [
      () => ({ stopTokens: list(3, boom) }),
      () => ({ stopTokens: list(3, "no token") }),
      () => ({ stop: list("no such text", boom), tokenizer }),
      () => ({ stop: list("no such text", 7), tokenizer }),
    ]) {
      const options = () => ({ ...made(), maxTokens: 2, seed: 0 });
      const [first] = Object.keys(made());
      equal((await collect(model.generate([1], options()))).length, 2, first);
      equal((await collect(model.generateBatch([[1]], options()))).length, 2, first);
    }
    let reads = 0;
    const dropout = {
      get embedding() {
        if (reads++) throw boom;
        return 0.1;
      },
    };
    await refuses("invalid-options", ["Trainer.create", "boom"], () =>
      tinyloom.Trainer.create(model, { tokensPerStep: 16, dropout }),
    );
    const limits = {
      get maxBufferSize() {
        throw boom;
      },
    };
    await refuses("invalid-options", ["Runtime.create", "boom"], () =>
      tinyloom.Runtime.create({ gpu, limits }),
    );
    model.free();
  },

  async "numbers that f32 cannot hold"({ tinyloom, runtime }) {
    const { Model, Trainer } = tinyloom;
    const model = await Model.create(runtime, config);
    const wrong = (name, value, work) =>
      refuses("invalid-options", [`${name} is ${value}`, "3.4e"], work);
    for (const temperature of [1e-4, 1e39, 1e308]) {
      await wrong("temperature", temperature, () => model.generate([1], { temperature }));
    }
    for (const repetitionPenalty of [1e-50, 1e39, 1e308]) {
      const options = { repetitionPenalty };
      await wrong("repetitionPenalty", repetitionPenalty, () => model.generate([1], options));
    }
    await refuses("invalid-options", ["topP is 1e-50", "1.2e-38"], () =>
      model.generate([1], { topP: 1e-50 }),
    );
    const trainer = await Trainer.create(model, { learningRate: 1e-3, tokensPerStep: 16 });
    for (const learningRate of [1e-46, 1e-39, 1e39]) {
      const works = [
        () => Trainer.create(model, { learningRate }),
        async () => {
          trainer.learningRate = learningRate;
        },
      ];
      for (const work of works) {
        await refuses("invalid-options", ["learningRate is", "1.2e-38"], work);
      }
    }
    equal(trainer.learningRate, 1e-3, "the rate is as it was");
    const long = Array(config.max_position_embeddings + 1).fill(1);
    const error = await refuses("invalid-tokens", ["shorter text"], () => model.loss(long));
    ok(!error.message.includes("maxTokens"), error.message);
    model.free();
  },

  async "a prompt as long as the model's positions has no next token"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config);
    const most = config.max_position_embeddings;
    const made = async (length) => (await collect(model.generate(batch(length).tokens))).length;
    equal(await made(most), 0, "tokens after a full prompt");
    equal(await made(most - 1), 1, "tokens after all but one");
    await refuses("invalid-tokens", "0xffffffff", () => model.loss([1, 2], [-100, 2]));
    const trainer = await tinyloom.Trainer.create(model, { tokensPerStep: 16 });
    ok((await trainer.evaluate(await dataset(tinyloom))).loss > 0, "the model stays usable");
    model.free();
  },
};
