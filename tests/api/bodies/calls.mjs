// What a call takes from its caller: arrays as they are at the call, signals, callbacks.
import { equal, ok, refuses, sameBytes } from "./assert.mjs";
import { batch, collect, config, inSharedMemory, text, trainerOptions } from "./kit.mjs";

const make = ({ tinyloom, runtime }) => tinyloom.Model.create(runtime, config, { seed: 11 });
const ids = (pairs) => pairs.map(({ token }) => token);

/** Starts the work with the arrays as they are, then spoils them. */
function spoiling(arrays, work) {
  const begun = work();
  for (const array of arrays) array.fill(0);
  return begun;
}

/** Options and arrays of generations that tell whether they were read as they are: other ones give another text. */
async function ofShared(model, tokens) {
  const options = { maxTokens: 6, temperature: 0 };
  const text = ids(await collect(model.generate(tokens, options)));
  // Not the text's own tokens, and its end after the fourth.
  const bias = new Float32Array(config.vocab_size);
  for (const token of text) bias[token] = -50;
  const stopTokens = Uint32Array.of(text[4]);
  return { options, bias, stopTokens, others: batch(9, 40).tokens };
}

const split = { sequenceLength: 16, validationFraction: 0.1, seed: 2 };

/** A dataset made before the module is loaded, where this body is the host's first. */
export function before({ Dataset }) {
  const tokens = Uint32Array.from(new TextEncoder().encode(text.slice(0, 900)));
  return spoiling([tokens], () => Dataset.fromTokens(tokens, split));
}

/** Aborts at the n-th report of progress. */
function abortingAt(n) {
  const controller = new AbortController();
  const reports = [];
  const onProgress = (report) => {
    if (reports.push(report) === n) controller.abort(new Error("enough"));
  };
  return { reports, options: { signal: controller.signal, onProgress } };
}

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["node"],
  why: "arrays are copied and signals looked at in TypeScript, before the GPU",
  smoke: [
    "unawaited calls that share an array read it as it was",
    "memory that threads share is copied at the call, not when the GPU is free",
    "unawaited steps that share a batch train on it as it was",
    "a dataset keeps the tokens that it was given",
  ],
  always: ["unawaited calls that share an array read it as it was"],
};

