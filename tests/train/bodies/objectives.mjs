// A step's own objectives and scores of texts: weights, temperatures, soft targets, gradient functions.
import { close, equal, ok, refuses, sameFiles } from "../../api/bodies/assert.mjs";
import { batch, config, trainerOptions } from "../../api/bodies/kit.mjs";

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["firefox", "node"],
  why: "the kernels are those of tests/lanes; what is Node's own is the wait for a function",
  core: 4,
  smoke: ["a gradient function makes the step of the cross-entropy"],
};

const open = async ({ tinyloom, runtime }, more = {}) => {
  const model = await tinyloom.Model.create(runtime, config, { seed: 5 });
  return tinyloom.Trainer.create(model, { ...trainerOptions, ...more });
};

const signed = (length) => Float32Array.from({ length }, (_, i) => [1.5, -0.5, 0, 2][i % 4]);

/** Log-softmax of a row, in f64. */
function logSoftmax(row, temperature = 1) {
  const scaled = Array.from(row, (x) => x / temperature);
  const most = Math.max(...scaled);
  const sum = Math.log(scaled.reduce((all, x) => all + Math.exp(x - most), 0)) + most;
  return scaled.map((x) => x - sum);
}

const rowsOf = (logits, width) =>
  Array.from({ length: logits.length / width }, (_, i) =>
    logits.subarray(i * width, (i + 1) * width),
  );

const norm = (a) => Math.sqrt(a.reduce((sum, x) => sum + x * x, 0));

function sameGradients(got, expected, tolerance, what) {
  equal(Object.keys(got), Object.keys(expected), what);
  for (const [name, own] of Object.entries(expected)) {
    const apart = norm(got[name].map((x, i) => x - own[i])) / norm(own);
    ok(apart < tolerance, `${what}: ${name} is ${apart} apart`);
  }
}

/** Cross-entropy by hand, as a gradient function. */
const crossEntropy =
  (targets, calls = []) =>
  async ({ logits, first, rows, vocabulary }) => {
    calls.push([first, rows]);
    await undefined;
    const gradient = new Float32Array(logits.length);
    let loss = 0;
    for (const [i, row] of rowsOf(logits, vocabulary).entries()) {
      const target = targets[first + i];
      const logs = logSoftmax(row);
      loss -= logs[target];
      gradient.set(
        logs.map((log, id) => Math.exp(log) - (id === target ? 1 : 0)),
        i * vocabulary,
      );
    }
    return { gradient, loss };
  };

/** Cross-entropy by hand of states and the head's weight, as a gradient function. */
const crossEntropyOfStates =
  (targets, head) =>
  ({ states, hidden }) => {
    const weights = rowsOf(head, hidden);
    const gradient = new Float32Array(states.length);
    let loss = 0;
    for (const [row, state] of rowsOf(states, hidden).entries()) {
      const logits = weights.map((weight) => weight.reduce((sum, x, i) => sum + x * state[i], 0));
      const logs = logSoftmax(logits);
      loss -= logs[targets[row]];
      const slopes = new Float64Array(hidden);
      for (const [id, weight] of weights.entries()) {
        const slope = Math.exp(logs[id]) - (id === targets[row] ? 1 : 0);
        for (let i = 0; i < hidden; i++) slopes[i] += slope * weight[i];
      }
      gradient.set(slopes, row * hidden);
    }
    return { gradient, loss };
  };

/** A trainer of a model, or of an adapter, whose steps change next to nothing. */
async function still({ tinyloom, runtime }, sizes, { adapted, ...more }) {
  const model = await tinyloom.Model.create(runtime, sizes, { seed: 5 });
  const of = adapted ? await tinyloom.Adapter.create(model, { rank: 4, seed: 2 }) : model;
  return tinyloom.Trainer.create(of, { ...trainerOptions, ...more, learningRate: 1e-20 });
}

/** Half the sum of squares. */
const squares = ({ states }) => ({
  gradient: states,
  loss: states.reduce((sum, x) => sum + x * x, 0) / 2,
});

