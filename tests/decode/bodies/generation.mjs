// What generate does besides drawing tokens: text, stop strings, alternatives, biases.

import { close, equal, ok, refuses } from "../../api/bodies/assert.mjs";
import { collect, config, pause, soon, withStillClock } from "../../api/bodies/kit.mjs";
import { below, numbers } from "../../random.mjs";

const make = ({ tinyloom, runtime }) => tinyloom.Model.create(runtime, config, { seed: 11 });
const ids = (given) => given.map(({ token }) => token);
const textOf = (given) => given.map(({ text }) => text).join("");

/** A tokenizer whose ids are pieces of some bytes of this text: characters and words cross their borders. */
function pieces(seed) {
  const bytes = new TextEncoder().encode("ab\n aé\nb😀 User: ab");
  const next = below(numbers(seed));
  const table = Array.from({ length: 256 }, () => {
    const start = next(bytes.length);
    return bytes.slice(start, start + 1 + next(5));
  });
  const decoder = () => {
    const utf8 = new TextDecoder("utf-8", { ignoreBOM: true });
    return {
      push: (token) => utf8.decode(table[token], { stream: true }),
      end: () => utf8.decode(),
    };
  };
  return { decoder };
}

/** All text of some tokens. */
function decode(tokenizer, tokens) {
  const decoder = tokenizer.decoder();
  return tokens.map((token) => decoder.push(token)).join("") + decoder.end();
}

/** The likeliest tokens of the last row of logits. */
function likeliest(logits, count) {
  const row = Array.from(logits.slice(-256));
  const top = Math.max(...row);
  const sum = Math.log(row.reduce((total, x) => total + Math.exp(x - top), 0)) + top;
  const all = row.map((x, token) => ({ token, logprob: x - sum }));
  return all.sort((a, b) => b.logprob - a.logprob || a.token - b.token).slice(0, count);
}

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["firefox"],
  why: "text is joined in TypeScript, which is loaded when it is needed",
  smoke: ["each token comes with its text"],
};

