// In Node or in a page: the module panics, and the same page goes on in a fresh instance of it.
import { collect, config, dataset, trainerOptions } from "../api/bodies/kit.mjs";
import { breakDevice } from "./panic-device.mjs";

const failureOf = (call) =>
  call().then(
    () => ({ code: "none" }),
    ({ name, code, message }) => ({ name, code, message }),
  );
const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
const late = (promise) => Promise.race([promise, pause(10_000).then(() => "never")]);

/** A trainer that has done four steps, what `save()` gave then, and its losses until step eight. */
async function trained(tinyloom, runtime, data) {
  const model = await tinyloom.Model.create(runtime, config, { seed: 1 });
  const trainer = await tinyloom.Trainer.create(model, trainerOptions);
  await collect(trainer.run(data, { until: 4 }));
  const files = await trainer.save();
  const metrics = await collect(trainer.run(data, { until: 8 }));
  return { model, trainer, files, losses: metrics.map(({ loss }) => loss) };
}

/** The losses until step eight of what was saved. */
async function resumed({ Trainer }, runtime, data, files) {
  const trainer = await Trainer.resume(runtime, files);
  const from = trainer.steps;
  const metrics = await collect(trainer.run(data, { until: 8 }));
  return { from, losses: metrics.map(({ loss }) => loss) };
}

/**
 * What calls give before and after the panic, and how the page goes on.
 *
 * @param tinyloom - the package, with its `internal` module.
 */
export async function panicAndGoOn(tinyloom, gpu) {
  const { Runtime, Model } = tinyloom;
  const states = [];
  const recover = { onState: (state) => states.push(state) };
  const runtime = await Runtime.create({ gpu, recover });
  tinyloom.internal.runtimes.of(runtime).recovery.pace = { least: 0, share: 100 };
  const data = await dataset(tinyloom);
  const { model, trainer, files, losses } = await trained(tinyloom, runtime, data);
  const { device } = runtime;
  const tensor = runtime.tensor([1, 2], [2]);
  const other = runtime.tensor([3, 4], [2]);

  breakDevice(device);
  // The module panics while it waits for bytes. What ends before it does is whole.
  const during = [];
  for (let round = 0; round < 100 && !during.some(({ code }) => code === "internal"); round++) {
    const calls = [() => tensor.data(), () => other.data(), () => model.loss([1, 2, 3])];
    during.push(...(await Promise.all(calls.map(failureOf))));
  }
  const after = [
    await failureOf(() => tensor.data()),
    await failureOf(async () => runtime.tensor([1], [1])),
    await failureOf(() => Model.create(runtime, config)),
    await failureOf(() => trainer.step({ tokens: [1], targets: [2] })),
  ];
  const { message: lost } = await late(runtime.lost);
  // Nothing may ask what a panic left in the module's memory.
  for (const { handle } of tinyloom.internal.models.of(model).recovery.trainers) {
    handle.raw.steps = () => {
      throw new Error("the module was asked for its steps after it panicked");
    };
  }
  const snapshot = await trainer.save(); // the last one, which was read before the panic

  const fresh = await Runtime.create({ gpu });
  const again = await resumed(tinyloom, fresh, data, files);
  const fromSnapshot = await resumed(tinyloom, fresh, data, snapshot);
  const still = await failureOf(() => model.loss([1, 2, 3]));
  runtime.destroy(); // of a module that failed: nothing is thrown, and its device goes
  const { reason: ended } = (await late(device.lost)) ?? {};
  const next = await failureOf(() => fresh.tensor([1, 2], [2]).data());
  const snapshots = states.filter(({ state }) => state === "snapshot").length;
  fresh.destroy();
  return { during, after, still, next, lost, ended, losses, again, fromSnapshot, snapshots };
}
