// A dataset that is freed while it is read, or before a lost device has its steps repeated.
import { equal, ok, refuses } from "../../api/bodies/assert.mjs";
import {
  batch,
  collect,
  config,
  dataset,
  refuseDevices,
  text,
  trainerOptions,
} from "../../api/bodies/kit.mjs";

const run = { steps: 6, evaluateEvery: 3 };
const rates = { steps: 5, trainer: { tokensPerStep: 64 } };

async function trained({ tinyloom }, runtime) {
  const model = await tinyloom.Model.create(runtime, config, { seed: 5 });
  return tinyloom.Trainer.create(model, trainerOptions);
}

/** What steps gave, without times. */
const numbers = (all) =>
  all.map(({ loss, gradNorm, validationLoss }) => [loss, gradNorm, validationLoss]);

/** A dataset with what tells whether its memory has been given back, in JavaScript and in the module. */
async function watched({ tinyloom }, runtime, made = dataset(tinyloom)) {
  const { datasets, runtimes } = tinyloom.internal;
  const data = await made;
  const memory = datasets.of(data);
  const raw = memory.raw(runtimes.of(runtime).module);
  const kept = () => {
    try {
      memory.store(true);
    } catch {
      return false;
    }
    return true;
  };
  return { data, state: () => [kept(), raw.__wbg_ptr > 0] };
}

const [KEPT, GONE] = [
  [true, true],
  [false, false],
];

/** Every new use of a freed dataset. */
async function expectRefused({ tinyloom }, trainer, data) {
  const { Trainer } = tinyloom;
  for (const use of [
    () => trainer.evaluate(data),
    () => trainer.run(data, { steps: 1 }),
    () => Trainer.findLearningRate(trainer.model, data),
    () => data.document(0),
    () => data.save(),
  ]) {
    await refuses("freed", "this Dataset was freed", use);
  }
}

/** On the runtime of the body `runs`, which imports them. */
export const freedWhileRead = {
  async "a dataset that is freed while evaluate reads it is read to its end"(host) {
    const trainer = await trained(host, host.runtime);
    const { data, state } = await watched(host, host.runtime);
    const whole = await trainer.evaluate(data);
    let total = 0;
    const onProgress = ({ loaded, total: all }) => {
      total = all;
      if (loaded === 1) data.free();
    };
    const evaluation = trainer.evaluate(data, { onProgress });
    const waiting = trainer.evaluate(data); // in its turn behind the first, with the data freed by then
    equal(await Promise.all([evaluation, waiting]), [whole, whole], "both evaluations");
    ok(total > 2, `${total} batches`);
    equal(state(), GONE, "its memory");
    await expectRefused(host, trainer, data);
    data.free();
    trainer.model.free();
  },

  async "a dataset that is freed while a run reads it is read to the run's end"(host) {
    for (const stepsAhead of [0, 2]) {
      const [whole, parted] = [
        await trained(host, host.runtime),
        await trained(host, host.runtime),
      ];
      const { data, state } = await watched(host, host.runtime);
      const expected = numbers(await collect(whole.run(data, { ...run, stepsAhead })));
      const metrics = [];
      for await (const one of parted.run(data, { ...run, stepsAhead })) {
        metrics.push(one);
        if (one.step > 1) continue;
        data.free();
        await refuses("freed", "this Dataset was freed", () => parted.evaluate(data));
      }
      equal(numbers(metrics), expected, `${stepsAhead} steps ahead`);
      await expectRefused(host, parted, data);
      for (const { model } of [whole, parted]) model.free();
      equal(state(), GONE, "its memory, when no step is to be repeated");
    }
  },

  async "a dataset that is freed as soon as findLearningRate has it is searched with"(host) {
    const { Trainer } = host.tinyloom;
    const { model } = await trained(host, host.runtime);
    const { data, state } = await watched(host, host.runtime);
    const whole = await Trainer.findLearningRate(model, data, rates);
    const search = Trainer.findLearningRate(model, data, rates);
    data.free();
    equal(await search, whole, "the search");
    equal(state(), GONE, "its memory");
    model.free();
  },

  async "a freed dataset that is still read is made again in the module's next instance"(host) {
    const { data } = await watched(host, host.runtime);
    const memory = host.tinyloom.internal.datasets.of(data);
    const releases = [memory.hold(), memory.hold()];
    data.free();
    const made = [];
    const RawDataset = class {
      calls = [];
      constructor(store, _, options) {
        made.push(this);
        equal([store.length, JSON.parse(options).seed], [data.tokens, 3], "what it is made of");
      }
      release = () => this.calls.push("release");
      free = () => this.calls.push("free");
    };
    const [panicked, next] = [{ RawDataset }, { RawDataset }];
    equal(memory.raw(panicked), made[0], "in the one");
    equal([memory.raw(next), memory.raw(next)], [made[1], made[1]], "in the next");
    for (const release of [releases[0], releases[0]]) release();
    equal(made[1].calls, [], "while one holds it");
    releases[1]();
    equal(made[1].calls, ["release", "free"], "when nobody does");
    await refuses("freed", "this Dataset was freed", () => memory.raw(next));
  },
};

