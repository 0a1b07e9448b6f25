// Training: it learns, to the same bits each time, also across save and resume.
import { close, equal, ok, refuses, sameBytes, sameFiles } from "../../api/bodies/assert.mjs";
import {
  batch,
  collect,
  config,
  dataset,
  openFile,
  trainerOptions,
} from "../../api/bodies/kit.mjs";

async function make({ tinyloom, runtime }, options = trainerOptions) {
  const model = await tinyloom.Model.create(runtime, config, { seed: 42 });
  return tinyloom.Trainer.create(model, options);
}

/** Trains a fresh model and gives its files. */
async function train(host, steps) {
  const trainer = await make(host);
  const metrics = await collect(trainer.run(await dataset(host.tinyloom), { steps }));
  const files = await trainer.save();
  trainer.model.free();
  return { metrics, files };
}

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["firefox"],
  why: "schedule, batches and metrics are the module's; submits, readbacks and what keeps measured products are the host's",
  core: 6,
  smoke: [
    "the loss falls and is reported",
    "training twice gives identical bytes",
    "products are measured once, and remembered",
    "20 steps are 10, save, resume, 10: to the bit",
    "a run stops at the signal and goes on later",
    "a loss that is not finite skips the step and ends the run",
  ],
};

export const cases = {
  async "the loss falls and is reported"(host) {
    const { metrics } = await train(host, 20);
    equal(metrics.length, 20);
    equal(
      metrics.map((m) => m.step),
      Array.from({ length: 20 }, (_, i) => i + 1),
    );
    const [first, last] = [metrics[0], metrics[19]];
    close(first.loss, Math.log(256), 0.4, "the first loss is that of chance");
    ok(last.loss < first.loss - 1, `the loss fell from ${first.loss} to ${last.loss}`);
    for (const m of metrics) {
      ok(Number.isFinite(m.gradNorm) && m.gradNorm > 0, "gradNorm");
      ok(m.learningRate > 0 && m.learningRate <= 3e-3 + 1e-9, "learningRate");
      ok(
        m.tokens > 0 && m.tokens <= 64 && m.milliseconds >= 0 && m.skipped === false,
        "tokens, time",
      );
    }
  },

  async "training twice gives identical bytes"(host) {
    const [a, b] = [await train(host, 20), await train(host, 20)];
    equal(
      a.metrics.map((m) => m.loss),
      b.metrics.map((m) => m.loss),
      "losses",
    );
    sameFiles(a.files, b.files);
  },

  async "activations computed again give the same bits, also after a resume"(host) {
    const data = await dataset(host.tinyloom);
    const run = async (trainer, steps) =>
      (await collect(trainer.run(data, { steps }))).map((m) => m.loss);
    const kept = await make(host);
    const again = await make(host, { ...trainerOptions, recompute: true });
    const [activations, fewer] = [kept, again].map((trainer) => trainer._activationBytes().shared);
    ok(fewer < activations, `${fewer} bytes computed again, ${activations} kept`);
    const losses = await run(kept, 6);
    equal(await run(again, 4), losses.slice(0, 4), "losses");
    const resumed = await host.tinyloom.Trainer.resume(host.runtime, await again.save());
    equal(resumed._activationBytes().shared, fewer, "bytes of what was resumed");
    equal(await run(resumed, 2), losses.slice(4), "losses of what was resumed");
    const files = await resumed.save();
    const expected = await kept.save();
    for (const name of ["model.safetensors", "optimizer.safetensors"])
      sameBytes(files[name], expected[name], name);
    for (const { model } of [kept, again, resumed]) model.free();
    return `${fewer} bytes of activations computed again, ${activations} kept`;
  },

  async "products that read f16 weights train as f32 does, also after a resume"(host) {
    const data = await dataset(host.tinyloom);
    const losses = async (trainer, steps) =>
      (await collect(trainer.run(data, { steps }))).map((m) => m.loss);
    const plain = await make(host);
    const mixed = await make(host, { ...trainerOptions, precision: "mixed" });
    const variants = (trainer) => trainer.plan().map((row) => row.variant);
    ok(
      variants(mixed).some((variant) => variant.includes("b in f16")),
      "variants",
    );
    ok(!variants(plain).some((variant) => variant.includes("f16")), "variants in f32");
    const expected = await losses(plain, 12);
    const own = await losses(mixed, 8);
    const resumed = await host.tinyloom.Trainer.resume(host.runtime, await mixed.save());
    ok(
      variants(resumed).some((variant) => variant.includes("f16")),
      "variants of what was resumed",
    );
    const rest = await losses(resumed, 4);
    equal(rest, await losses(mixed, 4), "losses of what was resumed");
    const apart = [...own, ...rest].map((loss, i) => Math.abs(loss / expected[i] - 1));
    ok(Math.max(...apart) > 0 && Math.max(...apart) < 0.01, `${apart} apart`);
    for (const { model } of [plain, mixed, resumed]) model.free();
    return `${(100 * Math.max(...apart)).toFixed(4)} % apart at most`;
  },

  async "of the last layers alone, also after a resume and a lost device"({ tinyloom, gpu }) {
    const { Model, Runtime, Trainer } = tinyloom;
    const data = await dataset(tinyloom);
    const untied = { ...config, num_hidden_layers: 3, tie_word_embeddings: false };
    const runtime = await Runtime.create({ gpu });
    tinyloom.internal.runtimes.of(runtime).recovery.pace = { least: 0, share: 100 };
    const open = async (lastLayers) => {
      const model = await Model.create(runtime, untied, { seed: 42 });
      return Trainer.create(model, { ...trainerOptions, lastLayers });
    };
    const losses = async (trainer, steps) =>
      (await collect(trainer.run(data, { steps }))).map((m) => m.loss);
    const tensors = async (model) => openFile((await model.save())["model.safetensors"]);
    const trained = (name) => /^(model\.layers\.2\.|model\.norm|lm_head)/.test(name);
    const [whole, parted] = [await open(1), await open(1)];
    equal([whole.options.lastLayers, (await open(null)).options.lastLayers], [1, null], "options");
    const before = await tensors(whole.model);
    const expected = await losses(whole, 8);
    ok(expected[7] < expected[0], `the loss went from ${expected[0]} to ${expected[7]}`);
    const after = await tensors(whole.model);
    for (const [name, { data_offsets: range }] of Object.entries(before.header)) {
      if (name === "__metadata__") continue;
      const [a, b] = [before, after].map(({ data: bytes }) => bytes.slice(...range));
      if (trained(name))
        ok(
          b.some((byte, i) => byte !== a[i]),
          `${name} is trained`,
        );
      else sameBytes(b, a, name);
    }
    const names = Object.keys(before.header).filter(trained).sort();
    const gradients = await whole.gradients();
    equal(Object.keys(gradients).sort(), names, "gradients");
    for (const [name, { length }] of Object.entries(gradients)) {
      const { shape } = before.header[name];
      equal(
        length,
        shape.reduce((product, n) => product * n, 1),
        `elements of ${name}`,
      );
    }
    const backward = whole.plan().filter(({ phase }) => phase === "backward");
    const below = backward.filter(({ label }) => /^layer [01] /.test(label));
    equal([below.length, backward.length > 10], [0, true], "dispatches below");
    // Half of it, then from its files, and over a lost device.
    const begun = await losses(parted, 3);
    const files = await parted.save();
    const resumed = await Trainer.resume(runtime, files);
    equal(resumed.options.lastLayers, 1, "what was resumed");
    sameFiles(await resumed.save(), files, "what was resumed saves as it was");
    const middle = await losses(resumed, 3);
    runtime.simulateLoss();
    const end = await losses(resumed, 2);
    equal([...begun, ...middle, ...end], expected, "losses");
    sameFiles(await resumed.save(), await whole.save(), "files of both");
    runtime.destroy();
  },

  async "of layers that are not there is refused"(host) {
    const { Adapter, Trainer } = host.tinyloom;
    for (const [lastLayers, ...words] of [
      [0, "lastLayers is 0"],
      [1.5, "lastLayers is 1.5"],
      [3, "lastLayers is 3", "num_hidden_layers, 2"],
    ]) {
      await refuses("invalid-options", words, () => make(host, { lastLayers }));
    }
    const { model } = await make(host);
    const adapter = await Adapter.create(model);
    await refuses("invalid-options", ["lastLayers", "targets"], () =>
      Trainer.create(adapter, { lastLayers: 1 }),
    );
    model.free();
  },

  async "steps queued ahead are the same steps"(host) {
    const data = await dataset(host.tinyloom);
    const plain = await make(host);
    const ahead = await make(host);
    const options = { steps: 9, evaluateEvery: 4 };
    const expected = await collect(plain.run(data, options));
    const metrics = await collect(ahead.run(data, { ...options, stepsAhead: 3 }));
    const told = (all) => all.map(({ step, loss, validationLoss }) => [step, loss, validationLoss]);
    equal(told(metrics), told(expected), "steps and losses");
    sameFiles(await ahead.save(), await plain.save());
    // Leaving the loop waits for what is on its way; a later run goes on behind that.
    for await (const { step } of ahead.run(data, { steps: 8, stepsAhead: 2 }))
      if (step === 11) break;
    const { progress } = JSON.parse(
      new TextDecoder().decode((await ahead.save())["trainer_state.json"]),
    );
    equal([progress.step, progress.cursor], [13, 13], "steps and batches after leaving the loop");
    const rest = await collect(ahead.run(data, { steps: 2, stepsAhead: 2 }));
    await collect(plain.run(data, { steps: 4 }));
    equal(told(rest), told(await collect(plain.run(data, { steps: 2 }))), "what follows");
    const { totalSteps: _, ...open } = trainerOptions;
    const parted = await make(host, { ...open, gradientAccumulation: 2 });
    await refuses("invalid-options", ["stepsAhead"], () =>
      collect(parted.run(data, { steps: 2, stepsAhead: 1 })),
    );
    const state = new TextDecoder().decode((await parted.save())["trainer_state.json"]);
    equal(JSON.parse(state).options.totalSteps, null, "total steps after a refused run");
    // A step of one's own between those that are queued: the run does its five all the same.
    const steps = [];
    for await (const { step } of ahead.run(data, { steps: 5, stepsAhead: 3 })) {
      if (steps.push(step) === 1)
        equal((await ahead.step(batch(20))).step, 20, "a step of one's own");
    }
    equal(steps, [16, 17, 18, 19, 21], "the steps of the run");
    for (const { model } of [plain, ahead, parted]) model.free();
  },

  async "products are measured once, and remembered"({ tinyloom, gpu }) {
    const { Model, Runtime, Trainer } = tinyloom;
    const small = { ...config, num_hidden_layers: 1, hidden_size: 32, intermediate_size: 32 };
    const open = async (tune) => {
      const runtime = await Runtime.create({ gpu, tune });
      const model = await Model.create(runtime, small, { seed: 42 });
      const before = runtime._counters();
      const trainer = await Trainer.create(model, trainerOptions);
      const { submits, gpuBytes } = runtime._counters();
      const reasons = trainer.plan().filter((row) => /^matmul/.test(row.kernel));
      const measured = reasons.filter(({ reason }) => /^measured: [\d.]+ µs/.test(reason));
      return { runtime, trainer, submits: submits - before.submits, gpuBytes, reasons, measured };
    };
    const [plain, tuned, again] = [await open(false), await open(true), await open(true)];
    equal(plain.measured.length, 0, "reasons with a time where nothing was to be measured");
    ok(tuned.submits > plain.submits, "measuring takes submits");
    ok(tuned.measured.length > 0, `no product was measured: ${tuned.reasons[0].reason}`);
    // The same times are reported again. Where the first had too little time for all, others joined them.
    const told = new Map(again.measured.map(({ label, reason }) => [label, reason]));
    for (const { label, reason } of tuned.measured) equal(told.get(label), reason, label);
    ok(again.gpuBytes <= plain.gpuBytes * 1.05, "what measuring took is given back");
    const data = await dataset(tinyloom);
    const [a, b] = [plain, again].map(({ trainer }) => collect(trainer.run(data, { steps: 4 })));
    for (const [i, { loss }] of (await b).entries()) close(loss, (await a)[i].loss, 1e-4, "loss");
    for (const { runtime } of [plain, tuned, again]) runtime.destroy();
    return `${tuned.measured.length} of ${tuned.reasons.length} products`;
  },

  async "20 steps are 10, save, resume, 10: to the bit"(host) {
    const { Trainer } = host.tinyloom;
    const { files: whole, metrics } = await train(host, 20);
    const { files: half } = await train(host, 10);
    const resumed = await Trainer.resume(host.runtime, half);
    sameFiles(await resumed.save(), half, "what was resumed saves as it was");
    const rest = await collect(resumed.run(await dataset(host.tinyloom), { steps: 10 }));
    equal(
      rest.map((m) => m.loss),
      metrics.slice(10).map((m) => m.loss),
      "losses",
    );
    sameFiles(await resumed.save(), whole);
    resumed.model.free();
  },

  async "accumulation is saved, resumed and evaluated in its middle"(host) {
    const { Trainer } = host.tinyloom;
    const options = { ...trainerOptions, tokensPerStep: 32, gradientAccumulation: 3 };
    const [a, b, c] = [batch(32, 0), batch(20, 40), batch(32, 90)];
    const data = await dataset(host.tinyloom);
    const whole = await make(host, options);
    for (const one of [a, b, c]) await whole.step(one);
    const part = await make(host, options);
    await part.step(a);
    await part.evaluate(data);
    await part.step(b);
    const saved = await part.save();
    const resumed = await Trainer.resume(host.runtime, saved);
    sameFiles(await resumed.save(), saved, "what was resumed saves as it was");
    const before = await resumed.gradients();
    for (const [name, gradient] of Object.entries(await part.gradients())) {
      sameBytes(before[name], gradient, `gradient ${name}`);
    }
    await resumed.evaluate(data);
    const [last, expected] = [await resumed.step(c), await part.step(c)];
    equal([last.loss, last.gradNorm], [expected.loss, expected.gradNorm], "loss and norm");
    for (const trainer of [part, resumed]) sameFiles(await trainer.save(), await whole.save());
    for (const { model } of [whole, part, resumed]) model.free();
  },

  async "a step of a run reports all of its micro-steps"(host) {
    const trainer = await make(host, { ...trainerOptions, gradientAccumulation: 3 });
    const began = performance.now();
    const [m] = await collect(trainer.run(await dataset(host.tinyloom), { steps: 1 }));
    equal(m.tokens, 3 * 64, "tokens");
    const wall = performance.now() - began;
    ok(m.milliseconds > 0 && m.milliseconds <= wall, `${m.milliseconds} of ${wall} ms`);
    trainer.model.free();
  },

  async "the trainer's seed orders the data"(host) {
    const data = await dataset(host.tinyloom);
    const losses = async (seed) => {
      const trainer = await make(host, { ...trainerOptions, seed });
      const metrics = await collect(trainer.run(data, { steps: 2 }));
      trainer.model.free();
      return JSON.stringify(metrics.map((m) => m.loss));
    };
    const first = await losses(1);
    equal(await losses(1), first, "the same seed");
    ok((await losses(2)) !== first, "another seed draws other documents");
  },

  async "a resumed trainer has no gradients until it steps"(host) {
    const { files } = await train(host, 1);
    const resumed = await host.tinyloom.Trainer.resume(host.runtime, files);
    await refuses("invalid-options", ["no gradients", "step"], () => resumed.gradients());
    await resumed.step(batch(16));
    ok(Object.keys(await resumed.gradients()).length > 0, "gradients after a step");
    resumed.model.free();
  },

  async "a run that is cut short keeps its schedule"(host) {
    const { totalSteps: _, ...open } = trainerOptions;
    const data = await dataset(host.tinyloom);
    const whole = await make(host, open);
    await collect(whole.run(data, { steps: 12 }));
    const cut = await make(host, open);
    for await (const { step } of cut.run(data, { steps: 12 })) if (step === 5) break;
    const resumed = await host.tinyloom.Trainer.resume(host.runtime, await cut.save());
    await collect(resumed.run(data, { steps: 7 }));
    const [a, b] = [await resumed.save(), await whole.save()];
    sameBytes(a["model.safetensors"], b["model.safetensors"], "weights");
    for (const { model } of [whole, cut, resumed]) model.free();
  },

  async "a run that comes to nothing leaves the schedule as it was"(host) {
    const { totalSteps: _, ...open } = { ...trainerOptions, gradientAccumulation: 4 };
    const data = await dataset(host.tinyloom);
    const rates = async (trainer) =>
      (await collect(trainer.run(data, { steps: 6 }))).map((m) => m.learningRate);
    const untouched = await make(host, open);
    const stopped = await make(host, open);
    const controller = new AbortController();
    const first = stopped.run(data, { steps: 500, signal: controller.signal }).next();
    controller.abort();
    await refuses("aborted", [], () => first);
    equal(await rates(stopped), await rates(untouched), "learning rates");
    for (const { model } of [untouched, stopped]) model.free();
  },

  async "evaluation, and metrics with validationLoss"(host) {
    const trainer = await make(host);
    const data = await dataset(host.tinyloom);
    const before = await trainer.evaluate(data);
    ok(before.tokens > 300, `${before.tokens} tokens of the validation split`);
    equal(await trainer.evaluate(data), before, "evaluation repeats");
    const metrics = await collect(trainer.run(data, { steps: 9, evaluateEvery: 4 }));
    const at = metrics.filter((m) => m.validationLoss !== undefined).map((m) => m.step);
    equal(at, [4, 8, 9], "evaluated at");
    ok(metrics[8].validationLoss < before.loss, "the validation loss falls");
    close((await trainer.evaluate(data)).loss, metrics[8].validationLoss, 1e-6);
    await refuses("aborted", [], () => trainer.evaluate(data, { signal: AbortSignal.abort() }));
    trainer.model.free();
  },

  async "accumulation is one larger batch"(host) {
    const base = { learningRate: 1e-3, warmupSteps: 0, schedule: "constant", maxGradNorm: 1e9 };
    const one = await make(host, { ...base, tokensPerStep: 32 });
    const two = await make(host, { ...base, tokensPerStep: 16, gradientAccumulation: 2 });
    const [a, b] = [batch(16, 0), batch(16, 30)];
    const join = (key) => Uint32Array.from([...a[key], ...b[key]]);
    const documents = Uint32Array.from({ length: 32 }, (_, i) => (i < 16 ? 0 : 16));
    const m = await one.step({ tokens: join("tokens"), targets: join("targets"), documents });
    await two.step(a);
    await two.step(b);
    const [whole, parts] = [await one.gradients(), await two.gradients()];
    equal(Object.keys(parts).sort(), Object.keys(whole).sort(), "gradient names");
    for (const [name, gradient] of Object.entries(whole)) {
      for (const [i, value] of gradient.entries()) close(parts[name][i], value, 1e-5, name);
    }
    equal(m.step, 1);
    for (const { model } of [one, two]) model.free();
  },

  async "a run stops at the signal and goes on later"(host) {
    const trainer = await make(host);
    const data = await dataset(host.tinyloom);
    const controller = new AbortController();
    let seen = 0;
    await refuses("aborted", [], async () => {
      for await (const { step } of trainer.run(data, { steps: 20, signal: controller.signal })) {
        seen = step;
        if (step === 4) controller.abort();
      }
    });
    equal(seen, 4);
    equal(
      (await collect(trainer.run(data, { steps: 2 }))).map((m) => m.step),
      [5, 6],
    );
    trainer.model.free();
  },

  async "a loss that is not finite skips the step and ends the run"(host) {
    const trainer = await make(host, { learningRate: 1e18, warmupSteps: 0, tokensPerStep: 32 });
    const data = await dataset(host.tinyloom);
    const seen = [];
    await refuses("non-finite", "learningRate", async () => {
      for await (const m of trainer.run(data, { steps: 20 })) seen.push(m.skipped);
    });
    equal(seen.slice(-3), [true, true, true], "three skipped steps in a row");
    const weights = (await trainer.model.save())["model.safetensors"];
    equal((await trainer.step(batch(16))).skipped, true);
    sameBytes(
      (await trainer.model.save())["model.safetensors"],
      weights,
      "weights of a skipped step",
    );
    trainer.model.free();
  },

  async "resume refuses files that are not its own"(host) {
    const { Trainer } = host.tinyloom;
    const { files } = await train(host, 2);
    const resume = (change) => () => Trainer.resume(host.runtime, { ...files, ...change });
    const wrong = (words, change) => refuses("invalid-checkpoint", words, resume(change));
    await wrong("trainer_state.json", { "trainer_state.json": undefined });
    await wrong("optimizer.safetensors", { "optimizer.safetensors": undefined });
    await wrong("trainer_state.json", { "trainer_state.json": new TextEncoder().encode("{") });
    await wrong("optimizer.safetensors", {
      "optimizer.safetensors": files["optimizer.safetensors"].subarray(0, 99),
    });
    const trainer = await resume({})();
    equal((await trainer.step(batch(16))).step, 3);
    trainer.model.free();
  },
};
