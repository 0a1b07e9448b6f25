// A call rejects if the browser refuses its GPU work, and leaves its object as it was. The tests patch
// methods of the real GPU objects, so that the browser itself refuses.
import { equal, ok, refuses, sameBytes, sameFiles } from "./assert.mjs";
import { batch, collect, config, dataset, trainerOptions } from "./kit.mjs";

/** Replaces a method of an object's class while `work` runs. `fault` gets the real method. */
async function faulty(object, name, fault, work) {
  const owner = Object.getPrototypeOf(object);
  const own = owner[name];
  owner[name] = function (...args) {
    return fault.call(this, own, ...args);
  };
  try {
    return await work();
  } finally {
    owner[name] = own;
  }
}

/** A buffer that every command is refused with. */
function destroyed(device) {
  const usage = GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
  const buffer = device.createBuffer({ size: 1 << 20, usage });
  buffer.destroy();
  return buffer;
}

/** Whether the device itself has no memory for a buffer like a tensor's. */
async function refusesBuffer(device, size) {
  const { STORAGE, COPY_SRC, COPY_DST } = GPUBufferUsage;
  device.pushErrorScope("out-of-memory");
  const buffer = device.createBuffer({ size, usage: STORAGE | COPY_SRC | COPY_DST });
  const error = await device.popErrorScope();
  buffer.destroy();
  await device.queue.onSubmittedWorkDone();
  return error !== null;
}

/** While `work` runs, submits are refused from the one with this number on. */
async function refusedSubmits(device, work, from = 0) {
  const gone = destroyed(device);
  const commands = () => {
    const encoder = device.createCommandEncoder();
    encoder.clearBuffer(gone);
    return encoder.finish();
  };
  let submits = 0;
  const fault = function (own, buffers) {
    if (buffers.length === 0 || submits++ < from) return own.call(this, buffers);
    return own.call(this, [...buffers, commands()]);
  };
  await faulty(device.queue, "submit", fault, work);
  ok(submits > from, "a submit was refused");
}

/** While `work` runs, writes are refused from the one with this number on. */
async function refusedWrites(device, work, from = 0) {
  const gone = destroyed(device);
  let writes = 0;
  const fault = function (own, buffer, ...rest) {
    return own.call(this, writes++ < from ? buffer : gone, ...rest);
  };
  await faulty(device.queue, "writeBuffer", fault, work);
  ok(writes > from, "a write was refused");
}

const FAULTS = { submit: refusedSubmits, write: refusedWrites };

async function made({ tinyloom, runtime }) {
  const model = await tinyloom.Model.create(runtime, config, { seed: 5 });
  const trainer = await tinyloom.Trainer.create(model, trainerOptions);
  return { model, trainer };
}

/** Nothing of what a runtime does shows in scopes that a page has open meanwhile. */
async function inScopesOfThePage(device, work) {
  const filters = ["validation", "out-of-memory", "internal"];
  for (const filter of filters) device.pushErrorScope(filter);
  await work();
  const errors = await Promise.all(filters.map(() => device.popErrorScope()));
  equal(
    errors.map((error) => error?.message ?? null),
    [null, null, null],
    "errors in the page's scopes",
  );
}

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["firefox"],
  why: "what is kept and undone is decided in the module; what a refused call looks like is the host's",
  core: 6,
  smoke: [
    "a step whose submit is refused rejects, and the run goes on as if it had not been",
    "steps that are queued ahead and refused leave no trace in the count",
    "every call tells of its refused submits and writes",
    "a model or trainer whose upload is refused is not made",
    "a tensor that gets no memory gives no one else's bytes",
    "a creation after one whose pipelines were refused makes its own",
    "a readback that fails on a living device is no lost device",
    "a lost device is told as such, whenever it is lost",
    "a plan whose ranges the browser refuses to write leaves no byte",
  ],
  always: [
    "a model or trainer whose upload is refused is not made",
    "a creation after one whose pipelines were refused makes its own",
  ],
};

