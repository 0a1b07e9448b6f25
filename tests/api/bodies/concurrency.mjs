// Calls at the same time: what docs/guides/errors.md says of each, and that none hangs.
import { equal, ok, refuses } from "./assert.mjs";
import { batch, collect, config, dataset, trainerOptions, waitFor } from "./kit.mjs";

/** Milliseconds within which every call has to end. */
const LIMIT = 60_000;
const greedy = { maxTokens: 12, temperature: 0 };

async function made({ tinyloom }, runtime, seed = 5) {
  const model = await tinyloom.Model.create(runtime, config, { seed });
  return { model, trainer: await tinyloom.Trainer.create(model, trainerOptions) };
}

const losses = async (run) => (await collect(run)).map(({ loss }) => loss);
const tokens = async (text) => (await collect(text)).map(({ token }) => token);

/** Every long call, on objects of their own. */
const operations = ({ tinyloom }, runtime, { model, trainer, data, files }, signal) => {
  const { Model, Trainer } = tinyloom;
  const freeing = async (call, of = (one) => one) => of(await call).free();
  return {
    step: () => trainer.step(batch(32)), // without a signal: a step is short
    run: () => collect(trainer.run(data, { steps: 3, stepsAhead: 2, evaluateEvery: 2, signal })),
    evaluate: () => trainer.evaluate(data, { signal }),
    gradients: () => trainer.gradients({ signal }),
    "trainer.save": () => trainer.save({ signal }),
    logits: () => model.logits([1, 2, 3], { signal }),
    loss: () => model.loss([1, 2, 3], undefined, { signal }),
    hiddenStates: () => model.hiddenStates([1, 2], { layer: 1, signal }),
    attention: () => model.attention([1, 2], { layer: 0, head: 0, signal }),
    capture: () => model.capture([1, 2], { residual: true, signal }),
    lens: () => model.lens([1, 2], { layers: [1], signal }),
    attribute: () => model.attribute([1, 2], { target: 1, signal }),
    generate: () => collect(model.generate([1, 2], { ...greedy, signal })),
    "model.save": () => model.save({ signal }),
    "Model.create": () => freeing(Model.create(runtime, config, { signal })),
    "Model.fromPretrained": () => freeing(Model.fromPretrained(runtime, files, { signal })),
    "Trainer.create": () => freeing(Trainer.create(model, { ...trainerOptions, signal })),
    "Trainer.resume": () => freeing(Trainer.resume(runtime, files, { signal }), (one) => one.model),
  };
};

/** How a call ended: "done", a code, or that it did not within the limit. */
async function endOf(call) {
  let timer;
  const late = new Promise((done) => {
    timer = setTimeout(() => done("it hangs"), LIMIT);
  });
  const ended = call().then(
    () => "done",
    (error) => error.code ?? String(error?.stack ?? error),
  );
  const end = await Promise.race([ended, late]);
  clearTimeout(timer);
  return end;
}

/**
 * Makes all calls at once, then does something, and waits for all.
 *
 * @param amid - whether it is done when the first call has ended, while the others are under way or wait; else in
 *   the turn of the calls, before any has begun.
 * @returns how each ended: "done" or a code, by name.
 */
async function allAtOnce(calls, amid, act) {
  const ends = {};
  const running = Object.entries(calls).map(async ([name, call]) => {
    ends[name] = await endOf(call);
  });
  if (amid) await Promise.race(running);
  act();
  await Promise.all(running);
  return ends;
}

/** All that `operations` needs. */
async function stage(host, runtime) {
  const { model, trainer } = await made(host, runtime);
  const data = await dataset(host.tinyloom);
  await trainer.step(batch(32));
  return { model, trainer, data, files: await trainer.save() };
}

function expectEnds(ends, codes, what) {
  const others = Object.entries(ends).filter(([, end]) => !codes.includes(end));
  equal(Object.fromEntries(others), {}, `ends other than ${codes} after ${what}`);
}

