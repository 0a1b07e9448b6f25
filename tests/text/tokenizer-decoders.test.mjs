// How ids become text: as in Python, whole and streamed, or refused by name when the tokenizer is loaded.
import assert from "node:assert/strict";
import { test } from "node:test";
import { TinyloomError } from "tinyloom";
import { addedToken, bpe, compare, load, oracle, tokenizerJson } from "./oracle.mjs";
import { idLists } from "./strings.mjs";

const bytes = Array.from({ length: 256 }, (_, byte) => {
  const hex = byte.toString(16).toUpperCase().padStart(2, "0");
  return `<0x${hex}>`;
});
const VOCAB = [
  ...bytes,
  ...["a", "▁", "▁a", "▁▁", "b</w>", "</w>", "##b", "##", ".", "!", "n't", "do", "not", "'s", "'"],
  ...["é", "Ġ", "Ġa", "Ã", "©", "\ufeff", "|", "<pad>", "ï»¿", "a b", " a", "<0x4b>", "x▁y"],
];
const added = [
  addedToken(VOCAB.length, "▁▁▁", false),
  addedToken(VOCAB.length + 1, "<|im_end|>", true),
  addedToken(VOCAB.length + 2, "Ġé", false),
  addedToken(VOCAB.length + 3, "na\u00efve", true),
  addedToken(VOCAB.length + 4, "<a b>", true),
];
const SIZE = VOCAB.length + added.length;
const replace = { type: "Replace", pattern: { String: "▁" }, content: " " };
const strip = (start, stop, content = " ") => ({ type: "Strip", content, start, stop });
const [fallback, fuse, byteLevel] = ["ByteFallback", "Fuse", "ByteLevel"].map((type) => ({
  type,
  ...(type === "ByteLevel" && { add_prefix_space: true, trim_offsets: true, use_regex: true }),
}));
const sequence = (...decoders) => ({ type: "Sequence", decoders });
const metaspace = (prepend_scheme) => ({
  type: "Metaspace",
  replacement: "▁",
  prepend_scheme,
  split: true,
});
const wordPiece = (cleanup) => ({ type: "WordPiece", prefix: "##", cleanup });
const ctc = (cleanup) => ({
  type: "CTC",
  pad_token: "<pad>",
  word_delimiter_token: "|",
  cleanup,
});

const DECODERS = [
  null,
  byteLevel,
  fuse,
  fallback,
  replace,
  strip(1, 0),
  sequence(replace, fallback, fuse),
  sequence(replace, fallback, fuse, strip(1, 0)),
  sequence(replace, fallback, fuse, strip(2, 0)),
  sequence(fallback, replace),
  sequence(replace, strip(1, 0, "a"), fuse),
  sequence(byteLevel, strip(1, 0)),
  sequence(fuse, replace),
  sequence(fuse, metaspace("always")),
  sequence(replace, sequence(fallback, fuse), strip(1, 0)),
  metaspace("always"),
  metaspace("first"),
  metaspace("never"),
  sequence(fallback, metaspace("always")),
  wordPiece(true),
  wordPiece(false),
  { type: "BPEDecoder", suffix: "</w>" },
  ctc(true),
  ctc(false),
];

test("every decoder gives Python's text, whole and at each split of a stream", async (t) => {
  const lists = [
    ...idLists(3, SIZE, [0x0a, 0xe4, 0xbd, 0xa0, 257, 259, SIZE - 5, SIZE - 4]),
    [256],
  ];
  const more = [
    [0xe4, 0xbd, 0xa0], // a whole character
    [0x4b, 0x09, 0x74, 0xf4, 0x73], // one bad byte
    [256, 0xe4, 0xbd, 256, 0xef, 0xbb, 0xbf, 256],
    [0xef, 0xbb, 0xbf],
    [SIZE - 5, 256, SIZE - 5],
    [SIZE + 7, 256], // an id that there is not
  ];
  const cases = DECODERS.map((decoder) => ({
    json: tokenizerJson(bpe(VOCAB), { added_tokens: added, decoder }),
    lists: [...lists, ...more],
  }));
  let splits = 0;
  for (const [at, right] of oracle(cases).entries()) {
    const tokenizer = await load({ "tokenizer.json": cases[at].json });
    splits += compare(tokenizer, cases[at], right, JSON.stringify(DECODERS[at])).splits;
  }
  t.diagnostic(`${DECODERS.length} decoders, ${splits} splits of streams, 0 different`);
});

