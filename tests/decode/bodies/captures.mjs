// What models compute on their way, beside hooks in transformers: captures, the logit lens, gradients by states.
import { close, equal, ok, refuses, sameBytes } from "../../api/bodies/assert.mjs";
import { batch, config, trainerOptions } from "../../api/bodies/kit.mjs";
import { filesOf, tensorsOf } from "../../train/bodies/fixtures.mjs";

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["firefox"],
  why: "the kernels are those of tests/lanes; fixtures hold transformers' numbers",
  smoke: ["a text longer than a chunk, interventions, packed formats"],
};

const NAMES = ["llama", "gpt2", "gpt-neox", "gemma", "gemma3", "qwen3", "granite", "olmo2"];

/** Of the fixtures, by the names of the API. */
const KINDS = {
  residual: "states",
  attention: "attention",
  attentionOutput: "attention_output",
  mlp: "mlp",
  query: "query",
  key: "key",
  value: "value",
};
const ALL = Object.fromEntries(Object.keys(KINDS).map((kind) => [kind, true]));

const furthest = (a, b) => a.reduce((most, x, i) => Math.max(most, Math.abs(x - b[i])), 0);
const norm = (a) => Math.sqrt(a.reduce((sum, x) => sum + x * x, 0));

async function fixture(host, name) {
  const tensors = await tensorsOf(`interventions/${name}.safetensors`);
  const { tokens } = tensors;
  const model = await host.tinyloom.Model.fromPretrained(host.runtime, await filesOf(name));
  const captured = await model.capture(tokens, ALL);
  let worst = 0;
  for (const [kind, own] of Object.entries(KINDS)) {
    const rows = Object.values(captured[kind]);
    const expected = tensors[own];
    const size = expected.length / rows.length;
    for (const [layer, values] of rows.entries()) {
      equal(values.length, size, `numbers of ${kind} ${layer}`);
      const difference = furthest(values, expected.subarray(layer * size, (layer + 1) * size));
      ok(difference <= 1e-4, `${kind} of layer ${layer} differs by ${difference}`);
      worst = Math.max(worst, difference);
    }
  }
  const layers = Object.keys(captured.residual).length;
  const width = tensors.lens.length / layers / tokens.length;
  const lens = await model.lens(tokens, { top: 3 });
  equal(
    lens.map(({ layer }) => layer),
    Object.keys(captured.residual).map(Number),
    "layers",
  );
  for (const { layer, logprobs, top } of lens) {
    for (let at = 0; at < tokens.length; at++) {
      const row = tensors.lens.subarray((layer * tokens.length + at) * width).subarray(0, width);
      const most = Math.max(...row);
      const sum = Math.log(row.reduce((all, x) => all + Math.exp(x - most), 0)) + most;
      const expected = at + 1 < tokens.length ? row[tokens[at + 1]] - sum : 0;
      close(logprobs[at], expected, 1e-4, `layer ${layer}, position ${at}`);
      ok(most - row[top.ids[3 * at]] < 1e-4, `the likeliest of layer ${layer} at ${at}`);
      close(top.probabilities[3 * at], Math.exp(most - sum), 1e-4, "its probability");
    }
  }
  const gradients = await model.attribute(tokens, { target: 3, against: width - 2 });
  const size = tensors.attribution.length / layers;
  let apart = 0;
  for (const [layer, gradient] of Object.entries(gradients)) {
    const expected = tensors.attribution.subarray(layer * size, (Number(layer) + 1) * size);
    equal(gradient.length, size, "numbers of a gradient");
    const own = norm(gradient.map((x, i) => x - expected[i])) / norm(expected);
    ok(own <= 1e-3, `the gradient by state ${layer} is ${own} apart`);
    apart = Math.max(apart, own);
  }
  model.free();
  return `captures within ${worst.toExponential(1)}, gradients within ${apart.toExponential(1)}`;
}

const make = ({ tinyloom, runtime }, sizes = config) =>
  tinyloom.Model.create(runtime, sizes, { seed: 19 });

/** Holds gradients of a logit against its changes; gives those of all layers. */
async function slopes(model, options) {
  const { tokens } = batch(12);
  const { hidden_size: width, vocab_size: vocabulary } = config;
  const direction = Float32Array.from({ length: width }, (_, i) => Math.cos(2 * i + 1));
  const asked = { target: 101, against: 32, position: 9 };
  const gradients = await model.attribute(tokens, { ...asked, ...options, layers: [0, 1, 2] });
  const logit = async (layer, position, strength) => {
    const steering = { at: "residual", layer, add: direction, strength, positions: [position] };
    const all = await model.logits(tokens, { ...options, interventions: [steering] });
    const row = all.subarray(asked.position * vocabulary);
    return row[asked.target] - row[asked.against];
  };
  for (const [layer, gradient] of Object.entries(gradients)) {
    for (const position of layer === "2" ? [9] : [3, 9]) {
      const rows = gradient.subarray(position * width, (position + 1) * width);
      const slope = rows.reduce((sum, x, i) => sum + x * direction[i], 0);
      const step = 0.005;
      const change =
        (await logit(Number(layer), position, step)) -
        (await logit(Number(layer), position, -step));
      const allowed = 0.02 * Math.abs(slope) + 0.02;
      close(change / (2 * step), slope, allowed, `layer ${layer} at ${position}`);
    }
    ok(
      gradient.subarray(10 * width).every((x) => x === 0),
      "later positions move nothing",
    );
  }
  return Object.values(gradients).flatMap((own) => [...own]);
}