export const cases = {
  async "a step whose submit is refused rejects, and the run goes on as if it had not been"(
    context,
  ) {
    const { device } = context.runtime;
    const [a, b] = [await made(context), await made(context)];
    for (const { trainer } of [a, b]) await trainer.step(batch(24));
    const before = await a.trainer.save();
    await inScopesOfThePage(device, () =>
      refusedSubmits(device, () => refuses("internal", "refused", () => a.trainer.step(batch(32)))),
    );
    sameFiles(await a.trainer.save(), before, "after the refused step");
    const [next, expected] = [await a.trainer.step(batch(16)), await b.trainer.step(batch(16))];
    equal([next.step, next.loss, next.gradNorm], [2, expected.loss, expected.gradNorm], "the next");
    for (const { model } of [a, b]) model.free();
  },

  async "a step whose writes are refused rejects"(context) {
    const { model, trainer } = await made(context);
    const { device } = context.runtime;
    await trainer.step(batch(24));
    for (const from of [0, 1]) {
      const step = () => refuses("internal", "refused", () => trainer.step(batch(32)));
      await refusedWrites(device, step, from);
    }
    equal((await trainer.step(batch(24))).step, 2, "steps done");
    model.free();
  },

  async "steps that are queued ahead and refused leave no trace in the count"(context) {
    const { tinyloom, runtime } = context;
    const { model, trainer } = await made(context);
    const data = await dataset(tinyloom);
    await collect(trainer.run(data, { steps: 3, stepsAhead: 4 }));
    const before = await trainer.save();
    await refusedSubmits(runtime.device, () =>
      refuses("internal", "refused", () => trainer.run(data, { steps: 6, stepsAhead: 4 })),
    );
    sameFiles(await trainer.save(), before, "after the refused steps");
    equal((await collect(trainer.run(data, { steps: 1 })))[0].step, 4, "the next step");
    model.free();
  },

  async "every call tells of its refused submits and writes"(context) {
    const { tinyloom, runtime } = context;
    const { model, trainer } = await made(context);
    const data = await dataset(tinyloom);
    await trainer.step(batch(16));
    const calls = {
      logits: () => model.logits([1, 2, 3]),
      loss: () => model.loss([1, 2, 3]),
      generate: () => collect(model.generate([1, 2, 3], { maxTokens: 20, temperature: 0 })),
      evaluate: () => trainer.evaluate(data),
      save: () => trainer.save(),
      gradients: () => trainer.gradients(),
      packed: () => model.logits([4, 5], { weights: "int8" }),
    };
    const told = [];
    for (const [name, call] of Object.entries(calls)) {
      const expected = await call();
      for (const [kind, fault] of Object.entries(FAULTS)) {
        if (kind === "write" && ["save", "gradients"].includes(name)) continue; // they write nothing
        for (const from of [0, 1]) {
          if (kind === "submit" && from > 0 && ["logits", "loss", "packed"].includes(name))
            continue;
          await fault(runtime.device, () => refuses("internal", "refused", call), from);
          told.push(`${name} ${kind} ${from}`);
        }
      }
      const after = await call();
      equal(JSON.stringify(after), JSON.stringify(expected), `${name} after its faults`);
    }
    model.free();
    return told.join(", ");
  },

  async "a model or trainer whose upload is refused is not made"(context) {
    const { tinyloom, runtime } = context;
    const { model, trainer } = await made(context);
    const files = await trainer.save();
    for (const from of [0, 3]) {
      await refusedWrites(
        runtime.device,
        () => refuses("internal", "refused", () => tinyloom.Trainer.resume(runtime, files)),
        from,
      );
    }
    const fault = () =>
      refuses("internal", "refused", () => tinyloom.Model.create(runtime, config));
    await refusedWrites(runtime.device, fault);
    const resumed = await tinyloom.Trainer.resume(runtime, files);
    sameFiles(await resumed.save(), files, "a later resume");
    resumed.model.free();
    model.free();
  },

  async "a tensor that gets no memory gives no one else's bytes"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config);
    await model.save(); // fills staging buffers
    const { gpuBytes } = runtime._counters();
    const elements = 2 ** 28;
    const limit = runtime.capabilities.limits.maxStorageBufferBindingSize;
    let detail = "no memory";
    if (limit < 4 * elements) {
      await refuses("limit-exceeded", `${4 * elements}`, () => runtime.tensor(null, [elements]));
      detail = `a limit of ${limit} bytes`;
    } else {
      const refused = await refusesBuffer(runtime.device, 4 * elements);
      const tensor = runtime.tensor(null, [elements]);
      if (!refused) {
        const part = await tensor.slice(0, 0, 64).data();
        equal([...part], Array(64).fill(0), "there was memory: zeros");
        detail = "there was memory";
      } else {
        for (const call of [
          () => tensor.slice(0, 0, 64).data(),
          () => tensor.data(),
          () => tensor.slice(0, 0, 1).write([1]),
        ]) {
          await refuses("out-of-memory", `${4 * elements} bytes`, call);
        }
      }
      tensor.free();
    }
    await runtime.device.queue.onSubmittedWorkDone();
    equal(runtime._counters().gpuBytes, gpuBytes, "bytes after it");
    model.free();
    return detail;
  },

  async "a tensor whose contents or reads are refused says so"({ runtime }) {
    const { device } = runtime;
    const good = runtime.tensor([1, 2, 3, 4], [4]);
    equal([...(await good.data())], [1, 2, 3, 4]);
    await refusedSubmits(device, () => refuses("internal", "refused", () => good.data()));
    await refusedWrites(device, () =>
      refuses("internal", "refused", () => good.write([9, 9, 9, 9])),
    );
    equal([...(await good.data())], [1, 2, 3, 4], "the tensor after both");
    let bad;
    await refusedWrites(device, async () => {
      bad = runtime.tensor([5, 6], [2]);
    });
    await refuses("internal", "refused", () => bad.data());
    for (const tensor of [good, bad]) tensor.free();
  },

  async "an operation that is refused says so"({ tinyloom, runtime }) {
    const input = runtime.tensor([1, 2, 3, 4], [1, 4]);
    for (const fault of Object.values(FAULTS)) {
      const softmax = () => refuses("internal", "refused", () => tinyloom.ops.softmax(input));
      await fault(runtime.device, softmax);
    }
    const output = await tinyloom.ops.softmax(input);
    const sum = (await output.data()).reduce((a, b) => a + b);
    ok(Math.abs(sum - 1) < 1e-5, `a row sums to ${sum}`);
    for (const tensor of [input, output]) tensor.free();
  },

  async "a creation after one whose pipelines were refused makes its own"(context) {
    const { tinyloom, runtime } = context;
    const odd = { ...config, hidden_size: 48, head_dim: 16, intermediate_size: 112 };
    const model = await tinyloom.Model.create(runtime, odd, { seed: 2 });
    const { gpuBytes } = runtime._counters();
    const refuse = function (own, descriptor) {
      const compute = { ...descriptor.compute, entryPoint: "no_such_entry" };
      return own.call(this, { ...descriptor, compute });
    };
    const create = () => tinyloom.Trainer.create(model, trainerOptions);
    const both = (work) =>
      faulty(runtime.device, "createComputePipeline", refuse, () =>
        faulty(runtime.device, "createComputePipelineAsync", refuse, work),
      );
    await both(() => refuses("internal", "refused", create));
    await runtime.device.queue.onSubmittedWorkDone();
    equal(runtime._counters().gpuBytes, gpuBytes, "bytes after the failure");
    const trainer = await create();
    const losses = [];
    for (let step = 0; step < 6; step++) losses.push((await trainer.step(batch(64))).loss);
    ok(losses[5] < losses[0] - 0.1, `it trains: ${losses}`);
    const text = () => collect(model.generate([1, 2], { maxTokens: 2 }));
    await both(() => refuses("internal", "refused", text));
    equal((await text()).length, 2, "tokens after a refused generation");
    model.free();
    return losses.map((loss) => loss.toFixed(2)).join(" ");
  },

  async "a readback that fails on a living device is no lost device"(context) {
    const { model, trainer } = await made(context);
    const { device } = context.runtime;
    const probe = device.createBuffer({ size: 16, usage: GPUBufferUsage.MAP_READ });
    const calls = {
      step: () => trainer.step(batch(16)),
      logits: () => model.logits([1, 2]),
      save: () => model.save(),
    };
    for (const call of Object.values(calls)) {
      let maps = 0;
      const fault = function (own, ...args) {
        const mapped = own.apply(this, args);
        if (maps++ === 0) this.unmap();
        return mapped;
      };
      await faulty(probe, "mapAsync", fault, () => refuses("internal", "call again", call));
      ok(maps > 0, "a map failed");
      await call();
    }
    // The step whose metrics did not arrive was done, as the weights show.
    equal((await trainer.step(batch(16))).step, 3, "steps done");
    probe.destroy();
    model.free();
  },

  async "a lost device is told as such, whenever it is lost"({ tinyloom, gpu }) {
    const codes = {};
    for (let turn = 0; turn < 4; turn++) {
      const code = await lose(tinyloom, gpu, turn);
      codes[code] = (codes[code] ?? 0) + 1;
    }
    equal(codes, { "device-lost": 4 }, "codes");
  },

  async "a runtime whose measurements cannot be read gives its device back"({ tinyloom, gpu }) {
    const adapter = await gpu.requestAdapter();
    const { from } = Float64Array;
    const devices = [];
    const note = async function (own, ...args) {
      devices.push(await own.apply(this, args));
      return devices[0];
    };
    Float64Array.from = () => {
      throw new RangeError("no room for an array");
    };
    try {
      await faulty(adapter, "requestDevice", note, () =>
        refuses("internal", "no room", () => tinyloom.Runtime.create({ gpu, tune: true })),
      );
    } finally {
      Float64Array.from = from;
    }
    equal(devices.length, 1, "devices made");
    equal((await devices[0].lost).reason, "destroyed", "how the device ended");
  },

  async "runtimes that measure at the same time keep each other's products"({ tinyloom, gpu }) {
    const tiny = { ...config, num_hidden_layers: 1, vocab_size: 64, intermediate_size: 32 };
    const shapes = [
      { ...tiny, hidden_size: 32, head_dim: 16 },
      { ...tiny, hidden_size: 24, head_dim: 12 },
    ];
    const measure = async (runtime, shape) => {
      const model = await tinyloom.Model.create(runtime, shape);
      const trainer = await tinyloom.Trainer.create(model, { tokensPerStep: 8 });
      const rows = trainer.plan().filter(({ reason }) => reason.startsWith("measured: "));
      return new Map(rows.map(({ label, reason }) => [label, reason]));
    };
    const open = () => tinyloom.Runtime.create({ gpu, tune: true });
    const both = [await open(), await open()]; // neither knows of the other
    const first = await measure(both[0], shapes[0]);
    await measure(both[1], shapes[1]);
    const later = await open();
    const again = await measure(later, shapes[0]);
    ok(first.size > 0, "products were measured");
    for (const [label, reason] of first) equal(again.get(label), reason, label);
    for (const runtime of [...both, later]) runtime.destroy();
    return `${first.size} products`;
  },

  async "a write that throws is a failure in words, and the module goes on"({ runtime }) {
    const refuse = () => {
      throw new TypeError("no such write");
    };
    await faulty(runtime.device.queue, "writeBuffer", refuse, () =>
      refuses("internal", "no such write", async () => runtime.tensor([1, 2], [2])),
    );
    const tensor = runtime.tensor([1, 2], [2]);
    equal([...(await tensor.data())], [1, 2]);
    tensor.free();
  },

  async "a plan whose ranges the browser refuses to write leaves no byte"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config);
    const { gpuBytes } = runtime._counters();
    let refused = 0;
    const refuse = function (own, buffer, ...rest) {
      if (buffer.label !== "ranges") return own.call(this, buffer, ...rest);
      refused++;
      throw new TypeError("no such write");
    };
    await faulty(runtime.device.queue, "writeBuffer", refuse, () =>
      refuses("internal", "no such write", () => tinyloom.Trainer.create(model, trainerOptions)),
    );
    equal([refused, runtime._counters().gpuBytes], [1, gpuBytes], "writes refused, bytes after it");
    model.free();
  },

  async "what was saved before a fault is what is saved after it"(context) {
    const { model } = await made(context);
    const before = await model.save();
    await refusedSubmits(
      context.runtime.device,
      () => refuses("internal", "refused", () => model.save()),
      1,
    );
    sameBytes((await model.save())["model.safetensors"], before["model.safetensors"]);
    model.free();
  },
};

