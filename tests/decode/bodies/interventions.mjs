// Interventions: logits beside hooks in transformers, decoding beside the full forward pass, caches, refusals.
import { close, equal, ok, refuses, sameBytes } from "../../api/bodies/assert.mjs";
import { batch, collect, config } from "../../api/bodies/kit.mjs";
import { readReference } from "../../api/bodies/reference.mjs";
import { filesOf, tensorsOf } from "../../train/bodies/fixtures.mjs";

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["firefox"],
  why: "the kernel is that of tests/lanes; fixtures hold transformers' numbers",
  smoke: ["a plain call has the same bits as before"],
};

const NAMES = ["llama", "gpt2", "gpt-neox", "gemma", "gemma3", "qwen3", "granite", "olmo2"];

const furthest = (a, b) => a.reduce((most, x, i) => Math.max(most, Math.abs(x - b[i])), 0);

/** Heads that share keys, and longer texts than a chunk. */
const LONG = { ...config, max_position_embeddings: 512 };
const make = ({ tinyloom, runtime }, sizes = LONG) =>
  tinyloom.Model.create(runtime, sizes, { seed: 19 });

const direction = (width = 64) => Float32Array.from({ length: width }, (_, i) => Math.sin(i + 1));
const STEERING = { at: "residual", layer: 1, add: direction(), strength: 2 };

/** The interventions of a fixture, whose vectors are named. */
const named = (all, tensors) =>
  all.map((one) => {
    const own = { ...one };
    for (const change of ["add", "project", "set"]) {
      if (change in one) own[change] = tensors[one[change]];
    }
    return own;
  });

async function fixture(host, name) {
  const tensors = await tensorsOf(`interventions/${name}.safetensors`);
  const cases = JSON.parse(
    new TextDecoder().decode(await readReference(`interventions/${name}.json`)),
  );
  const model = await host.tinyloom.Model.fromPretrained(host.runtime, await filesOf(name));
  let worst = 0;
  for (const [what, all] of Object.entries(cases)) {
    const interventions = named(all, tensors);
    const logits = await model.logits(tensors.tokens, { interventions });
    const difference = furthest(logits, tensors[what]);
    ok(difference <= 1e-4, `${what}: the logits differ by ${difference}`);
    worst = Math.max(worst, difference);
  }
  model.free();
  return `${Object.keys(cases).length} cases, logits within ${worst.toExponential(1)}`;
}

/** The interventions at positions of a text: those of a text that grows may have later ones. */
const within = (all, length) =>
  all.flatMap(({ positions, ...one }) => {
    if (!positions) return [one];
    const { from } = positions;
    if (from !== undefined) return from < length ? [{ ...one, positions }] : [];
    const own = positions.filter((position) => position < length);
    return own.length ? [{ ...one, positions: own }] : [];
  });

/** That a text is what the full forward pass gives at temperature 0. */
async function followsForward(model, prompt, drawn, interventions) {
  const vocabulary = model.config.vocab_size;
  const text = [...prompt, ...drawn.map(({ token }) => token)];
  const own = within(interventions, text.length);
  const logits = await model.logits(text, { interventions: own });
  for (const [index, { token, logprob }] of drawn.entries()) {
    const at = prompt.length - 1 + index;
    const row = logits.subarray(at * vocabulary, (at + 1) * vocabulary);
    const most = Math.max(...row);
    ok(most - row[token] < 1e-4, `token ${index} is not the likeliest`);
    const sum = Math.log(row.reduce((all, x) => all + Math.exp(x - most), 0)) + most;
    close(logprob, row[token] - sum, 1e-4, `log-probability ${index}`);
  }
}

const greedy = { temperature: 0, maxTokens: 12, stopTokens: [] };

