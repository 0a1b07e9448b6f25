// Steps replay plans: nothing is made in them. What is freed is gone.
import { equal, ok, refuses, sameBytes } from "./assert.mjs";
import { batch, collect, config, dataset, trainerOptions, withStillClock } from "./kit.mjs";

/** What of the counters must not move. */
const made = ({ buffers, bindGroups, pipelines }) => ({ buffers, bindGroups, pipelines });

/** Counts calls of a method of a device's class; gives what ends that. */
function counting(device, name, calls) {
  const owner = Object.getPrototypeOf(device);
  const own = owner[name];
  owner[name] = function (...args) {
    calls[name] += 1;
    return own.apply(this, args);
  };
  return () => {
    owner[name] = own;
  };
}

/** What a step asks of the browser, whatever the model. Pipelines, bind groups and dispatches come on top. */
const STEP = {
  writeBuffer: 2,
  createCommandEncoder: 1,
  beginComputePass: 1,
  copyBufferToBuffer: 1,
  finish: 1,
  submit: 1,
  mapAsync: 1,
  getMappedRange: 1,
  unmap: 1,
  "out-of-memory": 1,
  internal: 1,
};

/** The most closures that the module gives the browser in a step, those of empty error scopes apart. */
const CLOSURES = 4;

/** Counts what is asked of the browser while `work` runs: calls of methods, error scopes by filter, closures. */
async function asked(work) {
  const calls = {};
  const count = (name) => {
    calls[name] = (calls[name] ?? 0) + 1;
  };
  const restores = [];
  const watch = ({ prototype }, name, nameOf = () => name) => {
    const own = prototype[name];
    prototype[name] = function (...args) {
      const called = nameOf(...args);
      if (called) count(called);
      return own.apply(this, args);
    };
    restores.push(() => {
      prototype[name] = own;
    });
  };
  for (const name of ["createCommandEncoder", "popErrorScope"]) watch(GPUDevice, name);
  watch(GPUDevice, "pushErrorScope", (filter) => filter);
  watch(GPUQueue, "writeBuffer");
  // Firefox is made to look at its GPU by empty ones.
  watch(GPUQueue, "submit", (buffers) => buffers.length > 0 && "submit");
  for (const name of ["mapAsync", "getMappedRange", "unmap"]) watch(GPUBuffer, name);
  for (const name of ["beginComputePass", "copyBufferToBuffer", "finish"])
    watch(GPUCommandEncoder, name);
  for (const name of ["setPipeline", "setBindGroup", "dispatchWorkgroups"])
    watch(GPUComputePassEncoder, name);
  watch(FinalizationRegistry, "register", () => "closures");
  try {
    await work();
  } finally {
    for (const restore of restores) restore();
  }
  return calls;
}

/** What a step makes after warm-up. The clock stands still, so that every step is cut alike. */
async function replays({ tinyloom, runtime }) {
  const model = await tinyloom.Model.create(runtime, config);
  const trainer = await tinyloom.Trainer.create(model, trainerOptions);
  const data = await dataset(tinyloom);
  await collect(trainer.run(data, { steps: 12, evaluateEvery: 12 }));
  await trainer.step(batch(16));
  const before = runtime._counters();
  await collect(trainer.run(data, { steps: 4 }));
  const after = runtime._counters();
  equal(made(after), made(before), "objects made in four steps");
  const submits = (after.submits - before.submits) / 4;
  equal(submits, 1, "submits per step");
  for (const length of [1, 7, 33, 64]) await trainer.step(batch(length));
  equal(made(runtime._counters()), made(before), "objects made for other batch lengths");
  await trainer.evaluate(data);
  equal(made(runtime._counters()), made(before), "objects made in an evaluation");
  const dispatches = (after.dispatches - before.dispatches) / 4;
  model.free();
  return `${dispatches} dispatches and ${submits} submits in a step`;
}

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["node", "chromium", "firefox"],
  why: "when results are noticed, memory comes back and garbage is collected is the host's",
  timed: true,
};

