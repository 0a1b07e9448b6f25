// A lost device: what was under way goes on by itself on another one, to the bit. Devices are destroyed beneath
// their runtimes at moments drawn from a seed.

import { equal, ok, refuses, sameFiles } from "../../api/bodies/assert.mjs";
import { lostBeside } from "../../api/bodies/concurrency.mjs";
import { batch, collect, config, dataset, pause, trainerOptions } from "../../api/bodies/kit.mjs";
import { mulberry32 } from "../../random.mjs";
import { freedThenLost } from "../../train/bodies/freed-data.mjs";
import { recovering, sharedRuntime, trained } from "./recovery-kit.mjs";
import { toldOfLosses } from "./recovery-states.mjs";

/**
 * A clock that goes wrong: `hurry` does work while it is ten seconds later each time that it is asked. What it has
 * gained it keeps until `end`: no clock goes back while there is work.
 */
function hurriedClock() {
  const own = performance.now;
  let [late, more] = [0, 0];
  performance.now = () => {
    late += more;
    return own.call(performance) + late;
  };
  const hurry = async (work) => {
    more = 10_000;
    await work();
    more = 0;
  };
  const end = () => {
    performance.now = own;
  };
  return { hurry, end };
}

/** Does work of which the browser refuses one submit of several. */
async function pieceRefused(device, work) {
  const owner = Object.getPrototypeOf(device.queue);
  const own = owner.submit;
  const gone = device.createBuffer({ size: 16, usage: GPUBufferUsage.COPY_DST });
  gone.destroy();
  let submits = 0;
  owner.submit = function (buffers) {
    if (submits++ !== 1) return own.call(this, buffers);
    const encoder = device.createCommandEncoder();
    encoder.clearBuffer(gone);
    return own.call(this, [...buffers, encoder.finish()]);
  };
  try {
    await refuses("internal", ["refused", "the accumulation of gradients begins again"], work);
  } finally {
    owner.submit = own;
  }
  ok(submits > 1, `${submits} submits`);
}

/** Does a step whose result is the only thing that fails. */
async function unread(device, step) {
  const probe = device.createBuffer({ size: 16, usage: GPUBufferUsage.MAP_READ });
  const owner = Object.getPrototypeOf(probe);
  const own = owner.mapAsync;
  let maps = 0;
  owner.mapAsync = function (...args) {
    const mapped = own.apply(this, args);
    if (maps++ === 0) this.unmap();
    return mapped;
  };
  try {
    await refuses("internal", "call again", step);
  } finally {
    owner.mapAsync = own;
    probe.destroy();
  }
  ok(maps > 0, "a map failed");
}

/**
 * What a run gives: metrics without times, and the files at its end.
 *
 * @param lose - called with each step's metrics.
 */
async function outcome(context, runtime, { options, run, change }, lose = () => undefined) {
  const trainer = await trained(context, runtime, options);
  const data = await dataset(context.tinyloom);
  const metrics = [];
  const recovered = [];
  for await (const one of trainer.run(data, { until: 14, ...run })) {
    const { milliseconds, recovered: from, ...rest } = one;
    metrics.push(rest);
    if (from) recovered.push({ ...from, step: one.step });
    if (one.step === change?.at) trainer.learningRate = change.to;
    await lose(one, trainer);
  }
  const files = await trainer.save();
  trainer.model.free();
  return { metrics, files, recovered };
}

/**
 * Holds a run whose device is lost to one that goes on undisturbed.
 *
 * @param at - steps after which the device is lost, at a moment within the next ones that `chance` gives.
 */
async function sameRun(context, kind, at, seed) {
  const { runtime, states, of } = await sharedRuntime(context);
  const whole = await outcome(context, runtime, kind);
  states.length = 0;
  const chance = mulberry32(seed);
  const lose = async ({ step }, trainer) => {
    if (!at.includes(step)) return;
    // In the middle of the next steps, or before they begin.
    if (chance() < 0.3) runtime.simulateLoss();
    else setTimeout(() => runtime.simulateLoss(), chance() * 25);
    // A call beside the run, which waits with it.
    if (chance() < 0.5) trainer.model.loss([1, 2, 3]).catch(() => undefined);
  };
  const parted = await outcome(context, runtime, kind, lose);
  equal(parted.metrics, whole.metrics, "metrics");
  sameFiles(parted.files, whole.files);
  equal([of("lost").length, of("different").length], [at.length, 0], "losses, steps that differ");
  equal(parted.recovered.length, at.length, "steps that tell of it");
  for (const { step, fromStep, reason, milliseconds } of parted.recovered) {
    ok(fromStep < step && /destroy/i.test(reason) && milliseconds > 0, JSON.stringify(reason));
  }
  const repeated = of("recovered").map((one) => one.repeated);
  for (const { losses, repeated: steps } of of("recovered")) {
    ok(losses.length <= steps, `${losses.length} losses of ${steps} repeated steps`);
    for (const { step, loss, repeated: again } of losses) {
      equal([loss, again], Array(2).fill(whole.metrics[step - 1].loss), `both losses of ${step}`);
    }
  }
  return `seed ${seed}: ${of("snapshot").length} snapshots, repeated steps ${repeated}`;
}

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["firefox"],
  why: "what comes back, and in which order, is decided in TypeScript; how a device is lost is the host's",
  core: 12,
  always: ["an option that was changed behind the last snapshot is changed again"],
  smoke: [
    "a call waits, unless its signal fires",
    "an onState that throws is reported, and ends nothing",
    "without recovery a lost device is the end",
    "an option that was changed behind the last snapshot is changed again",
  ],
};

