// `model.prepare` and `Trainer.prepare`: what a first text or a trainer compiles is compiled before it, off the thread, and
// nothing else is made.
import { equal, ok, refuses } from "../../api/bodies/assert.mjs";
import { batch, collect, config, pause, trainerOptions } from "../../api/bodies/kit.mjs";

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["node"],
  why: "plans are made in the module; how pipelines are compiled beside the thread is the host's",
  smoke: [
    "the first text compiles nothing, and is the same",
    "it ends at the signal, and goes on from there the next time",
    "a trainer of a model that is not there yet",
  ],
};

const prompt = batch(24).tokens;

/** Options of texts that have kernels of their own. */
const FORMS = {
  "packed weights and cache": { weights: "int8", kvCache: "f16" },
  alternatives: { alternatives: 3 },
  "a bias": { bias: [[7, 2]] },
  "a bias of each token, and alternatives": { bias: () => [[7, 2]], alternatives: 2 },
  "prompt lookup": { promptLookup: true, maxTokens: 40, temperature: 0 },
  interventions: { interventions: [{ at: "head", layer: 1, head: 0, scale: 0 }] },
  "three texts": { sequences: 3, kvCache: "f16" },
};

const made = ({ buffers, bindGroups, pipelines }) => ({ buffers, bindGroups, pipelines });

/** A model on a device of its own, which has compiled nothing for texts, and what has been made on it. */
async function fresh({ tinyloom, gpu }, sizes = config) {
  const runtime = await tinyloom.Runtime.create({ gpu });
  const model = await tinyloom.Model.create(runtime, sizes, { seed: 3 });
  return { runtime, model, counters: () => made(runtime._counters()) };
}

/** The tokens of a text, or of several, with these options. */
function written(model, { sequences = 1, ...options }) {
  const own = { maxTokens: 12, seed: 5, ...options };
  if (sequences === 1) return collect(model.generate(prompt, own));
  const prompts = Array.from({ length: sequences }, (_, i) => prompt.subarray(0, 20 + i));
  return collect(model.generateBatch(prompts, own));
}

/** Counts the calls of a method of the device while `work` runs. */
async function calls(device, name, work) {
  const owner = Object.getPrototypeOf(device);
  const own = owner[name];
  let count = 0;
  owner[name] = function (...given) {
    count += 1;
    return own.apply(this, given);
  };
  try {
    await work();
  } finally {
    owner[name] = own;
  }
  return count;
}

/**
 * Runs a preparation, which compiles aside and reports that.
 *
 * @param work - gets what hears of its progress.
 * @param makes - whether it makes something for the call.
 * @returns pipelines before and after it.
 */
async function aside(runtime, work, makes = false) {
  const counters = () => made(runtime._counters());
  const before = counters();
  const { gpuBytes } = runtime._counters();
  const told = [];
  let [aside, blocking] = [0, 0];
  blocking = await calls(runtime.device, "createComputePipeline", async () => {
    aside = await calls(runtime.device, "createComputePipelineAsync", () =>
      work((one) => told.push(one)),
    );
  });
  const { pipelines } = counters();
  equal(runtime._counters().gpuBytes, gpuBytes, "bytes of a preparation");
  if (!makes) equal(counters(), { ...before, pipelines }, "what a preparation makes");
  equal([aside, blocking], [pipelines - before.pipelines, 0], "pipelines are compiled aside");
  const { total } = told[0];
  const expected = Array.from({ length: total + 1 }, (_, loaded) => ({
    loaded,
    total,
    stage: "compile kernels",
  }));
  equal(told, expected, "progress");
  return [before.pipelines, pipelines];
}

/** Prepares for a text, which then compiles nothing. */
async function prepared({ runtime, model, counters }, options) {
  const generate = Object.keys(options).length === 0 ? true : options;
  // A sum of adapters is made for the call, and is gone after it.
  const makes = options.adapters !== undefined;
  const work = (onProgress) => model.prepare({ generate, onProgress });
  const [before, pipelines] = await aside(runtime, work, makes);
  const text = await written(model, options);
  equal(counters().pipelines, pipelines, "pipelines of the first text");
  ok(text.length > 0, "no text");
  return { compiled: pipelines - before, text };
}