export const cases = {
  async "unawaited calls that share an array read it as it was"(host) {
    const model = await make(host);
    const [a, b] = [batch(24), batch(24, 60)];
    const shared = new Uint32Array(24);
    const calls = {
      logits: (tokens) => model.logits(tokens).then((row) => [...row.slice(-256)]),
      hiddenStates: async (tokens) => [...(await model.hiddenStates(tokens, { layer: 1 }))],
      loss: (tokens) => model.loss(tokens),
      generate: (tokens) =>
        collect(model.generate(tokens, { maxTokens: 4, temperature: 0 })).then(ids),
    };
    for (const [name, call] of Object.entries(calls)) {
      const expected = [await call(a.tokens), await call(b.tokens)];
      ok(JSON.stringify(expected[0]) !== JSON.stringify(expected[1]), `${name} tells them apart`);
      shared.set(a.tokens);
      const first = call(shared);
      shared.set(b.tokens);
      const second = call(shared);
      shared.fill(0);
      equal(await Promise.all([first, second]), expected, name);
    }
    const targets = a.targets.slice();
    const expected = await model.loss(a.tokens, a.targets);
    equal(await spoiling([targets], () => model.loss(a.tokens, targets)), expected, "targets");
    // A generator's body runs late: the prompt and the options are those of the call all the same.
    const prompt = a.tokens.slice();
    const stopTokens = Uint32Array.of(config.vocab_size - 1);
    const options = { maxTokens: 4, temperature: 0, stopTokens };
    const later = model.generate(prompt, options);
    prompt.fill(0);
    stopTokens.set((await calls.generate(a.tokens)).slice(0, 1));
    options.maxTokens = 1;
    equal(ids(await collect(later)), await calls.generate(a.tokens), "generate, begun later");
    model.free();
  },

  async "memory that threads share is copied at the call, not when the GPU is free"(host) {
    const { tinyloom, runtime } = host;
    const model = await make(host);
    const { tokens, targets } = batch(24);
    const { options, bias, stopTokens, others } = await ofShared(model, tokens);
    const documents = Uint32Array.from({ length: 24 }, (_, i) => (i < 10 ? 0 : 10));
    // Of the same weights, for a step each.
    const trainers = [await make(host), await make(host)].map((model) =>
      tinyloom.Trainer.create(model, trainerOptions),
    );
    const [plain, fed] = await Promise.all(trainers);
    const loss = ({ loss }) => loss;
    const values = Float32Array.from({ length: 24 }, (_, i) => i / 7);
    const tensor = runtime.tensor(values, [24]);
    const work = {
      logits: [(ids) => model.logits(ids).then((rows) => [...rows]), tokens],
      loss: [(ids, wanted) => model.loss(ids, wanted), tokens, targets],
      states: [(ids) => model.hiddenStates(ids, { layer: 1 }).then((rows) => [...rows]), tokens],
      attention: [
        (ids) => model.attention(ids, { layer: 0, head: 0 }).then((rows) => [...rows]),
        tokens,
      ],
      step: [
        (tokens, targets, documents) =>
          (documents.buffer instanceof ArrayBuffer ? plain : fed)
            .step({ tokens, targets, documents })
            .then(loss),
        tokens,
        targets,
        documents,
      ],
      tensor: [async (data) => [...(await runtime.tensor(data, [24]).data())], values],
      write: [(data) => tensor.write(data).then(async () => [...(await tensor.data())]), values],
      dataset: [async (ids) => tinyloom.Dataset.fromTokens(ids, split).tokens, tokens],
      generate: [(ids) => collect(model.generate(ids, options)), tokens],
      bias: [(bias) => collect(model.generate(tokens, { ...options, bias })), bias],
      stop: [
        (stop) => collect(model.generate(tokens, { ...options, stopTokens: stop })),
        stopTokens,
      ],
      batch: [
        (first, second, stopTokens) =>
          collect(model.generateBatch([first, { prompt: second, stopTokens }], options)),
        tokens,
        others,
        stopTokens,
      ],
      "a batch's stop": [
        (stopTokens) => collect(model.generateBatch([tokens], { ...options, stopTokens })),
        stopTokens,
      ],
    };
    for (const [name, [call, ...arrays]] of Object.entries(work)) {
      const expected = await call(...arrays);
      const shared = arrays.map(inSharedMemory);
      const got = await spoiling(shared, () => call(...shared));
      equal(got, expected, name);
    }
    for (const one of [model, plain.model, fed.model]) one.free();
  },

  async "unawaited steps that share a batch train on it as it was"(host) {
    const train = async (steps) => {
      const model = await make(host);
      const trainer = await host.tinyloom.Trainer.create(model, trainerOptions);
      const losses = (await steps(trainer)).map((m) => m.loss);
      const weights = (await model.save())["model.safetensors"];
      model.free();
      return { losses, weights };
    };
    const documents = Uint32Array.from({ length: 32 }, (_, i) => (i < 10 ? 0 : 10));
    const batches = [0, 50, 90].map((start) => ({ ...batch(32, start), documents }));
    const plain = await train(async (trainer) => {
      const all = [];
      for (const one of batches) all.push(await trainer.step(one));
      return all;
    });
    const shared = ["tokens", "targets", "documents"].map((name) => [name, new Uint32Array(32)]);
    const reused = await train((trainer) =>
      Promise.all(
        batches.map((one) => {
          for (const [name, array] of shared) array.set(one[name]);
          const step = trainer.step(Object.fromEntries(shared));
          for (const [, array] of shared) array.fill(0);
          return step;
        }),
      ),
    );
    equal(reused.losses, plain.losses, "losses");
    sameBytes(reused.weights, plain.weights, "weights");
  },

  async "a dataset keeps the tokens that it was given"(host) {
    const { Dataset, Trainer } = host.tinyloom;
    const bytes = new TextEncoder().encode(text.slice(0, 900));
    const losses = async (data) => {
      const model = await make(host);
      const trainer = await Trainer.create(model, trainerOptions);
      const metrics = await collect(trainer.run(data, { steps: 3 }));
      model.free();
      return metrics.map((m) => m.loss);
    };
    const expected = await losses(Dataset.fromTokens(bytes, split));
    equal(await losses(host.early), expected, "losses of what was made before the module");
    const given = Uint32Array.from(bytes);
    const data = spoiling([given], () => Dataset.fromTokens(given, split));
    equal(await losses(data), expected, "losses");
    const reused = Uint32Array.from(bytes);
    const tokenizer = { vocabSize: 256, encode: () => reused, decode: () => "" };
    const made = await Dataset.fromText("any", tokenizer, split);
    reused.fill(0);
    equal(await losses(made), expected, "losses of a tokenizer's array");
  },

  async "objects show what is documented and nothing else"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config);
    const trainer = await tinyloom.Trainer.create(model, { tokensPerStep: 16 });
    const own = (object) => Reflect.ownKeys(object).map(String).sort();
    equal(own(runtime), ["capabilities", "lost"], "of a runtime");
    equal(own(model), ["config", "parameters", "weights"], "of a model");
    equal(own(trainer), ["adapter", "model"], "of a trainer");
    equal(own(runtime.tensor([1], [1])), [], "of a tensor");
    const forged = Object.create(tinyloom.Model.prototype);
    await refuses("invalid-options", "not made by tinyloom", () =>
      tinyloom.Trainer.create(forged, {}),
    );
    model.free();
  },

  async "long calls report, and the signal ends each between two pieces"(host) {
    const { tinyloom, runtime } = host;
    const { Model, Trainer } = tinyloom;
    const model = await Model.create(runtime, { ...config, max_position_embeddings: 1024 });
    const trainer = await Trainer.create(model, trainerOptions);
    await trainer.step(batch(64));
    const files = await trainer.save();
    const tokens = batch(600).tokens;
    const calls = {
      "Model.create": (options) => Model.create(runtime, config, { seed: 3, ...options }),
      "Trainer.create": (options) => Trainer.create(model, { ...trainerOptions, ...options }),
      logits: (options) => model.logits(tokens, options),
      attention: (options) => model.attention(tokens, { layer: 1, head: 0, ...options }),
      loss: (options) => model.loss(tokens, undefined, options),
      gradients: (options) => trainer.gradients(options),
      resume: (options) => Trainer.resume(runtime, files, options),
      profile: (options) => trainer.profile(options),
    };
    const said = [];
    const boom = () => {
      throw new Error("boom");
    };
    for (const [name, call] of Object.entries(calls)) {
      const controller = new AbortController();
      controller.abort();
      const where = name === "resume" ? [] : name; // its parts have names of their own
      await refuses("aborted", where, () => call({ signal: controller.signal }));
      const { reports, options } = abortingAt(0);
      const made = await call(options);
      ok(reports.length >= 2, `${name} reports ${reports.length} times`);
      for (const [index, { loaded, total, stage }] of reports.entries()) {
        ok(stage.length > 0 && loaded <= total, `${name}: ${loaded} of ${total} ${stage}`);
        const next = reports[index + 1];
        if (next?.stage === stage) ok(next.loaded >= loaded, `${name} goes back`);
      }
      equal(reports.at(-1).loaded, reports.at(-1).total, `${name} ends with all`);
      const stopped = abortingAt(1);
      const error = await refuses("aborted", where, () => call(stopped.options));
      equal(error.cause?.message, "enough", "the signal's reason");
      ok(stopped.reports.length < reports.length, `${name} went on to its end`);
      await refuses("invalid-options", ["onProgress", "boom"], () => call({ onProgress: boom }));
      const late = async () => boom();
      await refuses("invalid-options", ["onProgress", "boom"], () => call({ onProgress: late }));
      const last = async ({ loaded, total }) => loaded === total && boom();
      await refuses("invalid-options", ["onProgress", "boom"], () => call({ onProgress: last }));
      await refuses("invalid-options", "signal", () => call({ signal: 5 }));
      // Who listens to this one could not stop.
      const like = { aborted: false, addEventListener() {} };
      await refuses("invalid-options", ["signal is", "AbortSignal"], () => call({ signal: like }));
      said.push(`${name} ${reports.length}`);
      if (name === "resume") made.model.free();
      else if (name.includes("create")) made.free();
    }
    const broken = { aborted: false, addEventListener: boom, removeEventListener: boom };
    await refuses("invalid-options", ["signal", "boom"], () => calls.loss({ signal: broken }));
    const after = await trainer.save();
    for (const file of ["model.safetensors", "optimizer.safetensors"]) {
      sameBytes(after[file], files[file], `${file} afterwards`);
    }
    equal((await trainer.step(batch(64))).step, 2, "the next step");
    model.free();
    return said.join(", ");
  },
};
