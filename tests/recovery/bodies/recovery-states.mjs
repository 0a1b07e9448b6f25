// The states of a runtime whose device is lost. Some objects are not restored, and some calls wait for a new device.
// These tests check that a page learns of such objects and of such calls.
import { equal, ok, refuses, sameFiles } from "../../api/bodies/assert.mjs";
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
} from "../../api/bodies/kit.mjs";
import { recovering, sharedRuntime, trained } from "./recovery-kit.mjs";

const inNode = typeof globalThis.process?.versions?.node === "string";

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

export const toldOfLosses = {
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
    const gone = await refuses("device-lost", "does not come back", () => trainer.step(batch(20)));
    ok(!/\.\)/.test(gone.message), `a sentence within one: ${gone.message}`);
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

  async "a snapshot of an adapter names the model under it"(context) {
    const { Adapter, Model, Trainer } = context.tinyloom;
    const { runtime } = await sharedRuntime(context);
    const model = await Model.create(runtime, { ...config, _name_or_path: "org/tiny" });
    const adapter = await Adapter.create(model, { rank: 2 });
    const trainer = await Trainer.create(adapter, trainerOptions);
    const { recovery } = context.tinyloom.internal.models.of(adapter);
    for (let more = 0; more < 500 && !recovery.snapshots.good; more++) {
      await trainer.step(batch(20));
      await pause(10);
    }
    const files = await trainer.save({ good: true });
    const saved = JSON.parse(new TextDecoder().decode(files["adapter_config.json"]));
    equal(saved.base_model_name_or_path, "org/tiny");
    equal((await Trainer.resume(model, files)).steps > 0, true, "it resumes");
    model.free();
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