/** On the runtime of the body `runs`, which imports them: it has compiled what they need. */
export const atOnce = {
  async "two trainers and a generation on one runtime are what they are alone"(host) {
    const { runtime } = host;
    const data = await dataset(host.tinyloom);
    const [a, b, c] = await Promise.all([1, 2, 3].map((seed) => made(host, runtime, seed)));
    const alone = [
      await losses(a.trainer.run(data, { steps: 6 })),
      await losses(b.trainer.run(data, { steps: 6, stepsAhead: 3 })),
      await tokens(c.model.generate([1, 2, 3], greedy)),
    ];
    for (const { model } of [a, b]) model.free();
    const [d, e] = await Promise.all([1, 2].map((seed) => made(host, runtime, seed)));
    const together = await Promise.all([
      losses(d.trainer.run(data, { steps: 6 })),
      losses(e.trainer.run(data, { steps: 6, stepsAhead: 3 })),
      tokens(c.model.generate([1, 2, 3], greedy)),
    ]);
    equal(together, alone, "losses and tokens");
    for (const { model } of [c, d, e]) model.free();
  },

  async "two trainers of one model take turns, in the order of their calls"(host) {
    const turns = async (together) => {
      const { model, trainer } = await made(host, host.runtime);
      const other = await host.tinyloom.Trainer.create(model, { ...trainerOptions, beta1: 0.8 });
      const steps = [0, 1, 2, 3].map((at) => () => (at % 2 ? other : trainer).step(batch(32, at)));
      const found = [];
      if (together) found.push(...(await Promise.all(steps.map((step) => step()))));
      else for (const step of steps) found.push(await step());
      model.free();
      return found.map(({ loss, step }) => [step, loss]);
    };
    equal(await turns(true), await turns(false), "steps and losses");
  },

  async "free during every call ends it, or lets it end"(host) {
    const { runtime } = host;
    const bytes = () => runtime._counters().gpuBytes;
    await runtime.device.queue.onSubmittedWorkDone();
    const before = bytes();
    for (const [what, amid] of [
      ["trainer", false],
      ["model", true],
    ]) {
      const objects = await stage(host, runtime);
      const calls = operations(host, runtime, objects);
      const ends = await allAtOnce(calls, amid, () => objects[what].free());
      expectEnds(ends, ["done", "freed"], `${what}.free()`);
      ok(Object.values(ends).includes("freed"), "those that waited were ended");
      equal(ends["Model.create"], "done", "another model is not concerned");
      objects.model.free();
    }
    await waitFor(`no more than the ${before} bytes of before`, () => bytes() <= before);
  },

  async "abort during every call ends it"(host) {
    const { runtime } = host;
    const objects = await stage(host, runtime);
    for (const amid of [true, false]) {
      const stop = new AbortController();
      const { step, ...calls } = operations(host, runtime, objects, stop.signal);
      const ends = await allAtOnce(calls, amid, () => stop.abort());
      expectEnds(ends, amid ? ["done", "aborted"] : ["aborted"], "abort");
      ok(Object.values(ends).includes("aborted"), "calls were stopped");
    }
    equal((await objects.trainer.step(batch(32))).skipped, false, "the trainer goes on");
    objects.model.free();
  },

  async "an iterator that is left holds nothing up"(host) {
    const { model, trainer } = await made(host, host.runtime);
    const data = await dataset(host.tinyloom);
    const text = model.generate([1, 2], { ...greedy, maxTokens: 40 });
    await text.next();
    const run = trainer.run(data, { steps: 9, stepsAhead: 2 });
    await run.next();
    // Neither is asked again: what is called now goes on all the same.
    ok((await trainer.step(batch(32))).loss > 0, "a step");
    equal((await tokens(model.generate([1, 2], greedy))).length, 12, "another text");
    await refuses("invalid-options", "a run of this trainer is on", () =>
      trainer.run(data, { steps: 1 }),
    );
    model.free();
    await refuses("freed", "", () => text.next().then(() => collect(text)));
  },
};

