// Generation: the same seed, greedy against logits, limits, stop tokens, signals, leaving the loop.
import { close, equal, ok, refuses } from "../../api/bodies/assert.mjs";
import {
  batch,
  collect,
  config,
  dataset,
  overflowing,
  trainerOptions,
} from "../../api/bodies/kit.mjs";

const make = ({ tinyloom, runtime }) => tinyloom.Model.create(runtime, config, { seed: 11 });
const ids = (pairs) => pairs.map(({ token }) => token);

/** Log-probabilities of the last row of logits. */
function lastRow(logits, vocab) {
  const row = logits.slice(-vocab);
  const top = Math.max(...row);
  const sum = Math.log(row.reduce((total, x) => total + Math.exp(x - top), 0)) + top;
  return row.map((x) => x - sum);
}

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["firefox"],
  why: "the loop over tokens is the module's; submits and readbacks are the host's",
  core: 6,
  smoke: [
    "greedy tokens are those of the logits",
    "one seed gives one text",
    "the signal, a break and two at once",
  ],
};

export const cases = {
  async "greedy tokens are those of the logits"(host) {
    const model = await make(host);
    const prompt = [84, 104, 101, 32];
    const made = await collect(model.generate(prompt, { maxTokens: 12, temperature: 0 }));
    equal(made.length, 12);
    const sequence = [...prompt];
    for (const { token, logprob } of made) {
      const row = lastRow(await model.logits(sequence), 256);
      close(row[token], Math.max(...row), 1e-4, "a greedy token is the likeliest");
      close(logprob, row[token], 1e-3, "its logprob");
      sequence.push(token);
    }
    model.free();
  },

  async "one seed gives one text"(host) {
    const model = await make(host);
    const sample = (seed, more) =>
      collect(model.generate([1, 2], { maxTokens: 16, seed, ...more }));
    const first = await sample(1);
    equal(await sample(1), first, "the same seed");
    ok(
      JSON.stringify(ids(await sample(2))) !== JSON.stringify(ids(first)),
      "another seed gives another text",
    );
    equal(
      ids(await sample(9, { topK: 1 })),
      ids(await sample(5, { temperature: 0 })),
      "top-k of 1 is greedy",
    );
    const filtered = await sample(3, { topK: 40, topP: 0.9, minP: 0.01, repetitionPenalty: 1.1 });
    equal(filtered.length, 16);
    const plain = await collect(model.generate([5]));
    ok(
      plain.length > 0 && plain.length <= 63,
      `defaults work: ${plain.length} tokens within the context`,
    );
    model.free();
  },

  async "stop tokens end it and are not given out"(host) {
    const model = await make(host);
    const all = ids(await collect(model.generate([7], { maxTokens: 12, temperature: 0 })));
    const stop = all[6];
    const cut = ids(
      await collect(model.generate([7], { maxTokens: 12, temperature: 0, stopTokens: [stop] })),
    );
    equal(cut, all.slice(0, all.indexOf(stop)));
    model.free();
  },

  async "packed caches follow f32"(host) {
    const model = await make(host);
    // A prompt over which attention has something to weigh, and short contexts of one range.
    const prompt = Array.from({ length: 30 }, (_, i) => (i * 37 + 5) % 256);
    const greedy = (kvCache) =>
      collect(model.generate(prompt, { maxTokens: 24, temperature: 0, kvCache }));
    const exact = await greedy("f32");
    equal(await greedy(undefined), exact, "f32 is the default");
    const half = await greedy("f16");
    equal(ids(half), ids(exact), "greedy tokens with an f16 cache");
    for (const [i, { logprob }] of half.entries()) {
      close(logprob, exact[i].logprob, 5e-3, "logprob with an f16 cache");
    }
    // Bytes may choose the other of two equally likely tokens: compare as far as the texts agree.
    const bytes = await greedy("int8");
    for (const [i, { token, logprob }] of bytes.entries()) {
      close(logprob, exact[i].logprob, 0.05, "logprob with an int8 cache");
      if (token !== exact[i].token) break;
    }
    // Between two tokens of one cache, another: both go on as if alone.
    const mixed = [];
    for await (const pair of model.generate(prompt, { maxTokens: 24, temperature: 0 })) {
      mixed.push(pair);
      if (mixed.length === 3) equal(await greedy("f16"), half, "f16 between f32");
    }
    equal(ids(mixed), ids(exact), "f32 around f16");
    await refuses("invalid-options", ["kvCache", "f16"], () =>
      collect(model.generate(prompt, { kvCache: "f8" })),
    );
    model.free();
  },

  async "packed weights follow f32, and training"(host) {
    const { Trainer } = host.tinyloom;
    const model = await make(host);
    const trainer = await Trainer.create(model, trainerOptions);
    const data = await dataset(host.tinyloom);
    for await (const _ of trainer.run(data, { steps: 12 }));
    const { tokens, targets } = batch(60, 500);
    const read = async (weights) => ({
      loss: await model.loss(tokens, targets, { weights }),
      text: await collect(model.generate([7, 8], { maxTokens: 12, temperature: 0, weights })),
    });
    // What the first use of a form adds beside its key-value cache, of which each form has its own.
    const bytes = {};
    let cache;
    const check = async () => {
      let before = model.gpuBytes;
      const exact = await read(undefined);
      cache ??= model.gpuBytes - before;
      for (const [weights, tolerance] of [
        ["f32", 0],
        ["f16", 1e-3],
        ["int8", 0.02],
        ["int4", 0.3],
      ]) {
        before = model.gpuBytes;
        const { loss, text } = await read(weights);
        bytes[weights] ??= weights === "f32" ? 0 : model.gpuBytes - before - cache;
        close(loss, exact.loss, tolerance, `loss with ${weights}`);
        ok(weights === "f32" || loss !== exact.loss, `${weights} leaves no trace`);
        const first = Math.abs(text[0].logprob - exact.text[0].logprob);
        ok(text[0].token !== exact.text[0].token || first <= 3 * tolerance, `${weights}: ${first}`);
        const alike = await read(weights);
        equal([alike.loss, ids(alike.text)], [loss, ids(text)], `${weights} again`);
      }
      return exact.loss;
    };
    const early = await check();
    // Weights that have changed are packed again.
    for await (const _ of trainer.run(data, { steps: 4 }));
    const fresh = await host.tinyloom.Model.fromPretrained(host.runtime, await model.save());
    const expected = await fresh.loss(tokens, targets, { weights: "int4" });
    const changed = await model.loss(tokens, targets, { weights: "int4" });
    equal(changed, expected, "int4 from copies made before the steps and from new ones");
    fresh.free();
    const late = await check();
    ok(late < early - 0.1, `the loss went from ${early} to ${late}`);
    ok(
      bytes.int4 < bytes.int8 && bytes.int8 < bytes.f16 && bytes.f16 < 2.1 * model.parameterCount,
      `bytes of the copies: ${JSON.stringify(bytes)}`,
    );
    for (const wrong of ["f8", 8, null]) {
      await refuses("invalid-options", ["weights"], () =>
        model.loss(tokens, targets, { weights: wrong }),
      );
      await refuses("invalid-options", ["weights"], () =>
        collect(model.generate([7], { weights: wrong })),
      );
    }
    const whole = 4 * model.parameterCount;
    model.free();
    return `copies of ${JSON.stringify(bytes)} bytes beside ${whole}`;
  },

  async "the loss shows what a packed cache costs"(host) {
    const { Model, Trainer } = host.tinyloom;
    // Weights so large that attention prefers some keys after a few steps.
    const sharp = { ...config, initializer_range: 0.1 };
    const model = await Model.create(host.runtime, sharp, { seed: 11 });
    const trainer = await Trainer.create(model, trainerOptions);
    for await (const _ of trainer.run(await dataset(host.tinyloom), { steps: 12 }));
    const { tokens, targets } = batch(60, 500);
    const loss = (options) => model.loss(tokens, targets, options);
    const exact = await loss();
    equal(await loss({}), exact, "f32 is the default");
    equal(await loss({ kvCache: "f32" }), exact);
    const [half, bytes] = [await loss({ kvCache: "f16" }), await loss({ kvCache: "int8" })];
    close(half, exact, 2e-4, "loss with an f16 cache");
    close(bytes, exact, 5e-3, "loss with an int8 cache");
    ok(bytes !== exact, "bytes leave no trace");
    const plain = await model.logits(tokens);
    const packed = await model.logits(tokens, { kvCache: "int8" });
    ok(
      plain.some((x, i) => x !== packed[i]),
      "bytes leave no trace in the logits",
    );
    const largest = plain.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
    for (const [i, x] of plain.entries()) close(packed[i], x, 0.02 * largest, "a logit");
    equal([...(await model.logits(tokens))], [...plain], "f32 again");
    equal(await loss(), exact, "its loss too");
    for (const wrong of [{ kvCache: "f8" }, { kvcache: "f16" }]) {
      await refuses("invalid-options", ["kvCache"], () => model.loss(tokens, targets, wrong));
      await refuses("invalid-options", ["kvCache"], () => model.logits(tokens, wrong));
    }
    model.free();
  },

  async "what comes before logits that are not finite is given, then the error"(host) {
    const { Model } = host.tinyloom;
    const untied = { ...config, tie_word_embeddings: false, initializer_range: 0.2 };
    const seed = await Model.create(host.runtime, untied, { seed: 11 });
    const files = await seed.save();
    seed.free();
    const generate = async (given, token) => {
      const model = await Model.fromPretrained(host.runtime, overflowing(files, untied, token));
      try {
        for await (const one of model.generate([7, 8], { maxTokens: 14, temperature: 0 })) {
          given.push(one);
        }
      } finally {
        model.free();
      }
    };
    const plain = [];
    await generate(plain);
    equal(plain.length, 14, "tokens of the good model");
    // The token drawn as the fifth or so, and never before: its embedding makes the logits overflow.
    const at = ids(plain).findIndex((token, i, all) => i >= 4 && all.indexOf(token) === i);
    ok(at >= 4 && at < 13, `${ids(plain)} repeats from the beginning`);
    const given = [];
    await refuses("non-finite", "not finite", () => generate(given, plain[at].token));
    equal(given, plain.slice(0, at + 1), "what was drawn before");
  },

  async "the signal, a break and two at once"(host) {
    const model = await make(host);
    await refuses("aborted", [], () => model.generate([1], { signal: AbortSignal.abort() }));
    const controller = new AbortController();
    let seen = 0;
    await refuses("aborted", [], async () => {
      for await (const _ of model.generate([1], { maxTokens: 60, signal: controller.signal })) {
        seen += 1;
        if (seen === 3) controller.abort();
      }
    });
    equal(seen, 3, "tokens before the abort");
    const wanted = ids(await collect(model.generate([3, 4], { maxTokens: 8, temperature: 0 })));
    const broken = [];
    for await (const { token } of model.generate([3, 4], { maxTokens: 60, temperature: 0 })) {
      broken.push(token);
      if (broken.length === 8) break;
    }
    equal(broken, wanted, "leaving the loop early");
    const pair = [0, 1].map(() =>
      collect(model.generate([3, 4], { maxTokens: 8, temperature: 0 })),
    );
    for (const one of await Promise.all(pair)) equal(ids(one), wanted, "two generations at once");
    model.free();
  },

  async "a prompt fills the context and no more"(host) {
    const model = await make(host);
    const prompt = new Uint32Array(60).fill(65);
    const made = await collect(model.generate(prompt, { maxTokens: 0xffff_ffff, temperature: 0 }));
    equal(made.length, 4, "tokens after 60 of 64");
    const long = new Uint32Array(100).fill(65);
    const error = await refusedWith(() => collect(model.generate(long)));
    ok(
      ["invalid-tokens", "limit-exceeded"].includes(error.code),
      `a long prompt gave ${error.code}`,
    );
    model.free();
  },
};

async function refusedWith(work) {
  try {
    await work();
  } catch (error) {
    return error;
  }
  return { code: "nothing" };
}