test("a decoder goes on after its end as a new one", async () => {
  const decoder = sequence(replace, fallback, fuse, strip(1, 0));
  const tokenizer = await load({ "tokenizer.json": tokenizerJson(bpe(VOCAB), { decoder }) });
  const stream = tokenizer.decoder();
  for (let i = 0; i < 2; i++) {
    const texts = [257, 256, 0xe4, 0xbd, 0xa0].map((id) => stream.push(id));
    assert.deepEqual([texts.join(""), stream.end()], ["a", "你"]);
  }
  const [one, other] = [tokenizer.decoder(), tokenizer.decoder()];
  assert.equal(one.push(258), "a");
  assert.equal(other.push(258), "a", "streams have nothing in common");
});

test("a decoder that is not computed is refused by name when the tokenizer is loaded", async () => {
  const wrong = [
    [{ type: "WordPiece", cleanup: true }, /prefix of the decoder "WordPiece" is undefined/],
    [
      { type: "WordPiece", prefix: null, cleanup: true },
      /prefix of the decoder "WordPiece" is "null"/,
    ],
    [{ type: "Other" }, /type of the decoder "Other"/],
    [{ ...replace, pattern: { Regex: "a" } }, /pattern of the decoder "Replace"/],
    [{ ...strip(1, 0), start: "1" }, /start of the decoder "Strip"/],
    [sequence(null), /decoder/],
  ];
  for (const [decoder, message] of wrong) {
    const json = tokenizerJson(bpe(VOCAB), { decoder });
    await assert.rejects(load({ "tokenizer.json": json }), (error) => {
      assert.ok(
        error instanceof TinyloomError && error.code === "invalid-checkpoint",
        String(error),
      );
      assert.match(error.message, message);
      return true;
    });
  }
});

test("WordPiece, WordLevel and Unigram give Python's ids and text", async () => {
  const words = Object.fromEntries(
    ["[UNK]", "hello", "##s", "wor", "##ld", "##!"].map((one, id) => [one, id]),
  );
  const unigram = [
    ["<unk>", 0],
    ["▁", -2],
    ["▁a", -1],
    ["a", -3],
    ["b", -3],
    ["ab", -2.5],
  ];
  const models = [
    {
      model: {
        type: "WordPiece",
        unk_token: "[UNK]",
        continuing_subword_prefix: "##",
        max_input_chars_per_word: 100,
        vocab: words,
      },
      pre_tokenizer: { type: "WhitespaceSplit" },
      decoder: wordPiece(true),
    },
    {
      model: { type: "WordLevel", unk_token: "[UNK]", vocab: words },
      pre_tokenizer: { type: "Whitespace" },
    },
    {
      model: { type: "Unigram", unk_id: 0, vocab: unigram, byte_fallback: false },
      pre_tokenizer: metaspace("always"),
      decoder: metaspace("always"),
    },
  ];
  const texts = ["hello world!", "hellos worlds", " a ab  abb", "x a", "", "zz hello"];
  const cases = models.map(({ model, ...parts }) => ({
    json: tokenizerJson(model, parts),
    texts,
    lists: [
      [1, 2],
      [2, 1, 0],
      [5, 4],
    ],
    prefixes: texts.length,
  }));
  for (const [at, right] of oracle(cases).entries()) {
    assert.equal(right.error, undefined);
    const tokenizer = await load({ "tokenizer.json": cases[at].json });
    compare(tokenizer, cases[at], right, models[at].model.type);
  }
});

test("models that are not computed are refused by name when the tokenizer is loaded", async () => {
  const unigram = { type: "Unigram", unk_id: 0, vocab: [["<unk>", 0]], byte_fallback: true };
  for (const [model, message] of [
    [unigram, /model.byte_fallback of Unigram is true/],
    [bpe(["a"], [], { continuing_subword_prefix: "##" }), /model.continuing_subword_prefix of BPE/],
  ]) {
    const json = tokenizerJson(model);
    await assert.rejects(load({ "tokenizer.json": json }), { code: "invalid-checkpoint", message });
  }
});
