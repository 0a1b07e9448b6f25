// Python's tokenizers beside ours: ids, text, and the text of each beginning of a stream.
// reads: tests/text/tokenizers_oracle.py
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { Tokenizer } from "tinyloom";
import { root } from "../../scripts/lib.mjs";
import { referencePython } from "../../scripts/reference.mjs";

const python = await referencePython();
const script = join(root, "tests", "text", "tokenizers_oracle.py");

/** What Python makes of each case. */
export function oracle(cases) {
  const options = { input: JSON.stringify(cases), maxBuffer: 1 << 30, encoding: "utf8" };
  return JSON.parse(execFileSync(python, [script], options));
}

const bytes = (value) =>
  new TextEncoder().encode(typeof value === "string" ? value : JSON.stringify(value));

/** A tokenizer of files given as objects or texts. */
export function load(files) {
  const entries = Object.entries(files).map(([name, value]) => [name, bytes(value)]);
  return Tokenizer.fromPretrained(Object.fromEntries(entries));
}

/** A tokenizer.json, with what a test says. */
export const tokenizerJson = (model, parts = {}) => ({
  version: "1.0",
  truncation: null,
  padding: null,
  added_tokens: [],
  normalizer: null,
  pre_tokenizer: null,
  post_processor: null,
  decoder: null,
  model,
  ...parts,
});

/** A model of pairs, with what a test says. */
export const bpe = (vocab, merges = [], parts = {}) => ({
  type: "BPE",
  dropout: null,
  unk_token: null,
  continuing_subword_prefix: null,
  end_of_word_suffix: null,
  fuse_unk: false,
  byte_fallback: false,
  ignore_merges: false,
  vocab: Array.isArray(vocab) ? Object.fromEntries(vocab.map((text, id) => [text, id])) : vocab,
  merges,
  ...parts,
});

export const addedToken = (id, content, special, flags = {}) => ({
  id,
  content,
  single_word: false,
  lstrip: false,
  rstrip: false,
  normalized: false,
  special,
  ...flags,
});

/** Compares a list of answers; says which differs first. */
function same(what, given, expected, of) {
  assert.equal(given.length, expected.length);
  for (const [at, one] of given.entries()) {
    const right = expected[at];
    const plain = typeof one === "string" ? one : Array.from(one);
    if (String(plain) === String(right)) continue;
    assert.deepEqual(plain, right, `${what} of ${JSON.stringify(of[at])}`);
  }
  return given.length;
}

/** The text of each beginning of a stream: what has come, and what comes if it ends there. */
function beginnings(tokenizer, ids) {
  return Array.from(ids, (_, last) => {
    const decoder = tokenizer.decoder();
    const texts = Array.from(ids.slice(0, last + 1), (id) => decoder.push(id));
    return texts.join("") + decoder.end();
  });
}

/** Compares a tokenizer with Python's answer to a case; gives the numbers compared. */
export function compare(tokenizer, { texts = [], lists = [], prefixes = 0 }, right, name = "") {
  const counts = { ids: 0, asText: 0, decoded: 0, splits: 0 };
  const of = (what) => `${name} ${what}`.trim();
  const encode = (options) => texts.map((text) => tokenizer.encode(text, options));
  counts.ids += same(of("ids"), encode(), right.whole, texts);
  counts.ids += same(of("ids alone"), encode({ addSpecialTokens: false }), right.plain, texts);
  const text = encode({ addSpecialTokens: false, specialTokens: "text" });
  counts.asText += same(of("ids of special tokens as text"), text, right.text, texts);
  const every = [...right.whole, ...lists];
  const decode = (options) => every.map((one) => tokenizer.decode(one, options));
  counts.decoded += same(of("text"), decode(), right.kept, every);
  const skipped = decode({ skipSpecialTokens: true });
  counts.decoded += same(of("text without special tokens"), skipped, right.skipped, every);
  const skipping = every.map((one) => {
    const decoder = tokenizer.decoder({ skipSpecialTokens: true });
    return one.map((id) => decoder.push(id)).join("") + decoder.end();
  });
  same(of("a stream without special tokens"), skipping, right.skipped, every);
  for (const [at, one] of [...right.whole.slice(0, prefixes), ...lists].entries()) {
    const splits = one.map((_, last) => one.slice(0, last + 1));
    counts.splits += same(of("a stream"), beginnings(tokenizer, one), right.prefixes[at], splits);
  }
  return counts;
}
