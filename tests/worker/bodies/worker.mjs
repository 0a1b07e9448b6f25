// The API through `connect()`, beside the API itself: the same numbers to the bit, the same errors.
import { equal, ok, refuses, sameFiles } from "../../api/bodies/assert.mjs";
import {
  batch,
  collect,
  concat,
  config,
  dataset,
  datasetOptions,
  inSharedMemory,
  pause,
  soon,
  text,
  trainerOptions,
} from "../../api/bodies/kit.mjs";

async function make(tinyloom, runtime, options = trainerOptions) {
  const model = await tinyloom.Model.create(runtime, config, { seed: 42 });
  return tinyloom.Trainer.create(model, options);
}

/** An intervention: each thread has a copy of its vector. */
const STEERING = {
  at: "residual",
  layer: 1,
  add: Float32Array.from({ length: config.hidden_size }, (_, i) => Math.sin(i)),
};

const withoutTime = ({ milliseconds, ...rest }) => rest;

/** What a program that awaits every call gets, here or in a worker. */
async function program(tinyloom, runtime) {
  const trainer = await make(tinyloom, runtime);
  const { model } = trainer;
  const data = await dataset(tinyloom);
  const metrics = await collect(trainer.run(data, { steps: 4, evaluateEvery: 2 }));
  const one = await trainer.step(batch(16));
  const tokens = await collect(model.generate([116, 104], { maxTokens: 8, seed: 3 }));
  const logits = await model.logits([1, 2, 3]);
  const gradients = await trainer.gradients();
  const result = {
    metrics: [...metrics, one].map(withoutTime),
    tokens,
    loss: await model.loss(batch(16).tokens),
    evaluated: await trainer.evaluate(data),
    logits: [...logits],
    states: [...(await model.hiddenStates([1, 2, 3], { layer: 1 }))],
    attention: [...(await model.attention([1, 2, 3], { layer: 1, head: 1 }))],
    captured: await model.capture([1, 2, 3], { residual: true, attention: true }),
    lens: await model.lens([1, 2, 3], { layers: [1], top: 2 }),
    attributed: await model.attribute([1, 2, 3], { target: 4, layers: [0] }),
    changed: [...(await model.logits([1, 2, 3], { interventions: [STEERING] }))],
    steered: await collect(
      model.generate([116, 104], { maxTokens: 8, seed: 3, interventions: [STEERING] }),
    ),
    gradients: Object.entries(gradients).map(([name, values]) => [name, values.length, values[0]]),
    plan: (await trainer.plan()).length,
    wgsl: await trainer.wgsl(3),
    model: [model.parameterCount, model.gpuBytes, model.config],
    count: await tinyloom.Model.countParameters(runtime, config),
  };
  const files = await trainer.save();
  const { losses, text, saved } = await adapted(tinyloom, model, data);
  await data.free();
  await model.free();
  return { result: { ...result, losses, text }, files: { ...files, ...saved } };
}

/** The same of an adapter of that model. */
async function adapted(tinyloom, model, data) {
  const adapter = await tinyloom.Adapter.create(model, { rank: 2, targets: ["q_proj"] });
  const trainer = await tinyloom.Trainer.create(adapter, trainerOptions);
  ok(trainer.adapter === adapter && trainer.model === model, "what is trained");
  const losses = (await collect(trainer.run(data, { steps: 2 }))).map((m) => m.loss);
  const text = await collect(model.generate([116, 104], { maxTokens: 8, seed: 3, adapter }));
  const prompts = [[116], { prompt: [116], adapter }];
  const batch = await collect(model.generateBatch(prompts, { maxTokens: 4, seed: 3 }));
  const saved = await adapter.save();
  const again = await tinyloom.Adapter.load(model, saved);
  await again.merge();
  await refuses("freed", "merged", () => again.merge());
  return { losses, text: [...text, batch, adapter.parameterCount, adapter.options], saved };
}

