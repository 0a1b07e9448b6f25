// Seeds that are drawn, prompts that are texts, and special tokens that are left out of texts.
import assert from "node:assert/strict";
import { test } from "node:test";
import { collect, gpu, greedy, ids, newModel, refuses, textOf, tinyloom } from "./kit.mjs";
import { byteLevel, sentencePiece } from "./tokenizers.mjs";

const { ByteTokenizer } = tinyloom;
const bytes = new ByteTokenizer();
const model = await newModel({ vocab_size: 384 });
const free = { maxTokens: 16, temperature: 1, stopTokens: [] };

test("the default seed is drawn once per call, and with it the text repeats", async () => {
  const one = model.generate([5], free);
  const other = model.generate([5], free);
  assert.ok(Number.isInteger(one.seed) && one.seed >= 0 && one.seed < 2 ** 32);
  assert.notEqual(one.seed, other.seed);
  const [text, another] = [ids(await collect(one)), ids(await collect(other))];
  assert.notDeepEqual(another, text);
  const again = model.generate([5], { ...free, seed: one.seed });
  assert.equal(again.seed, one.seed);
  assert.deepEqual(ids(await collect(again)), text);
  assert.equal(model.generate([5], { seed: 0 }).seed, 0);
});

test("a batch draws a seed for each text", async () => {
  const batch = model.generateBatch([[5], [5], { prompt: [5], seed: 3 }], free);
  assert.equal(batch.seeds.length, 3);
  assert.equal(batch.seeds[2], 3);
  assert.notEqual(batch.seeds[0], batch.seeds[1]);
  const tokens = await collect(batch);
  for (const [index, seed] of batch.seeds.entries()) {
    const alone = ids(await collect(model.generate([5], { ...free, seed })));
    const drawn = ids(tokens.filter((one) => one.index === index));
    assert.deepEqual(drawn, alone, `text ${index}`);
  }
  assert.deepEqual(model.generateBatch([[5], [6]], { seed: 9 }).seeds, [9, 9]);
});

test("a generation that comes back from a lost device goes on with the drawn seed", async () => {
  const runtime = await tinyloom.Runtime.create({ gpu, recover: true });
  const own = await tinyloom.Model.create(runtime, { ...model.config }, { seed: 11 });
  const generation = own.generate([5], free);
  const drawn = [];
  for await (const { token } of generation) {
    drawn.push(token);
    if (drawn.length === 3) runtime.device.destroy();
  }
  const { seed } = generation;
  assert.deepEqual(drawn, ids(await collect(model.generate([5], { ...free, seed }))));
  own.free();
  runtime.destroy();
});

test("what is wrong comes from the loop, and needs no seed", async () => {
  await refuses("invalid-options", ["seed", "-1"], () => model.generate([5], { seed: -1 }));
  await refuses("invalid-options", ["tokenizer"], () => model.generate("text"));
  await refuses("invalid-options", ["encode()"], () =>
    model.generate("text", { tokenizer: { decoder: () => bytes.decoder() } }),
  );
  await refuses("invalid-options", ["prompts[1]", "tokenizer"], () =>
    model.generateBatch([[1], "text"]),
  );
  await refuses("invalid-options", ["skipSpecialTokens"], () =>
    model.generate([5], { skipSpecialTokens: true }),
  );
  await refuses("invalid-tokens", ["prompt is empty"], () =>
    model.generate("", { tokenizer: bytes }),
  );
});

test("a text as prompt is its tokens", async () => {
  const model = await newModel();
  const wanted = ids(await collect(model.generate(bytes.encode("hé "), greedy)));
  const drawn = await collect(model.generate("hé ", { ...greedy, tokenizer: bytes }));
  assert.deepEqual(ids(drawn), wanted);
  const batch = model.generateBatch(["hé ", { prompt: "a" }], { ...greedy, tokenizer: bytes });
  const texts = await collect(batch);
  assert.deepEqual(ids(texts.filter(({ index }) => index === 0)), wanted, "in a batch");
});

test("what the tokenizer puts before a text stands before it once, and nothing behind it", async () => {
  for (const ending of [false, true]) {
    const tokenizer = await sentencePiece({ ending });
    const [begin, end] = [1, 2];
    const plain = [...tokenizer.encode("the word", { addSpecialTokens: false })];
    assert.deepEqual(
      [...tokenizer.encode("the word")],
      [begin, ...plain, ...(ending ? [end] : [])],
    );
    const wanted = await collect(model.generate([begin, ...plain], greedy));
    const drawn = await collect(model.generate("the word", { ...greedy, tokenizer }));
    assert.deepEqual(ids(drawn), ids(wanted), `ending ${ending}`);
    const doubled = [...tokenizer.encode("<s>the word", { addSpecialTokens: false })];
    assert.equal(doubled[0], begin);
    const once = await collect(model.generate("<s>the word", { ...greedy, tokenizer }));
    assert.deepEqual(ids(once), ids(await collect(model.generate(doubled, greedy))), "written");
    const empty = await collect(model.generate("", { ...greedy, tokenizer }));
    assert.deepEqual(ids(empty), ids(await collect(model.generate([begin], greedy))), "no text");
  }
});

