// What a tokenizer puts before a text: once before each document, in each window of one text, never learned.
import assert from "node:assert/strict";
import { test } from "node:test";
import { BpeTokenizer, ByteTokenizer, Dataset } from "tinyloom";
import { documentsOf, PLAIN, real, STARTING } from "./real-tokenizers.mjs";

const TEXT = "The boat is old.\nThe river carries a quiet town. 2+2=4\n".repeat(40);
const DOCUMENTS = ["The boat is old.", "", "A quiet town.", "2+2=4"];
const PAIRS = [
  { prompt: "2+2=", completion: "4" },
  { prompt: "", completion: "one" },
  { prompt: "q", completion: "" },
];
const all = { validationFraction: 0 };
const refused = (...words) => ({
  code: "invalid-options",
  message: new RegExp(words.map((word) => word.replace(/[()[\]{}]/g, "\\$&")).join(".*")),
});

for (const [name, start] of Object.entries(STARTING)) {
  test(`${name}: once before each document, and no target`, async () => {
    const tokenizer = await real(name);
    const plain = (text) => [...tokenizer.encode(text, { addSpecialTokens: false })];
    const end = tokenizer.endToken;
    const made = await Dataset.fromDocuments(DOCUMENTS, tokenizer, all);
    assert.equal(made.documents, 3, "an empty document stays out");
    const texts = DOCUMENTS.filter(Boolean);
    for (const [i, { tokens, learned }] of (await documentsOf(made, 3)).entries()) {
      assert.deepEqual(tokens, [start, ...plain(texts[i]), end]);
      assert.deepEqual(
        tokens.slice(0, -1),
        [...tokenizer.encode(texts[i])],
        "as generate is given",
      );
      assert.deepEqual(learned, tokens.slice(1), "its first token follows the start");
    }
    const rows = texts.map((text) => `${JSON.stringify({ text })}\n`).join("");
    const read = await Dataset.from(new File([rows], "a.jsonl"), tokenizer, all);
    assert.equal(read.hash, made.hash, "rows of a file alike");

    const without = await Dataset.fromDocuments(DOCUMENTS, tokenizer, {
      ...all,
      startTokens: false,
    });
    const before = texts.flatMap((text) => [...plain(text), end]);
    assert.equal(without.tokens, before.length);
    assert.notEqual(without.hash, made.hash);
    for (const [i, { tokens }] of (await documentsOf(without, 3)).entries()) {
      assert.deepEqual(tokens, [...plain(texts[i]), end], "as version 0.1 made them");
    }
  });

  test(`${name}: each window begins with it`, async () => {
    const tokenizer = await real(name);
    const ids = [...tokenizer.encode(TEXT, { addSpecialTokens: false })];
    const options = { ...all, sequenceLength: 16 };
    const made = await Dataset.fromText(TEXT, tokenizer, options);
    for (const blob of [new Blob([TEXT]), new File([TEXT], "a.txt")]) {
      assert.equal((await Dataset.from(blob, tokenizer, options)).hash, made.hash);
      assert.equal((await Dataset.fromText(blob, tokenizer, options)).hash, made.hash);
    }
    const count = Math.floor(ids.length / 16);
    for (const [i, { tokens, learned }] of (await documentsOf(made, count)).entries()) {
      assert.deepEqual(tokens, [start, ...ids.slice(i * 16 + 1, i * 16 + 16)]);
      assert.deepEqual(learned, tokens.slice(2), "the token behind the start begins no text");
    }
    const without = await Dataset.fromText(TEXT, tokenizer, { ...options, startTokens: false });
    assert.equal(without.hash, Dataset.fromTokens(ids, options).hash, "the tokens of version 0.1");
    assert.notEqual(without.hash, made.hash);
    assert.equal(made.tokens, without.tokens, "the text itself is the same");
    const given = Dataset.fromTokens(ids, { ...options, startTokens: [start] });
    assert.equal(given.hash, made.hash, "ids that the caller gives");
  });

  test(`${name}: a saved dataset keeps it, and one of version 0.1 goes on without`, async () => {
    const tokenizer = await real(name);
    const text = await Dataset.fromText(TEXT, tokenizer, { sequenceLength: 16 });
    const files = await text.save();
    const description = JSON.parse(new TextDecoder().decode(files["dataset.json"]));
    assert.deepEqual(description.options.startTokens, [start]);
    const again = await Dataset.load(files);
    assert.equal(again.hash, text.hash);
    assert.deepEqual((await again.document(1)).tokens, (await text.document(1)).tokens);
    // Version 0.1 wrote a dataset without the option.
    const old = await Dataset.fromText(TEXT, tokenizer, { sequenceLength: 16, startTokens: false });
    const saved = await old.save();
    assert.ok(!new TextDecoder().decode(saved["dataset.json"]).includes("startTokens"));
    assert.equal((await Dataset.load(saved)).hash, old.hash);
  });
}

