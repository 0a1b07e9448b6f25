// Runs of a trainer: whose steps they count, one at a time, what ends them, live options, epochs.
import { close, equal, ok, refuses, sameFiles } from "../../api/bodies/assert.mjs";
import { atOnce } from "../../api/bodies/concurrency.mjs";
import {
  batch,
  collect,
  config,
  dataset,
  datasetOptions,
  text,
  trainerOptions,
} from "../../api/bodies/kit.mjs";
import { freedWhileRead } from "./freed-data.mjs";

async function make({ tinyloom, runtime }, options = trainerOptions) {
  const model = await tinyloom.Model.create(runtime, config, { seed: 42 });
  return tinyloom.Trainer.create(model, options);
}

const stepsOf = async (run) => (await collect(run)).map((m) => m.step);
const progress = async (trainer) => {
  const state = (await trainer.save())["trainer_state.json"];
  return JSON.parse(new TextDecoder().decode(state)).progress;
};
const { totalSteps: _, ...open } = trainerOptions;

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["firefox"],
  why: "whose steps a run counts is decided in TypeScript",
  core: 6,
  smoke: [
    "a step beside a run is none of the run's",
    "two trainers and a generation on one runtime are what they are alone",
    "a dataset that is freed while evaluate reads it is read to its end",
  ],
};

