// Trainers of preference: their gradients by their definitions, in f64, and that they work.
import { close, equal, ok, refuses } from "../../api/bodies/assert.mjs";
import { collect, config, openFile, trainerOptions } from "../../api/bodies/kit.mjs";
import { readReference, referenceUrl } from "../../api/bodies/reference.mjs";

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["node"],
  why: "all of it is scores and steps, which train/objectives has",
  smoke: ["preferences are learned, and a resumed trainer goes on to the bit"],
};

const bytes = (text) => [...new TextEncoder().encode(text)];
const PAIRS = [
  ["the cat sat on ", "the mat.", "a log of wood."],
  ["the dog sat on ", "a log.", "the mat, as ever."],
  ["the owl sat ", "by day.", "on."],
].map(([prompt, chosen, rejected]) => ({
  prompt: bytes(prompt),
  chosen: bytes(chosen),
  rejected: bytes(rejected),
}));
const REFERENCE = [
  [-40, -75.5],
  [-36.25, -90],
  [-37, -15],
];

const open = async ({ tinyloom, runtime }, more = {}, of = config) => {
  const model = await tinyloom.Model.create(runtime, of, { seed: 5 });
  const options = { ...trainerOptions, tokensPerStep: 256, ...more };
  return tinyloom.Trainer.create(model, options);
};

const logistic = (x) => 1 / (1 + Math.exp(-x));

/** Each objective of the pair's log-probabilities less the reference's, as its paper has it, and as TRL does. */
const OBJECTIVES = {
  sigmoid: (apart, { beta, labelSmoothing: s }) =>
    -(1 - s) * Math.log(logistic(beta * apart)) - s * Math.log(logistic(-beta * apart)),
  ipo: (apart, { beta }) => (apart - 1 / (2 * beta)) ** 2,
  simpo: (apart, { beta, gamma, labelSmoothing: s }) => {
    const x = beta * (apart - gamma / beta);
    return -(1 - s) * Math.log(logistic(x)) - s * Math.log(logistic(-x));
  },
};

/** The mean of the pairs' objectives, by the log-probabilities of all texts. */
const ofPairs = (loss, options, texts, reference) => (sums) => {
  const average = loss !== "sigmoid";
  const lengths = texts.map(({ prompt, text }) => (average ? text.length - prompt : 1));
  let all = 0;
  for (let k = 0; k < sums.length; k += 2) {
    const [c, r] = loss === "simpo" ? [0, 0] : reference[k / 2];
    const apart = (sums[k] - c) / lengths[k] - (sums[k + 1] - r) / lengths[k + 1];
    all += OBJECTIVES[loss](apart, options) / (sums.length / 2);
  }
  return all;
};

/** An objective of log-probabilities by the logits: its own slopes by finite differences, the rest by the chain rule. */
function byLogits(total, texts) {
  return ({ logits, vocabulary }) => {
    const gradient = new Float64Array(logits.length);
    const row = (at) => logits.subarray(at * vocabulary, (at + 1) * vocabulary);
    const terms = (of) => {
      const most = Math.max(...of);
      return [most, of.reduce((all, x) => all + Math.exp(x - most), 0)];
    };
    const sums = texts.map(({ start, prompt, text }) => {
      let sum = 0;
      for (let i = prompt - 1; i + 1 < text.length; i++) {
        const [most, all] = terms(row(start + i));
        sum += row(start + i)[text[i + 1]] - Math.log(all) - most;
      }
      return sum;
    });
    for (const [k, { start, prompt, text }] of texts.entries()) {
      const moved = (by) => total(sums.map((sum, i) => (i === k ? sum + by : sum)));
      const slope = (moved(1e-4) - moved(-1e-4)) / 2e-4;
      for (let i = prompt - 1; i + 1 < text.length; i++) {
        const of = row(start + i);
        const [most, all] = terms(of);
        for (let id = 0; id < vocabulary; id++) {
          const own = (id === text[i + 1] ? 1 : 0) - Math.exp(of[id] - most) / all;
          gradient[(start + i) * vocabulary + id] = slope * own;
        }
      }
    }
    return { gradient, loss: total(sums) };
  };
}

/** Prompts and completions as they are packed. */
function packed(pairs) {
  const texts = [];
  let start = 0;
  for (const [prompt, own] of pairs) {
    const text = [...prompt, ...own];
    texts.push({ start, prompt: prompt.length, text });
    start += text.length;
  }
  const tokens = texts.flatMap(({ text }) => text);
  return { texts, tokens, documents: texts.flatMap(({ start, text }) => text.map(() => start)) };
}