/** How a call or a run may end. Each frees the dataset while it is read, and then ends it. */
const endings = {
  async "a run that refuses its data"({ tinyloom, trainer, data, runtime }) {
    data.free();
    const { Dataset, ByteTokenizer } = tinyloom;
    const unsplit = Dataset.fromText(text, new ByteTokenizer(), { validationFraction: 0 });
    const other = await watched({ tinyloom }, runtime, unsplit);
    const refused = trainer.run(other.data, { steps: 1, evaluateEvery: 1 }).next();
    other.data.free();
    await refuses("invalid-options", "validation", () => refused);
    equal(other.state(), GONE, "its memory");
  },
  async "a run whose signal had fired"({ trainer, data }) {
    const refused = trainer.run(data, { steps: 1, signal: AbortSignal.abort() }).next();
    data.free();
    await refuses("aborted", "", () => refused);
  },
  async "a run left by break"({ trainer, data }) {
    for await (const _ of trainer.run(data, { steps: 5, stepsAhead: 2 })) {
      data.free();
      break;
    }
  },
  async "a run that its signal ends"({ trainer, data }) {
    const stop = new AbortController();
    const { signal } = stop;
    const left = collect(trainer.run(data, { steps: 9, signal }));
    data.free();
    stop.abort();
    await refuses("aborted", "", () => left);
  },
  async "a run that its signal ends and nobody asks again, when another begins"(host) {
    const { trainer, data, state } = host;
    const stop = new AbortController();
    await trainer.run(data, { steps: 9, stepsAhead: 2, signal: stop.signal }).next();
    data.free();
    stop.abort();
    equal(state(), KEPT, "while its steps may be under way");
    const other = await dataset(host.tinyloom);
    equal((await collect(trainer.run(other, { steps: 1 }))).length, 1, "the next run");
    other.free();
  },
  async "a run that nobody asks again, when its trainer is freed"({ trainer, data, state }) {
    await trainer.run(data, { steps: 9 }).next();
    data.free();
    equal(state(), KEPT, "while the run is on");
    trainer.free();
  },
  async "an iterator that was never asked"({ trainer, data }) {
    const run = trainer.run(data, { steps: 1 });
    data.free();
    await refuses("freed", "this Dataset was freed", () => run);
  },
  async "an evaluation that its signal ends"({ trainer, data }) {
    const stop = new AbortController();
    const evaluation = trainer.evaluate(data, {
      signal: stop.signal,
      onProgress: () => stop.abort(),
    });
    data.free();
    await refuses("aborted", "", () => evaluation);
  },
  async "a search that its signal ends"({ tinyloom, trainer, data }) {
    const stop = new AbortController();
    const { signal } = stop;
    const onProgress = () => stop.abort();
    const search = tinyloom.Trainer.findLearningRate(trainer.model, data, { signal, onProgress });
    data.free();
    await refuses("aborted", "", () => search);
  },
  async "an evaluation whose trainer is freed"({ trainer, data }) {
    const evaluation = trainer.evaluate(data);
    data.free();
    trainer.free();
    await refuses("freed", "this Trainer was freed", () => evaluation);
  },
};