export const cases = {
  async "each token comes with its text"(host) {
    const model = await make(host);
    const options = { maxTokens: 40, temperature: 1.5, seed: 4 };
    const plain = await collect(model.generate([1, 2], options));
    ok(!("text" in plain[0]), "no text without a tokenizer");
    const { ByteTokenizer, BpeTokenizer } = host.tinyloom;
    const trained = await BpeTokenizer.train("a text of some words and of some more words", {
      vocabSize: 258,
    });
    for (const tokenizer of [new ByteTokenizer(), trained, pieces(3)]) {
      const given = await collect(model.generate([1, 2], { ...options, tokenizer }));
      equal(ids(given), ids(plain), "the same tokens");
      const whole = decode(tokenizer, ids(plain));
      // Only the replacement of a character that the end cuts off may be missing.
      const text = textOf(given);
      ok(whole === text || whole === `${text}\ufffd`, `${JSON.stringify([text, whole])}`);
    }
    model.free();
  },

  async "a stop string ends the text, wherever tokens begin and end"(host) {
    const model = await make(host);
    let [across, stopped] = [0, 0];
    for (let seed = 1; seed <= 4; seed++) {
      const tokenizer = pieces(seed);
      const next = below(numbers(seed + 100));
      const options = { maxTokens: 30, temperature: 1.5, seed };
      const plain = await collect(model.generate([seed, 2], options));
      const whole = decode(tokenizer, ids(plain));
      for (let turn = 0; turn < 6; turn++) {
        // Parts of the text, and one that is not in it: by turns one string or two.
        const part = () => {
          const start = next(whole.length - 1);
          return whole.slice(start, start + 1 + next(12));
        };
        const stop =
          turn % 3 === 2 ? [`${part()}#`] : [part(), `${part()}#`, part()].slice(turn % 2);
        const places = stop.map((text) => whole.indexOf(text)).filter((at) => at >= 0);
        const end = places.length > 0 ? Math.min(...places) : whole.length;
        const given = await collect(model.generate([seed, 2], { ...options, tokenizer, stop }));
        const text = textOf(given);
        const expected = whole.slice(0, end);
        const whole_ = places.length > 0 ? [expected] : [expected, expected.replace(/\ufffd$/, "")];
        ok(whole_.includes(text), `${JSON.stringify({ whole, stop, text, expected })}`);
        equal(ids(given), ids(plain).slice(0, given.length), "its tokens are the first ones");
        // A token without any of the text is not given.
        ok(places.length === 0 || given.length === 0 || given.at(-1).text !== "", "no empty end");
        if (places.length > 0) stopped++;
        if (places.length > 0 && decode(tokenizer, ids(given)).length > end) across++;
      }
    }
    ok(stopped > 10 && across > 3, `${stopped} texts stopped, ${across} within a token`);
    model.free();
  },

  async "what may begin a stop string is held back until it is decided"(host) {
    const model = await make(host);
    const options = { maxTokens: 24, temperature: 0, tokenizer: new host.tinyloom.ByteTokenizer() };
    const letters = { decoder: () => ({ push: (token) => "ab"[token % 2], end: () => "" }) };
    const whole = textOf(await collect(model.generate([3], { ...options, tokenizer: letters })));
    equal(whole.length, 24);
    // Occurs only at the end: the longest part of it that occurs before is held back there.
    const stop = [`${whole}!`];
    let given = "";
    const seen = [];
    for await (const { text } of model.generate([3], { ...options, tokenizer: letters, stop })) {
      given += text;
      seen.push(text);
    }
    equal(given, whole, "all of it comes at the end");
    equal(seen.length, 24, "a token at a time");
    // Overlaps: "aab" in "aaab" begins at the second letter.
    const fixed = (text) => {
      let at = 0;
      return { decoder: () => ({ push: () => text[at++] ?? "", end: () => "" }) };
    };
    for (const [text, stops, expected] of [
      ["aaab", ["aab"], "a"],
      ["ababac", ["abac"], "ab"],
      ["xyzxyw", ["xyw", "zxy"], "xy"],
      ["xyz", ["z", "yz!", "xyzz"], "xy"],
      ["aaa", ["a"], ""],
    ]) {
      const got = await collect(
        model.generate([3], { ...options, tokenizer: fixed(text), stop: stops }),
      );
      equal(textOf(got), expected, `${text} to ${stops}`);
    }
    model.free();
  },

  async "alternatives are the likeliest tokens by the model's logits"(host) {
    const model = await make(host);
    const options = { maxTokens: 10, temperature: 1.2, seed: 3, repetitionPenalty: 1.3 };
    const plain = await collect(model.generate([4, 5], options));
    ok(!("alternatives" in plain[0]), "none by default");
    for (const alternatives of [1, 5, 32]) {
      const given = await collect(model.generate([4, 5], { ...options, alternatives }));
      equal(ids(given), ids(plain), "the same tokens");
      const text = [4, 5];
      for (const { token, logprob, alternatives: told } of given) {
        const expected = likeliest(await model.logits(text), alternatives);
        equal(ids(told), ids(expected), "tokens");
        for (const [index, one] of told.entries()) {
          close(one.logprob, expected[index].logprob, 1e-4, "log-probability");
          if (one.token === token) close(one.logprob, logprob, 1e-6, "one scale");
        }
        text.push(token);
      }
    }
    const tokenizer = new host.tinyloom.ByteTokenizer();
    const [first] = await collect(
      model.generate([4], { maxTokens: 1, alternatives: 2, tokenizer }),
    );
    equal([first.alternatives.length, typeof first.text], [2, "string"], "with text too");
    for (const wrong of [0, 33, 1.5, "2"]) {
      await refuses("invalid-options", ["alternatives is"], () =>
        collect(model.generate([1], { alternatives: wrong })),
      );
    }
    const small = await host.tinyloom.Model.create(host.runtime, { ...config, vocab_size: 7 });
    await refuses("invalid-options", ["alternatives is 8", "at most 7"], () =>
      collect(small.generate([1], { alternatives: 8 })),
    );
    const all = await collect(small.generate([1], { alternatives: 7, maxTokens: 2 }));
    const sum = all[1].alternatives.reduce((total, one) => total + Math.exp(one.logprob), 0);
    close(sum, 1, 1e-5, "the whole vocabulary");
    small.free();
    model.free();
  },

  async "a bias, fixed or by token"(host) {
    const model = await make(host);
    const options = { maxTokens: 12, temperature: 0 };
    const greedy = ids(await collect(model.generate([4, 5], options)));
    const dense = Float32Array.from({ length: 256 }, (_, id) => (id % 7) - 3);
    const pairs = Array.from(dense, (value, id) => [id, value]).filter(([, value]) => value !== 0);
    const fixed = await collect(model.generate([4, 5], { ...options, bias: dense }));
    const text = [4, 5];
    for (const { token } of fixed) {
      const logits = (await model.logits(text)).slice(-256).map((x, id) => x + dense[id]);
      close(logits[token], Math.max(...logits), 1e-4, "the likeliest with its bias");
      text.push(token);
    }
    ok(ids(fixed).join() !== greedy.join(), "a bias changes the text");
    equal(await collect(model.generate([4, 5], { ...options, bias: pairs })), fixed, "as pairs");
    const copied = pairs.map((pair) => [...pair]);
    const late = model.generate([4, 5], { ...options, bias: copied });
    for (const pair of copied) pair[1] = 9;
    equal(await collect(late), fixed, "those of the call");

    const allowed = [10, 20, 30];
    const mask = new Float32Array(256).fill(-Infinity);
    for (const id of allowed) mask[id] = 0;
    const hot = { maxTokens: 40, temperature: 5, seed: 2 };
    const masked = ids(await collect(model.generate([4], { ...hot, bias: mask })));
    equal(masked.length, 40);
    equal([...new Set(masked)].sort(), allowed, "only what is left, and all of it");

    const seen = [];
    const bias = async (tokens) => {
      seen.push([...tokens]);
      await model.logits([1]); // other calls on the model may be awaited
      if (seen.length % 4 === 0) return undefined;
      return seen.length % 2 ? mask : [[77, 1000]];
    };
    const stepped = ids(await collect(model.generate([4, 5], { ...options, bias })));
    equal(
      seen,
      stepped.map((_, n) => [4, 5, ...stepped.slice(0, n)]),
      "called with the text",
    );
    stepped.forEach((token, n) => {
      if (n % 4 === 1) equal(token, 77, "the biased token");
      if (n % 2 === 0) ok(allowed.includes(token), `${token} is masked`);
    });
    model.free();
  },

  async "submits with alternatives and biases"(host) {
    const model = await make(host);
    const submits = async (options) => {
      // Twice: the second time the cache is there.
      let before = 0;
      for (let turn = 0; turn < 2; turn++) {
        before = host.runtime._counters().submits;
        const given = await collect(
          model.generate([turn], { maxTokens: 30, temperature: 0, ...options }),
        );
        equal(given.length, 30);
      }
      return host.runtime._counters().submits - before;
    };
    const [plain, fixed, stepped] = await withStillClock(async () => [
      await submits({}),
      await submits({ alternatives: 3, bias: [[1, 2]] }),
      await submits({ bias: () => [[1, 2]] }),
    ]);
    ok(fixed <= 2 * plain + 3, `${fixed} submits, and ${plain} without`);
    ok(stepped >= 30 && stepped <= 60, `${stepped} submits for 30 tokens`);
    model.free();
    return `${plain} submits for 30 tokens, ${fixed} with both, ${stepped} with a function`;
  },

  async "biases that are none"(host) {
    const model = await make(host);
    const run = (bias) => collect(model.generate([1], { maxTokens: 2, bias }));
    for (const wrong of [1, "a", {}, null, new Float64Array(256)]) {
      await refuses("invalid-options", ["bias is", "Float32Array"], () => run(wrong));
    }
    for (const wrong of [[1], [[256, 1]], [[-1, 1]], [[1.5, 1]], [[1, "2"]], [[1]], [[1, 2, 3]]]) {
      await refuses("invalid-options", ["pairs", "256"], () => run(wrong));
      await refuses("invalid-options", ["pairs", "256"], () => run(() => wrong));
    }
    await refuses("invalid-options", ["256"], () => run(new Float32Array(255)));
    for (const value of [Number.NaN, Infinity, 2e9, -2e9]) {
      await refuses("invalid-options", ["token 3", "-1e9"], () => run([[3, value]]));
      await refuses("invalid-options", ["token 3", "-1e9"], () => run(async () => [[3, value]]));
    }
    await refuses("invalid-options", ["every token"], () =>
      run(new Float32Array(256).fill(-Infinity)),
    );
    const thrown = new Error("mine");
    const error = await refuses("invalid-options", ["bias", "mine"], () =>
      run(() => {
        throw thrown;
      }),
    );
    equal(error.cause, thrown);
    equal((await run([])).length, 2, "no pair is none");
    model.free();
  },

  async "a wait for a bias or a decoder ends with the signal, and with the model"(host) {
    const never = () => new Promise(() => {});
    const calls = {
      bias: (model, signal) => model.generate([1], { bias: never, signal }),
      decoder: (model, signal) => model.generate([1], { tokenizer: { decoder: never }, signal }),
      "a batch's": (model, signal) =>
        model.generateBatch([[1]], { tokenizer: { decoder: never }, signal }),
    };
    for (const [name, call] of Object.entries(calls)) {
      const model = await make(host);
      const controller = new AbortController();
      const stopped = call(model, controller.signal).next();
      const refused = refuses("aborted", "generate", () => stopped);
      await pause(20);
      controller.abort();
      await soon(name, refused);
      const [one, other] = [call(model).next(), call(model, new AbortController().signal).next()];
      const both = [one, other].map((waits) => refuses("freed", "Model", () => waits));
      await pause(20);
      model.free();
      await soon(name, Promise.all(both));
    }
    const model = await make(host);
    const adapter = await host.tinyloom.Adapter.create(model, { rank: 2 });
    const waits = model.generate([1], { bias: never, adapter }).next();
    const refused = refuses("freed", "Adapter", () => waits);
    await pause(20);
    adapter.free();
    await soon("an adapter", refused);
    equal((await collect(model.generate([1], { maxTokens: 2 }))).length, 2, "the model goes on");
    model.free();
  },

  async "tokenizers and stop strings that are none"(host) {
    const model = await make(host);
    const tokenizer = new host.tinyloom.ByteTokenizer();
    const run = (options) => collect(model.generate([1], { maxTokens: 2, ...options }));
    await refuses("invalid-options", ["stop", "tokenizer"], () => run({ stop: ["a"] }));
    for (const stop of ["a", [""], [1], {}, null]) {
      await refuses("invalid-options", ["stop is", "strings"], () => run({ stop, tokenizer }));
    }
    for (const wrong of [1, {}, null, "bytes"]) {
      await refuses("invalid-options", ["tokenizer is"], () => run({ tokenizer: wrong }));
    }
    await refuses("invalid-options", ["decoder()", "push()"], () =>
      run({ tokenizer: { decoder: () => ({}) } }),
    );
    const thrown = new Error("mine");
    const throwing = {
      decoder: () => ({
        push() {
          throw thrown;
        },
        end: () => "",
      }),
    };
    const error = await refuses("invalid-options", ["mine"], () => run({ tokenizer: throwing }));
    equal(error.cause, thrown);
    const late = { decoder: async () => Promise.reject(thrown) };
    for (const work of [
      () => run({ tokenizer: late }),
      () => model.generateBatch([[1]], { tokenizer: late }),
    ]) {
      equal((await refuses("invalid-options", ["decoder", "mine"], work)).cause, thrown);
    }
    equal((await run({ tokenizer, stop: [] })).length, 2, "no stop string is none");
    const holes = [];
    holes[1] = "a";
    await refuses("invalid-options", ["stop is"], () => run({ tokenizer, stop: holes }));
    await refuses("invalid-options", ["bias is [256,1]"], () => run({ bias: [[256, 1]] }));
    // The model goes on as before.
    equal((await run({})).length, 2);
    model.free();
  },
};