/**
 * Destroys a runtime's device beneath it while calls are on their way, and gives the code of the first
 * that fails.
 *
 * @param turn - another moment and another call each.
 */
export async function lose(tinyloom, gpu, turn) {
  const runtime = await tinyloom.Runtime.create({ gpu, recover: false });
  const model = await tinyloom.Model.create(runtime, config);
  const trainer = await tinyloom.Trainer.create(model, { tokensPerStep: 16 });
  const calls = [
    () => trainer.step(batch(16)),
    () => trainer.save(),
    () => runtime.tensor([turn], [1]).data(),
    () => tinyloom.Model.create(runtime, config),
    () => model.logits([1, 2, 3]),
    () => collect(model.generate([1, 2], { maxTokens: 24 })),
  ];
  const call = calls[turn % calls.length];
  await call();
  const { device } = runtime;
  // Between one call and the next, at once, or in the midst of one.
  const delay = (turn * 7) % 23;
  if (delay === 0) device.destroy();
  else setTimeout(() => device.destroy(), delay);
  let code = "none";
  const end = performance.now() + 20_000;
  while (code === "none" && performance.now() < end) {
    await call().catch((error) => {
      code = error.code === "device-lost" ? error.code : `${error.code}: ${error.message}`;
    });
  }
  runtime.destroy();
  return code;
}
