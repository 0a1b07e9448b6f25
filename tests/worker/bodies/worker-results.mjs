// Through `connect()`: results and properties are those of the API itself, to the bit.
import { equal, ok, refuses, sameFiles } from "../../api/bodies/assert.mjs";
import { batch, collect, config, dataset, trainerOptions } from "../../api/bodies/kit.mjs";
import { make, withoutTime } from "./worker-kit.mjs";

/** An intervention: each thread has a copy of its vector. */
const STEERING = {
  at: "residual",
  layer: 1,
  add: Float32Array.from({ length: config.hidden_size }, (_, i) => Math.sin(i)),
};

/** What a program that awaits every call gets, here or in a worker. */
async function program(tinyloom, runtime) {
  const trainer = await make(tinyloom, runtime);
  const { model } = trainer;
  const data = await dataset(tinyloom);
  const metrics = await collect(trainer.run(data, { steps: 4, evaluateEvery: 2 }));
  const one = await trainer.step(batch(16));
  const tokens = await collect(model.generate([116, 104], { maxTokens: 8, seed: 3 }));
  const logits = await model.logits([1, 2, 3]);
  const gradients = await trainer.gradients();
  const result = {
    metrics: [...metrics, one].map(withoutTime),
    tokens,
    loss: await model.loss(batch(16).tokens),
    evaluated: await trainer.evaluate(data),
    logits: [...logits],
    states: [...(await model.hiddenStates([1, 2, 3], { layer: 1 }))],
    attention: [...(await model.attention([1, 2, 3], { layer: 1, head: 1 }))],
    captured: await model.capture([1, 2, 3], { residual: true, attention: true }),
    lens: await model.lens([1, 2, 3], { layers: [1], top: 2 }),
    attributed: await model.attribute([1, 2, 3], { target: 4, layers: [0] }),
    changed: [...(await model.logits([1, 2, 3], { interventions: [STEERING] }))],
    steered: await collect(
      model.generate([116, 104], { maxTokens: 8, seed: 3, interventions: [STEERING] }),
    ),
    gradients: Object.entries(gradients).map(([name, values]) => [name, values.length, values[0]]),
    plan: (await trainer.plan()).length,
    wgsl: await trainer.wgsl(3),
    model: [model.parameterCount, model.gpuBytes, model.config],
    count: await tinyloom.Model.countParameters(runtime, config),
  };
  const files = await trainer.save();
  const { losses, text, saved } = await adapted(tinyloom, model, data);
  await data.free();
  await model.free();
  return { result: { ...result, losses, text }, files: { ...files, ...saved } };
}

/** The same of an adapter of that model. */
async function adapted(tinyloom, model, data) {
  const adapter = await tinyloom.Adapter.create(model, { rank: 2, targets: ["q_proj"] });
  const trainer = await tinyloom.Trainer.create(adapter, trainerOptions);
  ok(trainer.adapter === adapter && trainer.model === model, "what is trained");
  const losses = (await collect(trainer.run(data, { steps: 2 }))).map((m) => m.loss);
  const text = await collect(model.generate([116, 104], { maxTokens: 8, seed: 3, adapter }));
  const prompts = [[116], { prompt: [116], adapter }];
  const batch = await collect(model.generateBatch(prompts, { maxTokens: 4, seed: 3 }));
  const saved = await adapter.save();
  const again = await tinyloom.Adapter.load(model, saved);
  await again.merge();
  await refuses("freed", "merged", () => again.merge());
  return { losses, text: [...text, batch, adapter.parameterCount, adapter.options], saved };
}

