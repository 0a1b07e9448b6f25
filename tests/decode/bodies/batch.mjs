// Several texts at once, and what users build speculation of: each text is what generate gives for its prompt.

import { close, equal, ok, refuses } from "../../api/bodies/assert.mjs";
import {
  batch as batchOf,
  collect,
  config,
  overflowing,
  trainerOptions,
  waitFor,
} from "../../api/bodies/kit.mjs";
import { below, numbers } from "../../random.mjs";

const make = ({ tinyloom, runtime }, more) =>
  tinyloom.Model.create(runtime, { ...config, ...more }, { seed: 11 });
const ids = (given) => given.map(({ token }) => token);
const textOf = (given) => given.map(({ text }) => text).join("");

/** Prompts of ragged lengths, one of a single token. */
function ragged(count, seed = 1) {
  const next = below(numbers(seed));
  const lengths = Array.from({ length: count }, (_, i) => (i === 1 ? 1 : 2 + next(20)));
  return lengths.map((length) => Uint32Array.from({ length }, () => next(256)));
}

/** What came, by prompt. */
async function byPrompt(prompts, iterable) {
  const texts = prompts.map(() => []);
  for await (const { index, ...drawn } of iterable) texts[index].push(drawn);
  return texts;
}

/** Holds each text of a batch to a generation of its own, with the seed 0 where none is given. */
async function sameAsAlone(model, prompts, given) {
  const options = { seed: 0, ...given };
  const texts = await byPrompt(prompts, model.generateBatch(prompts, options));
  for (const [index, one] of prompts.entries()) {
    const own = one.prompt ? one : { prompt: one };
    const { prompt, ...rest } = own;
    const alone = await collect(model.generate(prompt, { ...options, ...rest }));
    equal(ids(texts[index]), ids(alone), `text ${index} of ${prompts.length}`);
    for (const [at, { logprob }] of alone.entries()) {
      close(texts[index][at].logprob, logprob, 2e-3, `log-probability ${at} of text ${index}`);
    }
    equal(texts[index].map(({ text }) => text).join(""), textOf(alone), `what text ${index} says`);
  }
  return texts;
}

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["firefox"],
  why: "as for decoding; another compiler sees the kernels of several rows in the lanes",
  core: 6,
  smoke: [
    "texts are those of generate, whatever their neighbours are",
    "a lost device in the midst of a batch",
    "prompt lookup changes no text",
  ],
};

