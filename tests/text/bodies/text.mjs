// Datasets of files, streams and documents, tokenizers, and what a resumed run may draw from.
import { equal, ok, refuses } from "../../api/bodies/assert.mjs";
import {
  batch,
  collect,
  config,
  dataset,
  datasetOptions,
  pause,
  soon,
  text,
  trainerOptions,
} from "../../api/bodies/kit.mjs";

const bytes = (string) => new TextEncoder().encode(string);

/** A stream of such chunks. */
const streamOf = (...chunks) =>
  new ReadableStream({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(chunk);
      controller.close();
    },
  });

/** The tokens that a dataset saves. */
async function tokensOf(data) {
  const files = await data.save();
  const { width } = JSON.parse(new TextDecoder().decode(files["dataset.json"]));
  const { buffer } = files["tokens.bin"];
  return [...new { 1: Uint8Array, 2: Uint16Array, 4: Uint32Array }[width](buffer)];
}

async function trained({ tinyloom, runtime }, steps, data) {
  const model = await tinyloom.Model.create(runtime, config, { seed: 1 });
  const trainer = await tinyloom.Trainer.create(model, trainerOptions);
  if (data) await collect(trainer.run(data, { steps }));
  return trainer;
}

/** Where this body's cases run: see hosts.mjs. */
export const place = {
  whole: ["node", "chromium", "firefox"],
  why: "files, streams, workers and the characters of regular expressions are the host's; it is quick",
};

