// Optimizers beyond AdamW, averages of weights, and the search for a learning rate.
import { close, equal, ok, refuses, sameBytes, sameFiles } from "../../api/bodies/assert.mjs";
import {
  batch,
  collect,
  config,
  dataset,
  openFile,
  trainerOptions,
} from "../../api/bodies/kit.mjs";

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["firefox"],
  why: "as for training",
  core: 12,
  smoke: ["an average of weights is evaluated, saved and resumed, and leaves the weights alone"],
};

export const cases = {
  async "moments of 8 bits reach the validation loss of f32 within a hundredth"({
    tinyloom,
    runtime,
  }) {
    const { Model, Trainer } = tinyloom;
    const data = await dataset(tinyloom);
    const { learningRate } = trainerOptions;
    const reached = async (seed, optimizer) => {
      const model = await Model.create(runtime, config, { seed });
      const chosen = { learningRate, tokensPerStep: 64, totalSteps: 40, seed, optimizer };
      const trainer = await Trainer.create(model, chosen);
      await collect(trainer.run(data, { steps: 40 }));
      const { loss } = await trainer.evaluate(data);
      model.free();
      return loss;
    };
    const apart = [];
    for (const seed of [1, 2, 3]) {
      const [wide, coded] = [await reached(seed, "adamw"), await reached(seed, "adamw8bit")];
      ok(wide < 3 && coded !== wide, `seed ${seed}: ${wide} and ${coded}`);
      apart.push(coded / wide - 1);
    }
    const mean = apart.reduce((sum, one) => sum + one, 0) / apart.length;
    ok(Math.abs(mean) < 0.01, `${apart} apart`);
    return apart.map((one) => `${(100 * one).toFixed(3)} %`).join(", ");
  },

  async "every optimizer goes on after a resume and a lost device, to the bit"({ tinyloom, gpu }) {
    const { Model, Runtime, Trainer } = tinyloom;
    const data = await dataset(tinyloom);
    const runtime = await Runtime.create({ gpu });
    tinyloom.internal.runtimes.of(runtime).recovery.pace = { least: 0, share: 100 };
    const { learningRate: _, ...others } = trainerOptions;
    const losses = async (trainer, steps) =>
      (await collect(trainer.run(data, { steps }))).map((m) => m.loss);
    const saved = {};
    for (const [name, options, sets] of [
      ["coded", { optimizer: "adamw8bit" }, ["exp_avg", "exp_avg_sq", "scales"]],
      ["muon", { optimizer: "muon" }, ["exp_avg", "momentum_buffer", "exp_avg_sq"]],
      ["lion", { optimizer: "lion", labelSmoothing: 0.1 }, ["exp_avg"]],
      ["sgd", { optimizer: "sgd", zLoss: 1e-3 }, ["momentum_buffer"]],
      ["plain", { optimizer: "sgd", momentum: 0 }, []],
    ]) {
      const open = async () => {
        const model = await Model.create(runtime, config, { seed: 42 });
        return Trainer.create(model, { ...others, ...options });
      };
      const [whole, parted] = [await open(), await open()];
      const expected = await losses(whole, 8);
      ok(expected[7] < expected[0], `${name}: from ${expected[0]} to ${expected[7]}`);
      const begun = await losses(parted, 3);
      saved[name] = await parted.save();
      const { header } = openFile(saved[name]["optimizer.safetensors"]);
      const named = Object.keys(header).filter((key) => key !== "__metadata__");
      const suffixes = new Set(named.map((key) => key.split(".").at(-1)));
      equal([...suffixes], sets, `state of ${name}`);
      const resumed = await Trainer.resume(runtime, saved[name]);
      equal(resumed.options, whole.options, "options");
      const middle = await losses(resumed, 3);
      runtime.simulateLoss();
      const end = await losses(resumed, 2);
      equal([...begun, ...middle, ...end], expected, `losses of ${name}`);
      sameFiles(await resumed.save(), await whole.save(), `files of ${name}`);
      for (const { model } of [whole, parted, resumed]) model.free();
    }
    const mixed = { ...saved.lion, "optimizer.safetensors": saved.sgd["optimizer.safetensors"] };
    const words = ["momentum_buffer", 'trainer_state.json is of the optimizer "lion"'];
    await refuses("invalid-checkpoint", words, () => Trainer.resume(runtime, mixed));
    runtime.destroy();
  },

  async "gradients have the weights' names and sizes with every optimizer"(host) {
    const wanted = [
      { optimizer: "adamw8bit" },
      { optimizer: "muon" },
      { optimizer: "sgd", momentum: 0 },
    ];
    for (const own of wanted) {
      const model = await host.tinyloom.Model.create(host.runtime, config, { seed: 42 });
      const trainer = await host.tinyloom.Trainer.create(model, { tokensPerStep: 64, ...own });
      await trainer.step(batch(60));
      const told = [];
      const gradients = await trainer.gradients({ onProgress: (at) => told.push(at) });
      const sum = Object.values(gradients).reduce((all, one) => all + one.length, 0);
      equal(sum, model.parameterCount, `numbers with ${own.optimizer}`);
      ok(
        Object.values(gradients).every((one) => one.every(Number.isFinite)),
        "numbers",
      );
      const { loaded, total } = told.at(-1);
      equal([loaded, total], [4 * sum, 4 * sum], `progress with ${own.optimizer}`);
      model.free();
    }
  },

  async "an average of weights is evaluated, saved and resumed, and leaves the weights alone"(
    host,
  ) {
    const { tinyloom, runtime } = host;
    const { Model, Trainer } = tinyloom;
    const data = await dataset(tinyloom);
    const model = await Model.create(runtime, config, { seed: 42 });
    const trainer = await Trainer.create(model, { ...trainerOptions, ema: 0.75 });
    equal(trainer.options.ema, 0.75);
    const weights = (files) => {
      const { header, data: bytes } = openFile(files["model.safetensors"]);
      const names = Object.keys(header).filter((name) => name !== "__metadata__");
      return names.flatMap((name) => [
        ...new Float32Array(bytes.slice(...header[name].data_offsets).buffer),
      ]);
    };
    const average = weights(await model.save());
    sameFiles(await trainer.saveAveraged(), await model.save(), "an average before the first step");
    for (let step = 0; step < 4; step++) {
      await collect(trainer.run(data, { steps: 1 }));
      for (const [i, weight] of weights(await model.save()).entries()) {
        average[i] += 0.25 * (weight - average[i]);
      }
    }
    const before = await trainer.save();
    const plain = await trainer.evaluate(data);
    const files = await trainer.saveAveraged();
    for (const [i, weight] of weights(files).entries()) close(weight, average[i], 1e-6, `${i}`);
    const { loss } = await trainer.evaluate(data, { averaged: true });
    ok(loss !== plain.loss, "the average is another model");
    const other = await Model.fromPretrained(runtime, files);
    const same = await Trainer.create(other, trainerOptions);
    equal((await same.evaluate(data)).loss, loss, "the loss of the saved average");
    const after = await trainer.save();
    for (const name of ["model.safetensors", "optimizer.safetensors"])
      sameBytes(after[name], before[name], `${name} after the average was used`);
    await refuses("invalid-options", "ema", () => same.saveAveraged());
    await refuses("invalid-options", "ema", () => same.evaluate(data, { averaged: true }));
    const resumed = await Trainer.resume(runtime, before);
    for (const one of [trainer, resumed]) await collect(one.run(data, { steps: 2 }));
    sameFiles(await resumed.save(), await trainer.save(), "files of the resumed run");
    sameFiles(await resumed.saveAveraged(), await trainer.saveAveraged(), "averages");
    for (const one of [model, other, resumed.model]) one.free();
  },

  async "a search for a learning rate leaves weights and trainers bit-equal"({
    tinyloom,
    runtime,
  }) {
    const { Adapter, Model, Trainer } = tinyloom;
    const data = await dataset(tinyloom);
    const model = await Model.create(runtime, config, { seed: 42 });
    const trainer = await Trainer.create(model, trainerOptions);
    await collect(trainer.run(data, { steps: 2 }));
    const adapter = await Adapter.create(model, { rank: 2, seed: 3 });
    const files = async () => [await trainer.save(), await adapter.save()];
    const [held, before] = [model.gpuBytes, await files()];
    const stages = [];
    for (const trained of [model, adapter]) {
      const { learningRate, points } = await Trainer.findLearningRate(trained, data, {
        from: 1e-4,
        to: 30,
        steps: 24,
        trainer: { tokensPerStep: 64, maxGradNorm: null },
        onProgress: ({ stage }) => stages.push(stage),
      });
      ok(points.length > 8 && points.length <= 24, `${points.length} points`);
      close(points[0].learningRate, 1e-4, 1e-12);
      close(points[7].learningRate, 1e-4 * 3e5 ** (7 / 23), 1e-9);
      ok(points.every(({ loss, smoothed }) => loss > 0 && smoothed > 0));
      const rates = points.map((point) => point.learningRate);
      ok(rates.includes(learningRate) && learningRate < rates.at(-1), `${learningRate} found`);
      const after = await files();
      for (const [at, one] of after.entries()) sameFiles(one, before[at], `files ${at}`);
      equal(model.gpuBytes, held, "nothing is held");
    }
    ok(stages.includes("search"));
    const refused = (words, options) =>
      refuses("invalid-options", words, () => Trainer.findLearningRate(model, data, options));
    await refused(["from", "to"], { from: 1, to: 0.5 });
    await refused("steps", { steps: 2 });
    await refused("learningRate", { trainer: { learningRate: 1 } });
    await refuses("invalid-options", "Model", () => Trainer.findLearningRate({}, data));
    const named = "Trainer.findLearningRate was aborted";
    await refuses("aborted", named, () =>
      Trainer.findLearningRate(model, data, { signal: AbortSignal.abort() }),
    );
    const packed = await Model.fromPretrained(runtime, await model.save(), { weights: "int8" });
    const words = ["a packed matrix has no gradient", "train an adapter on it"];
    await refuses("invalid-options", words, () => Trainer.create(packed));
    await refuses("invalid-options", words, () => Trainer.findLearningRate(packed, data));
    packed.free();
    model.free();
  },
};