test("before a prompt stands what stands before the texts of a dataset", async () => {
  const model = await newModel();
  const plain = (text) => [...bytes.encode(text)];
  /** A tokenizer of one's own, which names its start or puts it there. */
  const named = {
    vocabSize: 256,
    startTokens: [1],
    encode: plain,
    decoder: () => bytes.decoder(),
  };
  const puts = (before) => ({
    ...named,
    startTokens: undefined,
    encode: (text, { addSpecialTokens = true } = {}) => [
      ...(addSpecialTokens ? before : []),
      ...plain(text),
    ],
  });
  for (const [tokenizer, start] of [
    [named, [1]],
    [puts([1, 2]), [1, 2]],
    [puts([]), []],
    [{ ...puts([1]), startTokens: [] }, []],
  ]) {
    const options = { endToken: null, validationFraction: 0 };
    const made = await tinyloom.Dataset.fromDocuments(["ab"], tokenizer, options);
    const { tokens } = await made.document(0);
    assert.deepEqual([...tokens], [...start, 97, 98]);
    const wanted = ids(await collect(model.generate(tokens, greedy)));
    const drawn = await collect(model.generate("ab", { ...greedy, tokenizer }));
    assert.deepEqual(ids(drawn), wanted);
  }
});

test("the text goes on behind a prompt of text, its first space too", async () => {
  const tokenizer = await sentencePiece();
  const [the, world] = ["▁the", "▁world"].map(
    (piece) =>
      JSON.parse(new TextDecoder().decode(tokenizer.save()["tokenizer.json"])).model.vocab[piece],
  );
  const bias = (tokens) => [[tokens.length % 2 ? the : world, 1e6]];
  const options = { maxTokens: 3, tokenizer, bias, stopTokens: [] };
  const behind = await collect(model.generate("the", options));
  assert.equal(textOf(behind), " world the world");
  // Behind tokens a text begins, as an answer does.
  const begun = await collect(model.generate([1, the], options));
  assert.equal(textOf(begun), "world the world");
});

/** Ids from 250 on are special: `<250>`; a decoder leaves them out where it is asked to. */
const special = {
  vocabSize: 256,
  encode: (text) => [...text].map((letter) => letter.charCodeAt(0)),
  decoder: ({ skipSpecialTokens } = {}) => ({
    push: (id) => (id < 250 ? `(${id})` : skipSpecialTokens ? "" : `<${id}>`),
    end: () => "",
  }),
};

test("special tokens are left out of the text, and still end it as stop strings", async () => {
  const line = [7, 251, 8, 252, 9, 253];
  const bias = (tokens) => [[line[(tokens.length - 1) % line.length], 1e6]];
  const options = { maxTokens: 6, bias, tokenizer: special, stopTokens: [] };
  assert.equal(textOf(await collect(model.generate([1], options))), "(7)<251>(8)<252>(9)<253>");
  const skip = { ...options, skipSpecialTokens: true };
  assert.equal(textOf(await collect(model.generate([1], skip))), "(7)(8)(9)");
  const stopped = await collect(model.generate([1], { ...skip, stop: ["<252>"] }));
  assert.equal(textOf(stopped), "(7)(8)");
  assert.deepEqual(ids(stopped), [7, 251, 8]);
  const within = await collect(model.generate([1], { ...skip, stop: [")(", "8)<"] }));
  assert.equal(textOf(within), "(7)(", "the string is searched in the whole text");
  const { bias: _, ...batched } = skip;
  const batch = await collect(model.generateBatch([[1], [2]], { ...batched, maxTokens: 4 }));
  assert.ok(!textOf(batch).includes("<"));
});

test("text before a stop string is whole where it came in bytes", async () => {
  const tokenizer = await sentencePiece();
  const [unk, end] = [0, 2];
  const smile = [...tokenizer.encode("\u{1f600}", { addSpecialTokens: false })].slice(-4);
  const [the] = tokenizer.encode("the", { addSpecialTokens: false });
  const drawn = async (line, more) => {
    const bias = (tokens) => [[line[tokens.length - 1] ?? the, 1e6]];
    const options = { maxTokens: line.length, bias, tokenizer, stopTokens: [], ...more };
    return textOf(await collect(model.generate([the], options)));
  };
  const skip = { skipSpecialTokens: true };
  const stop = { stop: ["</s>"] };
  for (const more of [skip, stop, { ...skip, ...stop }, { ...skip, stop: ["never"] }]) {
    const shown = `the\u{1f600}${more.skipSpecialTokens || more.stop ? "" : "</s>"}`;
    assert.equal(await drawn([the, ...smile, end], more), shown, JSON.stringify(more));
  }
  // Special tokens in between, and a stop string behind text that came late.
  const both = { ...skip, ...stop };
  assert.equal(await drawn([the, ...smile, unk, end], both), "the\u{1f600}");
  assert.equal(await drawn([the, ...smile, unk, the, end], both), "the\u{1f600} the");
  assert.equal(await drawn([the, ...smile, unk, the], { ...skip, stop: ["h"] }), "t");
  assert.equal(await drawn([...smile, unk, the], { ...skip, stop: ["he"] }), "\u{1f600} t");
  assert.equal(await drawn([the, ...smile, unk], { ...skip, stop: ["never"] }), "the\u{1f600}");
});

test("a tokenizer of this package takes a text too", async () => {
  const drawn = await collect(model.generate("the wor", { ...greedy, tokenizer: byteLevel }));
  assert.deepEqual(
    ids(drawn),
    ids(await collect(model.generate(byteLevel.encode("the wor"), greedy))),
  );
});