/** A buffer of the caller's own with these numbers. */
function ownBuffer(device, numbers, usage = 4 | 8) {
  const buffer = device.createBuffer({ size: numbers.length * 4, usage }); // COPY_SRC, COPY_DST
  device.queue.writeBuffer(buffer, 0, Float32Array.from(numbers));
  return buffer;
}

export const cases = {
  async "weights are in loss and gradient, and their sum is divided as asked"(host) {
    const trainer = await open(host);
    const data = batch(20);
    const targetWeights = signed(20);
    const magnitude = targetWeights.reduce((sum, x) => sum + Math.abs(x), 0);
    const { logprobs } = await trainer.model.score(data.tokens, { targets: data.targets });
    const sum = logprobs.reduce((all, x, i) => all - x * targetWeights[i], 0);
    for (const [normalize, divisor] of [
      [undefined, 20],
      ["weights", magnitude],
      [3.5, 3.5],
    ]) {
      const other = await open(host, { learningRate: 1e-20 });
      const { loss } = await other.step({ ...data, targetWeights, normalize });
      close(loss, sum / divisor, 1e-5 * (1 + Math.abs(sum)), `normalize: ${normalize}`);
      other.model.free();
    }
    await trainer.step({ ...data, targetWeights: [...targetWeights] });
    trainer.model.free();
  },

  async "weights of one are none, to the bit"(host) {
    const files = [];
    for (const more of [{}, { targetWeights: new Float32Array(20).fill(1) }, { temperature: 1 }]) {
      const trainer = await open(host);
      await trainer.step({ ...batch(20), ...more });
      files.push(await trainer.save());
      trainer.model.free();
    }
    sameFiles(files[1], files[0]);
    sameFiles(files[2], files[0]);
  },

  async "scores are the log-softmax of logits"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config, { seed: 5 });
    const { tokens } = batch(24);
    const documents = Uint32Array.from(tokens, (_, i) => (i < 10 ? 0 : 10));
    const parts = [tokens.slice(0, 10), tokens.slice(10)];
    const logits = [];
    for (const part of parts) logits.push(...rowsOf(await model.logits(part), 256));
    for (const temperature of [undefined, 0.7]) {
      const asked = { documents, temperature, entropy: true, top: 4 };
      const { logprobs, entropy, top } = await model.score(tokens, asked);
      const plain = await model.score(tokens, { documents, temperature });
      equal(Object.keys(plain), ["logprobs"]);
      for (const [i, row] of logits.entries()) {
        const logs = logSoftmax(row, temperature);
        const wanted = i === 9 || i === 23 ? 0 : logs[tokens[i + 1]];
        close(logprobs[i], wanted, 1e-5, `row ${i}`);
        close(plain.logprobs[i], wanted, 1e-5, `row ${i}`);
        const own = -logs.reduce((sum, log) => sum + Math.exp(log) * log, 0);
        close(entropy[i], own, 1e-5, `entropy of row ${i}`);
        const order = logs.map((_, id) => id).sort((a, b) => row[b] - row[a]);
        equal([...top.ids.subarray(4 * i, 4 * i + 4)], order.slice(0, 4), `row ${i}`);
        for (const [k, id] of order.slice(0, 4).entries()) {
          close(top.probabilities[4 * i + k], Math.exp(logs[id]), 1e-5);
        }
      }
    }
    for (const [options, word] of [
      [{ top: 65 }, "top is 65"],
      [{ temperature: 0 }, "temperature is 0"],
      [{ temperature: Number.NaN }, "temperature is NaN"],
      [{ heat: 1 }, "heat"],
    ]) {
      await refuses("invalid-options", word, () => model.score(tokens, options));
    }
    await refuses("invalid-tokens", "targets has 2", () =>
      model.score(tokens, { targets: [1, 2] }),
    );
    model.free();
  },

  async "documents are scored together, and as one by one"({ tinyloom, gpu }) {
    const runtime = await tinyloom.Runtime.create({ gpu });
    const lengths = [5, 30, 1, 17, 60, 60, 60, 44, 300, 20, 8];
    const draw = (count, by) =>
      Uint32Array.from({ length: count }, (_, i) => (i * i + by * i) % 251);
    const texts = lengths.map((length, i) => draw(length, i + 2));
    const tokens = Uint32Array.from(texts.flatMap((text) => [...text]));
    const starts = lengths.map((_, i) => lengths.slice(0, i).reduce((sum, x) => sum + x, 0));
    const documents = Uint32Array.from(
      lengths.flatMap((length, i) => new Array(length).fill(starts[i])),
    );
    const positions = { max_position_embeddings: 512 };
    const layers = [{ sliding_window: 8 }, { norm: "after", rope_theta: null }];
    const family = { ...config, model_type: "tinyloom", learned_positions: true, rope_theta: 1e4 };
    const off = [{ at: "head", layer: 0, head: 1, scale: 0, positions: { from: 3 } }];
    for (const [sizes, more] of [
      [config, {}],
      [config, { temperature: 0.7, entropy: true, top: 3 }],
      [config, { interventions: off }],
      [config, { weights: "int8" }],
      [config, { kvCache: "f16" }],
      [{ ...family, layers }, { temperature: 2 }],
    ]) {
      const model = await tinyloom.Model.create(runtime, { ...sizes, ...positions }, { seed: 5 });
      const together = await model.score(tokens, { documents, ...more });
      const alone = [];
      for (const text of texts) {
        const own = { ...more, ...(text.length <= 3 && { interventions: [] }) };
        alone.push(await model.score(text, own));
      }
      for (const name of ["logprobs", ...(more.entropy ? ["entropy"] : [])]) {
        const expected = alone.flatMap((one) => [...one[name]]);
        equal(together[name].length, expected.length, name);
        const apart = expected.map((x, i) => Math.abs(x - together[name][i]));
        ok(Math.max(...apart) < 1e-5, `${name} of ${JSON.stringify(more)}: ${Math.max(...apart)}`);
      }
      if (more.top)
        equal(
          [...together.top.ids],
          alone.flatMap(({ top }) => [...top.ids]),
          "ids",
        );
      const again = await model.score(tokens, { documents, ...more });
      equal(again, together, "the same bits again");
      model.free();
    }
    const model = await tinyloom.Model.create(runtime, config, { seed: 5 });
    const eight = Uint32Array.from({ length: 160 }, (_, i) => i - (i % 20));
    /** Dispatches of a call, which unlike its submits do not follow the adapter's pace. */
    const dispatches = async (documents) => {
      const score = () => model.score(draw(160, 3), { documents });
      await score();
      const before = runtime._counters().dispatches;
      await score();
      return runtime._counters().dispatches - before;
    };
    const [four, all] = [
      await dispatches(eight.map((at) => at - (at % 40))),
      await dispatches(eight),
    ];
    ok(four > 10 && all < 1.5 * four, `${all} dispatches for eight documents, ${four} for four`);
    runtime.destroy();
  },

  async "a student follows soft targets"(host) {
    const { tinyloom, runtime } = host;
    const teacher = await tinyloom.Model.create(runtime, config, { seed: 11 });
    const data = batch(32);
    const { top } = await teacher.score(data.tokens, { top: 16, temperature: 2 });
    for (const [direction, rest] of [
      ["forward", "class"],
      ["reverse", "renormalize"],
    ]) {
      const student = await open(host);
      const soft = { ...top, direction, rest, temperature: 2, share: 0.9 };
      const losses = [];
      for (let i = 0; i < 12; i++) losses.push((await student.step({ ...data, soft })).loss);
      ok(losses[11] < losses[0] - 0.05, `${direction}: ${losses}`);
      student.model.free();
    }
    teacher.free();
  },

  async "a gradient function makes the step of the cross-entropy"(host) {
    const [plain, given] = [await open(host), await open(host)];
    const { tokens, targets } = batch(20);
    const documents = Uint32Array.from(tokens, (_, i) => (i < 7 ? 0 : 7));
    const calls = [];
    const gradient = crossEntropy(targets, calls);
    const expected = await plain.step({ tokens, targets, documents });
    const got = await given.step({ tokens, documents, gradient, normalize: 20 });
    close(got.loss, expected.loss, 1e-5);
    close(got.gradNorm, expected.gradNorm, 1e-5 * expected.gradNorm);
    equal(got.step, 1);
    equal(calls, [[0, 20]]);
    sameGradients(await given.gradients(), await plain.gradients(), 1e-5, "gradients");
    const failing = () => {
      throw new RangeError("my own");
    };
    await refuses("invalid-options", "my own", () => given.step({ tokens, gradient: failing }));
    const short = () => ({ gradient: [1, 2], loss: 0 });
    await refuses("invalid-options", "gave 2 numbers", () =>
      given.step({ tokens, gradient: short }),
    );
    equal((await given.step({ tokens, targets })).step, 2, "it goes on");
    for (const { model } of [plain, given]) model.free();
  },

  async "a gradient by states is the cross-entropy's, and the head's own is zero"(host) {
    const sizes = { ...config, tie_word_embeddings: false };
    const { tokens, targets } = batch(20);
    const documents = Uint32Array.from(tokens, (_, i) => (i < 7 ? 0 : 7));
    for (const [more, tolerance] of [
      [{}, 1e-5],
      [{ gradientAccumulation: 2 }, 1e-5],
      [{ recompute: true }, 1e-5],
      [{ precision: "mixed" }, 5e-3], // the head rounds its weight, which the function does not
      [{ adapted: true }, 1e-5],
    ]) {
      const [plain, given] = [await still(host, sizes, more), await still(host, sizes, more)];
      const head = await given.model.parameter("lm_head.weight");
      const gradient = crossEntropyOfStates(targets, head);
      // What the head has left of a step before must not stay.
      const steps = more.gradientAccumulation ?? 1;
      for (let i = 0; i < steps; i++) {
        for (const one of [plain, given]) await one.step({ tokens, targets, documents });
      }
      let [expected, got] = [];
      for (let i = 0; i < steps; i++) {
        const asked = { tokens, documents, gradient, gradientBy: "states", normalize: 20 * steps };
        expected = await plain.step({ tokens, targets, documents });
        got = await given.step(asked);
      }
      const what = JSON.stringify(more);
      close(got.loss, expected.loss, tolerance * expected.loss, what);
      const { "lm_head.weight": own, ...others } = await given.gradients();
      if (!more.adapted)
        ok(
          own.every((x) => x === 0),
          `the head's gradient is zero: ${what}`,
        );
      const { "lm_head.weight": _, ...wanted } = await plain.gradients();
      sameGradients(others, wanted, tolerance, what);
      for (const { model } of [plain, given]) model.free();
    }
  },

  async "a gradient by states is the slope of its loss, of tied embeddings too"(host) {
    const trainer = await open(host, { learningRate: 1e-20, maxGradNorm: null });
    const { model } = trainer;
    const { tokens } = batch(20);
    await trainer.step({ ...batch(20) });
    const asked = { tokens, gradient: squares, gradientBy: "states" };
    const { loss } = await trainer.step(asked);
    const gradients = await trainer.gradients();
    const lossOf = async () => {
      const states = await model.hiddenStates(tokens, { layer: config.num_hidden_layers });
      return states.reduce((sum, x) => sum + x * x, 0) / 2;
    };
    close(loss, await lossOf(), 1e-3 * loss);
    for (const name of [
      "model.norm.weight",
      "model.embed_tokens.weight",
      "model.layers.0.mlp.down_proj.weight",
    ]) {
      const own = gradients[name].map(Math.abs);
      const at = own.indexOf(Math.max(...own));
      const values = await model.parameter(name);
      const changed = async (by) => {
        await model.setParameter(
          name,
          values.map((x, i) => (i === at ? x + by : x)),
        );
        return lossOf();
      };
      const step = name.includes("norm") ? 0.02 : 0.002;
      const slope = ((await changed(step)) - (await changed(-step))) / (2 * step);
      await model.setParameter(name, values);
      close(gradients[name][at], slope, 0.02 * Math.abs(slope) + 0.02, name);
      ok(Math.abs(slope) > 0.05, `${name}: a slope of ${slope} tells nothing`);
    }
    model.free();
  },

  async "a gradient in a buffer of the GPU is that of its numbers"(host) {
    const { tinyloom, runtime } = host;
    const { tokens, targets } = batch(20);
    const sizes = { ...config, vocab_size: 257 }; // rows of logits are padded
    const make = async (more = {}) => {
      const model = await tinyloom.Model.create(runtime, { ...sizes, ...more }, { seed: 5 });
      return tinyloom.Trainer.create(model, trainerOptions);
    };
    const [numbers, buffers] = [await make(), await make()];
    const made = [];
    const onGpu = (work) => async (rows) => {
      const { gradient, loss } = await work(rows);
      const buffer = ownBuffer(runtime.device, gradient);
      made.push(buffer);
      return { gradient: buffer, loss };
    };
    const tensor = runtime.tensor(null, [20, config.hidden_size]);
    const inTensor = async (rows) => {
      const { gradient, loss } = squares(rows);
      await tensor.write(gradient);
      return { gradient: tensor.buffer, loss };
    };
    for (const [one, other] of [
      [{ gradient: crossEntropy(targets) }, { gradient: onGpu(crossEntropy(targets)) }],
      [
        { gradient: squares, gradientBy: "states" },
        { gradient: inTensor, gradientBy: "states" },
      ],
    ]) {
      const expected = await numbers.step({ tokens, ...one });
      const got = await buffers.step({ tokens, ...other, gradientBy: one.gradientBy ?? "logits" });
      equal(got.loss, expected.loss, "loss");
      sameGradients(await buffers.gradients(), await numbers.gradients(), 1e-6, "gradients");
    }
    const giving = (gradient) => buffers.step({ tokens, gradient: () => ({ gradient, loss: 0 }) });
    const small = ownBuffer(runtime.device, [1, 2, 3]);
    await refuses("invalid-options", "gave 3 numbers", () => giving(small));
    const unread = ownBuffer(runtime.device, new Float32Array(20 * 257), 8);
    await refuses("invalid-options", "COPY_SRC", () => giving(unread));
    // A browser throws at once where something only looks like a buffer.
    const alike = { mapAsync: async () => undefined, size: 20 * 257 * 4 };
    await refuses("invalid-options", "COPY_SRC", () => giving(alike));
    const caps = { model_type: "gemma2", head_dim: 32, final_logit_softcapping: 5 };
    const capped = await make(caps);
    await refuses("invalid-options", "caps its logits", () =>
      capped.step({ tokens, gradient: onGpu(crossEntropy(targets)) }),
    );
    equal((await buffers.step({ tokens, targets })).step, 3, "it goes on");
    for (const buffer of [...made, small, unread]) buffer.destroy();
    tensor.free();
    for (const { model } of [numbers, buffers, capped]) model.free();
  },

  async "the plan is that of the last step"(host) {
    const trainer = await open(host);
    const data = batch(20);
    const kernels = () => trainer.plan().map(({ kernel }) => kernel);
    const plain = kernels();
    const [own, steered] = ["cross_entropy_backward", "objective_cross_entropy_backward"];
    ok(plain.includes(own) && !plain.includes(steered), `${plain}`);
    await trainer.step({ ...data, targetWeights: signed(20) });
    const weighted = trainer.plan();
    const row = weighted.find(({ kernel }) => kernel === steered);
    ok(row && !kernels().includes(own), `${weighted.map(({ kernel }) => kernel)}`);
    ok(trainer.wgsl(weighted.indexOf(row)).includes("weights"), "its text is that of the row");
    const profile = await trainer.profile();
    equal(
      profile.map(({ kernel }) => kernel),
      kernels(),
      "rows of a profile",
    );
    await trainer.step(data);
    equal(kernels(), plain, "behind a plain step");
    trainer.model.free();
  },

  async "objectives go on after a resume and a lost device, to the bit"({ tinyloom, gpu }) {
    const { Runtime, Trainer } = tinyloom;
    const runtime = await Runtime.create({ gpu });
    tinyloom.internal.runtimes.of(runtime).recovery.pace = { least: 0, share: 100 };
    const host = { tinyloom, runtime };
    const { tokens, targets } = batch(20);
    const soft = {
      ids: Uint32Array.from({ length: 40 }, (_, i) => (7 * i) % 256),
      probabilities: new Float32Array(40).fill(0.25),
      share: 0.5,
    };
    const calls = [];
    const steps = [
      { tokens, targets, targetWeights: signed(20), normalize: "weights" },
      { tokens, targets, targetWeights: signed(20).reverse(), normalize: "weights" },
      { tokens, targets, temperature: 0.8, soft },
      { tokens, targets, soft },
      { tokens, gradient: crossEntropy(targets, calls), normalize: 2 },
      { tokens, gradient: squares, gradientBy: "states", normalize: 2 },
    ];
    const run = async (trainer, from, to) => {
      const losses = [];
      for (const step of steps.slice(from, to)) losses.push((await trainer.step(step)).loss);
      return losses;
    };
    const whole = await open(host, { gradientAccumulation: 2 });
    const expected = await run(whole, 0, 6);
    const parted = await open(host, { gradientAccumulation: 2 });
    const begun = await run(parted, 0, 1);
    const resumed = await Trainer.resume(runtime, await parted.save());
    const middle = await run(resumed, 1, 5);
    const before = calls.length;
    runtime.simulateLoss();
    const end = await run(resumed, 5, 6);
    equal([...begun, ...middle, ...end], expected);
    ok(calls.length >= before + 1, "the function was called again");
    sameFiles(await resumed.save(), await whole.save());
    runtime.destroy();
  },

  async "what cannot be is refused by name"(host) {
    const trainer = await open(host, { gradientAccumulation: 2 });
    const { tokens, targets } = batch(8);
    const good = { tokens, targets };
    const teacher = {
      ids: new Uint32Array(8).fill(3),
      probabilities: new Float32Array(8).fill(0.5),
    };
    for (const [more, word] of [
      [{ targetWeights: new Float32Array(7) }, "targetWeights has 7"],
      [{ targetWeights: [1, 2, 3, 4, 5, 6, 7, Number.NaN] }, "targetWeights[7] is NaN"],
      [{ targetWeights: "ones" }, "targetWeights is"],
      [{ targetWeights: null }, "targetWeights is null"],
      [{ targetWeights: [1, "2"] }, 'targetWeights[1] is "2"'],
      [{ soft: null }, "soft needs ids: as many"],
      [{ normalize: "mean" }, "normalize is"],
      [{ normalize: 0 }, "normalize is 0"],
      [{ temperature: -1 }, "temperature is -1"],
      [{ soft: { ...teacher, share: 2 } }, "share is 2"],
      [{ soft: { ...teacher, direction: "both" } }, "direction is"],
      [{ soft: { ...teacher, ids: [1, 2] } }, "soft.probabilities has 8"],
      [{ gradient: () => {} }, "no targets beside it"],
      [{ gradientBy: "states" }, "gradientBy"],
      [{ target_weights: [] }, "target_weights"],
    ]) {
      await refuses("invalid-options", word, () => trainer.step({ ...good, ...more }));
    }
    const weights = { targetWeights: new Float32Array(8).fill(2) };
    await trainer.step({ ...good, ...weights, normalize: "weights" });
    await refuses("invalid-options", "must have the same", () => trainer.step(good));
    equal((await trainer.step({ ...good, ...weights, normalize: "weights" })).step, 1);
    trainer.model.free();
  },
};