/** Handles of files go to the worker, which writes and reads them itself. Node has none. */
async function throughHandles(tinyloom, runtime, model, files) {
  if (typeof globalThis.navigator?.storage?.getDirectory !== "function") return;
  const root = await navigator.storage.getDirectory();
  const handles = {};
  for (const name of Object.keys(files)) {
    handles[name] = await root.getFileHandle(`worker-${name}`, { create: true });
  }
  await model.save({ to: handles });
  const loaded = await tinyloom.Model.fromPretrained(runtime, handles);
  sameFiles(await loaded.save(), files, "files of handles");
  await loaded.free();
  for (const name of Object.keys(files)) await root.removeEntry(`worker-${name}`);
}

export const cases = {
  async "a program gives the same to the bit"({ tinyloom, direct, runtime, gpu }) {
    const here = await direct.Runtime.create({ gpu });
    const expected = await program(direct, here);
    const actual = await program(tinyloom, runtime);
    for (const [name, value] of Object.entries(expected.result)) {
      equal(actual.result[name], value, name);
    }
    sameFiles(actual.files, expected.files);
    equal(runtime.capabilities, here.capabilities, "capabilities");
    here.destroy();
  },

  async "sizes of a config have their usual names, whatever the family's are"(host) {
    const own = { model_type: "gpt2", n_embd: 64, n_head: 2, n_layer: 1, n_positions: 32 };
    const { tinyloom, direct, runtime, gpu } = host;
    const here = await direct.Runtime.create({ gpu });
    const made = await direct.Model.create(here, { ...own, vocab_size: 256 });
    const model = await tinyloom.Model.create(runtime, { ...own, vocab_size: 256 });
    for (const config of [made.config, model.config]) {
      const { hidden_size, num_attention_heads, num_hidden_layers } = config;
      equal([hidden_size, num_attention_heads, num_hidden_layers], [64, 2, 1]);
      equal(config.max_position_embeddings, 32);
    }
    equal(JSON.stringify(model.config), JSON.stringify(made.config), "as config.json has them");
    await refuses("invalid-tokens", "n_positions, 32", () => made.loss(new Uint32Array(40)));
    const states = await model.hiddenStates([1], { layer: model.config.num_hidden_layers });
    equal(states.length, 64, "a state behind the last layer");
    here.destroy();
    await model.free();
  },

  async "memory that threads share is copied on its way to the worker"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config, { seed: 42 });
    const { tokens } = batch(16);
    const bias = new Float32Array(config.vocab_size).fill(-50);
    bias[7] = 50;
    const options = { maxTokens: 3, temperature: 0 };
    const calls = {
      loss: [(ids) => model.loss(ids), tokens],
      bias: [(bias) => collect(model.generate(tokens, { ...options, bias })), bias],
    };
    for (const [name, [call, array]] of Object.entries(calls)) {
      const expected = await call(array);
      const shared = inSharedMemory(array);
      const result = call(shared);
      shared.fill(0);
      equal(await result, expected, name);
    }
    await model.free();
  },

  async "what is a property here is a property there"({ tinyloom, direct, runtime, gpu }) {
    const here = await direct.Runtime.create({ gpu });
    const pairs = [[here, runtime]];
    const [mine, theirs] = [await make(direct, here), await make(tinyloom, runtime)];
    pairs.push([mine, theirs], [mine.model, theirs.model]);
    pairs.push([here.tensor([1, 2], [2]), await runtime.tensor([1, 2], [2])]);
    pairs.push([await dataset(direct), await dataset(tinyloom)]);
    const raw = ["Runtime.device", "Tensor.buffer"];
    let compared = 0;
    for (const [one, other] of pairs) {
      for (const name of properties(one)) {
        const where = `${one.constructor.name}.${name}`;
        if (raw.includes(where)) {
          await refuses("invalid-options", [where, "connect({ worker })"], () => other[name]);
          continue;
        }
        ok(name in other, `${where} is missing`);
        const [a, b] = [one[name], other[name]];
        equal(typeof b, typeof a, `the type of ${where}`);
        if (a?.constructor !== Object && typeof a === "object" && !Array.isArray(a)) {
          equal(b.constructor.name, a.constructor.name, `the class of ${where}`);
        } else equal(b, a, where);
        compared += 1;
      }
    }
    ok(theirs.model instanceof tinyloom.Model, "trainer.model is a Model");
    for (const trainer of [mine, theirs]) trainer.learningRate = 5e-4;
    equal(theirs.learningRate, 5e-4, "a rate that was set");
    const [a, b] = [await mine.step(batch(16)), await theirs.step(batch(16))];
    equal(withoutTime(b), withoutTime(a), "a step at that rate");
    equal(theirs.steps, 1, "steps");
    theirs.learningRate = -1;
    await refuses("invalid-options", "learningRate", () => theirs.step(batch(16)));
    equal(theirs.learningRate, 5e-4, "the rate after one that was refused");
    const before = theirs.model.gpuBytes;
    await theirs.free();
    ok(theirs.model.gpuBytes < before, "gpuBytes follows free()");
    await theirs.model.free();
    await refuses("freed", "Model", () => theirs.model.gpuBytes);
    here.destroy();
    return `${compared} properties`;
  },

  async "a step's own objective, scores and a gradient function are as they are here"({
    tinyloom,
    direct,
    runtime,
    gpu,
  }) {
    const here = await direct.Runtime.create({ gpu });
    const { tokens, targets } = batch(16);
    let calls = 0;
    const gradient = async ({ logits, rows }) => {
      calls += 1;
      return { gradient: logits.map((x) => x / 256), loss: rows };
    };
    const ofStates = ({ states, rows, hidden }) => ({ gradient: states, loss: rows * hidden });
    const program = async (api, on) => {
      const trainer = await make(api, on);
      const asked = { temperature: 2, entropy: true, top: 3 };
      const scores = await trainer.model.score(tokens, asked);
      const { ids, probabilities } = scores.top;
      const soft = { ids, probabilities, temperature: 2, share: 0.5 };
      const targetWeights = Float32Array.from(tokens, (_, i) => (i % 3) - 1);
      const steps = [
        await trainer.step({ tokens, targets, targetWeights, normalize: "weights", soft }),
        await trainer.step({ tokens, gradient, normalize: 16 }),
        await trainer.step({ tokens, gradient: ofStates, gradientBy: "states" }),
      ];
      const failing = () => {
        throw new RangeError("in the page");
      };
      const failed = () => trainer.step({ tokens, gradient: failing });
      await refuses("invalid-options", "in the page", failed);
      await trainer.model.free();
      return [scores, ...steps.map(withoutTime)];
    };
    equal(await program(tinyloom, runtime), await program(direct, here));
    equal(calls, 2);
    const trainer = await make(tinyloom, runtime);
    const buffer = here.device.createBuffer({ size: 16 * 256 * 4, usage: 4 }); // COPY_SRC
    await refuses("invalid-options", ["GPUBuffer", "cannot go to the worker"], () =>
      trainer.step({ tokens, gradient: () => ({ gradient: buffer, loss: 0 }) }),
    );
    await trainer.model.free();
    here.destroy();
  },

  async "a run is cancelled, left and continued, and a resume goes on to the bit"({
    tinyloom,
    runtime,
  }) {
    const data = await dataset(tinyloom);
    const whole = await make(tinyloom, runtime);
    const expected = (await collect(whole.run(data, { steps: 9 }))).map((m) => m.loss);
    const trainer = await make(tinyloom, runtime);
    const losses = [];
    const controller = new AbortController();
    await refuses("aborted", "run", async () => {
      for await (const m of trainer.run(data, { steps: 9, signal: controller.signal })) {
        losses.push(m.loss);
        if (m.step === 3) controller.abort();
      }
    });
    equal(losses.length, 3, "steps before the signal");
    for await (const m of trainer.run(data, { steps: 6 })) {
      losses.push(m.loss);
      if (m.step === 6) break;
    }
    const files = await trainer.save();
    const state = JSON.parse(new TextDecoder().decode(files["trainer_state.json"]));
    equal(state.progress.step, 6, "no step after the loop was left");
    const resumed = await tinyloom.Trainer.resume(runtime, files);
    for await (const m of resumed.run(data, { steps: 3 })) losses.push(m.loss);
    equal(losses, expected, "losses");
    for (const { model } of [whole, trainer, resumed]) await model.free();
  },

  async "errors have their codes"({ tinyloom, runtime }) {
    const { Model, Runtime, Trainer, Dataset, ByteTokenizer, TinyloomError } = tinyloom;
    const model = await Model.create(runtime, config);
    const error = await refuses("invalid-config", "hidden_size", () =>
      Model.create(runtime, { hidden_size: -1 }),
    );
    ok(error instanceof TinyloomError, "the class is the page's");
    await refuses("invalid-options", "heat", () => model.generate([1], { heat: 1 }));
    const tokenizer = { decoder: () => ({ push: () => "", end: () => "" }) };
    await refuses("invalid-options", ["cannot go to the worker", "tokenizer"], () =>
      model.generate([1], { tokenizer }),
    );
    const asking = { fetch: (url, init) => globalThis.fetch(url, init) };
    await refuses(
      "invalid-options",
      ["Model.fromPretrained", "cannot go to the worker", "asks for files"],
      () => Model.fromPretrained(runtime, "https://example.invalid/model", asking),
    );
    const files = { "tokenizer.json": "{}" };
    const saving = model.save({ format: "gguf", tokenizer: files });
    const unread = await saving.catch((caught) => caught);
    ok(!unread.message.includes("cannot go"), `files of a tokenizer go there: ${unread.message}`);
    const like = { aborted: false, addEventListener() {} };
    await refuses("invalid-options", ["signal is", "AbortSignal"], () =>
      model.loss([1, 2], undefined, { signal: like }),
    );
    await refuses("invalid-options", "learningRate", () =>
      Trainer.create(model, { learningRate: -1 }),
    );
    await refuses("invalid-tokens", "256", () => model.logits([256]));
    await refuses("invalid-tokens", "text", () => Dataset.fromText("", new ByteTokenizer()));
    await refuses("invalid-checkpoint", "config.json", () => Model.fromPretrained(runtime, {}));
    const capped = await Runtime.create({ limits: { maxStorageBufferBindingSize: 32_768 } });
    const narrow = await Model.create(capped, config);
    await refuses("limit-exceeded", "32768", () => Trainer.create(narrow, { tokensPerStep: 64 }));
    await capped.destroy();
    const signal = AbortSignal.abort();
    await refuses("aborted", "", () => model.generate([1], { signal }));
    await refuses("invalid-options", "Runtime", () => Model.create({}, config));
    await model.free();
    await refuses("freed", "Model", () => model.logits([1]));
    await refuses("freed", "Model", () => model.generate([1]));
  },

  async "generation is left early, and two take turns"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config, { seed: 1 });
    const options = { maxTokens: 12, seed: 5 };
    const all = await collect(model.generate([1, 2], options));
    equal(all.length, 12);
    const some = [];
    for await (const one of model.generate([1, 2], options)) {
      some.push(one);
      if (some.length === 3) break;
    }
    equal(some, all.slice(0, 3), "the tokens before the loop was left");
    const [a, b] = [model.generate([1, 2], options), model.generate([1, 2], options)];
    // Tokens alone: who comes second has its text read again, which sums logarithms in another order.
    const ids = all.map(({ token }) => token);
    const prompts = [[1, 2], { prompt: Uint32Array.of(1, 2), seed: 6, maxTokens: 5 }];
    const texts = [[], []];
    for await (const { index, token } of model.generateBatch(prompts, options)) {
      texts[index].push(token);
    }
    equal(texts[0], ids, "a batch");
    equal(texts[1].length, 5);
    await refuses("invalid-options", "array of prompts", () => model.generateBatch([]));
    const turns = { a: [], b: [] };
    for (let index = 0; index < 4; index++) {
      turns.a.push((await a.next()).value.token);
      turns.b.push((await b.next()).value.token);
      await model.loss([1, 2, 3]);
    }
    equal(turns, { a: ids.slice(0, 4), b: ids.slice(0, 4) }, "tokens");
    await a.return();
    equal((await a.next()).done, true);
    equal((await b.next()).value.token, ids[4], "the other goes on");
    await model.free();
  },

  async "saving and loading report progress, whose errors end them"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config, { seed: 2 });
    const stages = new Set();
    let last;
    const onProgress = (progress) => {
      stages.add(progress.stage);
      last = progress;
    };
    const files = await model.save({ onProgress });
    equal(last.loaded, last.total, "the end of the saving was reported before its result");
    const same = await tinyloom.Model.fromPretrained(runtime, files, { onProgress });
    equal([...stages].sort(), ["read model.safetensors", "upload"]);
    equal(await same.loss([1, 2, 3]), await model.loss([1, 2, 3]), "loss");
    const bar = { draw: () => undefined }; // as an element of the page: no message can carry it
    await same.save({ onProgress: (progress) => Object.assign(bar, progress) });
    equal(bar.loaded, bar.total, "a callback may give what cannot be cloned");
    const blobs = Object.fromEntries(
      Object.entries(files).map(([name, bytes]) => [name, new Blob([bytes])]),
    );
    await (await tinyloom.Model.fromPretrained(runtime, blobs)).free();
    const stop = () => {
      throw new Error("mine");
    };
    for (const onProgress of [stop, async () => stop()]) {
      await refuses("invalid-options", ["onProgress", "mine"], () => same.save({ onProgress }));
    }
    const pieces = { "config.json": [], "model.safetensors": [] };
    const to = Object.fromEntries(
      Object.entries(pieces).map(([name, list]) => [
        name,
        new WritableStream({ write: (bytes) => void list.push(bytes) }),
      ]),
    );
    await refuses("invalid-options", ["unknown"], () => same.save({ to, unknown: 1 }));
    const locked = Object.values(to).some((stream) => stream.locked);
    equal(locked, false, "streams of a refused save are still locked");
    await same.loss([1, 2], [2, 3], {}, to["config.json"]); // nothing takes the stream
    equal(await same.save({ to }), undefined, "what a save to streams of the page gives");
    const written = Object.entries(pieces).map(([name, list]) => [name, concat(list)]);
    sameFiles(Object.fromEntries(written), files, "streams of the page");
    await throughHandles(tinyloom, runtime, same, files);
    const bytes = files["model.safetensors"];
    const given = tinyloom.transfer(files);
    await (await tinyloom.Model.fromPretrained(runtime, given)).free();
    equal(bytes.length, 0, "what is given away");
    await Promise.all([model.free(), same.free()]);
  },

  async "a tokenizer is trained there, and datasets are read there"({ tinyloom, direct, runtime }) {
    const { BpeTokenizer, Dataset, Tokenizer, Trainer } = tinyloom;
    const stages = new Set();
    const onProgress = ({ stage }) => stages.add(stage);
    const options = { vocabSize: 290 };
    const tokenizer = await BpeTokenizer.train(new Blob([text]), { ...options, onProgress });
    const expected = await direct.BpeTokenizer.train(text, options);
    equal(
      [tokenizer.vocabSize, tokenizer.endToken],
      [expected.vocabSize, expected.endToken],
      "sizes",
    );
    equal([...stages], ["count words", "learn pairs"], "stages");
    const ids = await tokenizer.encode(text);
    equal([...ids], [...expected.encode(text)], "ids");
    equal(await tokenizer.decode(ids), text, "decoded");
    const decoder = await tokenizer.decoder();
    equal((await decoder.push(ids[0])) + (await decoder.end()), expected.decode(ids.slice(0, 1)));
    sameFiles(await tokenizer.save(), expected.save());
    const again = await Tokenizer.fromPretrained(await tokenizer.save());
    equal([...(await again.encode("the cat"))], [...expected.encode("the cat")], "loaded");
    for (const one of [tokenizer, new tinyloom.ByteTokenizer()]) {
      const sized = { ...config, vocab_size: one.vocabSize };
      const told = await tinyloom.Model.create(runtime, sized, { seed: 5 });
      const given = { maxTokens: 12, temperature: 0, tokenizer: one, stopTokens: [] };
      const all = await collect(told.generate([3, 4], given));
      const whole = all.map((token) => token.text).join("");
      ok(whole.length > 4, `a text: ${whole}`);
      const stop = [whole.slice(2, 4)];
      const cut = await collect(told.generate([3, 4], { ...given, stop }));
      const expected = whole.slice(0, whole.indexOf(stop[0]));
      equal(cut.map((token) => token.text).join(""), expected, "ended by a stop string");
      await told.free();
    }
    const data = await Dataset.from(new Blob([text]).stream(), tokenizer, datasetOptions);
    const here = await direct.Dataset.fromText(text, expected, datasetOptions);
    equal([data.tokens, data.hash], [here.tokens, here.hash], "of a stream");
    const listed = await Dataset.fromDocuments(["one", "two"], again, { validationFraction: 0 });
    equal(listed.documents, 2, "documents");
    sameFiles(await data.save(), await here.save());
    const model = await tinyloom.Model.create(runtime, { ...config, vocab_size: 300 });
    const trainer = await Trainer.create(model, trainerOptions);
    await collect(trainer.run(data, { steps: 1 }));
    const resumed = await Trainer.resume(runtime, await trainer.save());
    const words = [data.hash, listed.hash, "dataChanged"];
    await refuses("invalid-options", words, () => collect(resumed.run(listed, { steps: 1 })));
    for (const one of [resumed.model, model]) await one.free();
  },

  async "a generation asks a function of the page for its bias"({ tinyloom, runtime }) {
    const seen = [];
    const biased = await tinyloom.Model.create(runtime, config, { seed: 5 });
    const bias = (tokens) => {
      seen.push(tokens.length);
      return [[40 + seen.length, 1000]];
    };
    const steps = await collect(biased.generate([3], { maxTokens: 3, bias, alternatives: 2 }));
    equal(
      steps.map(({ token }) => token),
      [41, 42, 43],
      "biased by a function of the page",
    );
    equal([seen, steps[2].alternatives.length], [[1, 2, 3], 2], "of the tokens so far");
    const dense = new Float32Array(256).fill(Number.NEGATIVE_INFINITY);
    dense[9] = 0;
    const only = await collect(biased.generate([3], { maxTokens: 2, bias: dense }));
    equal(
      only.map(({ token }) => token),
      [9, 9],
      "masked",
    );
    const never = () => new Promise(() => {});
    const controller = new AbortController();
    const { signal } = controller;
    const stopped = biased.generate([3], { bias: never, signal }).next();
    const aborted = refuses("aborted", "generate", () => stopped);
    await pause(20);
    controller.abort();
    await soon("a bias that never comes", aborted);
    const waits = biased.generate([3], { bias: never }).next();
    const freed = refuses("freed", "Model", () => waits);
    await pause(20);
    await biased.free();
    await soon("a model that is freed", freed);
  },

  async "calls that alternate run in order"({ tinyloom, runtime }) {
    const data = await dataset(tinyloom);
    const trainer = await make(tinyloom, runtime);
    const run = trainer.run(data, { steps: 3 });
    // The second step is asked for when the first has ended, and so comes after the others.
    const [first, loss, second, files] = await Promise.all([
      run.next(),
      trainer.model.loss(batch(16).tokens),
      run.next(),
      trainer.save(),
    ]);
    equal([first.value.step, second.value.step], [1, 2]);
    ok(Number.isFinite(loss), "the loss between them");
    equal(JSON.parse(new TextDecoder().decode(files["trainer_state.json"])).progress.step, 1);
    await run.return();
    await trainer.model.free();
  },

  async "two runtimes live beside each other, and one that is destroyed refuses"({
    tinyloom,
    runtime,
  }) {
    const other = await tinyloom.Runtime.create();
    const [a, b] = [await make(tinyloom, runtime), await make(tinyloom, other)];
    const data = await tinyloom.Dataset.fromTokens(
      new tinyloom.ByteTokenizer().encode(text),
      datasetOptions,
    );
    const losses = async (trainer) =>
      (await collect(trainer.run(data, { steps: 3 }))).map((m) => m.loss);
    equal(await losses(b), await losses(a), "losses");
    const running = b.run(data, { steps: 100 });
    await running.next();
    await other.destroy();
    const { reason, message } = await other.lost;
    ok(reason && typeof message === "string", "lost settles");
    await refuses("freed", "Trainer", () => running);
    await refuses("freed", "", () => b.model.logits([1]));
    await refuses("freed", "", () => b.model.parameterCount);
    await refuses("freed", "", () => tinyloom.Model.create(other, config));
    equal((await a.step(batch(16))).step, 4, "the other goes on");
    await a.model.free();
  },

  async "a lost device is recovered there, and its states are told here"({ tinyloom }) {
    const states = [];
    const onState = (state) => states.push(state);
    const other = await tinyloom.Runtime.create({ recover: { onState } });
    const trainer = await make(tinyloom, other);
    const data = await dataset(tinyloom);
    const seen = [];
    for await (const { step, recovered } of trainer.run(data, { steps: 5 })) {
      if (step === 3) await other.simulateLoss();
      // On a slow machine a snapshot may have been taken.
      seen.push(recovered ? [step, recovered.fromStep <= 3] : step);
    }
    equal(seen, [1, 2, 3, [4, true], 5], "steps, and where the run went on");
    const told = states.map(({ state }) => state).filter((state) => state !== "snapshot");
    equal(told, ["lost", "reopened", "recovered"], "states");
    await other.destroy();
  },

  async "tensors are there, and what they are made of stays there"({ tinyloom, direct, runtime }) {
    const tensor = await runtime.tensor([1, 2, 3, 4, 5, 6], [2, 3]);
    const view = await tensor.transpose(0, 1);
    equal(view.shape, [3, 2], "shape");
    equal([...(await view.data())], [1, 4, 2, 5, 3, 6]);
    await refuses("invalid-options", "tinyloom/worker", () => direct.ops.softmax(tensor));
    await refuses("invalid-options", "tinyloom/worker", () => direct.Model.create(runtime, config));
    await refuses("invalid-options", "softmax of tinyloom/ops", () => tinyloom.softmax);
    await tensor.free();
    await refuses("freed", "Tensor", () => view.data());
  },
};