const norm = (a) => Math.sqrt(a.reduce((sum, x) => sum + x * x, 0));

function sameGradients(got, expected, what) {
  for (const [name, values] of Object.entries(expected)) {
    const apart = norm(got[name].map((x, i) => x - values[i])) / norm(values);
    ok(apart < 1e-3, `${what}, ${name}: ${apart}`);
  }
}

export const cases = {
  async "a step has the objective's own gradient"(host) {
    const { texts, tokens, documents } = packed(
      PAIRS.flatMap(({ prompt, chosen, rejected }) => [
        [prompt, chosen],
        [prompt, rejected],
      ]),
    );
    for (const [loss, options] of [
      ["sigmoid", { beta: 0.1, labelSmoothing: 0 }],
      ["sigmoid", { beta: 0.5, labelSmoothing: 0.1 }],
      ["ipo", { beta: 0.4 }],
      ["simpo", { beta: 2, gamma: 0.7, labelSmoothing: 0 }],
    ]) {
      const [own, by] = [await open(host), await open(host)];
      const reference = loss === "simpo" ? undefined : REFERENCE;
      const asked = { ...options, loss, reference, pairsPerStep: 3 };
      const [metrics] = await collect(host.tinyloom.align.dpo(own, PAIRS, asked));
      const gradient = byLogits(ofPairs(loss, options, texts, REFERENCE), texts);
      const expected = await by.step({ tokens, documents, gradient });
      close(metrics.objective, expected.loss, 1e-4 * Math.abs(expected.loss), loss);
      sameGradients(await own.gradients(), await by.gradients(), loss);
      for (const { model } of [own, by]) model.free();
    }
  },

  async "losses and gradients are TRL's"({ tinyloom, runtime }) {
    const { Model, Trainer, align } = tinyloom;
    const folder = "preferences";
    const json = await readReference(`${folder}/preferences.json`);
    const {
      pairs,
      model: own,
      reference: other,
      cases,
    } = JSON.parse(new TextDecoder().decode(json));
    const { header, data } = openFile(await readReference(`${folder}/preferences.safetensors`));
    const numbers = (name) => {
      const [begin, end] = header[name].data_offsets;
      return new Float32Array(data.slice(begin, end).buffer);
    };
    const texts = pairs.flatMap(({ prompt, chosen, rejected }) => [
      { prompt, completion: chosen, desirable: true },
      { prompt, completion: rejected, desirable: false },
    ]);
    const load = (name) => Model.fromPretrained(runtime, referenceUrl(`${name}/`));
    const reference = await load(other);
    const beside = ({ loss }) => (loss === "simpo" ? {} : { reference });
    equal(Object.keys(cases), ["dpo", "ipo", "simpo", "simpo-smoothed", "kto"]);
    for (const [name, { options, loss }] of Object.entries(cases)) {
      const trainer = await Trainer.create(await load(own), { tokensPerStep: 128 });
      const [metrics] = await collect(
        name === "kto"
          ? align.kto(trainer, texts, { ...options, reference, textsPerStep: 8 })
          : align.dpo(trainer, pairs, { ...options, ...beside(options), pairsPerStep: 4 }),
      );
      close(metrics.objective, loss, 1e-4 * (1 + loss), name);
      const got = await trainer.gradients();
      const expected = Object.keys(got).map((of) => [of, numbers(`${name}.${of}`)]);
      sameGradients(got, Object.fromEntries(expected), name);
      trainer.model.free();
    }
    reference.free();
  },

  async "preferences are learned, and a resumed trainer goes on to the bit"(host) {
    const { Trainer } = host.tinyloom;
    const options = { gradientAccumulation: 2, totalSteps: 12 };
    const asked = { pairsPerStep: 2, beta: 0.5, reference: REFERENCE };
    const [whole, parted] = [await open(host, options), await open(host, options)];
    const learned = (trainer, steps) =>
      collect(host.tinyloom.align.dpo(trainer, PAIRS, { ...asked, steps }));
    const metrics = await learned(whole, 6);
    const objectives = metrics.map(({ objective }) => objective);
    ok(objectives[5] < objectives[0] - 0.1, `from ${objectives}`);
    ok(metrics[5].margin > metrics[0].margin && metrics[5].accuracy >= metrics[0].accuracy);
    const begun = await learned(parted, 3);
    const resumed = await Trainer.resume(host.runtime, await parted.save());
    const rest = await learned(resumed, 3);
    equal(
      [...begun, ...rest].map(({ objective }) => objective),
      objectives,
    );
    for (const { model } of [whole, parted, resumed]) model.free();
  },

  async "a step of KTO has its own gradient, and texts are learned"(host) {
    const { Model } = host.tinyloom;
    const labelled = PAIRS.flatMap(({ prompt, chosen, rejected }) => [
      { prompt, completion: chosen, desirable: true },
      { prompt, completion: rejected, desirable: false },
    ]);
    const reference = await Model.create(host.runtime, config, { seed: 9 });
    const [own, by] = [await open(host), await open(host)];
    const asked = { reference, beta: 0.05, undesirableWeight: 1.5, textsPerStep: 6 };
    const gains = async (texts) => {
      const [ours, theirs] = [by.model, reference];
      const sum = async (model, { prompt, completion }) => {
        const text = [...prompt, ...completion];
        const { logprobs } = await model.score(text);
        return logprobs.subarray(prompt.length - 1).reduce((all, x) => all + x, 0);
      };
      const all = [];
      for (const text of texts) all.push([await sum(ours, text), await sum(theirs, text)]);
      return all;
    };
    const before = (i) => labelled[(i + labelled.length - 1) % labelled.length].completion;
    const others = await gains(labelled.map((one, i) => ({ ...one, completion: before(i) })));
    const baseline = Math.max(0, others.reduce((sum, [a, b]) => sum + a - b, 0) / others.length);
    const theirs = (await gains(labelled)).map(([, sum]) => sum);
    const total = (sums) =>
      sums.reduce((all, sum, i) => {
        const [sign, weight] = labelled[i].desirable ? [1, 1] : [-1, 1.5];
        const value = logistic(sign * asked.beta * (sum - theirs[i] - baseline));
        return all + (weight * (1 - value)) / sums.length;
      }, 0);
    const pairs = labelled.map(({ prompt, completion }) => [prompt, completion]);
    const { texts, tokens, documents } = packed(pairs);
    const [metrics] = await collect(host.tinyloom.align.kto(own, labelled, asked));
    const expected = await by.step({ tokens, documents, gradient: byLogits(total, texts) });
    close(metrics.baseline, baseline, 1e-3);
    close(metrics.objective, expected.loss, 1e-5);
    sameGradients(await own.gradients(), await by.gradients(), "KTO");
    const later = await collect(host.tinyloom.align.kto(own, labelled, { ...asked, steps: 8 }));
    ok(later[7].objective < metrics.objective, `${metrics.objective}, then ${later[7].objective}`);
    ok(later[7].desirable - later[7].undesirable > metrics.desirable - metrics.undesirable);
    await refuses("invalid-options", "reference is missing", () =>
      collect(host.tinyloom.align.kto(by, labelled)),
    );
    await refuses("invalid-options", "reference is true; give a model", () =>
      collect(host.tinyloom.align.kto(by, labelled, { reference: true })),
    );
    await refuses("invalid-options", "textsPerStep", () =>
      collect(host.tinyloom.align.kto(by, labelled, { ...asked, textsPerStep: 1 })),
    );
    for (const { model } of [own, by]) model.free();
    reference.free();
  },

  async "an adapter's reference is the model without it, and what cannot be is refused"(host) {
    const { Adapter, Model, Trainer } = host.tinyloom;
    const model = await Model.create(host.runtime, config, { seed: 5 });
    const adapter = await Adapter.create(model, { rank: 4, seed: 3 });
    const trainer = await Trainer.create(adapter, { ...trainerOptions, tokensPerStep: 256 });
    const first = await collect(host.tinyloom.align.dpo(trainer, PAIRS, { pairsPerStep: 3 }));
    close(first[0].objective, Math.log(2), 1e-5, "the adapter adds nothing yet");
    const long = Array.from({ length: config.max_position_embeddings }, () => 1);
    for (const [pairs, options, word, code = "invalid-options"] of [
      [[], {}, "no pairs"],
      [PAIRS, { beta: 0 }, "beta is 0"],
      [PAIRS, { loss: "kto" }, "loss is"],
      [PAIRS, { reference: [[1, 2]] }, "reference has 1"],
      [PAIRS, { reference: "base" }, 'reference is "base"; give a model'],
      [PAIRS, { reference: trainer }, "give a model"],
      [PAIRS, { reference: [[1, 2], [3], [4, 5]] }, "reference[1] is"],
      [[{ ...PAIRS[0], chosen: [] }], {}, "pairs[0].chosen is empty", "invalid-tokens"],
      [[PAIRS[0], { ...PAIRS[0], chosen: "no" }], {}, 'pairs[1].chosen is "no"', "invalid-tokens"],
      [[{ ...PAIRS[0], rejected: [300] }], {}, "rejected[0] is 300; a token", "invalid-tokens"],
      [[{ ...PAIRS[0], prompt: [-1] }], {}, "pairs[0].prompt[0] is -1", "invalid-tokens"],
      [[{ ...PAIRS[0], chosen: long }], {}, "prompt and chosen have", "invalid-tokens"],
      [PAIRS, { pairsPerStep: 12 }, "pairsPerStep is 12; a micro-step would have"],
      [PAIRS, { gamma: 1 }, 'gamma has no meaning with loss "sigmoid"'],
      [PAIRS, { loss: "ipo", labelSmoothing: 0.1 }, "labelSmoothing has no meaning"],
      [[null], {}, "pairs[0] is null"],
      [null, {}, "pairs is null"],
    ]) {
      await refuses(code, word, () => collect(host.tinyloom.align.dpo(trainer, pairs, options)));
    }
    for (const [texts, word] of [
      [[{ prompt: [1], completion: [2] }], "texts[0].desirable is undefined"],
      [7, "texts is 7"],
    ]) {
      await refuses("invalid-options", word, () =>
        collect(host.tinyloom.align.kto(trainer, texts)),
      );
    }
    for (const work of ["dpo", "kto", "grpo", "distill"]) {
      await refuses("invalid-options", `${work}: the trainer is`, () =>
        collect(host.tinyloom.align[work](model, PAIRS, { reward: () => 1 })),
      );
    }
    const dropped = await Trainer.create(model, { ...trainerOptions, dropout: 0.1 });
    await refuses("invalid-options", "dropout 0", () =>
      collect(host.tinyloom.align.dpo(dropped, PAIRS)),
    );
    model.free();
  },

  async "what does not fit in a later step is refused before the first one"(host) {
    const { Adapter, Model, Trainer } = host.tinyloom;
    const model = await Model.create(host.runtime, config, { seed: 5 });
    const adapter = await Adapter.create(model, { rank: 4, seed: 3 });
    const trainer = await Trainer.create(adapter, { ...trainerOptions, tokensPerStep: 256 });
    const most = config.max_position_embeddings;
    const text = (prompt, completion) => ({
      prompt: Array(prompt).fill(1),
      completion: Array(completion).fill(1),
      desirable: true,
    });
    const few = [text(1, 1), text(1, 1), text(most - 1, 1), text(1, 2)];
    const kto = (texts, options) => collect(host.tinyloom.align.kto(trainer, texts, options));
    await refuses("invalid-tokens", "texts[2]: its prompt and the completion of texts[3]", () =>
      kto(few, { textsPerStep: 2 }),
    );
    const wide = [text(1, 1), text(1, 1), ...Array.from({ length: 6 }, () => text(2, most - 4))];
    await refuses("invalid-options", "textsPerStep is 5; a micro-step would have 310", () =>
      kto(wide, { textsPerStep: 5, steps: 3 }),
    );
    const pairs = wide.map(({ prompt, completion }) => ({
      prompt,
      chosen: completion,
      rejected: completion,
    }));
    await refuses("invalid-options", "pairsPerStep is 3; a micro-step would have 372", () =>
      collect(host.tinyloom.align.dpo(trainer, pairs, { pairsPerStep: 3 })),
    );
    equal(trainer.steps, 0);
    model.free();
  },

  async "a student follows its teacher, and a resumed one goes on to the bit"(host) {
    const { ByteTokenizer, Dataset, Model, Trainer } = host.tinyloom;
    const { distill } = host.tinyloom.align;
    const texts = Array.from(
      { length: 12 },
      (_, i) => `the ${["cat", "dog", "owl"][i % 3]} sat on log ${i}.`,
    );
    const data = await Dataset.fromDocuments(texts, new ByteTokenizer(), {
      validationFraction: 0.2,
    });
    const teacher = await Model.create(host.runtime, config, { seed: 11 });
    const options = { gradientAccumulation: 2, totalSteps: 12, seed: 4, learningRate: 0.01 };
    const asked = { ids: 16, temperature: 1.5, share: 1, documentsPerStep: 3 };
    /** How much the teacher's likeliest ids, at most 64 for each position, are less likely for the student. */
    const apart = async ({ model }) => {
      const { tokens } = await data.document(0);
      const { top } = await teacher.score(tokens, { top: 64 });
      const logits = await model.logits(tokens);
      return tokens.reduce((sum, _, row) => {
        const own = logits.subarray(256 * row, 256 * (row + 1));
        const all = own.reduce((total, x) => total + Math.exp(x), 0);
        const ids = top.ids.subarray(64 * row, 64 * (row + 1));
        const theirs = (i) => top.probabilities[64 * row + i];
        return ids.reduce((off, id, i) => off + theirs(i) - Math.exp(own[id]) / all, sum);
      }, 0);
    };
    const [whole, parted] = [await open(host, options), await open(host, options)];
    const before = await apart(whole);
    const metrics = await collect(distill(whole, teacher, data, { ...asked, steps: 6 }));
    const after = await apart(whole);
    ok(after < 0.9 * before, `from ${before} to ${after}`);
    const losses = metrics.map(({ loss }) => loss);
    ok(losses[5] < losses[0], `losses ${losses}`);
    const begun = await collect(distill(parted, teacher, data, { ...asked, steps: 2 }));
    const resumed = await Trainer.resume(host.runtime, await parted.save());
    const rest = await collect(distill(resumed, teacher, data, { ...asked, steps: 4 }));
    equal(
      [...begun, ...rest].map(({ loss }) => loss),
      losses,
    );
    const pass = await collect(distill(resumed, teacher, data, asked));
    equal(pass.length, Math.ceil(data.documents / 6), "steps of a pass");
    for (const model of [whole.model, parted.model, resumed.model, teacher]) model.free();
  },

  async "what cannot be distilled is refused, and makes no step"(host) {
    const { Dataset, Model } = host.tinyloom;
    const { distill } = host.tinyloom.align;
    const data = Dataset.fromTokens(bytes("the cat sat on a log. ".repeat(20)), {
      sequenceLength: 24,
      validationFraction: 0,
    });
    const whole = await open(host);
    const teacher = await Model.create(host.runtime, config, { seed: 11 });
    const other = await Model.create(host.runtime, { ...config, vocab_size: 300 });
    await refuses("invalid-options", "vocab_size is 256 and the teacher's 300", () =>
      collect(distill(whole, other, data)),
    );
    await refuses("invalid-options", "the teacher is", () =>
      collect(distill(whole, undefined, data)),
    );
    await refuses("invalid-options", "the dataset is", () =>
      collect(distill(whole, teacher, [1, 2, 3])),
    );
    await refuses("invalid-options", "ids is 65", () =>
      collect(distill(whole, teacher, data, { ids: 65 })),
    );
    const small = await open(host, { tokensPerStep: 64 }, { ...config, vocab_size: 40 });
    await refuses("invalid-options", "ids is 41; it must be at most", () =>
      collect(distill(small, small.model, data, { ids: 41 })),
    );
    small.model.free();
    const { steps } = whole;
    await refuses(
      "invalid-options",
      ["documentsPerStep is 16;", "tokensPerStep is 256: lower it to"],
      () => collect(distill(whole, teacher, data, { documentsPerStep: 16 })),
    );
    equal(whole.steps, steps, "no step is made");
    for (const model of [whole.model, teacher, other]) model.free();
  },

  async "a step of distillation is the step of its soft targets"(host) {
    const { Dataset, Model } = host.tinyloom;
    const data = Dataset.fromTokens(bytes("the cat sat on a log."), {
      sequenceLength: 20,
      validationFraction: 0,
    });
    const teacher = await Model.create(host.runtime, config, { seed: 11 });
    const [own, by] = [await open(host), await open(host)];
    const asked = {
      temperature: 2,
      share: 0.25,
      direction: "reverse",
      rest: "renormalize",
      ids: 5,
    };
    const [metrics] = await collect(
      host.tinyloom.align.distill(own, teacher, data, { ...asked, documentsPerStep: 1, steps: 1 }),
    );
    const { tokens } = await data.document(0);
    const { top } = await teacher.score(tokens, { top: 5, temperature: 2 });
    const { ids: _, ...soft } = asked;
    const targets = Uint32Array.from(tokens, (_, i) => tokens[i + 1] ?? 0xffffffff);
    const { loss } = await by.step({ tokens, targets, soft: { ...soft, ...top } });
    equal(metrics.loss, loss);
    equal(await own.gradients(), await by.gradients());
    for (const model of [own.model, by.model, teacher]) model.free();
  },
};