/** With devices that are lost, each on a runtime of its own. The body `recovery` imports them. */
export const freedThenLost = {
  async "a dataset that was freed after its run is drawn from again after a lost device"(host) {
    const runtime = await host.tinyloom.Runtime.create({ gpu: host.gpu });
    const { recovery } = host.tinyloom.internal.runtimes.of(runtime);
    recovery.pace = { least: 1e9, share: 100 }; // no snapshot: all steps are repeated
    const work = async (lose) => {
      const trainer = await trained(host, runtime);
      const { data, state } = await watched(host, runtime);
      const steps = [];
      for (const stepsAhead of [0, 2]) {
        steps.push(...(await collect(trainer.run(data, { ...run, stepsAhead }))));
      }
      if (lose) data.free();
      if (lose) runtime.device.destroy();
      steps.push(await trainer.step(batch(32)));
      const other = lose ? await dataset(host.tinyloom) : data;
      steps.push(...(await collect(trainer.run(other, { steps: 2 }))));
      equal(state(), KEPT, "the memory of steps that may be repeated");
      trainer.model.free();
      if (lose) equal(state(), GONE, "the memory once the model is freed");
      other.free();
      return numbers(steps);
    };
    equal(await work(true), await work(false), "losses");
    runtime.destroy();
  },

  async "a dataset that is freed while the device is lost is read to the end"(host) {
    const runtime = await host.tinyloom.Runtime.create({ gpu: host.gpu });
    const work = async (lose) => {
      const trainer = await trained(host, runtime);
      const { data, state } = await watched(host, runtime);
      const steps = [];
      const free = () => {
        data.free();
        runtime.device.destroy();
      };
      for await (const one of trainer.run(data, run)) {
        steps.push(one);
        if (lose && one.step === 2) free();
      }
      trainer.model.free();
      if (lose) equal(state(), GONE, "its memory");
      return numbers(steps);
    };
    equal(await work(true), await work(false), "losses");
    runtime.destroy();
  },

  async "a snapshot lets go of a freed dataset, and so does a device that does not come back"(
    host,
  ) {
    const gpu = { requestAdapter: (options) => host.gpu.requestAdapter(options) };
    const runtime = await host.tinyloom.Runtime.create({ gpu, recover: { attempts: 1 } });
    const { recovery } = host.tinyloom.internal.runtimes.of(runtime);
    recovery.pace = { least: 0, share: 100 };
    const trainer = await trained(host, runtime);
    const first = await watched(host, runtime);
    await collect(trainer.run(first.data, run));
    first.data.free();
    equal(first.state(), KEPT, "the memory of steps that may be repeated");
    const snapshot = async () => {
      await trainer.step(batch(32));
      return JSON.stringify(first.state()) === JSON.stringify(GONE);
    };
    for (let more = 0; more < 500 && !(await snapshot()); more++);
    equal(first.state(), GONE, "the memory behind a snapshot");
    recovery.pace = { least: 1e9, share: 100 };
    const second = await watched(host, runtime);
    await collect(trainer.run(second.data, run));
    second.data.free();
    equal(second.state(), KEPT, "the memory of the next steps");
    refuseDevices(host, gpu);
    runtime.device.destroy();
    await runtime.lost;
    equal(second.state(), GONE, "the memory when no device comes, before anyone calls");
    const third = await watched(host, runtime);
    await refuses("device-lost", "does not come back", () => trainer.run(third.data, run));
    third.data.free();
    equal(third.state(), GONE, "the memory of a run that cannot begin");
    runtime.destroy();
  },

  async "whatever ends a call or a run, a freed dataset's memory is given back"(host) {
    const runtime = await host.tinyloom.Runtime.create({ gpu: host.gpu, recover: false });
    for (const [name, ending] of Object.entries(endings)) {
      const trainer = await trained(host, runtime);
      const { data, state } = await watched(host, runtime);
      await ending({ ...host, runtime, trainer, data, state });
      equal(state(), GONE, name);
      trainer.model.free();
    }
    const trainer = await trained(host, runtime);
    const { data, state } = await watched(host, runtime);
    const lost = collect(trainer.run(data, { steps: 500, stepsAhead: 2 }));
    data.free();
    runtime.device.destroy();
    await refuses("device-lost", "", () => lost);
    equal(state(), GONE, "a run that ends with the device");
    runtime.destroy();
  },
};
