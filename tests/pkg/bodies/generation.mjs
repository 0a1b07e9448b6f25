// What generate does besides drawing tokens: text, stop strings.
import { equal, ok, refuses } from "./assert.mjs";
import { collect, config } from "./kit.mjs";

const make = ({ tinyloom, runtime }) => tinyloom.Model.create(runtime, config, { seed: 11 });
const ids = (given) => given.map(({ token }) => token);
const textOf = (given) => given.map(({ text }) => text).join("");

/** Pseudo-random whole numbers below `below`. */
export function numbers(seed) {
  let state = seed >>> 0;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** A tokenizer whose ids are pieces of some bytes of this text: characters and words cross their borders. */
function pieces(seed) {
  const bytes = new TextEncoder().encode("ab\n aé\nb😀 User: ab");
  const next = numbers(seed);
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
    for (let seed = 1; seed <= 12; seed++) {
      const tokenizer = pieces(seed);
      const next = numbers(seed + 100);
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
    ok(stopped > 20 && across > 3, `${stopped} texts stopped, ${across} within a token`);
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
    equal((await run({ tokenizer, stop: [] })).length, 2, "no stop string is none");
    // The model goes on as before.
    equal((await run({})).length, 2);
    model.free();
  },
};