export const cases = {
  ...lostBeside,
  ...freedThenLost,

  async "a run goes on by itself, to the bit"(context) {
    const kind = { run: { evaluateEvery: 6 }, change: { at: 5, to: 1e-3 } };
    return sameRun(context, kind, [4, 9], 1);
  },

  async "a run with steps ahead goes on from its beginning where there is no snapshot yet"(
    context,
  ) {
    const { runtime, of } = await sharedRuntime(context);
    const { recovery } = context.tinyloom.internal.runtimes.of(runtime);
    const { pace } = recovery;
    recovery.pace = { least: 1e9, share: 100 };
    const said = await sameRun(context, { run: { stepsAhead: 3 } }, [6], 3);
    recovery.pace = pace;
    ok(said.includes(" 0 snapshots"), said);
    const [{ losses }] = of("recovered");
    const given = [1, 2, 3, 4, 5, 6];
    equal(
      losses.map(({ step }) => step).slice(0, given.length),
      given,
      "steps whose losses are told twice",
    );
    return said;
  },

  async "an accumulation in mixed precision goes on, and its change of rate is made again"(
    context,
  ) {
    const options = { gradientAccumulation: 3, precision: "mixed" };
    return sameRun(context, { options, change: { at: 4, to: 2e-3 } }, [5], 4);
  },

  async "steps of batches are repeated, also those under way"(context) {
    const work = async (runtime, lossAt) => {
      const trainer = await trained(context, runtime);
      const other = await context.tinyloom.Trainer.create(trainer.model, {
        ...trainerOptions,
        seed: 1,
      });
      const steps = [];
      for (let at = 0; at < 10; at++) {
        const [one, two] = [trainer.step(batch(20 + at, at)), other.step(batch(12, 3 * at))];
        if (at === lossAt) runtime.simulateLoss();
        steps.push(await one, await two);
      }
      const files = [await trainer.save(), await other.save()];
      trainer.model.free();
      return { files, losses: steps.map(({ loss }) => loss) };
    };
    const { runtime, states, of } = await sharedRuntime(context);
    const whole = await work(runtime);
    states.length = 0;
    const parted = await work(runtime, 6);
    equal(parted.losses, whole.losses, "losses");
    for (const at of [0, 1]) sameFiles(parted.files[at], whole.files[at]);
    equal([of("lost").length, of("different").length], [1, 0]);
    return `${of("snapshot").length} snapshots, ${of("recovered")[0].repeated} steps repeated`;
  },

  async "parts of an accumulation that begins again are not repeated after a loss"(context) {
    const { runtime, of } = await recovering(context);
    const options = { gradientAccumulation: 3 };
    const clock = hurriedClock();
    const work = async (refused, lost) => {
      const trainer = await trained(context, runtime, options);
      const { device } = runtime;
      const data = await dataset(context.tinyloom);
      const run = () => collect(trainer.run(data, { steps: 1 }));
      if (refused) {
        // It seems to take so long that the next one is cut into several pieces.
        await clock.hurry(() => trainer.step(batch(20)));
        await pieceRefused(device, () => trainer.step(batch(20, 5)));
        await trainer.step(batch(20, 9));
        await pieceRefused(device, run);
      }
      await trainer.step(batch(24, 40));
      const losses = (await run()).map(({ loss }) => loss);
      if (lost) runtime.simulateLoss();
      losses.push((await trainer.step(batch(16, 70))).loss, (await run())[0].loss);
      const files = await trainer.save();
      trainer.model.free();
      return { losses, files };
    };
    const whole = await work(false, false);
    for (const lost of [false, true]) {
      const parted = await work(true, lost);
      equal(parted.losses, whole.losses, `losses, ${lost ? "a lost device" : "no loss"}`);
      sameFiles(parted.files, whole.files);
    }
    clock.end();
    equal([of("lost").length, of("different").length], [1, 0]);
    runtime.destroy();
  },

  async "a step that is done counts though its result did not arrive"(context) {
    const { runtime, of, states } = await sharedRuntime(context);
    for (const gradientAccumulation of [1, 2]) {
      const work = async (failing, lost) => {
        const trainer = await trained(context, runtime, { gradientAccumulation });
        states.length = 0;
        const losses = [];
        for (let part = 0; part < 8; part++) {
          const step = () => trainer.step(batch(16));
          if (!failing || part !== 3) losses.push((await step()).loss);
          else await unread(runtime.device, step);
          if (lost && part === 4) runtime.simulateLoss();
        }
        if (!failing) losses.splice(3, 1);
        const files = await trainer.save();
        trainer.model.free();
        return { losses, files };
      };
      const whole = await work(false, false);
      for (const lost of [false, true]) {
        const { losses, files } = await work(true, lost);
        const what = `${gradientAccumulation} parts, ${lost ? "a lost device" : "no loss"}`;
        equal(losses, whole.losses, `losses, ${what}`);
        sameFiles(files, whole.files);
        equal([of("lost").length, of("different").length], [lost ? 1 : 0, 0], what);
      }
    }
  },

  async "calls under way are made again"(context) {
    const { Model, Trainer } = context.tinyloom;
    const data = await dataset(context.tinyloom);
    const { runtime, states, of } = await sharedRuntime(context);
    const trainer = await trained(context, runtime);
    await collect(trainer.run(data, { steps: 3 }));
    const files = await trainer.save();
    trainer.model.free();
    const tokens = batch(40).tokens;
    const calls = {
      create: async () => (await Model.create(runtime, config, { seed: 9 })).save(),
      fromPretrained: async () => (await Model.fromPretrained(runtime, files)).save(),
      trainer: async () => {
        const model = await Model.create(runtime, config, { seed: 9 });
        const saved = await (await Trainer.create(model, trainerOptions)).save();
        model.free();
        return saved;
      },
      resume: async () => {
        const resumed = await Trainer.resume(runtime, files);
        await resumed.step(batch(30));
        const saved = await resumed.save();
        resumed.model.free();
        return saved;
      },
      use: async () => {
        const resumed = await Trainer.resume(runtime, files);
        const { model } = resumed;
        const drawn = await collect(model.generate(tokens.slice(0, 9), { maxTokens: 40, seed: 2 }));
        const logits = await model.logits(tokens);
        const loss = [await model.loss(tokens), (await resumed.evaluate(data)).loss];
        resumed.model.free();
        return { tokens: drawn.map(({ token }) => token), logits, loss };
      },
    };
    states.length = 0;
    const chance = mulberry32(10);
    for (const [name, call] of Object.entries(calls)) {
      const began = performance.now();
      const whole = await call();
      const moment = chance() * Math.min(performance.now() - began, 200);
      setTimeout(() => runtime.simulateLoss(), moment);
      const parted = await call();
      if (name === "use") equal({ ...parted }, { ...whole }, name);
      else sameFiles(parted, whole);
      await pause(moment);
    }
    return `${of("lost").length} losses`;
  },

  async "generation goes on from its tokens and gives none twice"(context) {
    const { Model } = context.tinyloom;
    const { runtime } = await sharedRuntime(context);
    const model = await Model.create(runtime, config, { seed: 5 });
    const prompt = batch(8).tokens;
    const options = { maxTokens: 48, seed: 3, temperature: 1 };
    const whole = (await collect(model.generate(prompt, options))).map(({ token }) => token);
    for (const bias of [undefined, () => [[65, 0.5]]]) {
      const expected = bias
        ? (await collect(model.generate(prompt, { ...options, bias }))).map(({ token }) => token)
        : whole;
      const tokens = [];
      for await (const { token } of model.generate(prompt, { ...options, bias })) {
        tokens.push(token);
        if (tokens.length === (bias ? 33 : 17)) runtime.simulateLoss();
      }
      equal(tokens, expected);
    }
    model.free();
  },

  ...toldOfLosses,

  async "an option that was changed behind the last snapshot is changed again"(context) {
    const { runtime, of } = await recovering(context);
    // The steps are repeated from the model's beginning.
    context.tinyloom.internal.runtimes.of(runtime).recovery.pace = { least: 1e9, share: 100 };
    const work = async (lost) => {
      const trainer = await trained(context, runtime);
      await trainer.step(batch(20));
      trainer.learningRate = 2e-3;
      await trainer.step(batch(20, 5));
      if (lost) runtime.simulateLoss();
      const { loss, learningRate } = await trainer.step(batch(20, 9));
      const files = await trainer.save();
      trainer.model.free();
      return { told: [loss, learningRate], files };
    };
    const [whole, parted] = [await work(false), await work(true)];
    equal(parted.told, whole.told, "the step behind the loss");
    sameFiles(parted.files, whole.files);
    const told = ["lost", "different", "snapshot"].map((name) => of(name).length);
    equal(told, [1, 0, 0], "losses, steps with other results, snapshots");
    runtime.destroy();
  },
};
