// What tokenizers, their files and those of datasets may not be: each is refused with a code of its own.
import { equal, ok, refuses } from "../../api/bodies/assert.mjs";
import { collect, config, text } from "../../api/bodies/kit.mjs";

const boom = () => {
  throw new Error("boom");
};

/** A value each of whose traps throws. */
const trap = (target = {}) => new Proxy(target, { get: boom, getPrototypeOf: boom, ownKeys: boom });

function detached(array) {
  structuredClone(array.buffer, { transfer: [array.buffer] });
  return array;
}

const encoded = (value) => new TextEncoder().encode(JSON.stringify(value));
const parsed = (bytes) => JSON.parse(new TextDecoder().decode(bytes));

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["node"],
  why: "refused in TypeScript; detached arrays and errors of proxies are the engine's",
  smoke: ["ids, texts and documents that cannot be read"],
};

export const cases = {
  async "a tokenizer's endToken that is none of its ids"({ tinyloom }) {
    const { Dataset } = tinyloom;
    const made = (endToken, options) =>
      Dataset.fromDocuments(
        ["a", "b"],
        { vocabSize: 256, endToken, encode: () => [7, 8] },
        { validationFraction: 0, ...options },
      );
    for (const wrong of [-1, NaN, 1.5, 256, 2 ** 40, "x", true, {}]) {
      await refuses("invalid-options", ["endToken", "255"], () => made(wrong));
    }
    equal((await made(255)).tokens, 6);
    equal((await made(undefined)).tokens, 4);
    equal((await made(null)).tokens, 4);
    equal((await made("x", { endToken: 3 })).tokens, 6, "with an option of its own");
  },

  async "an encode that fails, at once or later"({ tinyloom }) {
    const { Dataset, BpeTokenizer } = tinyloom;
    const failing = [boom, () => Promise.reject(new Error("boom")), () => Promise.reject(3)];
    for (const encode of failing) {
      const tokenizer = { vocabSize: 256, encode };
      for (const make of [
        () => Dataset.fromText("abc", tokenizer),
        () => Dataset.from(new Blob(["abc"]), tokenizer),
        () => Dataset.fromDocuments(["abc"], tokenizer),
      ]) {
        await refuses("invalid-options", ["the tokenizer's encode threw"], make);
      }
    }
    // What `indexOf` gives of a letter that an alphabet lacks.
    for (const Ids of [Array, Uint32Array]) {
      const tokenizer = { vocabSize: 256, encode: () => Ids.of(3, -1) };
      for (const make of [
        () => Dataset.fromText("abc", tokenizer),
        () => Dataset.from(new Blob(["abc"]), tokenizer),
        () => Dataset.fromDocuments(["abc"], tokenizer),
      ]) {
        await refuses("invalid-tokens", ["encode(text)[1] is -1", "from 0"], make);
      }
    }
    for (const wrong of [7, null, new URL("https://a.example/b")]) {
      await refuses("invalid-options", ["Dataset.fromText", "a string or a Blob"], () =>
        Dataset.fromText(wrong, new tinyloom.ByteTokenizer()),
      );
    }
    const told = await refuses("invalid-options", ["vocabSize: a whole number"], () =>
      BpeTokenizer.train("abc"),
    );
    ok(!told.message.includes("leave it out"), told.message);
    const junk = { "tokenizer.json": new Blob(["junk"]) };
    const damaged = await refuses("invalid-checkpoint", ["tokenizer.json is not JSON"], () =>
      tinyloom.Tokenizer.fromPretrained(junk),
    );
    ok(!damaged.message.includes("unexpected"), damaged.message);
  },

  async "a damaged tokenizer.json"({ tinyloom }) {
    const { BpeTokenizer, Tokenizer } = tinyloom;
    const trained = await BpeTokenizer.train("the cat sat on the mat. ".repeat(50), {
      vocabSize: 300,
    });
    const whole = parsed(trained.save()["tokenizer.json"]);
    const load = (json) => Tokenizer.fromPretrained({ "tokenizer.json": encoded(json) });
    const refused = (word, change) => {
      const json = structuredClone(whole);
      change(json);
      return refuses("invalid-checkpoint", ["tokenizer.json", word], () => load(json));
    };
    for (const value of [null, 5, "x", [], undefined]) {
      await refused("model", (json) => {
        json.model = value;
      });
      await refused("vocab", (json) => {
        json.model.vocab = value;
      });
    }
    for (const value of [undefined, null, 5, {}, [null], [["a"]], ["a b c"], [[1, 2]]]) {
      await refused("merges", (json) => {
        json.model.merges = value;
      });
    }
    for (const value of [-1, 1.5, "x", null, 1e300]) {
      await refused("vocab", (json) => {
        json.model.vocab.a = value;
      });
      await refused("added_tokens", (json) => {
        json.added_tokens[0].id = value;
      });
    }
    for (const value of [{}, 5, [null], [5], [{ id: 1, content: 5 }]]) {
      await refused("added_tokens", (json) => {
        json.added_tokens = value;
      });
    }
    // A table of so many ids is longer than any memory.
    for (const id of [2 ** 31 - 1, 2 ** 22]) {
      await refused("vocab", (json) => {
        json.model.vocab.a = id;
      });
      await refused("added_tokens", (json) => {
        json.added_tokens[0].id = id;
      });
    }
    await refused('"a"', (json) => {
      json.model.vocab.a = json.model.vocab.b;
    });
    // An id is of one token, and a token has one id.
    await refused('another than that of "b"', (json) => {
      json.added_tokens[0].id = json.model.vocab.b;
    });
    await refused("another than that of", (json) => {
      json.added_tokens.push({ ...json.added_tokens[0], content: "<other>" });
    });
    await refused("as in model.vocab", (json) => {
      json.model.vocab[json.added_tokens[0].content] = 1000;
    });
    await refused("400, as in added_tokens", (json) => {
      const [one] = json.added_tokens;
      json.added_tokens.push(
        { ...one, id: 400, content: "<x>" },
        { ...one, id: 401, content: "<x>" },
      );
    });
    const merged = whole.model.merges[0].join("");
    await refused(merged, (json) => {
      delete json.model.vocab[merged];
    });
    const named = structuredClone(whole);
    Object.assign(named.model.vocab, { constr: 1000, uctor: 1001, constructor: 1002 });
    named.model.merges.push(["constr", "uctor"]);
    await refused("constr", (json) => {
      json.model.merges.push(["constr", "uctor"]);
    });
    delete named.added_tokens;
    // It has no such tokens: it goes to the other package, which is not installed here or refuses it.
    await load(named).then(
      (tokenizer) => equal([...tokenizer.encode("a")].length, 1),
      ({ code }) => ok(/^(module-unavailable|invalid-checkpoint)$/.test(code), code),
    );
    const loaded = await load(whole);
    equal(loaded.decode(loaded.encode("the cat")), "the cat");
  },

  async "a damaged tokenizer.json of Unigram"({ tinyloom }) {
    const words = ["<unk>", "\u2581a", "b", "a", "\u2581"];
    const whole = {
      added_tokens: [{ id: 5, content: "<s>" }],
      model: { type: "Unigram", unk_id: 0, vocab: words.map((word, at) => [word, -at]) },
    };
    const load = (json) => tinyloom.Tokenizer.fromPretrained({ "tokenizer.json": encoded(json) });
    // As whole files do, it goes to the other package.
    const taken = (change) => {
      const json = structuredClone(whole);
      change(json);
      return load(json).then(
        () => undefined,
        ({ code, message }) => ok(!/has to be/.test(message), `${code}: ${message}`),
      );
    };
    const refused = (word, change) => {
      const json = structuredClone(whole);
      change(json);
      return refuses("invalid-checkpoint", ["tokenizer.json", word], () => load(json));
    };
    await taken(() => {});
    await taken((json) => {
      json.model.unk_id = null;
    });
    await taken((json) => {
      json.model.vocab.push(["b", -9]); // a text twice, as some vocabularies have it
      json.added_tokens = [{ id: 2, content: "b" }];
    });
    await refused('another than that of "b"', (json) => {
      json.added_tokens[0].id = 2;
    });
    await refused("2, as in model.vocab", (json) => {
      json.added_tokens = [
        { id: 5, content: "<s>" },
        { id: 7, content: "b" },
      ];
    });
    await refused("5, as in added_tokens", (json) => {
      json.added_tokens.push({ id: 6, content: "<s>" });
    });
    for (const value of [99, 5, -1, 0.5, "0", {}]) {
      await refused("model.unk_id", (json) => {
        json.model.unk_id = value;
      });
    }
    for (const value of [null, 5, "a", [], ["a"], ["a", "b"], [1, 2]]) {
      await refused("model.vocab[2]", (json) => {
        json.model.vocab[2] = value;
      });
    }
  },

  async "a tokenizer.json whose merges have another order than its tokens"({ tinyloom }) {
    const { BpeTokenizer, Tokenizer } = tinyloom;
    const text = "the cat sat on the mat. ";
    const trained = await BpeTokenizer.train(text.repeat(50), { vocabSize: 300 });
    const json = parsed(trained.save()["tokenizer.json"]);
    const { model } = json;
    model.merges.reverse(); // what is made stands before what makes its parts
    const lone = "\u0120zebra";
    model.vocab[lone] = 1000; // made by no merge
    const loaded = await Tokenizer.fromPretrained({ "tokenizer.json": encoded(json) });
    const { length } = loaded.encode(text);
    ok(length < text.length, `${length} tokens`);
    equal(loaded.decode(loaded.encode(text)), text);
    for (const [token, id] of Object.entries(model.vocab)) {
      if (/^[a-z]+$/.test(token)) equal(loaded.decode([id]), token);
    }
    equal(loaded.decode([1000]), " zebra");
  },

  async "a damaged dataset.json"({ tinyloom }) {
    const { Dataset } = tinyloom;
    const files = await Dataset.fromTokens(
      Uint32Array.from({ length: 100 }, (_, i) => i),
      { seed: 1 },
    ).save();
    const load = (json) => Dataset.load({ ...files, "dataset.json": encoded(json) });
    const { crc32, ...whole } = parsed(files["dataset.json"]);
    ok(/^[0-9a-f]{8}$/.test(crc32), `its checksum: ${crc32}`);
    equal((await load({ ...whole, crc32 })).tokens, 100);
    equal((await load(whole)).tokens, 100, "of a file without a checksum");
    const changed = { ...whole, options: { ...whole.options, seed: 9 } };
    await refuses("invalid-checkpoint", ["crc32"], () => load({ ...changed, crc32 }));
    for (const options of [undefined, null, 5, [], { seed: -1 }, { sed: 1 }]) {
      await refuses("invalid-checkpoint", ["dataset.json"], () => load({ ...whole, options }));
    }
    await refuses("invalid-checkpoint", ["validationFraction"], () =>
      load({ ...whole, options: { validationFraction: 2 } }),
    );
    for (const [name, value] of Object.entries({
      tokens: -1,
      width: "1",
      documents: 0.5,
      learned: null,
      hash: 5,
      tokenizer: "x",
    })) {
      await refuses("invalid-checkpoint", [name], () => load({ ...whole, [name]: value }));
    }
    await refuses("invalid-checkpoint", ["dataset.json"], () => load(null));
  },

  async "decoders that give no text, and many stop strings"({ tinyloom, runtime }) {
    const model = await tinyloom.Model.create(runtime, config);
    const generated = (tokenizer, more = {}) =>
      collect(model.generate([1], { maxTokens: 2, tokenizer, ...more }));
    for (const value of [undefined, 5, null, ["a"], Promise.resolve("a")]) {
      const push = { decoder: () => ({ push: () => value, end: () => "" }) };
      const end = { decoder: () => ({ push: () => "a", end: () => value }) };
      for (const wrong of [push, end]) {
        await refuses("invalid-options", ["decoder", "strings", "promises"], () =>
          generated(wrong),
        );
      }
    }
    const stop = Array.from({ length: 150_000 }, (_, i) => `a stop string ${i}`);
    equal((await generated(new tinyloom.ByteTokenizer(), { stop })).length, 2);
    model.free();
  },

  async "tokenizers of one's own for conversations"({ tinyloom }) {
    const { Dataset } = tinyloom;
    const list = [[{ role: "user", content: "a" }]];
    const made = (more, options) =>
      Dataset.fromConversations(
        list,
        { vocabSize: 256, encode: () => [1, 2], ...more },
        { validationFraction: 0, ...options },
      );
    for (const chatTemplate of [null, undefined, 5, "", {}]) {
      await refuses("invalid-options", ["chat template", "{ template }"], () =>
        made({ chatTemplate }),
      );
    }
    const template = { template: "{{ 'text' }}", learn: "all" };
    for (const files of [undefined, null, {}, { "tokenizer_config.json": encoded(null) }]) {
      equal((await made({ save: () => files }, template)).tokens, 2);
    }
    const broken = { "tokenizer_config.json": encoded("x").subarray(1) };
    for (const save of [() => broken, boom]) {
      await refuses("invalid-options", ["save()"], () => made({ save }, template));
    }
  },

  async "chats in another form, and a template that renders nothing"({ tinyloom }) {
    const { ByteTokenizer, Dataset } = tinyloom;
    const byte = new ByteTokenizer();
    const made = (list, text) =>
      Dataset.fromConversations(list, byte, { template: `{{ "${text}" }}` });
    const list = [[{ role: "user", content: "a" }]];
    await refuses("invalid-options", ["conversation 0", "rendered nothing"], () => made(list, ""));
    const csv = "question,answer\na,b\n";
    for (const [file, ...words] of [
      [new File([csv], "chats.csv"), "chats.csv is CSV", "an array"],
      [new Blob([csv], { type: "text/csv" }), "is CSV", "an array"],
      [new Blob([csv]), "line 1 is not JSON", "an array"],
    ]) {
      await refuses("invalid-options", ["Dataset.fromConversations", ...words], () =>
        made(file, "a"),
      );
    }
  },

  async "conversations and completions of which nothing is to be learned"({ tinyloom }) {
    const { Dataset, ByteTokenizer } = tinyloom;
    const template =
      "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}" +
      "{% if add_generation_prompt %}a:{% endif %}";
    const asked = [{ role: "user", content: "why?" }];
    const answered = [...asked, { role: "assistant", content: "because" }];
    const of = (list, more) => {
      const options = { template, validationFraction: 0, ...more };
      return Dataset.fromConversations(list, new ByteTokenizer(), options);
    };
    const nothing = [
      "no token to learn",
      'no conversation has an answer (of role "assistant") in what',
      'learn: "all"',
    ];
    await refuses("invalid-tokens", nothing, () => of([asked, asked]));
    equal((await of([asked], { learn: "all" })).tokens, 7, "all of it is learned");
    equal((await of([asked, answered])).documents, 2, "documents with an answer among them");
    for (const list of [null, 5, {}, "text"]) {
      await refuses("invalid-options", "takes an array of conversations, a File", () => of(list));
    }
    const prompted = (completion) =>
      Dataset.fromDocuments([{ prompt: "why?", completion }], new ByteTokenizer(), {
        validationFraction: 0,
      });
    await refuses("invalid-tokens", ["every completion is empty"], () => prompted(""));
    equal((await prompted("a")).tokens, 5, "tokens with a completion");
    const short = (validationFraction) =>
      Dataset.fromDocuments(["a", "b"], new ByteTokenizer(), { validationFraction });
    for (const fraction of [0, 0.5]) {
      const { message } = await refuses("invalid-tokens", "documents for training", () =>
        short(fraction),
      );
      ok(!message.includes("validationFraction"), message);
    }
  },

  async "ids, texts and documents that cannot be read"({ tinyloom }) {
    const { BpeTokenizer, ByteTokenizer, Dataset } = tinyloom;
    const bpe = await BpeTokenizer.train(text, { vocabSize: 280 });
    const byte = new ByteTokenizer();
    for (const tokenizer of [bpe, byte]) {
      for (const wrong of [-1, 0.5, true, Symbol("x"), "1", undefined, 300]) {
        await refuses("invalid-tokens", "token", async () => tokenizer.decoder().push(wrong));
      }
      const gone = detached(Uint32Array.of(1, 2));
      await refuses("invalid-tokens", "transferred", async () => tokenizer.decode(gone));
      await refuses("invalid-tokens", "tokens", async () => tokenizer.decode(trap([])));
      await refuses("invalid-options", "encode", async () => tokenizer.encode(trap()));
    }
    await refuses("invalid-tokens", "transferred", async () =>
      byte.encode(detached(Uint8Array.of(1))),
    );
    await refuses("invalid-options", "documents", () =>
      Dataset.fromDocuments(detached(Uint32Array.of(1)), byte),
    );
    await refuses("invalid-options", ["Documents", "boom"], () =>
      Dataset.fromDocuments(trap([]), byte),
    );
    const prompted = { prompt: "a", completion: "b" };
    for (const wrong of [7, null, {}, { prompt: "a" }, { prompt: "a", completion: 1 }]) {
      await refuses("invalid-options", ["document 1", "prompt and completion"], () =>
        Dataset.fromDocuments([prompted, wrong], byte),
      );
    }
    for (const mixed of [
      ["a", prompted],
      [prompted, "a"],
    ]) {
      await refuses("invalid-options", ["document 1", 'prompt ""'], () =>
        Dataset.fromDocuments(mixed, byte),
      );
    }
    await refuses("invalid-options", ["Documents", "boom"], () =>
      Dataset.fromDocuments([trap({})], byte),
    );
    await refuses("invalid-options", ["boom"], () =>
      BpeTokenizer.train(trap([]), { vocabSize: 300 }),
    );
  },
};