/** What a worker of the user's own adds: it may use what stays there. */
export const extra = (ops, BpeTokenizer) => ({
  /** How many workers of the web a tokenizer's training opens within this one. */
  async workersOfTraining() {
    const { Worker } = globalThis;
    let count = 0;
    if (Worker) {
      globalThis.Worker = class extends Worker {
        constructor(...given) {
          count += 1;
          super(...given);
        }
      };
    }
    try {
      await BpeTokenizer.train(text, { vocabSize: 270 });
    } finally {
      if (Worker) globalThis.Worker = Worker;
    }
    return count;
  },
  async norms(tensor) {
    const output = await ops.softmax(tensor);
    return { output, sum: (await output.data()).reduce((sum, one) => sum + one, 0) };
  },
  vendor: (runtime) => (runtime.device ? runtime.capabilities.adapter.vendor : ""),
  async *count(to) {
    for (let at = 1; at <= to; at++) yield at;
  },
});

/** A worker of the user's own: functions and iterators of its own beside the API. */
export async function tryOwn({ connect, worker }) {
  const remote = await connect({ worker });
  const runtime = await remote.Runtime.create();
  const tensor = await runtime.tensor([1, 2, 3, 4], [1, 4]);
  const { output, sum } = await remote.norms(tensor);
  equal(Math.round(sum * 1e6), 1e6, "the sum of a softmax");
  equal(output.shape, [1, 4], "the tensor's shape");
  ok(output instanceof remote.Tensor, "the class of a tensor that a function of one's own gave");
  equal(await remote.vendor(runtime), runtime.capabilities.adapter.vendor);
  equal(await collect(remote.count(3)), [1, 2, 3]);
  // Firefox may never return from opening one.
  const chromium = globalThis.navigator?.userAgent?.includes("Chrome/") ?? false;
  equal(await remote.workersOfTraining(), chromium ? 1 : 0, "workers within the worker");
  await runtime.destroy();
  await remote.close();
  await refuses("freed", "closed", () => remote.vendor(runtime));
  const again = await connect({ worker });
  equal(await collect(again.count(1)), [1], "the worker goes on after close()");
  await again.close();
}

/** Names of the public properties of an object: its own, and getters of its class. */
function properties(object) {
  const prototype = Object.getPrototypeOf(object);
  const getters = Object.entries(Object.getOwnPropertyDescriptors(prototype))
    .filter(([, { get }]) => get)
    .map(([name]) => name);
  return [...Object.keys(object), ...getters].filter((name) => !name.startsWith("_"));
}
