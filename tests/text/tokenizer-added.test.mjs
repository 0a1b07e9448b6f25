// Added tokens, special ones as text, and what stands around a text: as in Python.
import assert from "node:assert/strict";
import { test } from "node:test";
import { BpeTokenizer, TinyloomError } from "tinyloom";
import { addedToken, bpe, compare, load, oracle, tokenizerJson } from "./oracle.mjs";

const CHARACTERS = [..."abcdefghijklmnopqrstuvwxyz<>|/_▁ \n\u00a0\u0085ABX你"];
const size = CHARACTERS.length;
const ADDED = [
  addedToken(size, "<s>", true),
  addedToken(size + 1, "</s>", true),
  addedToken(size + 2, "<think>", false),
  addedToken(size + 3, "<mask>", true, { lstrip: true }),
  addedToken(size + 4, "<right>", false, { rstrip: true }),
  addedToken(size + 5, "word", false, { single_word: true }),
  addedToken(size + 6, "AB", false, { normalized: true }),
  addedToken(size + 7, "<s><think>", true),
  addedToken(size + 8, "<both>", true, { lstrip: true, rstrip: true, normalized: true }),
];
const TEXTS = [
  "",
  "<s>",
  "a<s>b</s>",
  "<s><think>a</think>",
  "a <think> b",
  "a  <mask>  b",
  "<mask> \n<mask>",
  "a <right> \u00a0\u0085b",
  "word words sword a word, 你word word你 word",
  "AB ab aB Ab <both> x",
  "  <both>  <both> ab",
  "<s",
  "<s><s></s><think><s><think>",
  "x <mask><right> y",
];
const template = (...items) => ({
  type: "TemplateProcessing",
  single: items.map((one) =>
    one ? { SpecialToken: { id: one, type_id: 0 } } : { Sequence: { id: "A", type_id: 0 } },
  ),
  pair: [{ Sequence: { id: "A", type_id: 0 } }, { Sequence: { id: "B", type_id: 1 } }],
  special_tokens: {
    "<s>": { id: "<s>", ids: [size], tokens: ["<s>"] },
    "</s>": { id: "</s>", ids: [size + 1], tokens: ["</s>"] },
    two: { id: "two", ids: [size, size + 2], tokens: ["<s>", "<think>"] },
  },
});
const PARTS = [
  {},
  { normalizer: { type: "Lowercase" } },
  { normalizer: { type: "Sequence", normalizers: [{ type: "Prepend", prepend: "▁" }] } },
  { pre_tokenizer: { type: "Metaspace", replacement: "▁", prepend_scheme: "first", split: true } },
  {
    pre_tokenizer: { type: "Metaspace", replacement: "▁", prepend_scheme: "always", split: false },
  },
  { post_processor: template("<s>", "") },
  { post_processor: template("", "</s>") },
  { post_processor: template("two", "", "</s>") },
  { post_processor: { type: "BertProcessing", sep: ["</s>", size + 1], cls: ["<s>", size] } },
  {
    post_processor: {
      type: "Sequence",
      processors: [
        { type: "ByteLevel", add_prefix_space: true, trim_offsets: false, use_regex: true },
      ],
    },
  },
];

test("added tokens are found as in Python, and special ones are text where that is asked for", async (t) => {
  const cases = PARTS.map((parts) => ({
    json: tokenizerJson(bpe(CHARACTERS), { added_tokens: ADDED, ...parts }),
    texts: TEXTS,
  }));
  const numbers = oracle(cases).map(async (right, at) => {
    assert.equal(right.error, undefined);
    const tokenizer = await load({ "tokenizer.json": cases[at].json });
    return compare(tokenizer, cases[at], right, JSON.stringify(PARTS[at])).ids;
  });
  const sum = (await Promise.all(numbers)).reduce((a, b) => a + b);
  t.diagnostic(`${PARTS.length} tokenizers, ${sum} lists of ids, 0 different`);
});