export const cases = {
  ...atOnce,
  ...freedWhileRead,

  async "a run that is on keeps out another, until it has ended"(host) {
    const trainer = await make(host);
    const data = await dataset(host.tinyloom);
    const ways = ["break", "return()", "signal"];
    const refused = () =>
      refuses("invalid-options", ["a run of this trainer is on", ...ways], () =>
        trainer.run(data, { steps: 5 }),
      );
    // Abandoned: nobody asks it again, and nobody has ended it.
    const abandoned = trainer.run(data, { steps: 9, stepsAhead: 4 });
    equal((await abandoned.next()).value.step, 1);
    await refused();
    await abandoned.return();
    equal((await progress(trainer)).step, 5, "steps of the run and those it had queued");
    equal(trainer.steps, 5, "trainer.steps");
    equal(await stepsOf(trainer.run(data, { steps: 5 })), [6, 7, 8, 9, 10], "its own five");
    // Its signal ends it too, though its iterator never hears of it.
    const controller = new AbortController();
    const { signal } = controller;
    const deaf = trainer.run(data, { steps: 9, stepsAhead: 4, signal });
    await deaf.next();
    await refused();
    controller.abort();
    equal(await stepsOf(trainer.run(data, { steps: 3, stepsAhead: 2 })), [16, 17, 18]);
    await refuses("aborted", [], () => deaf.next());
    // Two at once: the one that came first goes on.
    const first = stepsOf(trainer.run(data, { steps: 10 }));
    await refused();
    equal(await first, [19, 20, 21, 22, 23, 24, 25, 26, 27, 28], "the first run's ten");
    for await (const { step } of trainer.run(data, { steps: 9 })) if (step === 30) break;
    equal(await stepsOf(trainer.run(data, { steps: 2 })), [31, 32], "after break");
    // A run that nobody has begun is none.
    trainer.run(data, { steps: 9 });
    equal(await stepsOf(trainer.run(data, { steps: 1 })), [33]);
    await refuses("invalid-options", "steps", () => trainer.run(data, { steps: 0 }));
    trainer.free();
    await refuses("freed", "Trainer", () => trainer.run(data, { steps: 1 }));
    trainer.model.free();
  },

  async "a step beside a run is none of the run's"(host) {
    const data = await dataset(host.tinyloom);
    for (const stepsAhead of [0, 3]) {
      const trainer = await make(host);
      const seen = [];
      const evaluated = [];
      for await (const m of trainer.run(data, { steps: 6, stepsAhead, evaluateEvery: 3 })) {
        if (m.validationLoss !== undefined) evaluated.push(m.step);
        if (seen.push(m.step) === 1) await trainer.step(batch(20));
      }
      const { step, cursor } = await progress(trainer);
      equal([seen.length, step, cursor, trainer.steps], [6, 7, 6, 7], `${stepsAhead} ahead`);
      // The third step of all may be the one beside: then the next of the run is evaluated.
      equal(evaluated.length, 3, `evaluated at ${evaluated} of ${seen}`);
      ok(
        evaluated[0] <= 4 && evaluated[1] === 6 && evaluated[2] === 7,
        `evaluated at ${evaluated}`,
      );
      trainer.model.free();
    }
  },

  async "until counts every step of the trainer"(host) {
    const data = await dataset(host.tinyloom);
    const trainer = await make(host, open);
    equal(trainer.steps, 0);
    const first = await collect(trainer.run(data, { until: 4 }));
    equal(
      first.map((m) => m.step),
      [1, 2, 3, 4],
    );
    equal(trainer.options.totalSteps, 4, "the schedule reaches as far");
    equal(await stepsOf(trainer.run(data, { until: 4 })), [], "nothing is left to do");
    const files = await trainer.save();
    const resumed = await host.tinyloom.Trainer.resume(host.runtime, files);
    equal(resumed.steps, 4, "steps of what was resumed");
    const seen = [];
    for await (const { step } of resumed.run(data, { until: 8, stepsAhead: 1 })) {
      if (seen.push(step) === 1) await resumed.step(batch(20));
    }
    equal([seen.length, seen.at(-1), resumed.steps], [3, seen.at(-1), 8], `steps ${seen}`);
    await refuses("invalid-options", ["steps is 2", "until is 9"], () =>
      resumed.run(data, { steps: 2, until: 9 }),
    );
    for (const { model } of [trainer, resumed]) model.free();
  },

  async "the learning rate is set on a live trainer, and a resume keeps it"(host) {
    const data = await dataset(host.tinyloom);
    const trainer = await make(host);
    const { schedule, options } = trainer;
    equal(schedule, {
      kind: "cosine",
      learningRate: 3e-3,
      warmupSteps: 4,
      totalSteps: 20,
      minLearningRate: schedule.minLearningRate,
    });
    close(schedule.minLearningRate, 3e-4, 1e-12, "a tenth");
    equal([options.learningRate, options.beta2, options.maxGradNorm], [3e-3, 0.95, 1]);
    equal([options.tokensPerStep, options.gradientAccumulation, options.seed], [64, 1, 7]);
    equal(options.minLearningRate, schedule.minLearningRate, "minLearningRate");
    for (let step = 1; step <= 4; step++) await trainer.step(batch(16));
    trainer.learningRate = 1e-3;
    equal([trainer.learningRate, trainer.options.learningRate], [1e-3, 1e-3]);
    equal((await trainer.step(batch(16))).learningRate, 1e-3, "of the next step");
    close(trainer.schedule.minLearningRate, 1e-4, 1e-12, "a tenth of it");
    const files = await trainer.save();
    const resumed = await host.tinyloom.Trainer.resume(host.runtime, files);
    equal(resumed.learningRate, 1e-3, "of what was resumed");
    sameFiles(await resumed.save(), files, "what was resumed saves as it was");
    const rates = async (one) =>
      (await collect(one.run(data, { steps: 3 }))).map((m) => m.learningRate);
    equal(await rates(resumed), await rates(trainer), "rates of the steps that follow");
    for (const wrong of [0, -1, Number.NaN, "1e-3", 1e39, undefined]) {
      await refuses("invalid-options", "learningRate", async () => {
        trainer.learningRate = wrong;
      });
    }
    equal(trainer.learningRate, 1e-3, "after what was refused");
    const bounded = await make(host, { ...trainerOptions, minLearningRate: 1e-4 });
    await refuses("invalid-options", ["minLearningRate", "0.0001"], async () => {
      bounded.learningRate = 1e-5;
    });
    for (const { model } of [trainer, resumed, bounded]) model.free();
    await refuses("freed", "Trainer", async () => trainer.learningRate);
  },

  async "documents that do not fit into a step are refused"(host) {
    const { Dataset, ByteTokenizer } = host.tinyloom;
    const trainer = await make(host, { ...open, tokensPerStep: 10 });
    const long = await dataset(host.tinyloom);
    const words = ["sequenceLength is 16", "tokensPerStep 10", "6 tokens longer"];
    const refused = (work) => refuses("invalid-options", words, work);
    await refused(() => trainer.run(long, { steps: 2 }));
    await refused(() => trainer.run(long, { steps: 2, stepsAhead: 2 }));
    await refused(() => trainer.evaluate(long));
    equal([trainer.steps, trainer.options.totalSteps], [0, null], "nothing has happened");
    // A length that nobody asked for adapts, and what is left of a step is filled.
    const plain = await Dataset.fromText(text, new ByteTokenizer(), { seed: 3 });
    const packed = Dataset.fromTokens(new TextEncoder().encode(text), { sequenceLength: 4 });
    for (const data of [plain, packed]) {
      const [m] = await collect(trainer.run(data, { steps: 1 }));
      equal(m.tokens, 10, "tokens of a step");
    }
    trainer.model.free();
  },

  async "a dataset tells its sizes, made before the module or after"(host) {
    const { Dataset } = host.tinyloom;
    const sizes = ({ tokens, documents, validationTokens, sequenceLength }) => [
      tokens,
      documents,
      validationTokens,
      sequenceLength,
    ];
    const of = (count, options) =>
      Dataset.fromTokens(new Uint8Array(count).fill(65), { seed: 1, ...options });
    equal(sizes(of(5000, {})), [5000, 35, 500, 128]);
    equal(sizes(of(50, {})), [50, 1, 5, 44], "a short text");
    equal(sizes(of(1000, { ...datasetOptions, validationFraction: 0 })), [1000, 62, 0, 16]);
    const data = of(1003, datasetOptions);
    equal(sizes(data), [1003, 56, 100, 16]);
    equal(
      [64, 903, 904, 1].map((tokens) => data.stepsPerEpoch(tokens)),
      [15, 1, 1, 903],
    );
    for (const wrong of [0, 1.5, undefined, "64"]) {
      await refuses("invalid-options", "tokensPerStep", async () => data.stepsPerEpoch(wrong));
    }
    // The module splits alike: an evaluation counts every token but the first.
    const trainer = await make(host);
    equal((await trainer.evaluate(data)).tokens, 99, "targets of the validation split");
    equal(sizes(data), [1003, 56, 100, 16], "once the module has it");
    trainer.model.free();
  },

  async "after divergence the message tells what the weights are"(host) {
    const data = await dataset(host.tinyloom);
    const wild = { learningRate: 1e18, warmupSteps: 0, tokensPerStep: 32 };
    const trainer = await make(host, wild);
    const seen = [];
    const error = await refuses("non-finite", ["3 steps in a row", "learningRate"], async () => {
      for await (const m of trainer.run(data, { steps: 20 })) seen.push(m);
    });
    const good = seen.filter((m) => !m.skipped).at(-1).step;
    ok(error.message.includes(`what step ${good} left`), error.message);
    ok(!error.message.includes("last good step"), error.message);
    await refuses("non-finite", ["those that this run began with", "go back"], () =>
      collect(trainer.run(data, { steps: 20 })),
    );
    trainer.model.free();
  },

  async "using frees, and awaits what was running"(host) {
    if (!Symbol.dispose || !Symbol.asyncDispose) return "no Symbol.dispose here";
    const { Model, Runtime, Trainer } = host.tinyloom;
    const model = await Model.create(host.runtime, config);
    const trainer = await Trainer.create(model, trainerOptions);
    const step = trainer.step(batch(16));
    let done = false;
    step.then(
      () => (done = true),
      () => (done = true),
    );
    await trainer[Symbol.asyncDispose]();
    ok(done, "the running step has ended");
    await step.catch(() => {});
    await refuses("freed", "Trainer", () => trainer.step(batch(16)));
    equal((await model.logits([1])).length, 256, "the model stays");
    model[Symbol.dispose]();
    await refuses("freed", "Model", () => model.logits([1]));
    const runtime = await Runtime.create({ gpu: host.gpu });
    await runtime[Symbol.asyncDispose]();
    equal((await runtime.lost).reason, "destroyed");
    return "disposed";
  },
};