test("tokenizers that put nothing there keep tokens and hash", async () => {
  const bpe = await BpeTokenizer.train(TEXT, { vocabSize: 300 });
  // Hashes that version 0.1 gave of the same calls.
  for (const [tokenizer, hashes] of [
    [
      new ByteTokenizer(),
      ["6b6214b53e35d342", "b4f003e9045a7df9", "82f10db4387a0c54", "af0b402d8b980285"],
    ],
    [bpe, ["3a4d11d2e5dea867", "bb222470361b7690", "78702d051be3a2c5", "d16a981d42649d12"]],
  ]) {
    const made = [
      await Dataset.fromText(TEXT, tokenizer),
      await Dataset.fromDocuments(DOCUMENTS, tokenizer, all),
      await Dataset.fromDocuments(DOCUMENTS, tokenizer, { ...all, endToken: 7 }),
      await Dataset.fromDocuments(PAIRS, tokenizer, all),
    ];
    assert.deepEqual(
      made.map(({ hash }) => hash),
      hashes,
    );
    assert.equal((await Dataset.from(new Blob([TEXT]), tokenizer)).hash, hashes[0]);
  }
  for (const name of PLAIN) {
    const tokenizer = await real(name);
    const ids = tokenizer.encode(TEXT, { addSpecialTokens: false });
    const made = await Dataset.fromText(TEXT, tokenizer);
    assert.equal(made.hash, Dataset.fromTokens(ids).hash, name);
    const off = await Dataset.fromDocuments(DOCUMENTS, tokenizer, { ...all, startTokens: false });
    const on = await Dataset.fromDocuments(DOCUMENTS, tokenizer, all);
    assert.equal(on.hash, off.hash, name);
  }
});

test("several ids, and tokenizers of one's own", async () => {
  const startTokens = [9, 8, 7];
  const made = await Dataset.fromDocuments(["abc"], new ByteTokenizer(), { ...all, startTokens });
  const [document] = await documentsOf(made, 1);
  assert.deepEqual(document.tokens, [9, 8, 7, 97, 98, 99]);
  assert.deepEqual(document.learned, [97, 98, 99]);
  const pair = [{ prompt: "ab", completion: "c" }];
  const pairs = await Dataset.fromDocuments(pair, new ByteTokenizer(), { ...all, startTokens });
  assert.deepEqual(await documentsOf(pairs, 1), [{ tokens: [9, 8, 7, 97, 98, 99], learned: [99] }]);

  /** Counts how it is asked; a text is `begin`, its bytes, `end`. */
  const around = (begin, end, own = {}) => ({
    vocabSize: 300,
    encode: (text, { addSpecialTokens = true } = {}) => {
      const ids = [...new TextEncoder().encode(text)];
      return addSpecialTokens ? [...begin, ...ids, ...end] : ids;
    },
    ...own,
  });
  for (const [tokenizer, start] of [
    [around([256], []), [256]],
    [around([256, 257], [258]), [256, 257]],
    [around([], [258]), []],
    [around([], [], { startTokens: [299] }), [299]],
    [around([256], [], { startTokens: [] }), []],
    // One that always puts them puts them here too.
    [{ vocabSize: 300, encode: (text) => [256, ...new TextEncoder().encode(text)] }, [256]],
    // One that fails where there is no text.
    [{ vocabSize: 300, encode: (text) => [text.codePointAt(0), text.length] }, []],
  ]) {
    const ids = [...(await tokenizer.encode("abc", { addSpecialTokens: false }))];
    const all_ = { ...all, endToken: null };
    const [{ tokens }] = await documentsOf(
      await Dataset.fromDocuments(["abc"], tokenizer, all_),
      1,
    );
    assert.deepEqual(tokens, ids[0] === 256 ? ids : [...start, ...ids]);
  }
});

test("a start that is written in the text stands once", async () => {
  /** `<s>` is 256; before every text unless it is told not to. */
  const tokenizer = {
    vocabSize: 300,
    startTokens: [256],
    encode: (text, { addSpecialTokens = true } = {}) => {
      const begins = text.startsWith("<s>");
      const ids = [...new TextEncoder().encode(begins ? text.slice(3) : text)];
      return [...(begins ? [256] : []), ...(addSpecialTokens ? [256] : []), ...ids];
    },
  };
  const tokens = async (documents, more) =>
    documentsOf(
      await Dataset.fromDocuments(documents, tokenizer, { ...all, endToken: null, ...more }),
      1,
    );
  const text = { tokens: [256, 97, 98], learned: [97, 98] };
  assert.deepEqual(await tokens(["<s>ab"]), [text]);
  assert.deepEqual(await tokens(["ab"]), [text]);
  const pair = { tokens: [256, 97, 98], learned: [98] };
  for (const joined of [true, false]) {
    const [prompt, completion] = ["<s>a", "b"];
    assert.deepEqual(await tokens([{ prompt, completion }], { joined }), [pair]);
  }
  const given = { startTokens: [256, 97] };
  assert.deepEqual(await tokens(["<s>ab"], given), [{ tokens: [256, 97, 98], learned: [98] }]);
  const [{ tokens: other }] = await tokens(["<s>b"], given);
  assert.deepEqual(other, [256, 97, 256, 98], "another beginning is no start");
});

test("what startTokens may be", async () => {
  const tokenizer = new ByteTokenizer();
  const made = (startTokens, more) =>
    Dataset.fromText(TEXT, tokenizer, { startTokens, sequenceLength: 8, ...more });
  for (const wrong of ["<bos>", 2, [-1], [1.5], {}]) {
    await assert.rejects(
      made(wrong),
      refused("startTokens", "true, false or an array of token ids"),
    );
  }
  await assert.rejects(
    made([1, 2], { sequenceLength: 2 }),
    refused("begins with 2 startTokens", "at least 3"),
  );
  assert.equal((await made(Uint32Array.of(1, 2), { sequenceLength: 3 })).sequenceLength, 3);
  assert.throws(
    () => Dataset.fromTokens([1, 2, 3], { startTokens: true }),
    refused("no tokenizer", "ids"),
  );
  const own = { vocabSize: 300, encode: () => [1], startTokens: ["<bos>"] };
  await assert.rejects(Dataset.fromText(TEXT, own), {
    code: "invalid-tokens",
    message: /startTokens/,
  });
});