test("what stands before a text is known", async () => {
  const starts = PARTS.map(async (parts) => {
    const json = tokenizerJson(bpe(CHARACTERS), { added_tokens: ADDED, ...parts });
    const tokenizer = await load({ "tokenizer.json": json });
    return tokenizer.startTokens;
  });
  const none = [];
  assert.deepEqual(await Promise.all(starts), [
    ...[none, none, none, none, none],
    ...[[size], none, [size, size + 2], [size], none],
  ]);
});

test("a processor that is not computed is refused by name", async () => {
  const wrong = [
    [{ type: "Other" }, /type of post_processor is .*Other/],
    [template("<s>"), /single of post_processor/],
    [template("nobody", ""), /single of post_processor/],
    [{ type: "BertProcessing", sep: ["</s>"], cls: ["<s>", 1] }, /sep of post_processor/],
  ];
  for (const [post_processor, message] of wrong) {
    const json = tokenizerJson(bpe(CHARACTERS), { added_tokens: ADDED, post_processor });
    await assert.rejects(load({ "tokenizer.json": json }), { code: "invalid-checkpoint", message });
  }
});

test("a tokenizer trained here reads special tokens as text, and leaves them out", async () => {
  const trained = await BpeTokenizer.train("to be or not to be ".repeat(40), {
    vocabSize: 300,
    specialTokens: ["<|end|>", "<|im_start|>"],
  });
  const [end, begin] = ["<|end|>", "<|im_start|>"].map((one) => trained.encode(one)[0]);
  const text = "to be<|end|>or <|im_start|>not";
  const parsed = trained.encode(text);
  assert.ok(parsed.includes(end) && parsed.includes(begin));
  const plain = trained.encode(text, { specialTokens: "text" });
  assert.ok(!plain.includes(end) && !plain.includes(begin));
  assert.equal(trained.decode(plain), text);
  assert.equal(trained.decode(parsed), text);
  assert.equal(trained.decode(parsed, { skipSpecialTokens: true }), "to beor not");
  const decoder = trained.decoder({ skipSpecialTokens: true });
  const streamed = Array.from(parsed, (id) => decoder.push(id)).join("") + decoder.end();
  assert.equal(streamed, "to beor not");
  assert.deepEqual(trained.startTokens, []);
  assert.deepEqual(trained.specialTokens, { eos: { text: "<|end|>", id: end } });
  // The same of its files, with Python's answer.
  const json = JSON.parse(new TextDecoder().decode(trained.save()["tokenizer.json"]));
  json.added_tokens[1].special = false;
  const [right] = oracle([{ json, texts: [text, "<|im_start|><|end|>"], prefixes: 2 }]);
  compare(
    await load({ "tokenizer.json": json }),
    { texts: [text, "<|im_start|><|end|>"], prefixes: 2 },
    right,
  );
});

test("a special token with letters beyond ASCII is decoded as its decoder says", async () => {
  const trained = await BpeTokenizer.train("abc abc", {
    vocabSize: 300,
    specialTokens: ["na\u00efve", "<a \u00e9>"],
  });
  const json = JSON.parse(new TextDecoder().decode(trained.save()["tokenizer.json"]));
  const lists = [[trained.vocabSize - 2], [trained.vocabSize - 1]];
  const [right] = oracle([{ json, lists }]);
  compare(await load({ "tokenizer.json": json }), { lists }, right);
});

test("options that are none are refused", async () => {
  const tokenizer = await BpeTokenizer.train("abc abc", { vocabSize: 300 });
  const refused = (work, message) =>
    assert.throws(work, (error) => {
      assert.ok(error instanceof TinyloomError && error.code === "invalid-options");
      assert.match(error.message, message);
      return true;
    });
  refused(() => tokenizer.encode("a", { specialTokens: "skip" }), /specialTokens is "skip"/);
  refused(() => tokenizer.decode([97], { skipSpecialTokens: 1 }), /skipSpecialTokens is 1/);
  refused(() => tokenizer.decoder({ skip: true }), /no option "skip"/);
});