export const cases = {
  ...Object.fromEntries(NAMES.map((name) => [`${name}: hooks`, (host) => fixture(host, name)])),

  async "a plain call has the same bits as before"(host) {
    const model = await make(host);
    const { tokens } = batch(40);
    const before = await model.logits(tokens);
    const changed = await model.logits(tokens, { interventions: [STEERING] });
    ok(furthest(before, changed) > 1e-3, "steering changes logits");
    sameBytes(await model.logits(tokens), before, "logits behind a call with interventions");
    const none = await model.logits(tokens, { interventions: [] });
    sameBytes(none, before, "logits with an empty list");
    const off = { ...STEERING, strength: 0 };
    const still = await model.logits(tokens, { interventions: [off] });
    ok(furthest(still, before) < 1e-5, "a strength of 0 changes nothing");
    model.free();
  },

  async "decoding with interventions is the full forward pass"(host) {
    const model = await make(host);
    const { tokens: prompt } = batch(20);
    const later = { at: "mlp", layer: 1, scale: 0, positions: { from: 24 } };
    const head = { at: "head", layer: 0, head: 1, scale: 0 };
    const patch = { at: "residual", layer: 0, set: direction(), positions: [3, 22] };
    const all = [STEERING, later, head, patch];
    for (const options of [{}, { promptLookup: true }, { alternatives: 2 }]) {
      const text = model.generate(prompt, { ...greedy, ...options, interventions: all });
      await followsForward(model, prompt, await collect(text), all);
    }
    const prompts = [prompt, prompt.slice(3, 9), prompt.slice(1)];
    const drawn = await collect(model.generateBatch(prompts, { ...greedy, interventions: all }));
    for (const [index, one] of prompts.entries()) {
      const own = drawn.filter((token) => token.index === index);
      equal(own.length, greedy.maxTokens, "tokens of a text");
      await followsForward(model, one, own, all);
    }
    model.free();
  },

  async "a text longer than a chunk, and a cache in f16"(host) {
    const model = await make(host);
    const { tokens } = batch(230);
    const long = new Uint32Array(300);
    long.set(tokens);
    long.set(tokens.slice(0, 70), 230);
    const late = [{ ...STEERING, positions: { from: 270, to: 272 } }];
    const [plain, changed] = [
      await model.logits(long),
      await model.logits(long, { interventions: late }),
    ];
    const width = config.vocab_size;
    const rows = (logits, from, to) => logits.subarray(from * width, to * width);
    ok(furthest(rows(plain, 0, 270), rows(changed, 0, 270)) < 1e-5, "positions before");
    for (const at of [270, 271, 299]) {
      const apart = furthest(rows(plain, at, at + 1), rows(changed, at, at + 1));
      ok(apart > 1e-4, `position ${at} is changed, by ${apart}`);
    }
    const tail = await model.logits(long, { interventions: late, from: 290 });
    ok(furthest(tail, rows(changed, 290, 300)) < 1e-5, "the end of a text that the cache holds");
    const half = await model.logits(long, { interventions: late, kvCache: "f16" });
    ok(furthest(half, changed) < 2e-2, "a cache in f16");
    model.free();
  },

  async "no cache serves a call with others"(host) {
    const model = await make(host);
    const { tokens } = batch(30);
    const sets = [
      undefined,
      [STEERING],
      [{ ...STEERING, strength: -2 }],
      [{ at: "attention", layer: 0, scale: 0 }],
    ];
    const look = (interventions, from) =>
      model.logits(tokens, { ...(interventions && { interventions }), from });
    const alone = [];
    for (const one of sets) alone.push((await look(one, 0)).slice(29 * config.vocab_size));
    // Each reads the end alone, where the cache holds the text: for whom it was read decides.
    for (const order of [
      [0, 1, 2, 3],
      [3, 1, 0, 2],
      [1, 1, 2, 2],
    ]) {
      for (const index of order) {
        const last = await look(sets[index], 29);
        ok(furthest(last, alone[index]) < 1e-5, `call ${index} behind another`);
      }
    }
    const texts = [];
    for (const one of sets)
      texts.push(
        await collect(model.generate(tokens, { ...greedy, ...(one && { interventions: one }) })),
      );
    const running = sets.map((one) =>
      model.generate(tokens, { ...greedy, ...(one && { interventions: one }) }),
    );
    const turns = running.map(() => []);
    for (let turn = 0; turn < greedy.maxTokens; turn++) {
      for (const [index, text] of running.entries()) turns[index].push((await text.next()).value);
    }
    const ids = (all) => all.map(({ token }) => token);
    for (const [index, text] of texts.entries())
      equal(ids(turns[index]), ids(text), `text ${index} in turns`);
    model.free();
  },

  async "scores, losses, states and attention see them"(host) {
    const model = await make(host);
    const { tokens } = batch(24);
    const width = config.vocab_size;
    const interventions = [STEERING, { at: "head", layer: 0, head: 0, scale: 0 }];
    const logits = await model.logits(tokens, { interventions });
    const logs = Array.from({ length: 23 }, (_, at) => {
      const row = logits.subarray(at * width, (at + 1) * width);
      const most = Math.max(...row);
      const sum = Math.log(row.reduce((all, x) => all + Math.exp(x - most), 0)) + most;
      return row[tokens[at + 1]] - sum;
    });
    for (const options of [{}, { entropy: true, top: 2 }]) {
      const { logprobs } = await model.score(tokens, { interventions, ...options });
      for (const [at, log] of logs.entries()) close(logprobs[at], log, 1e-5, `score ${at}`);
    }
    const mean = -logs.reduce((sum, log) => sum + log, 0) / 23;
    close(await model.loss(tokens, undefined, { interventions }), mean, 1e-5, "loss");
    const set = [{ at: "residual", layer: 1, set: direction() }];
    const states = await model.hiddenStates(tokens, { layer: 1, interventions: set });
    for (const [i, x] of states.entries())
      close(x, direction()[i % 64], 1e-6, "a state that is set");
    const last = [{ at: "residual", layer: 2, set: direction(), positions: [23] }];
    const behind = await model.hiddenStates(tokens, { layer: 2, interventions: last });
    const [vector] = await model.embed([tokens], { normalize: false, interventions: last });
    ok(furthest(vector, behind.subarray(-64)) < 1e-5, "a vector of a text");
    const [other] = await model.embed([tokens], { normalize: false });
    ok(furthest(vector, other) > 1e-2, "a vector without");
    const own = { at: "residual", layer: 2, scale: 1 };
    const late = { normalize: false, interventions: [own], onProgress: () => (own.scale = 0) };
    const [kept] = await model.embed([tokens], late);
    ok(furthest(kept, other) < 1e-5, "an intervention that the caller changes meanwhile");
    const shares = await model.attention(tokens, { layer: 1, head: 0, interventions: set });
    // All keys are alike but for their positions.
    const plain = await model.attention(tokens, { layer: 1, head: 0 });
    ok(furthest(shares, plain) > 1e-3, "attention behind states that are set");
    model.free();
  },

  async "positions that a text does not have are refused"(host) {
    const model = await make(host);
    const { tokens } = batch(8);
    const documents = [0, 0, 0, 0, 0, 5, 5, 5];
    const calls = {
      logits: (options) => model.logits(tokens, options),
      loss: (options) => model.loss(tokens, undefined, options),
      score: (options) => model.score(tokens, options),
      hiddenStates: (options) => model.hiddenStates(tokens, { layer: 1, ...options }),
      attention: (options) => model.attention(tokens, { layer: 1, head: 0, ...options }),
      capture: (options) => model.capture(tokens, { residual: true, ...options }),
      lens: (options) => model.lens(tokens, { layers: [1], ...options }),
    };
    const at = (positions) => ({ interventions: [{ ...STEERING, positions }] });
    for (const [name, call] of Object.entries(calls)) {
      for (const [positions, ...words] of [
        [[7, 8], "positions[1] is 8", "at most 7"],
        [{ from: 8 }, "positions.from is 8", "at most 7"],
        [{ from: 2, to: 9 }, "positions.to is 9", "at most 8"],
      ]) {
        const all = [name, "interventions[0]", "the text has 8 positions", ...words];
        await refuses("invalid-options", all, () => call(at(positions)));
      }
      for (const positions of [[7], { from: 7 }, { from: 7, to: 8 }]) await call(at(positions));
    }
    const packed = (positions) => calls.score({ documents, ...at(positions) });
    await refuses("invalid-options", ["longest document has 5 positions"], () => packed([5]));
    await packed([4]);
    await refuses("invalid-options", ["the text has 8 positions"], () =>
      model.embed([tokens], at([8])),
    );
    const grown = (positions) => model.generate(tokens, { ...greedy, ...at(positions) });
    equal((await collect(grown([8, 511]))).length, greedy.maxTokens, "tokens of a text that grows");
    await collect(grown({ from: 9, to: 512 }));
    await refuses("invalid-options", ["positions.to is 513", "the model has 512 positions"], () =>
      collect(grown({ to: 513 })),
    );
    model.free();
  },

  async "interventions that cannot be"(host) {
    const model = await make(host);
    const bytes = model.gpuBytes;
    const text = new Uint32Array(512);
    const wrong = async (words, ...interventions) => {
      await refuses("invalid-options", words, () => model.logits(text, { interventions }));
      await refuses("invalid-options", words, () =>
        collect(model.generate([1], { interventions })),
      );
      await refuses("invalid-options", words, () =>
        collect(model.generateBatch([[1]], { interventions })),
      );
      await refuses("invalid-options", words, () => model.score(text, { interventions }));
    };
    const good = { at: "residual", layer: 1 };
    await wrong(["interventions[0]", "plain object"], 5);
    await wrong(["interventions[1].at", "residual"], STEERING, {
      at: "neuron",
      layer: 0,
      scale: 0,
    });
    await wrong(["no change", "scale"], good);
    await wrong(["add and set"], { ...good, add: direction(), set: direction() });
    await wrong(["no field", "where"], { ...good, scale: 0, where: 1 });
    await wrong(["layer is 3", "0 to 2"], { at: "residual", layer: 3, scale: 0 });
    await wrong(["layer is 2", "0 to 1"], { at: "mlp", layer: 2, scale: 0 });
    await wrong(["head is 2", "0 to 1"], { at: "head", layer: 0, head: 2, scale: 0 });
    await wrong([".head is undefined"], { at: "head", layer: 0, scale: 0 });
    await wrong([".head is of a head"], { ...good, head: 0, scale: 0 });
    for (const layer of [-1, 0.5, "1", Number.NaN])
      await wrong([".layer"], { ...good, layer, scale: 0 });
    await wrong([".scale"], { ...good, scale: Number.NaN });
    await wrong([".strength is of add"], { ...good, scale: 1, strength: 1 });
    await wrong([".strength"], { ...good, add: direction(), strength: "2" });
    await wrong(["63 numbers", "give 64"], { ...good, add: direction(63) });
    await wrong([".add[1]", "finite"], { ...good, add: [1, Number.NaN] });
    await wrong([".project is 5"], { ...good, project: 5 });
    await wrong(["zeros"], { ...good, project: new Float32Array(64) });
    await wrong(["128 numbers", "each position"], {
      ...good,
      set: direction(128),
      positions: [1, 2, 3],
    });
    await wrong([".positions is empty"], { ...good, scale: 0, positions: [] });
    await wrong([".positions[1]"], { ...good, scale: 0, positions: [1, -1] });
    await wrong(["positions[0] is 512", "has 512 positions", "at most 511"], {
      ...good,
      scale: 0,
      positions: [512],
    });
    await wrong([".positions.to"], { ...good, scale: 0, positions: { from: 3, to: 3 } });
    await wrong([".positions has no field"], { ...good, scale: 0, positions: { first: 3 } });
    await wrong([".positions is 3"], { ...good, scale: 0, positions: 3 });
    const apart = Array.from({ length: 256 }, (_, i) => 2 * i);
    const many = Array.from({ length: 5 }, () => ({ ...good, scale: 1, positions: apart }));
    await wrong(["1280", "1024"], ...many);
    const prompt = { prompt: [1], interventions: [STEERING] };
    await refuses("invalid-options", ["interventions"], () =>
      collect(model.generateBatch([prompt])),
    );
    await refuses("invalid-options", ["interventions"], () =>
      model.logits([1], { interventions: 5 }),
    );
    equal(model.gpuBytes, bytes, "bytes after refusals");
    model.free();
  },
};