export const cases = {
  async "the first text compiles nothing, and is the same"(host) {
    const own = await fresh(host);
    const { compiled, text } = await prepared(own, {});
    ok(compiled > 10, `${compiled} pipelines`);
    const { runtime, model } = await fresh(host);
    equal(await written(model, {}), text, "the text without a preparation");
    for (const one of [runtime, own.runtime]) one.destroy();
    return `${compiled} pipelines`;
  },

  async "so it is in each form of a text that has kernels of its own"(host) {
    const own = await fresh(host);
    const counts = [];
    for (const [name, options] of Object.entries(FORMS)) {
      const { compiled } = await prepared(own, options);
      ok(compiled > 0, `${name}: nothing of its own`);
      counts.push(`${name}: ${compiled}`);
    }
    own.runtime.destroy();
    return counts.join("; ");
  },

  async "so it is over an adapter, over several, and in a packed model"(host) {
    const { Adapter, Model } = host.tinyloom;
    const one = await fresh(host);
    const adapter = await Adapter.create(one.model, { rank: 4 });
    await prepared(one, { adapter });
    const again = await prepared(one, { adapters: [{ adapter, scale: 0.5 }], kvCache: "int8" });
    ok(again.compiled > 0, "another form has kernels of its own");
    const held = await Model.fromPretrained(one.runtime, await one.model.save(), {
      weights: "int4",
    });
    await prepared({ ...one, model: held }, {});
    one.runtime.destroy();
  },

  async "it ends at the signal, and goes on from there the next time"(host) {
    const { runtime, model, counters } = await fresh(host);
    const before = counters();
    const controller = new AbortController();
    const onProgress = ({ loaded }) => loaded === 3 && controller.abort();
    const { signal } = controller;
    const ended = model.prepare({ generate: true, signal, onProgress });
    await refuses("aborted", "prepare", () => ended);
    // The next kernel asks.
    equal(counters(), { ...before, pipelines: before.pipelines + 4 }, "four pipelines");
    await pause(50);
    equal(counters().pipelines, before.pipelines + 4, "nothing goes on behind it");
    const thrown = model.prepare({
      generate: true,
      onProgress() {
        throw new Error("mine");
      },
    });
    await refuses("invalid-options", "mine", () => thrown);
    await model.prepare({ generate: true });
    const { pipelines } = counters();
    ok(pipelines > before.pipelines + 10, "the rest");
    await model.prepare({ generate: true });
    await written(model, {});
    equal(counters().pipelines, pipelines, "nothing is compiled twice");
    runtime.destroy();
  },

  async "training compiles no less and no more for it"(host) {
    const train = async ({ runtime, model, counters }) => {
      const { pipelines } = counters();
      const trainer = await host.tinyloom.Trainer.create(model, trainerOptions);
      const { loss } = await trainer.step(batch(32));
      const compiled = counters().pipelines - pipelines;
      await written(model, {});
      const more = counters().pipelines - pipelines;
      runtime.destroy();
      return { loss, compiled, more };
    };
    const [plain, own] = [await fresh(host), await fresh(host)];
    const expected = await train(plain);
    const { pipelines: before } = own.counters();
    await own.model.prepare({ generate: true });
    const prepared = own.counters().pipelines - before;
    const found = await train(own);
    equal(found.loss, expected.loss, "the loss");
    equal(found.more, found.compiled, "a text behind training compiles nothing");
    equal(found.more + prepared, expected.more, "pipelines in all");
  },

  async "a trainer of a model that is not there yet"({ tinyloom, gpu }) {
    const { Model, Runtime, Trainer } = tinyloom;
    const options = { ...trainerOptions, optimizer: "lion" };
    const first = async (ahead) => {
      const runtime = await Runtime.create({ gpu });
      const compiled = await ahead(runtime);
      const model = await Model.create(runtime, config, { seed: 3 });
      const { pipelines } = runtime._counters();
      const trainer = await Trainer.create(model, options);
      const more = runtime._counters().pipelines - pipelines;
      const { loss } = await trainer.step(batch(32));
      runtime.destroy();
      return { compiled, more, loss };
    };
    const plain = await first(() => 0);
    const own = await first(async (runtime) => {
      const work = (onProgress) => Trainer.prepare(runtime, config, { ...options, onProgress });
      const [before, after] = await aside(runtime, work);
      return after - before;
    });
    equal([own.compiled, own.more], [plain.more, 0], "pipelines ahead, and with the trainer");
    ok(plain.more > 10, `${plain.more} pipelines`);
    equal(own.loss, plain.loss, "the loss");
    return `${plain.more} pipelines`;
  },

  async "what no trainer can be of is refused, and the signal ends it"({ tinyloom, gpu }) {
    const { Runtime, Trainer } = tinyloom;
    const runtime = await Runtime.create({ gpu });
    const wrong = (code, words, own, options) =>
      refuses(code, words, () => Trainer.prepare(runtime, own, options));
    await refuses("invalid-options", "Trainer.prepare takes a Runtime first", () =>
      Trainer.prepare({}, config),
    );
    await wrong("invalid-config", "Trainer.prepare: ", { hidden_size: 1n });
    await wrong("invalid-options", "learningRate", config, { learningRate: -1 });
    await wrong("invalid-options", "it takes", config, { rate: 1 });
    const controller = new AbortController();
    const { signal } = controller;
    const onProgress = ({ loaded }) => loaded === 3 && controller.abort();
    await wrong("aborted", "Trainer.prepare", config, { signal, onProgress });
    runtime.destroy();
    await wrong("freed", "", config);
  },

  async "what cannot be is refused"({ tinyloom, gpu }) {
    const { runtime, model } = await fresh({ tinyloom, gpu });
    const wrong = (words, options) =>
      refuses("invalid-options", words, () => model.prepare(options));
    await wrong("prepare needs generate", undefined);
    await wrong("prepare: generate is 5; give true", { generate: 5 });
    await wrong("it takes generate", { generate: true, text: true });
    await wrong("generate has no option", { generate: { tokenz: 5 } });
    await wrong("sequences is 0", { generate: { sequences: 0 } });
    await wrong("weights", { generate: { weights: "int3" } });
    await wrong("alternatives is 33", { generate: { alternatives: 33 } });
    await wrong("tokenizer", { generate: { heal: true } });
    await wrong("layer", { generate: { interventions: [{ at: "mlp", layer: 9, scale: 0 }] } });
    await refuses("invalid-tokens", "65 tokens", () => model.prepare({ generate: { tokens: 65 } }));
    model.free();
    await refuses("freed", "", () => model.prepare({ generate: true }));
    runtime.destroy();
  },
};