/** A device that is lost beside each of the above, each on a runtime of its own. The body `recovery` imports them. */
export const lostBeside = {
  async "two trainers, a generation and calls without await are what they are alone, also if the device is lost"(
    host,
  ) {
    const runtime = await host.tinyloom.Runtime.create({ gpu: host.gpu });
    const data = await dataset(host.tinyloom);
    const together = async (lose) => {
      const [a, b, c] = await Promise.all([1, 2, 3].map((seed) => made(host, runtime, seed)));
      const first = async () => {
        const found = [];
        for await (const { step, loss } of a.trainer.run(data, { steps: 6 })) {
          found.push(loss);
          if (step === 2) lose();
        }
        return found;
      };
      const unawaited = [0, 1, 2].map((at) => b.trainer.step(batch(32, at)));
      const found = await Promise.all([
        first(),
        tokens(c.model.generate([1, 2, 3], greedy)),
        ...unawaited.map(async (step) => (await step).loss),
      ]);
      for (const { model } of [a, b, c]) model.free();
      return found;
    };
    const expected = await together(() => undefined);
    equal(await together(() => runtime.simulateLoss()), expected, "losses and tokens");
    runtime.destroy();
  },

  async "free and abort end what waits, also if the device is lost in the same turn"(host) {
    const runtime = await host.tinyloom.Runtime.create({ gpu: host.gpu });
    const objects = await stage(host, runtime);
    const stop = new AbortController();
    const { step, ...calls } = operations(host, runtime, objects, stop.signal);
    const aborted = await allAtOnce(calls, true, () => {
      runtime.simulateLoss();
      stop.abort();
    });
    expectEnds(aborted, ["done", "aborted"], "abort and a lost device");
    ok(Object.values(aborted).includes("aborted"), "calls were stopped");
    ok((await objects.trainer.step(batch(32))).loss > 0, "the trainer goes on");
    const ends = await allAtOnce(operations(host, runtime, objects), true, () => {
      runtime.simulateLoss();
      objects.model.free();
    });
    expectEnds(ends, ["done", "freed"], "free() and a lost device");
    equal(ends["Model.create"], "done", "another model is not concerned");
    runtime.destroy();
  },

  async "an iterator that is left, and a run over another, hold nothing up if the device is lost"(
    host,
  ) {
    const runtime = await host.tinyloom.Runtime.create({ gpu: host.gpu });
    const { model, trainer } = await made(host, runtime);
    const data = await dataset(host.tinyloom);
    const text = model.generate([1, 2], { ...greedy, maxTokens: 40 });
    await text.next();
    const run = trainer.run(data, { steps: 9, stepsAhead: 2 });
    await run.next();
    const overlapping = () =>
      refuses("invalid-options", "a run of this trainer is on", () =>
        trainer.run(data, { steps: 1 }),
      );
    await overlapping();
    runtime.simulateLoss();
    // Neither iterator is asked again: what is called now goes on all the same.
    ok((await trainer.step(batch(32))).loss > 0, "a step");
    await overlapping();
    await run.return();
    equal((await collect(trainer.run(data, { steps: 1 }))).length, 1, "the next run");
    let given = 1;
    for await (const _ of text) if (++given === 4) break;
    equal(given, 4, "tokens of the text, which goes on until it is left by a break");
    runtime.simulateLoss();
    ok((await trainer.step(batch(32))).loss > 0, "a step after the break");
    runtime.destroy();
  },
};

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["node", "chromium", "firefox"],
  why: "a device is compiled for again after each loss: in npm run test:full alone",
  core: 0,
};

export const cases = {
  async "every call goes on after a lost device, and ends with destroy"(host) {
    const runtime = await host.tinyloom.Runtime.create({ gpu: host.gpu });
    const calls = operations(host, runtime, await stage(host, runtime));
    const lost = await allAtOnce(calls, true, () => runtime.simulateLoss());
    expectEnds(lost, ["done"], "a lost device");
    const ends = await allAtOnce(calls, true, () => runtime.destroy());
    expectEnds(ends, ["done", "freed"], "destroy()");
    equal((await runtime.lost).reason, "destroyed");
  },

  async "without recovery every call ends with a lost device"(host) {
    const runtime = await host.tinyloom.Runtime.create({ gpu: host.gpu, recover: false });
    const calls = operations(host, runtime, await stage(host, runtime));
    const ends = await allAtOnce(calls, true, () => runtime.simulateLoss());
    expectEnds(ends, ["done", "device-lost"], "a lost device");
    runtime.destroy();
  },
};
