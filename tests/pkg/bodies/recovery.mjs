// A lost device: what was under way goes on by itself on another one, to the bit. Devices are destroyed beneath
// their runtimes at moments drawn from a seed.
import { mulberry32 } from "../../random.mjs";
import { equal, ok, refuses, sameFiles } from "./assert.mjs";
import { lostBeside } from "./concurrency.mjs";
import { freedThenLost } from "./freed-data.mjs";
import {
  batch,
  collect,
  config,
  dataset,
  makeFile,
  openFile,
  pause,
  refuseDevices,
  trainerOptions,
  waitFor,
} from "./kit.mjs";

const inNode = typeof globalThis.process?.versions?.node === "string";

/** A runtime that notes its states. Snapshots follow each other closely where they are wanted so. */
async function recovering({ tinyloom, gpu }, { eager = false, ...recover } = {}, options = {}) {
  const states = [];
  const runtime = await tinyloom.Runtime.create({
    gpu,
    ...options,
    recover: { ...recover, onState: (state) => states.push(state) },
  });
  if (eager) tinyloom.internal.runtimes.of(runtime).recovery.pace = { least: 0, share: 100 };
  return { runtime, states, of: (name) => states.filter(({ state }) => state === name) };
}

/** One runtime for the cases that leave it well: it keeps its kernels from one to the next. */
const shared = new Map();
async function sharedRuntime(context) {
  const { tinyloom } = context;
  if (!shared.has(tinyloom)) shared.set(tinyloom, await recovering(context, { eager: true }));
  return shared.get(tinyloom);
}

/** A checkpoint as other programs write one: without checksums. */
function withoutChecksums(files) {
  const { header, data } = openFile(files["model.safetensors"]);
  return { ...files, "model.safetensors": makeFile({ ...header, __metadata__: undefined }, data) };
}

/** A stored run that keeps nothing. */
function storedRun({ stored }) {
  const run = { id: "1", name: "one" };
  const out = { write: () => undefined, rewrite: () => undefined };
  const target = { open: () => out, close: async () => undefined, abort: async () => undefined };
  stored.set(run, { target: () => target, note: () => undefined });
  return run;
}

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