export const results = {
  async "a program gives the same to the bit"({ tinyloom, direct, runtime, gpu }) {
    const here = await direct.Runtime.create({ gpu });
    const expected = await program(direct, here);
    const actual = await program(tinyloom, runtime);
    for (const [name, value] of Object.entries(expected.result)) {
      equal(actual.result[name], value, name);
    }
    sameFiles(actual.files, expected.files);
    equal(runtime.capabilities, here.capabilities, "capabilities");
    here.destroy();
  },

  async "sizes of a config have their usual names, whatever the family's are"(host) {
    const own = { model_type: "gpt2", n_embd: 64, n_head: 2, n_layer: 1, n_positions: 32 };
    const { tinyloom, direct, runtime, gpu } = host;
    const here = await direct.Runtime.create({ gpu });
    const made = await direct.Model.create(here, { ...own, vocab_size: 256 });
    const model = await tinyloom.Model.create(runtime, { ...own, vocab_size: 256 });
    for (const config of [made.config, model.config]) {
      const { hidden_size, num_attention_heads, num_hidden_layers } = config;
      equal([hidden_size, num_attention_heads, num_hidden_layers], [64, 2, 1]);
      equal(config.max_position_embeddings, 32);
    }
    equal(JSON.stringify(model.config), JSON.stringify(made.config), "as config.json has them");
    await refuses("invalid-tokens", "n_positions, 32", () => made.loss(new Uint32Array(40)));
    const states = await model.hiddenStates([1], { layer: model.config.num_hidden_layers });
    equal(states.length, 64, "a state behind the last layer");
    here.destroy();
    await model.free();
  },

  async "what is a property here is a property there"({ tinyloom, direct, runtime, gpu }) {
    const here = await direct.Runtime.create({ gpu });
    const pairs = [[here, runtime]];
    const [mine, theirs] = [await make(direct, here), await make(tinyloom, runtime)];
    pairs.push([mine, theirs], [mine.model, theirs.model]);
    pairs.push([here.tensor([1, 2], [2]), await runtime.tensor([1, 2], [2])]);
    pairs.push([await dataset(direct), await dataset(tinyloom)]);
    const raw = ["Runtime.device", "Tensor.buffer"];
    let compared = 0;
    for (const [one, other] of pairs) {
      for (const name of properties(one)) {
        const where = `${one.constructor.name}.${name}`;
        if (raw.includes(where)) {
          await refuses("invalid-options", [where, "connect({ worker })"], () => other[name]);
          continue;
        }
        ok(name in other, `${where} is missing`);
        const [a, b] = [one[name], other[name]];
        equal(typeof b, typeof a, `the type of ${where}`);
        if (a?.constructor !== Object && typeof a === "object" && !Array.isArray(a)) {
          equal(b.constructor.name, a.constructor.name, `the class of ${where}`);
        } else equal(b, a, where);
        compared += 1;
      }
    }
    ok(theirs.model instanceof tinyloom.Model, "trainer.model is a Model");
    for (const trainer of [mine, theirs]) trainer.learningRate = 5e-4;
    equal(theirs.learningRate, 5e-4, "a rate that was set");
    const [a, b] = [await mine.step(batch(16)), await theirs.step(batch(16))];
    equal(withoutTime(b), withoutTime(a), "a step at that rate");
    equal(theirs.steps, 1, "steps");
    theirs.learningRate = -1;
    await refuses("invalid-options", "learningRate", () => theirs.step(batch(16)));
    equal(theirs.learningRate, 5e-4, "the rate after one that was refused");
    const before = theirs.model.gpuBytes;
    await theirs.free();
    ok(theirs.model.gpuBytes < before, "gpuBytes follows free()");
    await theirs.model.free();
    await refuses("freed", "Model", () => theirs.model.gpuBytes);
    here.destroy();
    return `${compared} properties`;
  },

  async "tensors are there, and what they are made of stays there"({ tinyloom, direct, runtime }) {
    const tensor = await runtime.tensor([1, 2, 3, 4, 5, 6], [2, 3]);
    const view = await tensor.transpose(0, 1);
    equal(view.shape, [3, 2], "shape");
    equal([...(await view.data())], [1, 4, 2, 5, 3, 6]);
    await refuses("invalid-options", "tinyloom/worker", () => direct.ops.softmax(tensor));
    await refuses("invalid-options", "tinyloom/worker", () => direct.Model.create(runtime, config));
    await refuses("invalid-options", "softmax of tinyloom/ops", () => tinyloom.softmax);
    await tensor.free();
    await refuses("freed", "Tensor", () => view.data());
  },
};

/** Names of the public properties of an object: its own, and getters of its class. */
function properties(object) {
  const prototype = Object.getPrototypeOf(object);
  const getters = Object.entries(Object.getOwnPropertyDescriptors(prototype))
    .filter(([, { get }]) => get)
    .map(([name]) => name);
  return [...Object.keys(object), ...getters].filter((name) => !name.startsWith("_"));
}