export const cases = {
  "after warm-up a step makes no buffer, bind group or pipeline": (host) =>
    withStillClock(() => replays(host)),

  "a step asks the browser for no more than it needs": ({ tinyloom, runtime }) =>
    withStillClock(async () => {
      const model = await tinyloom.Model.create(runtime, config);
      const trainer = await tinyloom.Trainer.create(model, trainerOptions);
      for (let step = 0; step < 3; step++) await trainer.step(batch(64));
      const { dispatches } = runtime._counters();
      const calls = await asked(() => trainer.step(batch(64)));
      const own = Object.fromEntries(Object.keys(STEP).map((name) => [name, calls[name]]));
      equal(own, STEP, "calls of a step");
      const dispatched = runtime._counters().dispatches - dispatches;
      equal(calls.dispatchWorkgroups, dispatched, "dispatches");
      equal(calls.setBindGroup, dispatched, "bind groups");
      ok(calls.setPipeline <= dispatched, "pipelines");
      equal(calls.popErrorScope, calls.validation + 2, "error scopes popped");
      // Empty ones, while the result is waited for.
      const nudges = calls.validation - 1;
      const closures = calls.closures - 2 * nudges;
      ok(closures <= CLOSURES, `${closures} closures, of at most ${CLOSURES}`);
      model.free();
      return `${nudges} empty error scopes, ${calls.closures} closures`;
    }),

  async "another prompt length compiles nothing"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config);
    const generate = (length) =>
      collect(model.generate(batch(length).tokens, { maxTokens: 6, temperature: 0.8, topK: 40 }));
    await generate(4);
    const { pipelines } = runtime._counters();
    for (const length of [1, 9, 40]) await generate(length);
    equal(runtime._counters().pipelines, pipelines, "pipelines");
    // Each plan's schedule is built for the rows of a prompt, never for a token.
    const { schedules } = runtime._counters();
    await collect(model.generate(batch(40).tokens, { maxTokens: 60, temperature: 0 }));
    const built = runtime._counters().schedules - schedules;
    ok(built <= 6, `${built} schedules built for 60 tokens`);
    model.free();
  },

  async "a result is noticed soon after it is there"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, { ...config, num_hidden_layers: 1 });
    const times = [];
    for (let turn = 0; turn < 12; turn++) {
      const began = performance.now();
      await model.logits([turn]);
      times.push(performance.now() - began);
    }
    model.free();
    const middle = times.sort((a, b) => a - b)[6];
    // Firefox by itself looks every 100 ms. One token takes a CPU a few, unless it is busy.
    ok(middle < 60, `logits of one token took ${times.map((ms) => ms.toFixed(0))} ms`);
    return `logits of one token in ${middle.toFixed(1)} ms`;
  },

  async "plans compile side by side, but on a CPU"({ tinyloom, runtime }) {
    const { device } = runtime;
    const calls = { createComputePipeline: 0, createComputePipelineAsync: 0 };
    const counted = Object.keys(calls).map((name) => counting(device, name, calls));
    try {
      const odd = { ...config, hidden_size: 80, num_attention_heads: 2, head_dim: 32 };
      const model = await tinyloom.Model.create(runtime, odd);
      const one = calls.createComputePipeline;
      const trainer = await tinyloom.Trainer.create(model, trainerOptions);
      await trainer.step(batch(20));
      await collect(model.generate(batch(5).tokens, { maxTokens: 2 }));
      const alone = calls.createComputePipeline - one;
      const together = calls.createComputePipelineAsync;
      // A CPU compiles one after the other, which is faster there.
      const { software } = runtime.capabilities;
      ok(
        software ? together === 0 && alone > 10 : alone === 0 && together > 20,
        "how they compile",
      );
      ok(!Object.hasOwn(device, "createComputePipeline"), "the device is as it was");
      model.free();
    } finally {
      for (const restore of counted) restore();
    }
    return `${calls.createComputePipelineAsync} side by side, ${calls.createComputePipeline} alone`;
  },

  async "a runtime destroyed while plans compile"({ tinyloom, gpu }) {
    const runtime = await tinyloom.Runtime.create({ gpu });
    const model = await tinyloom.Model.create(runtime, config);
    const made = tinyloom.Trainer.create(model, trainerOptions);
    runtime.destroy();
    await refuses("freed", [], () => made);
  },

  async "a readback is looked for a few times, not without end"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config);
    const trainer = await tinyloom.Trainer.create(model, trainerOptions);
    for (let step = 0; step < 3; step++) await trainer.step(batch(64));
    const calls = { popErrorScope: 0 };
    const restore = counting(runtime.device, "popErrorScope", calls);
    try {
      for (let step = 0; step < 8; step++) await trainer.step(batch(64));
    } finally {
      restore();
    }
    const each = calls.popErrorScope / 8;
    ok(each > 0 && each <= 64, `${each} empty error scopes per step`);
    model.free();
    return `${each} empty error scopes per step`;
  },

  async "memory is accounted for, and given back"({ tinyloom, runtime }) {
    await settled(runtime);
    const { gpuBytes: empty } = runtime._counters();
    const model = await tinyloom.Model.create(runtime, config);
    ok(model.gpuBytes >= model.parameterCount * 4, "a model takes four bytes a weight");
    const trainer = await tinyloom.Trainer.create(model, trainerOptions);
    const { shared, unshared } = trainer._activationBytes();
    const planned = model.parameterCount * 16 + shared;
    ok(
      model.gpuBytes >= planned && model.gpuBytes <= 1.15 * planned,
      `${model.gpuBytes} bytes for weights, gradients, moments and slots of ${planned}`,
    );
    ok(shared < 0.8 * unshared, `slots of ${shared} bytes, ${unshared} without sharing`);
    const told = model.gpuBytes;
    await trainer.step(batch(32));
    const { gpuBytes: full } = runtime._counters();
    equal(model.gpuBytes, full - empty, "bytes in use");
    trainer.free();
    model.free();
    await settled(runtime);
    equal(runtime._counters().gpuBytes, empty, "bytes after free");
    const ratio = (told / planned).toFixed(3);
    return `${told} bytes, ${ratio} of the plan; slots ${shared} bytes, ${unshared} unshared`;
  },

  async "what is freed does not wait for the garbage collector"({ tinyloom, runtime, gpu }) {
    const { Model, Runtime, Trainer } = tinyloom;
    // wasm-bindgen registers each object of the module until its memory is given back.
    const alive = new Set();
    const { register, unregister } = FinalizationRegistry.prototype;
    FinalizationRegistry.prototype.register = function (target, held, token) {
      if (target?.constructor.name.startsWith("Raw")) alive.add(target);
      return register.call(this, target, held, token);
    };
    FinalizationRegistry.prototype.unregister = function (token) {
      alive.delete(token);
      return unregister.call(this, token);
    };
    const left = () => [...alive].map((one) => one.constructor.name).sort();
    try {
      const other = await Runtime.create({ gpu });
      const model = await Model.create(other, config);
      const trainer = await Trainer.create(model, trainerOptions);
      const data = await dataset(tinyloom);
      await collect(trainer.run(data, { steps: 2 }));
      await collect(model.generate([1], { maxTokens: 3 }));
      const resumed = await Trainer.resume(other, await trainer.save());
      const tensor = other.tensor([1, 2], [2]);
      const kept = ["Dataset", "Model", "Model", "Runtime", "Tensor", "Trainer", "Trainer"];
      equal(
        left(),
        kept.map((name) => `Raw${name}`),
        "loaders and generations that have ended, objects in use",
      );
      for (const one of [data, trainer, resumed.model, tensor]) one.free();
      other.destroy(); // and with it the model
      await other.lost;
      await settled(runtime);
      equal(left(), [], "objects after free");
    } finally {
      Object.assign(FinalizationRegistry.prototype, { register, unregister });
    }
  },

  async "a resume that is aborted gives its memory back"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config);
    const trainer = await tinyloom.Trainer.create(model, trainerOptions);
    const files = await trainer.save();
    model.free();
    await settled(runtime);
    const { gpuBytes: empty } = runtime._counters();
    const controller = new AbortController();
    const onProgress = ({ stage }) => stage === "upload" && controller.abort();
    await refuses("aborted", [], () =>
      tinyloom.Trainer.resume(runtime, files, { signal: controller.signal, onProgress }),
    );
    await settled(runtime);
    equal(runtime._counters().gpuBytes, empty, "bytes after the abort");
  },

  async "a state that asks for gigabytes is refused where memory is known"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, { ...config, num_hidden_layers: 24 });
    const trainer = await tinyloom.Trainer.create(model, { ...trainerOptions, tokensPerStep: 8 });
    const files = await trainer.save();
    model.free();
    await settled(runtime);
    const { gpuBytes } = runtime._counters();
    const state = JSON.parse(new TextDecoder().decode(files["trainer_state.json"]));
    state.options.tokensPerStep = 100_000;
    delete state.crc32; // of what was saved
    const large = { ...files, "trainer_state.json": new Blob([JSON.stringify(state)]) };
    const { software } = runtime.capabilities;
    if (!software) return "the memory of this adapter is not known";
    const words = ["the trainer takes", "gradients", "activations", "GB", "tokensPerStep"];
    await refuses("out-of-memory", words, () => tinyloom.Trainer.resume(runtime, large));
    await settled(runtime);
    equal(runtime._counters().gpuBytes, gpuBytes, "bytes after the refusal");
  },

  async "a cache grows with its text, and other options leave it alone"({ tinyloom, runtime }) {
    const long = { ...config, max_position_embeddings: 1024 };
    const model = await tinyloom.Model.create(runtime, long);
    const before = model.gpuBytes;
    const generate = (maxTokens, weights) =>
      collect(model.generate(batch(9).tokens, { maxTokens, weights, temperature: 0 }));
    const short = await generate(20);
    const small = model.gpuBytes - before;
    const whole = await generate(400);
    ok(model.gpuBytes - before > small, `${model.gpuBytes - before} bytes, ${small} before`);
    equal(whole.slice(0, 20), short, "the same tokens");
    const round = async () => {
      await model.loss(batch(30).tokens);
      await generate(8, "int8");
    };
    await round();
    const after = runtime._counters();
    await round();
    equal(made(runtime._counters()), made(after), "objects made in another round");
    model.free();
  },

  async "a profile times every dispatch and changes no weight"({ tinyloom, runtime }) {
    const make = async () =>
      tinyloom.Trainer.create(await tinyloom.Model.create(runtime, config), trainerOptions);
    const [profiled, plain] = [await make(), await make()];
    await refuses("invalid-options", "step", () => profiled.profile());
    for (const trainer of [profiled, plain]) await trainer.step(batch(40));
    const rows = await profiled.profile();
    const { timestamps } = runtime.capabilities.features;
    const untimed = ({ gpuMicroseconds: _, ...row }) => row;
    equal(rows.map(untimed), profiled.plan(), "the rows of the plan");
    const times = rows.map((row) => row.gpuMicroseconds);
    if (timestamps) {
      ok(times.every(Number.isFinite), "a time for each dispatch, the optimizer's among them");
      // Of the whole, since a browser may round each to 100 µs.
      const total = times.reduce((sum, time) => sum + time, 0);
      ok(total > 0, `all dispatches took ${total} µs`);
    } else {
      ok(
        times.every((time) => time === undefined),
        "no times",
      );
    }
    await refuses("invalid-options", "profile", () => profiled.gradients());
    const [a, b] = [await profiled.save(), await plain.save()];
    for (const name of ["model.safetensors", "optimizer.safetensors"]) sameBytes(a[name], b[name]);
    const [after, expected] = [await profiled.step(batch(30)), await plain.step(batch(30))];
    equal([after.loss, after.gradNorm], [expected.loss, expected.gradNorm], "the next step");
    const gradients = await plain.gradients();
    for (const [name, gradient] of Object.entries(await profiled.gradients())) {
      sameBytes(gradient, gradients[name], name);
    }
    for (const { model } of [profiled, plain]) model.free();
    return timestamps ? "timed" : "no timestamps";
  },

  async "the plan says what runs and why"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config);
    const trainer = await tinyloom.Trainer.create(model, trainerOptions);
    const rows = trainer.plan();
    ok(rows.length > 20, `${rows.length} rows`);
    for (const row of rows) {
      ok(
        row.phase && row.label && row.kernel && row.variant && row.reason,
        `row ${JSON.stringify(row)}`,
      );
      ok(row.grid.length === 3 && row.workgroupSize.length === 3, `grid of ${row.kernel}`);
      ok(row.modules.length > 0, `modules of ${row.kernel}`);
      const [first] = row.bindings;
      ok(first.name && ["read", "read-write"].includes(first.access), `bindings of ${row.kernel}`);
      ok(row.flops >= 0 && row.bytes > 0, `cost of ${row.kernel}`);
    }
    const phases = new Set(rows.map((row) => row.phase));
    for (const phase of ["forward", "backward", "optimizer"])
      ok(phases.has(phase), `phase ${phase}`);
    model.free();
  },
};

/** Lets queued releases happen: on a busy machine some come turns of the event loop behind the GPU's work. */
async function settled(runtime) {
  await runtime.device.queue.onSubmittedWorkDone();
  let [last, quiet] = [runtime._counters().gpuBytes, 0];
  for (let turn = 0; turn < 100 && quiet < 5; turn++) {
    await new Promise((resolve) => setTimeout(resolve, 10));
    const { gpuBytes } = runtime._counters();
    quiet = gpuBytes === last ? quiet + 1 : 0;
    last = gpuBytes;
  }
}
