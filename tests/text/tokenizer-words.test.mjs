// How texts are split into words: as in Python, or refused by name when the tokenizer is loaded.
import assert from "node:assert/strict";
import { test } from "node:test";
import { BpeTokenizer, TinyloomError } from "tinyloom";
import { bpe, compare, load, oracle, tokenizerJson } from "./oracle.mjs";
import { strings } from "./strings.mjs";

const TEXTS = [
  "Hello, world! 123 can't stop.",
  "WE'RE here, Aujourd’hui AUJOURD’HUI.",
  "hello שלום café नमस्ते مرحبا_١٢٣",
  "abc 123 १२३ room ４２ ٣ apples",
  "中文かなカナ 한국어 ไทย Lao",
  "https://example.com/path?x=1 foo@example.com @usuario url",
  " leading\nline\n leading\tword  ",
  "{[(<\"'‘’“”„‟＂»«‹›—–―…。▁ [UNK] ://",
  "foo---bar hello!!!?? ((test)) trail \rnext  line end abc\r\n",
  "a‿b x①y Ⅻ z² ¼cup ⓐⓑ a·b price ½",
  " a1 z1 ef G5 ß STRASSE İstanbul 1234567 12 123456",
  "aaaaaa aaaa baaa it'ſ 'ſa x'ſab \u212a k Sdmt ſdmt",
  `1${"2".repeat(1100)}`,
  "\ufeff\ufeffa \u0085b  ",
  "𝕳𝕳a \n𝕳🙂b",
];
/** Words are seen in the ids: the last character of each is another token. */
const MODEL = bpe(
  [...new Set(TEXTS.join(""))].flatMap((one) => [one, `${one}</w>`]),
  [],
  { end_of_word_suffix: "</w>" },
);
const BEHAVIORS = ["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"];
const r = String.raw;