export const cases = {
  async "every source of a text gives the same dataset"({ tinyloom }) {
    const { Dataset, ByteTokenizer } = tinyloom;
    const tokenizer = new ByteTokenizer();
    const mixed = `${text}héllo 😀 `.repeat(20);
    const expected = await Dataset.fromText(mixed, tokenizer, datasetOptions);
    const raw = bytes(mixed);
    const half = mixed.indexOf("😀") + 1; // between two halves of a character
    const url = URL.createObjectURL(new Blob([raw]));
    const sources = {
      blob: new Blob([raw]),
      file: new File([raw], "text.txt"),
      bytes: streamOf(raw.subarray(0, 1001), raw.subarray(1001)),
      strings: streamOf(mixed.slice(0, half), mixed.slice(half)),
      url: new URL(url),
    };
    for (const [name, source] of Object.entries(sources)) {
      const made = await Dataset.from(source, tokenizer, datasetOptions);
      equal([made.tokens, made.hash], [expected.tokens, expected.hash], name);
    }
    URL.revokeObjectURL(url);
    const other = await Dataset.fromText(`${mixed}!`, tokenizer, datasetOptions);
    ok(other.hash !== expected.hash, "another text has another hash");
    const ids = tokenizer.encode(mixed);
    equal(Dataset.fromTokens(ids).hash, expected.hash, "the same tokens");
    equal(Dataset.fromTokens(Uint8Array.from(ids)).hash, expected.hash, "in another width");
    equal(expected.tokenizer, tokenizer, "its tokenizer");
  },

  async "the signal ends the wait for a text that never comes"({ tinyloom }) {
    const { Dataset, BpeTokenizer, ByteTokenizer } = tinyloom;
    let controller;
    /** Fires the signal once it is waited for. */
    const never = () => {
      setTimeout(() => controller.abort(), 10);
      return new Promise(() => {});
    };
    const byte = new ByteTokenizer();
    let cancelled = 0;
    const cancel = () => {
      cancelled += 1;
    };
    const stalled = () => new ReadableStream({ pull: never, cancel }, { highWaterMark: 0 });
    const generated = async function* () {
      yield "one";
      await never();
    };
    const left = [];
    const leaving = (end) => ({
      [Symbol.asyncIterator]: () => ({
        next: never,
        return() {
          left.push(end);
          return end();
        },
      }),
    });
    const calls = {
      "Dataset.from": (signal) => Dataset.from(stalled(), byte, { signal }),
      "Dataset.fromConversations": (signal) =>
        Dataset.fromConversations(stalled(), byte, { signal, template: "{# a #}" }),
      "BpeTokenizer.train": (signal) => BpeTokenizer.train(stalled(), { signal, vocabSize: 300 }),
      "Dataset.fromDocuments": (signal) => Dataset.fromDocuments(generated(), byte, { signal }),
    };
    for (const end of [never, () => Promise.reject(new Error("late"))]) {
      calls[`Dataset.fromDocuments of ${end}`] = (signal) =>
        Dataset.fromDocuments(leaving(end), byte, { signal });
    }
    for (const [name, call] of Object.entries(calls)) {
      controller = new AbortController();
      await refuses("aborted", name.split(" ")[0], () => soon(name, call(controller.signal)));
    }
    equal([cancelled, left.length], [3, 2], "streams and iterators are told");
  },

  async "an iterator that is left early ends before the call does"({ tinyloom }) {
    let ended = false;
    const documents = async function* (second) {
      try {
        yield "one";
        yield second;
        yield "three";
      } finally {
        await pause(50);
        ended = true;
      }
    };
    const controller = new AbortController();
    const { Dataset, ByteTokenizer } = tinyloom;
    const made = (second, more) => () =>
      Dataset.fromDocuments(documents(second), new ByteTokenizer(), {
        signal: controller.signal,
        ...more,
      });
    await refuses("invalid-options", "document 1", made(2));
    ok(ended, "the generator's own end was awaited");
    ended = false;
    // While no next value is waited for.
    const between = { onProgress: ({ loaded }) => loaded > 0 && controller.abort() };
    await refuses("aborted", "Dataset.fromDocuments", made("two", between));
    ok(ended, "its end was awaited after a signal between two values");
  },

  async "rows of JSONL and CSV are documents"({ tinyloom }) {
    const { Dataset, ByteTokenizer } = tinyloom;
    const tokenizer = new ByteTokenizer();
    const rows = ["one", 'a "quoted", one', "two\nlines", "日本", ""];
    const all = [...bytes(rows.join(""))];
    const options = { validationFraction: 0, sequenceLength: 4 };
    const quote = (field) => (/[",\n]/.test(field) ? `"${field.replaceAll('"', '""')}"` : field);
    const csv = `id,body\r\n${rows.map((row, i) => `${i},${quote(row)}\r\n`).join("")}`;
    const jsonl = `${rows.map((body) => JSON.stringify({ body })).join("\n")}\n\n`;
    const tsv = `body\tid\n${rows.map((row, i) => `${quote(row)}\t${i}\n`).join("")}`;
    const column = "body";
    for (const [name, content] of Object.entries({
      "a.csv": csv,
      "a.jsonl": jsonl,
      "a.tsv": tsv,
    })) {
      for (const cut of [1, 7, content.length]) {
        const pieces = content.match(new RegExp(`[^]{1,${cut}}`, "gu"));
        const format = name.endsWith("jsonl") ? "jsonl" : "csv";
        const delimiter = name.endsWith("tsv") ? "\t" : ",";
        const source = cut < content.length ? streamOf(...pieces) : new File([content], name);
        const how = cut < content.length ? { format, delimiter } : {};
        const made = await Dataset.from(source, tokenizer, { ...options, ...how, column });
        equal([made.documents, await tokensOf(made)], [4, all], `${name} in pieces of ${cut}`);
      }
    }
    const listed = await Dataset.fromDocuments(rows, tokenizer, options);
    const separated = rows.join("<-->");
    // A separator may begin in one piece and end in another.
    for (const cut of [1, 3, 7, separated.length]) {
      const pieces = separated.match(new RegExp(`[^]{1,${cut}}`, "gu"));
      const source = cut < separated.length ? streamOf(...pieces) : new Blob([separated]);
      const split = await Dataset.from(source, tokenizer, { ...options, separator: "<-->" });
      const found = [split.hash, split.documents];
      equal(found, [listed.hash, 4], `between separators, in pieces of ${cut}`);
    }
    const ended = await Dataset.fromDocuments(rows, tokenizer, { ...options, endToken: 0 });
    equal(ended.tokens, all.length + 4, "an end token behind each");
    const from = (content, how) => () => Dataset.from(new Blob([content]), tokenizer, how);
    await refuses("invalid-options", ['"id", "body"', '"text"'], from(csv, { format: "csv" }));
    const open = 'text\na\n"b\nc\n';
    await refuses("invalid-options", ["quote in row 3", "no end"], from(open, { format: "csv" }));
    await refuses(
      "invalid-options",
      ["line 1", "body", "column"],
      from(jsonl, { format: "jsonl" }),
    );
    await refuses(
      "invalid-options",
      ["line 2 is not JSON"],
      from('{"text":"a"}\n{', { format: "jsonl" }),
    );
    await refuses("invalid-tokens", ["empty"], from("", {}));
    await refuses("invalid-options", ["Dataset.from", "new URL"], () =>
      Dataset.from("a text", tokenizer),
    );
    await refuses("invalid-options", ["could not be read"], () =>
      Dataset.from(new ReadableStream({ pull: (c) => c.error(new Error("gone")) }), tokenizer),
    );
    const controller = new AbortController();
    controller.abort();
    await refuses("aborted", ["Dataset.from"], from("abc", { signal: controller.signal }));
  },

  async "rows that are conversations say where they go, and pairs are read"({ tinyloom }) {
    const { Dataset, ByteTokenizer } = tinyloom;
    const from = (content, how) => () =>
      Dataset.from(new Blob([content]), new ByteTokenizer(), how);
    for (const [line, ...words] of [
      [{ messages: [{ role: "user", content: "a" }] }, "conversation", "Dataset.fromConversations"],
      [[{ role: "user", content: "a" }], "conversation", "Dataset.fromConversations"],
      [{ instruction: "a", output: "b" }, "Alpaca", "Dataset.fromConversations", "completion"],
      [{ conversations: [{ from: "human", value: "a" }] }, "Dataset.fromConversations"],
      [{ text: 7, id: 8 }, "text is 7"],
      [{ rows: [{ text: "a" }] }, "rows has the rows"],
      [["a"], "no other text"],
      [null, "null"],
    ]) {
      const lines = from(JSON.stringify(line), { format: "jsonl" });
      const { message } = await refuses("invalid-options", ["line 1", ...words], lines);
      ok(!message.includes("set column"), message);
    }
    const pairs = [{ prompt: "ab", completion: "cd" }];
    const all = { validationFraction: 0 };
    const listed = await Dataset.fromDocuments(pairs, new ByteTokenizer(), all);
    const lines = await from(JSON.stringify(pairs[0]), { ...all, format: "jsonl" })();
    const rows = await from("id,completion,prompt\n7,cd,ab\n", { ...all, format: "csv" })();
    equal([lines.hash, rows.hash], [listed.hash, listed.hash], "pairs are read");
  },

  async "documents are packed whole, and trained on"(host) {
    const { Dataset, ByteTokenizer } = host.tinyloom;
    const lines = text.split(". ").filter(Boolean);
    const options = { endToken: 0, validationFraction: 0.2, sequenceLength: 64 };
    const data = await Dataset.fromDocuments(lines, new ByteTokenizer(), options);
    equal(data.documents, 192, "documents for training");
    ok(
      data.stepsPerEpoch(64) >= Math.ceil((data.tokens - data.validationTokens - 192) / 64),
      "steps",
    );
    const trainer = await trained(host, 12, data);
    const { loss, tokens } = await trainer.evaluate(data);
    equal(tokens, data.validationTokens - 48, "each token but a document's first is predicted");
    ok(loss < 4.5, `loss ${loss}`);
    trainer.model.free();
    return `${loss.toFixed(3)} nats`;
  },

  async "answers alone are learned"(host) {
    const { Dataset, ByteTokenizer } = host.tinyloom;
    const template =
      "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}" +
      "{% if add_generation_prompt %}a:{% endif %}";
    const list = Array.from({ length: 40 }, (_, i) => [
      { role: "user", content: `question ${i}` },
      ...(i % 4 ? [{ role: "assistant", content: "yes" }] : []), // some have no answer
    ]);
    const options = { template, validationFraction: 0.5 };
    const data = await Dataset.fromConversations(list, new ByteTokenizer(), options);
    const trainer = await trained(host, 30, data);
    const { loss, tokens } = await trainer.evaluate(data);
    equal(tokens, 15 * "yes;".length, "only answers count");
    ok(loss < 2, `loss ${loss}`); // an untrained model has 5.5
    trainer.model.free();
    return `${loss.toFixed(3)} nats`;
  },

  async "of prompts with completions, the completions alone are learned"(host) {
    const { Dataset, ByteTokenizer } = host.tinyloom;
    const list = Array.from({ length: 40 }, (_, i) => ({
      prompt: `question ${i}>`,
      completion: i % 4 ? "yes" : "", // some have none
    }));
    const options = { endToken: 10, validationFraction: 0.5 };
    const data = await Dataset.fromDocuments(list, new ByteTokenizer(), options);
    const whole = await Dataset.fromDocuments(
      list.map(({ prompt, completion }) => prompt + completion),
      new ByteTokenizer(),
      options,
    );
    equal([data.tokens, data.documents], [whole.tokens, whole.documents], "the same tokens");
    ok(data.hash !== whole.hash, "what is learned is in the hash");
    const trainer = await trained(host, 30, data);
    const { loss, tokens } = await trainer.evaluate(data);
    const kept = list.slice(data.documents);
    const learned = kept.reduce((sum, { completion }) => sum + completion.length + 1, 0);
    equal(tokens, learned, "completions count, with the end token");
    ok(loss < 2, `loss ${loss}`); // an untrained model has 5.5
    trainer.model.free();
    return `${loss.toFixed(3)} nats`;
  },

  async "a resumed run refuses other data"(host) {
    const { Dataset, ByteTokenizer, Trainer } = host.tinyloom;
    const data = await dataset(host.tinyloom);
    const other = await Dataset.fromText(text.slice(1), new ByteTokenizer(), datasetOptions);
    const trainer = await trained(host, 2, data);
    await collect(trainer.run(other, { steps: 1 })); // no resume between: the caller's choice
    await collect(trainer.run(data, { steps: 1 }));
    const files = await trainer.save();
    trainer.model.free();
    const state = JSON.parse(new TextDecoder().decode(files["trainer_state.json"]));
    equal(state.dataHash, data.hash, "the state carries the hash");
    const resumed = await Trainer.resume(host.runtime, files);
    const refused = () => collect(resumed.run(other, { steps: 1 }));
    await refuses("invalid-options", [data.hash, other.hash, "dataChanged: true"], refused);
    equal(resumed.steps, 4, "nothing was done");
    const again = JSON.parse(
      new TextDecoder().decode((await resumed.save())["trainer_state.json"]),
    );
    equal(again.dataHash, data.hash, "a resumed trainer that has drawn nothing keeps the hash");
    await collect(resumed.run(await dataset(host.tinyloom), { steps: 1 }));
    resumed.model.free();
    const allowed = await Trainer.resume(host.runtime, files);
    await collect(allowed.run(other, { steps: 1, dataChanged: true }));
    await collect(allowed.run(other, { steps: 1 }));
    allowed.model.free();
    // States of version 0.1.0 have no hash and no checksums.
    const { dataHash: _, crc32: __, ...old } = state;
    const without = { ...files, "trainer_state.json": bytes(JSON.stringify(old)) };
    const unknown = await Trainer.resume(host.runtime, without);
    await refuses("invalid-options", ["does not say", "dataChanged: true"], () =>
      collect(unknown.run(data, { steps: 1 })),
    );
    await collect(unknown.run(data, { steps: 1, dataChanged: true }));
    unknown.model.free();
    // The same tokens, drawn otherwise.
    for (const [name, value, was] of [
      ["sequenceLength", 8, 16],
      ["validationFraction", 0.2, 0.1],
      ["seed", 4, 3],
    ]) {
      const drawn = await Trainer.resume(host.runtime, files);
      const options = { ...datasetOptions, [name]: value };
      const again = await Dataset.fromText(text, new ByteTokenizer(), options);
      equal(again.hash, data.hash, "the hash is of the tokens");
      const words = [`drew with ${name} ${was}`, `has ${value}`, "dataChanged: true"];
      await refuses("invalid-options", words, () => collect(drawn.run(again, { steps: 1 })));
      await collect(drawn.run(again, { steps: 1, dataChanged: true }));
      drawn.model.free();
    }
    const { dataOptions, ...unnoted } = state;
    equal(dataOptions, datasetOptions, "the state says how the data were drawn");
    const earlier = await Trainer.resume(host.runtime, {
      ...files,
      "trainer_state.json": bytes(JSON.stringify({ ...unnoted, crc32: undefined })),
    });
    await collect(earlier.run(data, { steps: 1 })); // a state from before that was noted
    earlier.model.free();
    const fresh = await trained(host);
    await fresh.step(batch(16));
    const undrawn = await Trainer.resume(host.runtime, await fresh.save());
    await collect(undrawn.run(other, { steps: 1 })); // it drew no data before
    for (const { model } of [fresh, undrawn]) model.free();
  },

  async "a tokenizer is trained, encodes everything, and is saved with its dataset"({ tinyloom }) {
    const { BpeTokenizer, Dataset, Tokenizer } = tinyloom;
    const stages = new Set();
    let last;
    const tokenizer = await BpeTokenizer.train(new Blob([text]), {
      vocabSize: 300,
      onProgress: (progress) => {
        last = progress;
        stages.add(progress.stage);
      },
    });
    equal(last.loaded, last.total, "progress ends at its total");
    const told = (progress) => {
      last = progress;
    };
    await BpeTokenizer.train("la la la", { vocabSize: 300, onProgress: told });
    ok(last.loaded === last.total && last.total < 43, `a short text ends at ${last.total}`);
    ok(tokenizer instanceof BpeTokenizer && tokenizer instanceof Tokenizer, "its class");
    equal([...stages], ["count words", "learn pairs"], "stages");
    const odd = "the cat\n\n  日本 👩‍👩‍👧‍👦 \u0085\ufeff it's 1234 <|endoftext|> \ud83d!";
    const whole = odd.replace("\ud83d!", "\ufffd!");
    const ids = tokenizer.encode(odd);
    equal(tokenizer.decode(ids), whole, "decoded");
    const decoder = tokenizer.decoder();
    equal(Array.from(ids, (id) => decoder.push(id)).join("") + decoder.end(), whole, "streamed");
    ok(ids.includes(tokenizer.endToken), "the special token is one");
    ok(tokenizer.encode(text).length < text.length / 2, "it is shorter than bytes");
    equal(tokenizer.encode(" ".repeat(20_000)).length > 0, true, "a long run");
    await refuses("invalid-tokens", [`token ${tokenizer.vocabSize}`], () =>
      tokenizer.decode([tokenizer.vocabSize]),
    );
    const again = await Tokenizer.fromPretrained(tokenizer.save());
    equal([...again.encode(odd)], [...ids], "from its files");
    const data = await Dataset.fromText(text, tokenizer, datasetOptions);
    const loaded = await Dataset.load(await data.save());
    equal([loaded.hash, loaded.sequenceLength], [data.hash, 16], "the dataset");
    equal([...loaded.tokenizer.encode(odd)], [...ids], "its tokenizer");
    const files = await data.save();
    files["tokens.bin"][5] ^= 1;
    await refuses("invalid-checkpoint", ["hash", data.hash], () => Dataset.load(files));
    const train = (options) => () => BpeTokenizer.train(text, options);
    await refuses("invalid-options", ["vocabSize"], train({}));
    await refuses("invalid-options", ["vocabSize is 257", "258"], train({ vocabSize: 257 }));
    const controller = new AbortController();
    const onProgress = ({ stage }) => stage === "learn pairs" && controller.abort();
    await refuses(
      "aborted",
      ["train"],
      train({ vocabSize: 400, signal: controller.signal, onProgress }),
    );
    return `${tokenizer.vocabSize} tokens`;
  },

  async "where no worker can be opened, the same is learned in pieces"({ tinyloom }) {
    const { BpeTokenizer } = tinyloom;
    const options = { vocabSize: 290 };
    const expected = await BpeTokenizer.train(text, options);
    const { Worker: own } = globalThis;
    const { revokeObjectURL } = URL;
    const [asked, revoked] = [[], []];
    globalThis.Worker = class {
      constructor(url) {
        asked.push(String(url));
        throw new Error("refused by a policy");
      }
    };
    URL.revokeObjectURL = (url) => {
      revoked.push(url);
      revokeObjectURL.call(URL, url);
    };
    try {
      const made = await BpeTokenizer.train([text.slice(0, 999), text.slice(999)], options);
      const whole = await BpeTokenizer.train(text, options);
      equal([...whole.encode(text)], [...expected.encode(text)], "the same tokens");
      ok(made.vocabSize > 270 && asked.length === 2, `${made.vocabSize} tokens, ${asked} workers`);
      equal(revoked, asked, "addresses of the worker's file that are revoked");
      const controller = new AbortController();
      const onProgress = ({ stage }) => stage === "learn pairs" && controller.abort();
      await refuses("aborted", ["train"], () =>
        BpeTokenizer.train(text, { vocabSize: 400, signal: controller.signal, onProgress }),
      );
    } finally {
      URL.revokeObjectURL = revokeObjectURL;
      if (own) globalThis.Worker = own;
      else delete globalThis.Worker;
    }
  },

  async "special tokens that the vocabulary has by themselves"({ tinyloom }) {
    const { BpeTokenizer, Dataset, Tokenizer } = tinyloom;
    const lines = "the cat|sat # on<a mat|é Ġ the end ".repeat(40);
    const specialTokens = ["|", "#", "<", "a", "<|end|>"];
    const trained = await BpeTokenizer.train(lines, { vocabSize: 300, specialTokens });
    equal([...trained.encode("|#<a")], [124, 35, 60, 97], "the bytes' own ids");
    equal(trained.endToken, 124);
    const loaded = await Tokenizer.fromPretrained(trained.save());
    equal([loaded.vocabSize, loaded.endToken], [trained.vocabSize, 124]);
    const ids = trained.encode(lines);
    equal([...loaded.encode(lines)], [...ids]);
    for (const one of [trained, loaded]) equal(one.decode(ids), lines);
    const data = await Dataset.fromText(lines, trained);
    const back = await Dataset.load(await data.save());
    equal(back.hash, data.hash);
    // The least vocabulary: 256 bytes, "<|end|>" and one merge.
    const least = await BpeTokenizer.train(lines, { vocabSize: 258, specialTokens });
    equal(least.vocabSize, 258);
    // A space is spelled "Ġ", and the byte 0xe9 "é": a text with either would lose characters.
    for (const special of ["é", "Ġ", "Ċ", "Ġthe"]) {
      await refuses("invalid-options", [`"${special}"`, `"<|${special}|>"`], () =>
        BpeTokenizer.train(lines, { vocabSize: 300, specialTokens: [special] }),
      );
    }
  },

  async "tokenizers that were saved with such a token behind the vocabulary"({ tinyloom }) {
    const { BpeTokenizer, Dataset, Tokenizer } = tinyloom;
    const lines = "the cat|sat on é the mat| ".repeat(40);
    const trained = await BpeTokenizer.train(lines, { vocabSize: 300, specialTokens: ["<|>"] });
    const { "tokenizer.json": bytes, ...rest } = trained.save();
    const json = JSON.parse(new TextDecoder().decode(bytes));
    const [end] = json.added_tokens;
    json.added_tokens = ["|", "é"].map((content, at) => ({ ...end, id: end.id + at, content }));
    const old = { ...rest, "tokenizer.json": new TextEncoder().encode(JSON.stringify(json)) };
    const loaded = await Tokenizer.fromPretrained(old);
    equal([...loaded.encode("|é")], [end.id, end.id + 1]);
    equal(loaded.decode(loaded.encode(lines)), lines);
    const data = await Dataset.fromText(lines, loaded);
    const back = await Dataset.load(await data.save());
    equal(back.hash, data.hash);
  },

  async "long texts are cut where their tokens stay the same"({ tinyloom }) {
    const { BpeTokenizer, Dataset } = tinyloom;
    const long = `${text.repeat(30)}${"日本語の文章。".repeat(9000)}${" ".repeat(90_000)}x ${text}`;
    const tokenizer = await BpeTokenizer.train([text, "日本語の文章。".repeat(9)], {
      vocabSize: 320,
    });
    const expected = Dataset.fromTokens(tokenizer.encode(long));
    const made = await Dataset.from(new Blob([long]), tokenizer);
    equal([made.tokens, made.hash], [expected.tokens, expected.hash], `${long.length} characters`);
  },
};