export const cases = {
  ...Object.fromEntries(NAMES.map((name) => [`${name}: hooks`, (host) => fixture(host, name)])),

  async "a text longer than a chunk, interventions, packed formats"(host) {
    const model = await make(host, { ...config, max_position_embeddings: 512 });
    const tokens = Uint32Array.from({ length: 300 }, (_, i) => (i * i + 3 * i) % 251);
    const plain = await model.logits(tokens);
    for (const options of [{}, { kvCache: "f16" }, { weights: "int8" }]) {
      const off = [{ at: "attention", layer: 0, scale: 0, positions: { from: 270 } }];
      for (const interventions of [undefined, off]) {
        const own = { ...options, ...(interventions && { interventions }) };
        const { residual, attention } = await model.capture(tokens, {
          residual: true,
          attention: true,
          layers: [1],
          ...own,
        });
        equal([Object.keys(residual), Object.keys(attention)], [["1"], ["1"]], "layers");
        const states = await model.hiddenStates(tokens, { layer: 1, ...own });
        ok(furthest(residual[1], states) < 1e-5, "states are those of hiddenStates");
        for (const head of [0, 1]) {
          const shares = await model.attention(tokens, { layer: 1, head, ...own });
          const rows = attention[1].subarray(head * 300 * 300, (head + 1) * 300 * 300);
          ok(furthest(rows, shares) < 1e-5, "shares are those of attention");
        }
      }
    }
    sameBytes(await model.logits(tokens), plain, "logits behind captures");
    const lens = await model.lens(tokens, { layers: [2], top: 0, interventions: [] });
    const { logprobs } = await model.score(tokens);
    ok(furthest(lens[0].logprobs, logprobs) < 1e-5, "the last layer says what the model says");
    equal(lens[0].top.ids.length, 0, "no likeliest ids where none are asked for");
    model.free();
    const few = await make(host, { ...config, vocab_size: 3 });
    equal((await few.lens([1, 2], { layers: [0] }))[0].top.ids.length, 6, "a vocabulary below 5");
    few.free();
  },

  async "gradients are slopes of logits"(host) {
    const model = await make(host);
    await slopes(model, {});
    model.free();
  },

  async "gradients through an adapter are slopes, and not those of the model alone"(host) {
    const model = await make(host);
    const { Adapter, Trainer } = host.tinyloom;
    const adapter = await Adapter.create(model, { rank: 4, alpha: 32, seed: 2 });
    const trainer = await Trainer.create(adapter, { ...trainerOptions, learningRate: 0.05 });
    for (let step = 0; step < 4; step++) await trainer.step(batch(40));
    const [alone, own] = [await slopes(model, {}), await slopes(model, { adapter })];
    const apart = norm(own.map((x, i) => x - alone[i])) / norm(alone);
    ok(apart > 0.05, `the adapter changes gradients by ${apart}`);
    model.free();
  },

  async "gradients of capped logits of a long text, at any position"(host) {
    const sizes = {
      ...config,
      hidden_size: 48,
      num_attention_heads: 3,
      max_position_embeddings: 512,
    };
    const capped = { ...sizes, model_type: "gemma2", head_dim: 16, final_logit_softcapping: 0.05 };
    for (const own of [sizes, capped]) {
      const model = await make(host, own);
      // Not token 0: that is padding in Gemma, and the norm of its zeros has a slope of 1e6.
      const tokens = Uint32Array.from({ length: 300 }, (_, i) => 1 + ((i * i + 3 * i) % 250));
      for (const position of [0, 131, 299]) {
        const asked = { target: 101, against: 32, position };
        const { 1: gradient } = await model.attribute(tokens, { ...asked, layers: [1] });
        const direction = Float32Array.from({ length: 48 }, (_, i) => Math.cos(2 * i + 1));
        const at = gradient.subarray(position * 48, (position + 1) * 48);
        const slope = at.reduce((sum, x, i) => sum + x * direction[i], 0);
        const logit = async (strength) => {
          const steering = { at: "residual", layer: 1, add: direction, strength };
          const changed = [{ ...steering, positions: [position] }];
          const row = await model.logits(tokens, { from: position, interventions: changed });
          return row[101] - row[32];
        };
        const change = ((await logit(0.005)) - (await logit(-0.005))) / 0.01;
        close(change, slope, 0.02 * Math.abs(slope) + 0.002, `position ${position}`);
        ok(Math.abs(slope) > 0.001, `a slope of ${slope} tells nothing`);
      }
      model.free();
    }
  },

  async "what has looked once compiles and allocates nothing the next time"({ tinyloom, gpu }) {
    const runtime = await tinyloom.Runtime.create({ gpu });
    const model = await make({ tinyloom, runtime });
    const { tokens } = batch(12);
    const calls = [
      () => model.capture(tokens, { residual: true, attention: true }),
      () => model.lens(tokens, { top: 2 }),
      () => model.lens(tokens, { top: 0, layers: [1] }),
    ];
    for (const call of calls) {
      const first = await call();
      const { gpuBytes, bindGroups, pipelines } = runtime._counters();
      equal(await call(), first, "the same again");
      const now = runtime._counters();
      // Buffers of readbacks are in none of these: how many there are depends on when the host hears of each.
      const more = [
        now.gpuBytes - gpuBytes,
        now.bindGroups - bindGroups,
        now.pipelines - pipelines,
      ];
      equal(more, [0, 0, 0], "bytes, bind groups and pipelines");
    }
    const { pipelines } = runtime._counters();
    await model.capture(tokens.subarray(0, 9), { residual: true, attention: true });
    equal(runtime._counters().pipelines, pipelines, "pipelines for another length");
    runtime.destroy();
  },

  async "a capture has the layers that have the block"(host) {
    const layers = [{ mlp: false }, { attention: false }, {}];
    const own = { vocab_size: 256, hidden_size: 32, intermediate_size: 48, num_attention_heads: 2 };
    const sizes = {
      model_type: "tinyloom",
      num_hidden_layers: 3,
      max_position_embeddings: 32,
      ...own,
    };
    const model = await make(host, { ...sizes, layers });
    const captured = await model.capture([1, 2, 3], ALL);
    const told = Object.fromEntries(
      Object.entries(captured).map(([kind, of]) => [kind, Object.keys(of).join()]),
    );
    const attends = Object.fromEntries(
      ["attention", "attentionOutput", "query", "key", "value"].map((kind) => [kind, "0,2"]),
    );
    equal(
      Object.entries(told).sort(),
      Object.entries({ ...attends, residual: "0,1,2,3", mlp: "1,2" }).sort(),
    );
    await refuses("invalid-options", ["attention of layer 1", "no such block"], () =>
      model.capture([1], { attention: true, layers: [1] }),
    );
    model.free();
    const blind = await make(host, { ...sizes, attention: false });
    await refuses("invalid-options", ["query: no layer"], () =>
      blind.capture([1], { mlp: true, query: true }),
    );
    blind.free();
  },

  async "captures that cannot be"(host) {
    const model = await make(host);
    const bytes = model.gpuBytes;
    const wrong = (words, work) => refuses("invalid-options", words, work);
    await wrong(["at least one of residual"], () => model.capture([1], {}));
    await wrong(["at least one of residual"], () => model.capture([1], { residual: false }));
    await wrong(["no option", "states"], () => model.capture([1], { states: true }));
    await wrong(["residual"], () => model.capture([1], { residual: 1 }));
    for (const layers of [[], [-1], [0.5], 3]) {
      await wrong(["layers"], () => model.capture([1], { residual: true, layers }));
      await wrong(["layers"], () => model.lens([1], { layers }));
      await wrong(["layers"], () => model.attribute([1], { target: 1, layers }));
    }
    await wrong(["capture: layers[0] is 3", "0 to 2"], () =>
      model.capture([1], { residual: true, layers: [3] }),
    );
    await wrong(["capture: layers[0] is 2", "0 to 1"], () =>
      model.capture([1], { attention: true, layers: [2] }),
    );
    await wrong(["lens: layers[1] is 3", "0 to 2"], () => model.lens([1], { layers: [0, 3] }));
    await wrong(["attribute: layers[0] is 3", "0 to 2"], () =>
      model.attribute([1], { target: 1, layers: [3] }),
    );
    await wrong(["top"], () => model.lens([1], { top: 65 }));
    await refuses("invalid-tokens", ["targets is null"], () => model.lens([1], { targets: null }));
    await wrong(["target"], () => model.attribute([1], {}));
    await wrong(["target is 256"], () => model.attribute([1], { target: 256 }));
    await wrong(["against is 256"], () => model.attribute([1], { target: 1, against: 256 }));
    const cut = { target: 1, interventions: [{ at: "attention", layer: 0, scale: 0 }] };
    await wrong(["attribute takes no interventions", "logits"], () => model.attribute([1], cut));
    for (const interventions of [5, null])
      await wrong(["attribute takes no interventions"], () =>
        model.attribute([1], { target: 1, interventions }),
      );
    for (const none of [undefined, null])
      await wrong(["attribute needs target"], () => model.attribute([1], none));
    await wrong(["position is 1"], () => model.attribute([1], { target: 1, position: 1 }));
    await refuses("invalid-tokens", ["empty"], () => model.capture([], ALL));
    await refuses("invalid-tokens", ["empty"], () => model.attribute([], { target: 1 }));
    const long = await make(host, { ...config, max_position_embeddings: 65536 });
    await refuses(
      "limit-exceeded",
      ["attention of 2 layers", "65536 positions", "131072 numbers"],
      () => long.capture(new Uint32Array(65536), { attention: true }),
    );
    long.free();
    equal(model.gpuBytes, bytes, "bytes after refusals");
    model.free();
    await refuses("freed", "Model", () => model.capture([1], ALL));
  },
};