/** Expressions that are computed. */
const EQUAL = [
  r`'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`,
  r`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+`,
  r`(?i:aujourd['’]hui|k|s)|\p{L}`,
  r`\p{Nd}{1,510}(?=(?>\p{Nd}{510})*(?:\P{Nd}|$))`,
  r`(?>\p{Nd}{510})`,
  r`(?>a+)a`,
  r`(?>a|ab)c`,
  r`(?:ab|a)++b`,
  r`a*+a`,
  r`(?:\d(?>\d)?)+`,
  r`\p{Nd}{3}+`,
  r`a{2}?`,
  r`a{,3}`,
  r`\A\p{Nd}{1,2}(?=\p{Nd}{3}+\z)`,
  r`[\(\)\[\]\{\}]|([!"\#\$%\&'\*\+,\-\./:;<=>\?\\\^_\`\|\~])\1*`,
  r`\d{1,3}(?=(?:\d{3})*\b)`,
  r`[[:alpha:]]+`,
  r`\s+$`,
  "(?<!\\n)^ ",
  "(?=[A-Z])",
  "(?i:é)",
];
/** Expressions without an equal in JavaScript. */
const REFUSED = [
  [r`\A\p{Nd}{3}|\G\p{Nd}{3}`, /\\G/],
  [r`\p{Nd}{1,510}(?=(?>\p{Nd}{510})*(?:\P{Nd}|$))|\G\p{Nd}{510}`, /\\G/],
  [r`\G`, /\\G/],
  ["(?i:ss|k)", /ss within \(\?i:/],
  ["(?i:ß)", /ß within \(\?i:/],
  ["(?i:[é])", /\[é\] within \(\?i:/],
  [r`(?i:\p{Lu})`, /within \(\?i:/],
  ["^", /a place with nothing before it/],
  [r`(?<!\n)(?=a)`, /a place with nothing before it/],
  ["(?i)abc", /the group \(\?i\)/],
  ["(?m:.)", /the group \(\?m/],
  [r`\X`, /refuses tokenizer.json/],
];

const split = (pattern, behavior = "Isolated", invert = false) => ({
  type: "Split",
  pattern: typeof pattern === "string" ? { Regex: pattern } : pattern,
  behavior,
  invert,
});

/** Loads a tokenizer with these words, or gives the error that refuses it. */
async function attempt(pre_tokenizer) {
  const json = tokenizerJson(MODEL, { pre_tokenizer });
  try {
    return { json, tokenizer: await load({ "tokenizer.json": json }) };
  } catch (error) {
    assert.ok(error instanceof TinyloomError && error.code === "invalid-checkpoint", String(error));
    return { json, error };
  }
}

/** Compares those that load with Python; gives how many did. */
async function expectEqual(parts) {
  const all = await Promise.all(parts.map(attempt));
  const loaded = all.filter(({ tokenizer }) => tokenizer);
  const cases = loaded.map(({ json }) => ({ json, texts: TEXTS }));
  for (const [at, right] of oracle(cases).entries()) {
    const { json, tokenizer } = loaded[at];
    assert.equal(right.error, undefined);
    compare(tokenizer, cases[at], right, JSON.stringify(json.pre_tokenizer));
  }
  return loaded.length;
}

test("expressions are Python's", async (t) => {
  const parts = EQUAL.flatMap((one) => [split(one), split(one, "Removed", true)]);
  assert.equal(await expectEqual(parts), parts.length);
  t.diagnostic(`${parts.length} parts × ${TEXTS.length} texts, 0 different`);
});

test("an expression without an equal is refused by name when the tokenizer is loaded", async () => {
  for (const [one, message] of REFUSED) {
    const { error } = await attempt(split(one));
    assert.match(error?.message ?? `${one} loads`, message);
  }
});

test("every behaviour is Python's, or refused", async (t) => {
  const strings = [" ", "aa", "---"].flatMap((text) =>
    BEHAVIORS.map((behavior) => split({ String: text }, behavior)),
  );
  assert.equal(await expectEqual(strings), strings.length);
  const parts = EQUAL.flatMap((one) =>
    [false, true].flatMap((invert) => BEHAVIORS.map((behavior) => split(one, behavior, invert))),
  );
  const loaded = await expectEqual(parts);
  assert.ok(loaded > parts.length / 3);
  t.diagnostic(`${loaded} equal, ${parts.length - loaded} refused`);
});

test("the other ways to words are Python's", async () => {
  const metaspace = { type: "Metaspace", replacement: "▁" };
  const parts = [
    { type: "Digits", individual_digits: true },
    { type: "Digits", individual_digits: false },
    { type: "Whitespace" },
    { type: "WhitespaceSplit" },
    { type: "BertPreTokenizer" },
    ...BEHAVIORS.map((behavior) => ({ type: "Punctuation", behavior })),
    { ...metaspace, prepend_scheme: "always", split: true },
    { ...metaspace, prepend_scheme: "first", split: true },
    { ...metaspace, prepend_scheme: "never", split: false },
    { type: "FixedLength", length: 3 },
  ];
  assert.equal(await expectEqual(parts), parts.length);
});

test("words of bytes are Python's: numerals, white space, and a space before a text", async (t) => {
  const trained = await BpeTokenizer.train(TEXTS.join("\n").repeat(4), { vocabSize: 600 });
  const json = JSON.parse(new TextDecoder().decode(trained.save()["tokenizer.json"]));
  const byteLevel = (add_prefix_space, use_regex = true) => ({
    type: "ByteLevel",
    add_prefix_space,
    trim_offsets: true,
    use_regex,
  });
  const sequence = (...pretokenizers) => ({ type: "Sequence", pretokenizers });
  const digits = (individual_digits) => ({ type: "Digits", individual_digits });
  const texts = [...strings(6, [...TEXTS, "<|endoftext|>"], 180), "price ½", " ²", " ٣"];
  const cases = [
    sequence(digits(true), byteLevel(false)), // SmolLM2
    sequence(digits(false), byteLevel(false)),
    sequence(digits(true), byteLevel(true)),
    byteLevel(true),
    byteLevel(true, false),
    byteLevel(false, false),
    sequence({ type: "Punctuation", behavior: "Contiguous" }, byteLevel(false), digits(true)), // Falcon
  ].map((pre_tokenizer) => ({ json: { ...json, pre_tokenizer }, texts }));
  for (const [at, right] of oracle(cases).entries()) {
    const tokenizer = await load({ "tokenizer.json": cases[at].json });
    assert.ok(!(tokenizer instanceof BpeTokenizer));
    compare(tokenizer, cases[at], right, JSON.stringify(cases[at].json.pre_tokenizer));
  }
  t.diagnostic(`${cases.length} ways × ${texts.length} texts, 0 different`);
});

test("normalisers are Python's", async (t) => {
  const han = "㐀𠀀中\u{2b820}\u{2b91f}\u{2b920}豈\u00ad";
  const texts = [
    ...strings(7, [...TEXTS, ...han], 160),
    han,
    "ΟΔΥΣΣΕΥΣ ΑΣ",
    "  \u0085a\ufeff ",
    "a$b$$c 1$&",
  ];
  const model = bpe([...new Set(texts.join("").normalize("NFKD") + texts.join("").toLowerCase())]);
  const replace = (pattern, content) => ({ type: "Replace", pattern, content });
  const strip = (strip_left, strip_right) => ({ type: "Strip", strip_left, strip_right });
  const bert = (clean_text, handle_chinese_chars, strip_accents, lowercase) => ({
    type: "BertNormalizer",
    ...{ clean_text, handle_chinese_chars, strip_accents, lowercase },
  });
  const normalizers = [
    ...["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"].map((type) => ({ type })),
    ...[strip(true, true), strip(true, false), strip(false, true)],
    replace({ String: "a" }, "$&$1$$"),
    replace({ Regex: "(a)|b++" }, "$1"),
    replace({ Regex: " {2,}" }, "▁"),
    { type: "Prepend", prepend: "▁" },
    bert(true, true, null, true),
    bert(false, true, true, false),
    bert(true, false, false, false),
    { type: "Sequence", normalizers: [{ type: "NFD" }, { type: "Lowercase" }, strip(true, true)] },
  ];
  const cases = normalizers.map((normalizer) => ({
    json: tokenizerJson(model, { normalizer }),
    texts,
  }));
  for (const [at, right] of oracle(cases).entries()) {
    const tokenizer = await load({ "tokenizer.json": cases[at].json });
    compare(tokenizer, cases[at], right, JSON.stringify(normalizers[at]));
  }
  t.diagnostic(`${normalizers.length} normalisers × ${texts.length} texts, 0 different`);
});

/** A table of what texts become, as SentencePiece writes it: a double array, a block of 256 units for each node. */
function charsmap(pairs) {
  const utf8 = new TextEncoder();
  const root = { children: new Map() };
  const texts = [];
  for (const [from, to] of pairs) {
    let node = root;
    for (const byte of utf8.encode(from)) {
      if (!node.children.has(byte)) node.children.set(byte, { children: new Map() });
      node = node.children.get(byte);
    }
    node.value = texts.length;
    texts.push(...utf8.encode(to), 0);
  }
  const units = [];
  let blocks = 0;
  const place = (node, at, label) => {
    blocks += 1;
    const base = blocks * 256;
    const leaf = node.value === undefined ? 0 : 0x100;
    units[at] = (((at ^ base) << 10) | leaf | label) >>> 0;
    if (leaf) units[base] = (0x8000_0000 | node.value) >>> 0;
    for (const [byte, child] of node.children) place(child, base ^ byte, byte);
  };
  place(root, 0, 0);
  const length = (blocks + 1) * 256;
  const head = Uint32Array.from({ length: length + 1 }, (_, at) =>
    at === 0 ? length * 4 : (units[at - 1] ?? 0),
  );
  return Buffer.concat([Buffer.from(head.buffer), Buffer.from(texts)]).toString("base64");
}

test("a table of SentencePiece changes texts as in Python", async (t) => {
  const pairs = [
    ["ﬁ", "fi"],
    ["\u3000", " "],
    ["\t", " "],
    ["é", "e"],
    ["e\u0301", "E!"],
    ["①", "1"],
    ["\u200b", ""],
    ["k", "q"],
    ["\u{1f44d}", "+"],
    ["\u30ab", "ka"],
  ];
  const precompiled_charsmap = charsmap(pairs);
  const texts = [...strings(8, pairs.flat(), 200), "e\u0301 k\u0301 ①\u3000ﬁ", "👍🏽👍 カ\u3099"];
  const chars = [...new Set(`${texts.join("")}${pairs.flat().join("")}E!+qka`)];
  const table = { type: "Precompiled", precompiled_charsmap };
  const cases = [
    table,
    { type: "Sequence", normalizers: [{ type: "Lowercase" }, table, { type: "NFC" }] },
  ].map((normalizer) => ({ json: tokenizerJson(bpe(chars), { normalizer }), texts }));
  for (const [at, right] of oracle(cases).entries()) {
    assert.equal(right.error, undefined);
    compare(await load({ "tokenizer.json": cases[at].json }), cases[at], right);
  }
  for (const wrong of [null, "", "AAAA", "not base64", 5]) {
    const normalizer = { type: "Precompiled", precompiled_charsmap: wrong };
    const json = tokenizerJson(bpe(chars), { normalizer });
    const message = /precompiled_charsmap of a normalizer/;
    await assert.rejects(load({ "tokenizer.json": json }), { code: "invalid-checkpoint", message });
  }
  t.diagnostic(`${cases.length} normalisers × ${texts.length} texts, 0 different`);
});