export const cases = {
  async "texts are those of generate, whatever their neighbours are"(host) {
    const model = await make(host);
    const options = { maxTokens: 20, temperature: 0 };
    const many = ragged(16);
    const texts = await sameAsAlone(model, many, options);
    equal(await sameAsAlone(model, many.slice(0, 1), options), texts.slice(0, 1), "one");
    const three = [many[2], many[7], many[1]];
    equal(
      (await sameAsAlone(model, three, options)).map(ids),
      [2, 7, 1].map((index) => ids(texts[index])),
      "three",
    );
    model.free();
  },

  async "every pair of formats"(host) {
    const model = await make(host);
    for (const [kvCache, weights] of [
      ["f16", "f32"],
      ["int8", "f16"],
      ["f32", "int8"],
      ["f16", "int4"],
    ]) {
      await sameAsAlone(model, ragged(3, 5), { maxTokens: 12, temperature: 0, kvCache, weights });
    }
    model.free();
  },

  async "each prompt may have options of its own"(host) {
    const model = await make(host);
    const prompt = [4, 5, 6];
    const shared = { maxTokens: 14, temperature: 1.3 };
    const prompts = [
      prompt,
      { prompt, seed: 0 },
      { prompt, seed: 2, topK: 9 },
      { prompt, temperature: 0, maxTokens: 3 },
      { prompt, seed: 3, repetitionPenalty: 1.4, minP: 0.01 },
    ];
    const texts = await sameAsAlone(model, prompts, shared);
    equal(ids(texts[0]), ids(texts[1]), "the seed of the call");
    ok(ids(texts[0]).join() !== ids(texts[2]).join(), "another seed, another text");
    equal(texts[3].length, 3);
    const stop = texts[0][4].token;
    prompts[0] = { prompt, stopTokens: [stop] };
    const stopped = await sameAsAlone(model, prompts, shared);
    ok(stopped[0].length <= 4 && stopped[1].length === 14, "a stop token ends its own text alone");
    const full = [Uint32Array.from({ length: 64 }, (_, i) => i), prompt];
    const ended = await sameAsAlone(model, full, { ...shared, maxTokens: 0xffff_ffff });
    equal(
      ended.map(({ length }) => length),
      [0, 61],
      "texts end with the model's positions",
    );
    model.free();
  },

  async "texts with their strings, and stop strings"(host) {
    const model = await make(host);
    const tokenizer = new host.tinyloom.ByteTokenizer();
    const letters = { decoder: () => ({ push: (token) => "abcd"[token % 4], end: () => "." }) };
    const options = { maxTokens: 24, temperature: 1.2 };
    const prompts = ragged(4, 3);
    await sameAsAlone(model, prompts, { ...options, tokenizer });
    const texts = await sameAsAlone(model, prompts, { ...options, tokenizer: letters });
    const stop = [textOf(texts[0]).slice(5, 9), "no such text"];
    const cut = await sameAsAlone(model, prompts, { ...options, tokenizer: letters, stop });
    ok(textOf(cut[0]).length <= 5, "a stop string ends its text");
    const own = prompts.map((prompt, index) => (index === 0 ? { prompt, stop } : prompt));
    const one = await sameAsAlone(model, own, { ...options, tokenizer: letters });
    equal(one.slice(1), texts.slice(1), "and no other one");
    model.free();
  },

  async "prompts and options are those of the call"(host) {
    const model = await make(host);
    const [first, second] = [Uint32Array.of(1, 2), [3, 4]];
    const stopTokens = [255];
    const options = { maxTokens: 5, temperature: 0 };
    const expected = await byPrompt(
      [0, 1],
      model.generateBatch(
        [
          [1, 2],
          [3, 4],
        ],
        options,
      ),
    );
    const prompts = [first, { prompt: second, stopTokens }];
    const given = { ...options };
    const late = model.generateBatch(prompts, given);
    first.fill(0);
    second[0] = 0;
    stopTokens[0] = expected[1][0].token;
    given.maxTokens = 1;
    prompts.pop();
    equal((await byPrompt([0, 1], late)).map(ids), expected.map(ids));
    model.free();
  },

  async "a signal, a break, others beside it, and a model freed in the midst"(host) {
    const model = await make(host);
    const options = { maxTokens: 40, temperature: 0 };
    const prompts = ragged(3, 7);
    const whole = await byPrompt(prompts, model.generateBatch(prompts, options));
    const controller = new AbortController();
    let count = 0;
    await refuses("aborted", [], async () => {
      const { signal } = controller;
      for await (const _ of model.generateBatch(prompts, { ...options, signal })) {
        if (++count === 7) controller.abort();
      }
    });
    equal(count, 7, "no token after the signal");
    await refuses("aborted", [], () =>
      model.generateBatch(prompts, { ...options, signal: AbortSignal.abort() }),
    );
    for await (const _ of model.generateBatch(prompts, options)) break;
    const both = await Promise.all([
      byPrompt(prompts, model.generateBatch(prompts, options)),
      byPrompt(prompts, model.generateBatch(prompts, options)),
      collect(model.generate(prompts[0], options)),
      model.loss(prompts[2]),
    ]);
    equal(
      both.slice(0, 2).map((texts) => texts.map(ids)),
      [whole, whole].map((x) => x.map(ids)),
    );
    equal(ids(both[2]), ids(whole[0]));
    const bytes = model.gpuBytes;
    const running = model.generateBatch(prompts, options);
    await running.next();
    ok(model.gpuBytes > bytes, "a batch has a cache of its own");
    model.free();
    await refuses("freed", ["Model"], () => collect(running));
    const other = await make(host);
    await refuses("freed", ["Model"], async () => {
      for await (const _ of other.generateBatch([[1], [2]], { maxTokens: 1 })) other.free();
    });
  },

  async "a text whose logits are not finite ends by itself, and then the error names it"(host) {
    const { Model } = host.tinyloom;
    const untied = { ...config, tie_word_embeddings: false };
    const seeded = await Model.create(host.runtime, untied, { seed: 11 });
    const files = await seeded.save();
    seeded.free();
    const token = 200;
    const model = await Model.fromPretrained(host.runtime, overflowing(files, untied, token));
    const prompts = [[1, 2, 3], [7, token], [4], [token], [6, 8]];
    const letters = { decoder: () => ({ push: (token) => "abcd"[token % 4], end: () => "." }) };
    const options = { maxTokens: 20, temperature: 0 };
    for (const more of [
      {},
      { tokenizer: letters },
      { tokenizer: letters, stop: ["no such text"] },
    ]) {
      const all = { ...options, ...more };
      const texts = prompts.map(() => []);
      await refuses("non-finite", ["prompts[1]", "not finite"], async () => {
        for await (const { index, ...drawn } of model.generateBatch(prompts, all)) {
          texts[index].push(drawn);
        }
      });
      for (const [index, prompt] of prompts.entries()) {
        if (prompt.includes(token)) equal(texts[index].length, 0, `tokens of text ${index}`);
        else {
          const alone = await collect(model.generate(prompt, all));
          equal(ids(texts[index]), ids(alone), `text ${index}`);
          equal(textOf(texts[index]), textOf(alone), `what text ${index} says`);
        }
      }
    }
    model.free();
  },

  async "prompts that are read together, alike or longer than that are those of generate"(host) {
    const model = await make(host, { max_position_embeddings: 512 });
    const next = below(numbers(9));
    const text = (length) => Uint32Array.from({ length }, () => next(256));
    const options = { maxTokens: 6, temperature: 0 };
    const alike = text(70);
    await sameAsAlone(model, [text(63), text(64), text(65), text(2)], options);
    await sameAsAlone(model, [alike, alike.slice(0, 60), alike], options);
    await sameAsAlone(model, [text(9), text(300), text(40)], options);
    model.free();
  },

  async "a batch gives its memory back, and an estimate says how much it takes"(host) {
    const { tinyloom, runtime } = host;
    const bytesOf = () => runtime._counters().gpuBytes;
    await runtime.device.queue.onSubmittedWorkDone();
    const empty = bytesOf();
    const model = await make(host);
    const prompts = ragged(6, 9);
    const generate = { tokens: 60, sequences: 6 };
    const { bytes, operations } = await tinyloom.estimate(
      { ...config },
      { generate },
      runtime.capabilities,
    );
    const one = await tinyloom.estimate(config, { generate: { tokens: 60 } }, runtime.capabilities);
    const options = { maxTokens: 60 - Math.max(...prompts.map(({ length }) => length)) };
    const running = model.generateBatch(prompts, options);
    await running.next();
    equal(bytesOf() - empty, bytes.total, "bytes while it runs");
    equal(model.gpuBytes, bytes.total, "gpuBytes");
    ok(bytes.cache > 6 * one.bytes.cache && operations.token > 0, "a cache for each text");
    await running.return();
    await waitFor("the memory of a batch", () => bytesOf() - empty === one.bytes.total);
    // Nobody ends this one.
    await model.generateBatch(prompts, options).next();
    model.free();
    await waitFor("the memory of a freed model", () => bytesOf() === empty);
  },

  async "nonsense is refused"(host) {
    const model = await make(host);
    const wrong = (words, prompts, options, code = "invalid-options") =>
      refuses(code, words, () => model.generateBatch(prompts, options));
    for (const prompts of [[], undefined, null, "text", 7, {}, new Uint32Array([1, 2])]) {
      await wrong(["generateBatch takes an array of prompts"], prompts);
    }
    const tokens = "invalid-tokens";
    await wrong(["prompts[0] is 1"], [1, 2, 3], {}, tokens);
    await wrong(["prompts[1] is empty"], [[1], []], {}, tokens);
    await wrong(["prompts[1][0] is 1.5"], [[1], [1.5]], {}, tokens);
    await wrong(["prompts[1]", "tokens[1] is 256"], [[1], [2, 256]], {}, tokens);
    await wrong(["prompts[1] is undefined"], [[1], {}], {}, tokens);
    await wrong(["prompts[1] has 65 tokens", "64"], [[1], new Uint32Array(65)], {}, tokens);
    await wrong(["takes 1 to 256 prompts", "257"], Array(257).fill([1]));
    await wrong(["takes 1 to 256 prompts"], new Array(1e7));
    const holes = [];
    holes[1] = [1];
    await wrong(["prompts[0] is undefined"], holes, {}, tokens);
    const tokenizer = new host.tinyloom.ByteTokenizer();
    await wrong(["prompts[0] is undefined"], new Array(3), { tokenizer }, tokens);
    const once = () => {
      let reads = 0;
      return {
        get adapter() {
          if (reads++) throw new Error("a second read");
          return undefined;
        },
        maxTokens: 1,
      };
    };
    equal((await byPrompt([0], model.generateBatch([[1]], once())))[0].length, 1);
    const seeded = { seed: 5, maxTokens: 12 };
    const own = (more) => byPrompt([0], model.generateBatch([{ prompt: [1], ...more }], seeded));
    equal(ids((await own({ seed: undefined }))[0]), ids((await own({}))[0]), "an undefined seed");
    // A refusal lists what is taken there, and nothing that is refused itself.
    const said = async (message, ...call) => equal((await wrong([], ...call)).message, message);
    const both = "repetitionPenalty, seed, stopTokens, stop";
    const all = `it takes maxTokens, temperature, topK, topP, minP, ${both}, adapter, adapters`;
    const of = `${both}, tokenizer, skipSpecialTokens, kvCache, weights, adapter, adapters`;
    const takes = `it takes maxTokens, temperature, topK, topP, minP, ${of}, interventions, signal`;
    for (const more of [{ alternatives: 2 }, { bias: [[1, 2]] }, { promptLookup: true }]) {
      const [name] = Object.keys(more);
      await said(`generateBatch has no option "${name}"; ${takes}`, [[1]], more);
      const one = [[1], { prompt: [1], ...more }];
      await said(`generateBatch: prompts[1] has no option "${name}"; ${all}`, one);
    }
    for (const more of [{ kvCache: "f16" }, { weights: "int8" }, { tokenizer }]) {
      const [name] = Object.keys(more);
      const one = [{ prompt: [1], ...more }];
      await said(`generateBatch: prompts[0] has no option "${name}"; ${all}`, one);
    }
    const { signal } = new AbortController();
    await wrong(["generateBatch"], [{ prompt: [1], signal }]);
    await wrong(["generateBatch", 'no option "heat"'], [{ prompt: [1], heat: 3 }]);
    const endless = { prompt: [1] };
    endless.heat = [endless, endless];
    await wrong(["generateBatch", 'no option "heat"'], [endless]);
    // Copied to its end it would take 2 to the 40th copies.
    let wide = [1];
    for (let level = 0; level < 40; level++) wide = [wide, wide];
    await wrong(["prompts[0][0] is an array"], [wide], {}, tokens);
    await wrong(["temperature is -1"], [{ prompt: [1], temperature: -1 }]);
    await wrong(["stop needs the tokenizer"], [{ prompt: [1], stop: ["a"] }]);
    await wrong(["generateBatch takes a plain object"], [[1]], 5);
    await wrong(["stopTokens has 256"], [[1]], { stopTokens: [256] });
    model.free();
    await refuses("freed", ["Model"], () => model.generateBatch([[1]]));
  },

  async "prompts that are no tokens are named with what they are"(host) {
    const model = await make(host);
    const wrong = (words, prompts) =>
      refuses("invalid-tokens", words, () => model.generateBatch(prompts));
    const detached = Uint32Array.of(1, 2);
    structuredClone(detached, { transfer: [detached.buffer] });
    await wrong(["prompts[1] is empty", "transferred"], [[1], detached]);
    for (const one of [new DataView(new ArrayBuffer(4)), new Map(), new ArrayBuffer(8)]) {
      await wrong([`prompts[0] is an object (${one.constructor.name})`], [one]);
    }
    await wrong(["prompts[0] is an object (Uint32Array)"], [new Proxy(detached, {})]);
    model.free();
  },

  async "a signal ends a batch while it reads its prompts"(host) {
    const model = await make(host, { max_position_embeddings: 512 });
    const prompts = Array.from({ length: 64 }, (_, i) => new Uint32Array(300).fill(i));
    const controller = new AbortController();
    const begun = model.generateBatch(prompts, { signal: controller.signal, maxTokens: 2 }).next();
    const ended = refuses("aborted", ["generateBatch"], () => begun);
    const read = model.loss([1, 2, 3]); // waits behind it
    await new Promise((done) => setTimeout(done, 20));
    controller.abort();
    await ended;
    ok(Number.isFinite(await read), "the model goes on");
    const freed = model.generateBatch(prompts, { maxTokens: 2 }).next();
    const refused = refuses("freed", ["Model"], () => freed);
    await new Promise((done) => setTimeout(done, 20));
    model.free();
    await refused;
  },

  async "lookup goes on without checks where memory is short"(host) {
    const { tinyloom, gpu } = host;
    const text = Array.from({ length: 24 }, (_, i) => [3, 14, 15, 9][i % 4]);
    const options = { maxTokens: 40, temperature: 0 };
    const probe = await make(host);
    const expected = ids(await collect(probe.generate(text, options)));
    probe.free();
    const generate = { tokens: 64 };
    const { bytes } = await tinyloom.estimate(config, { generate }, host.runtime.capabilities);
    const runtime = await tinyloom.Runtime.create({ gpu, memoryBudget: bytes.total + 200 });
    const model = await tinyloom.Model.create(runtime, config, { seed: 11 });
    const looked = await collect(model.generate(text, { ...options, promptLookup: true }));
    equal(ids(looked), expected);
    runtime.destroy();
  },

  async "memory that is not there is refused with its sum"(host) {
    const { tinyloom, gpu } = host;
    const generate = { tokens: 64, sequences: 64 };
    const { bytes } = await tinyloom.estimate(config, { generate }, host.runtime.capabilities);
    const runtime = await tinyloom.Runtime.create({ gpu, memoryBudget: bytes.total - 400_000 });
    const model = await tinyloom.Model.create(runtime, config);
    const prompts = Array(64).fill([1, 2]);
    await refuses(
      "out-of-memory",
      ["64 sequences of up to 64 tokens", "key-value cache", "fewer or shorter prompts"],
      () => model.generateBatch(prompts, { maxTokens: 62 }),
    );
    const texts = await byPrompt([0, 1], model.generateBatch([[1], [2]], { maxTokens: 3 }));
    equal(
      texts.map(({ length }) => length),
      [3, 3],
      "fewer go",
    );
    runtime.destroy();
  },

  async "a batch follows the weights, and an adapter"(host) {
    const { Adapter, Trainer } = host.tinyloom;
    const model = await make(host);
    const prompts = ragged(2, 4);
    const options = { maxTokens: 16, temperature: 0 };
    const adapter = await Adapter.create(model, { rank: 4, seed: 3 });
    const tuner = await Trainer.create(adapter, { ...trainerOptions, learningRate: 0.1 });
    await tuner.step(batchOf(32));
    await sameAsAlone(model, prompts, { ...options, adapter });
    const trainer = await Trainer.create(model, { ...trainerOptions, learningRate: 0.1 });
    const texts = prompts.map(() => []);
    let trained = false;
    for await (const { index, token } of model.generateBatch(prompts, {
      ...options,
      maxTokens: 40,
    })) {
      texts[index].push(token);
      if (trained) continue;
      trained = true;
      await trainer.step(batchOf(32));
    }
    equal(
      texts.map(({ length }) => length),
      [40, 40],
      "it goes on with the new weights",
    );
    model.free();
  },

  async "a lost device in the midst of a batch"(host) {
    const { tinyloom, gpu } = host;
    const runtime = await tinyloom.Runtime.create({ gpu, recover: true });
    const model = await tinyloom.Model.create(runtime, config, { seed: 11 });
    const tokenizer = { decoder: () => ({ push: (token) => "abcd"[token % 4], end: () => "" }) };
    const options = { maxTokens: 30, temperature: 1, tokenizer };
    const prompts = ragged(3, 6).map((prompt, seed) => ({
      prompt,
      seed,
      maxTokens: 30 - 9 * seed,
    }));
    const whole = await byPrompt(prompts, model.generateBatch(prompts, options));
    const texts = prompts.map(() => []);
    let count = 0;
    for await (const { index, ...drawn } of model.generateBatch(prompts, options)) {
      texts[index].push(drawn);
      if (++count === 40) runtime.simulateLoss();
    }
    equal(texts.map(ids), whole.map(ids), "no token twice, and none missing");
    equal(texts.map(textOf), whole.map(textOf));
    runtime.destroy();
  },

  async "prompt lookup changes no text"(host) {
    const model = await make(host);
    const round = Array.from({ length: 24 }, (_, i) => [3, 14, 15, 9][i % 4]);
    for (const options of [
      { temperature: 0 },
      { temperature: 0.2, seed: 3, topK: 40 },
      { temperature: 0, kvCache: "int8", weights: "int4" },
    ]) {
      const plain = await collect(model.generate(round, { ...options, maxTokens: 40 }));
      const looked = { ...options, maxTokens: 40, promptLookup: true };
      equal(ids(await collect(model.generate(round, looked))), ids(plain));
    }
    const long = await make(host, { max_position_embeddings: 512 });
    const most = { temperature: 0, maxTokens: 400 };
    const plain = ids(await collect(long.generate(round, most)));
    equal(ids(await collect(long.generate(round, { ...most, promptLookup: true }))), plain, "long");
    const refused = (more) => () => model.generate(round, { promptLookup: true, ...more });
    await refuses("invalid-options", ["promptLookup"], refused({ alternatives: 2 }));
    await refuses("invalid-options", ["promptLookup"], refused({ bias: [[1, 1]] }));
    await refuses("invalid-options", ["promptLookup"], refused({ bias: () => undefined }));
    await refuses("invalid-options", ["promptLookup"], refused({ repetitionPenalty: 1.1 }));
    await refuses("invalid-options", ["promptLookup is 8"], refused({ promptLookup: 8 }));
    long.free();
    model.free();
  },

  async "logits from a position on, and speculation built of them"(host) {
    const model = await make(host);
    const [text] = ragged(1, 8);
    const whole = await model.logits(text);
    for (const from of [0, 1, text.length - 1]) {
      const some = await model.logits(text, { from });
      equal(some.length, (text.length - from) * 256);
      const rest = whole.subarray(from * 256);
      for (const [at, x] of some.entries()) close(x, rest[at], 2e-3, `logit ${at} from ${from}`);
    }
    await refuses("invalid-options", ["from is", "below"], () =>
      model.logits(text, { from: text.length }),
    );
    await refuses("invalid-options", ["from is -1"], () => model.logits(text, { from: -1 }));
    await refuses("invalid-options", ['no option "from"'], () =>
      model.loss(text, undefined, { from: 1 }),
    );
    // A draft is checked in one call; what is wrong of it goes back with the next one.
    const expected = ids(await collect(model.generate(text, { maxTokens: 20, temperature: 0 })));
    const tokens = [...text];
    const end = tokens.length + 20;
    while (tokens.length < end) {
      const draft = expected.slice(tokens.length - text.length).slice(0, 4);
      draft[2] = (draft[2] ?? 0) ^ (tokens.length % 2);
      const rows = await model.logits([...tokens, ...draft], { from: tokens.length - 1 });
      for (let row = 0; tokens.length < end; row++) {
        const own = rows.subarray(row * 256, (row + 1) * 256);
        tokens.push(own.indexOf(Math.max(...own)));
        if (draft[row] !== tokens.at(-1)) break;
      }
    }
    equal(tokens.slice(text.length), expected);
    model.free();
  },
};