async function trained({ tinyloom }, runtime, options = {}) {
  const { Model, Trainer } = tinyloom;
  const model = await Model.create(runtime, config, { seed: 5 });
  return Trainer.create(model, { ...trainerOptions, ...options });
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

  async "a model comes back from its source, or says that it is gone"(context) {
    const { Model } = context.tinyloom;
    const { runtime, of } = await recovering(context);
    const files = await (await Model.create(context.runtime, config, { seed: 8 })).save();
    const kept = await Model.fromPretrained(runtime, { ...files });
    const taken = { ...files, "model.safetensors": files["model.safetensors"].slice() };
    const changed = { ...files, "model.safetensors": files["model.safetensors"].slice() };
    const gone = await Model.fromPretrained(runtime, taken);
    const other = await Model.fromPretrained(runtime, changed);
    // As another program writes it, without checksums; then one bit changes, in the middle of a tensor.
    const [foreign, tampered] = [withoutChecksums(files), withoutChecksums(files)];
    const whole = await Model.fromPretrained(runtime, foreign);
    const replaced = await Model.fromPretrained(runtime, tampered);
    const { header, data } = openFile(tampered["model.safetensors"]);
    const [begin, end] = header["model.embed_tokens.weight"].data_offsets;
    data[begin + (end - begin) / 2] ^= 1;
    // Transferred, and overwritten.
    structuredClone(taken["model.safetensors"].buffer, {
      transfer: [taken["model.safetensors"].buffer],
    });
    changed["model.safetensors"].fill(1, -64);
    const tensor = runtime.tensor([1, 2], [2]);
    runtime.simulateLoss();
    sameFiles(await kept.save(), files);
    await refuses("device-lost", ["source", "transferred"], () => gone.loss([1, 2, 3]));
    await refuses("device-lost", ["source", "damaged"], () => other.loss([1, 2, 3]));
    const { "model.safetensors": kept2 } = await whole.save();
    sameFiles({ kept2 }, { kept2: files["model.safetensors"] });
    await refuses("device-lost", ["source has changed"], () => replaced.loss([1, 2, 3]));
    await refuses("device-lost", "tensors do not come back", () => tensor.data());
    equal([...(await runtime.tensor([3], [1]).data())], [3], "a new tensor");
    equal(of("failed").length, 3, "models that do not come back");
    runtime.destroy();
  },

  async "a call waits, unless its signal fires"(context) {
    let [closed, asked] = [false, 0];
    const gpu = {
      requestAdapter: async (options) => {
        asked += 1;
        return closed ? null : context.gpu.requestAdapter(options);
      },
    };
    const { runtime, of } = await recovering({ ...context, gpu });
    const model = await context.tinyloom.Model.create(runtime, config);
    const loss = await model.loss([1, 2, 3]);
    closed = true;
    runtime.simulateLoss();
    const stop = new AbortController();
    const { signal } = stop;
    const waiting = model.loss([1, 2, 3]);
    const stopped = [
      model.loss([1, 2, 3], undefined, { signal }),
      collect(model.generate([1, 2, 3], { signal })),
      context.tinyloom.Model.create(runtime, config, { signal }),
    ];
    const before = asked;
    await waitFor("it asks twice", () => asked >= before + 2);
    const [{ until, message }] = of("waiting");
    ok(until > Date.now() + 60_000 && message.includes("two minutes"), `${until}: ${message}`);
    equal(
      /site|page/.test(message),
      !inNode,
      `words for ${inNode ? "a page" : "Node"}: ${message}`,
    );
    stop.abort();
    for (const call of stopped) await refuses("aborted", "", () => call);
    closed = false;
    equal(await waiting, loss, "the call that waited");
    equal(of("waiting").length, 1, "told once");
    runtime.destroy();
  },

  async "steps of a trainer that is freed while they are repeated are repeated after the next loss"(
    context,
  ) {
    const { tinyloom } = context;
    const { runtime, of } = await recovering(context);
    const model = await tinyloom.Model.create(runtime, config, { seed: 5 });
    const trainer = await tinyloom.Trainer.create(model, trainerOptions);
    const run = trainer.run(await dataset(tinyloom), { steps: 8, stepsAhead: 4 });
    await run.next();
    runtime.device.destroy();
    const next = run.next().catch(() => undefined);
    await pause(10);
    trainer.free();
    await next;
    const before = await model.save();
    const [{ repeated }] = of("recovered");
    runtime.device.destroy();
    sameFiles(await model.save(), before, "the model after another loss");
    equal(of("recovered")[1].repeated, repeated, "steps that were repeated");
    runtime.destroy();
  },

  async "an onState that throws is reported, and ends nothing"({ tinyloom, gpu }) {
    const reported = [];
    const { error } = console;
    const onError = (event) => {
      event.preventDefault();
      reported.push(event.error);
    };
    if (inNode) console.error = (...what) => reported.push(what.at(-1));
    else globalThis.addEventListener("error", onError);
    try {
      const onState = ({ state }) => {
        throw new Error(state);
      };
      const runtime = await tinyloom.Runtime.create({ gpu, recover: { onState } });
      const model = await tinyloom.Model.create(runtime, config);
      const loss = await model.loss([1, 2, 3]);
      runtime.simulateLoss();
      equal(await model.loss([1, 2, 3]), loss, "the loss afterwards");
      await waitFor("the states are reported", () => reported.length >= 3);
      const states = reported.map((one) => one.message);
      for (const state of ["lost", "reopened", "recovered"])
        ok(states.includes(state), `${states}`);
      runtime.destroy();
    } finally {
      console.error = error;
      if (!inNode) globalThis.removeEventListener("error", onError);
    }
  },

  async "while the browser gives no adapter, a page hears what a reload would lose"(context) {
    let closed = false;
    const gpu = {
      requestAdapter: async (options) => (closed ? null : context.gpu.requestAdapter(options)),
    };
    const { runtime, of } = await recovering({ ...context, gpu });
    const { Model, internal } = context.tinyloom;
    await Model.create(runtime, config); // without a trainer: nothing of it is lost
    const trainer = await trained(context, runtime);
    const data = await dataset(context.tinyloom);
    const run = storedRun(internal);
    await collect(trainer.run(data, { steps: 4, checkpoint: { run, every: 4 } }));
    const unsaved = async () => {
      closed = true;
      runtime.simulateLoss();
      const told = of("waiting").length;
      await waitFor("it waits for an adapter", () => of("waiting").length > told);
      closed = false;
      ok((await trainer.model.loss([1, 2, 3])) > 0, "it is back");
      return of("waiting").at(-1);
    };
    await collect(trainer.run(data, { steps: 2 }));
    await trainer.save(); // as bytes, which the page may or may not keep
    const two = await unsaved();
    equal(two.unsaved, 2, "two steps are in no run, and a save elsewhere is none");
    ok(two.message.endsWith("it loses 2 steps that are in no stored run"), two.message);
    await trainer.save({ to: run });
    await collect(trainer.run(data, { steps: 1 }));
    trainer.free();
    trainer.free();
    const one = await unsaved();
    equal(one.unsaved, 1, "the step of a freed trainer, which the model alone has");
    ok(one.message.endsWith("it loses 1 step that is in no stored run"), one.message);
    await trainer.model.save({ to: run });
    const none = await unsaved();
    equal(none.unsaved, 0, "the model was saved into the run");
    ok(none.message.endsWith("nothing is lost by it"), none.message);
    runtime.destroy();
  },

  async "where no device comes, the last snapshot is saved and the runtime is lost"(context) {
    let closed = false;
    const gpu = {
      requestAdapter: async (options) => {
        if (closed) throw new Error("no more");
        const adapter = await context.gpu.requestAdapter(options);
        return adapter;
      },
    };
    const { runtime, of } = await recovering({ ...context, gpu }, { eager: true, attempts: 1 });
    const trainer = await trained(context, runtime);
    const data = await dataset(context.tinyloom);
    await collect(trainer.run(data, { steps: 6 }));
    for (let more = 0; more < 500 && of("snapshot").length === 0; more++) {
      await trainer.step(batch(20));
      await pause(10);
    }
    const settled = runtime.lost;
    // A device that cannot be made is no missing adapter, for which it would wait.
    closed = true;
    refuseDevices(context, gpu);
    runtime.simulateLoss();
    await refuses("device-lost", "does not come back", () => trainer.step(batch(20)));
    equal((await settled).message.length > 0, true, "lost settles");
    const files = await trainer.save();
    const other = await sharedRuntime(context);
    const resumed = await context.tinyloom.Trainer.resume(other.runtime, files);
    const { steps, bytes } = of("snapshot").at(-1);
    equal(bytes, 12 * trainer.model.parameterCount, "bytes of a snapshot");
    equal([resumed.steps], steps, "the snapshot's step");
    equal((await resumed.step(batch(20))).step, steps[0] + 1);
    await refuses("device-lost", "does not come back", () => trainer.model.save());
    resumed.model.free();
    runtime.destroy();
  },

  async "another adapter is reported"(context) {
    let other = false;
    const gpu = {
      requestAdapter: async (options) => {
        const adapter = await context.gpu.requestAdapter(options);
        if (!other) return adapter;
        const { features, limits } = adapter;
        const { vendor, architecture, device, subgroupMinSize, subgroupMaxSize } = adapter.info;
        const info = { vendor, architecture, device, description: "another" };
        Object.assign(info, { subgroupMinSize, subgroupMaxSize });
        const requestDevice = (wanted) => adapter.requestDevice(wanted);
        return { features, limits, info, requestDevice };
      },
    };
    const { runtime, of } = await recovering({ ...context, gpu });
    const model = await context.tinyloom.Model.create(runtime, config);
    other = true;
    runtime.simulateLoss();
    ok(Number.isFinite(await model.loss([1, 2, 3])), "a loss");
    equal(of("reopened")[0].sameAdapter, false);
    equal(runtime.capabilities.adapter.description, "another");
    runtime.destroy();
  },

  async "after divergence the good weights are saved, and a run goes on from them"(context) {
    const { Trainer } = context.tinyloom;
    const { runtime, states, of } = await sharedRuntime(context);
    states.length = 0;
    const trainer = await trained(context, runtime, { schedule: "constant" });
    const { learningRate } = trainer;
    const data = await dataset(context.tinyloom);
    const good = () => trainer.save({ good: true });
    await refuses("invalid-options", "no snapshot of good weights", good);
    const losses = new Map();
    let wild;
    const error = await refuses("non-finite", "trainer.save({ good: true })", async () => {
      for await (const { step, loss } of trainer.run(data, { steps: 400 })) {
        losses.set(step, loss);
        // From here on each step ruins the weights, and snapshots of them are still taken.
        if (of("snapshot").length > 1 && step > 3) wild ??= step;
        trainer.learningRate = wild ? 1e18 : learningRate;
        await pause(5);
      }
    });
    await refuses("invalid-options", ["good", "true | false"], () => trainer.save({ good: 1 }));
    const files = await good();
    const again = await Trainer.resume(runtime, files);
    ok(error.message.includes(`those of step ${again.steps}, `), error.message);
    ok(again.steps >= 1 && again.steps <= wild, `${again.steps} steps, of which ${wild} were good`);
    again.learningRate = learningRate;
    const { steps } = again;
    const metrics = await collect(again.run(data, { until: wild + 3 }));
    for (const { step, loss } of metrics.filter(({ step }) => step <= wild + 1)) {
      equal(loss, losses.get(step), `the loss of step ${step}`);
    }
    ok(
      metrics.every(({ loss, skipped }) => loss < 7 && !skipped),
      "the run goes on with good weights",
    );
    again.model.free();
    trainer.model.free();
    return `ruined after step ${wild}, ended at ${Math.max(...losses.keys())}, good weights of step ${steps}`;
  },

  async "snapshots beyond the bound are off and say so"(context) {
    const options = { snapshotBytes: 1000, snapshotMilliseconds: 7000 };
    const { runtime, of } = await recovering(context, options);
    equal(context.tinyloom.internal.runtimes.of(runtime).recovery.pace.least, 7000, "the pace");
    const trainer = await trained(context, runtime);
    const untrained = await context.tinyloom.Model.create(runtime, config, { seed: 3 });
    const loss = await untrained.loss([1, 2, 3]);
    equal((await trainer.step(batch(20))).step, 1);
    ok(/snapshotBytes/.test(of("snapshots-off")[0].message), of("snapshots-off")[0].message);
    runtime.simulateLoss();
    await refuses("device-lost", "snapshotBytes", () => trainer.step(batch(20)));
    equal(trainer.steps, 1, "steps that were given out");
    equal(await untrained.loss([1, 2, 3]), loss, "a model that was not trained");
    runtime.destroy();
  },

  async "between two snapshots lie the steps that were asked for"(context) {
    const { runtime, of } = await recovering(context, { eager: true, snapshotSteps: 6 });
    const trainer = await trained(context, runtime);
    const snapshots = () => of("snapshot").map(({ steps: [step] }) => step);
    for (let more = 0; more < 500 && snapshots().length < 3; more++) {
      await trainer.step(batch(20));
      await pause(10);
    }
    const between = snapshots().map((step, at, all) => step - (all[at - 1] ?? 0));
    ok(between.length === 3 && between.every((steps) => steps >= 6), `${between} steps between`);
    trainer.model.free();
    runtime.destroy();
  },

  async "without recovery a lost device is the end"(context) {
    const { Runtime } = context.tinyloom;
    const runtime = await Runtime.create({ gpu: context.gpu, recover: false });
    const model = await context.tinyloom.Model.create(runtime, config);
    runtime.simulateLoss();
    await refuses("device-lost", "", () => model.loss([1, 2, 3]));
    ok((await runtime.lost).message, "why");
    runtime.destroy();
    const options = { gpu: context.gpu, recover: { attempts: 0 } };
    await refuses("invalid-options", "attempts", () => Runtime.create(options));
  },

  async "destroy and free end what waits"(context) {
    let closed = false;
    const gpu = {
      requestAdapter: async (options) => (closed ? null : context.gpu.requestAdapter(options)),
    };
    for (const ending of ["destroy", "free"]) {
      closed = false;
      const { runtime } = await recovering({ ...context, gpu });
      const model = await context.tinyloom.Model.create(runtime, config);
      closed = true;
      runtime.simulateLoss();
      const waiting = model.loss([1, 2, 3]);
      await pause(50);
      if (ending === "destroy") runtime.destroy();
      else model.free();
      closed = false;
      await refuses("freed", "", () => waiting);
      if (ending === "free") runtime.destroy();
      equal(typeof (await runtime.lost).message, "string", "lost settles");
    }
  },
};
