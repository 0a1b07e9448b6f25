// What a tokenizer's files say: special tokens, templates, and vocabularies without tokenizer.json.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { BpeTokenizer, Dataset, Tokenizer } from "tinyloom";
import { target } from "../../scripts/lib.mjs";
import { referencePython } from "../../scripts/reference.mjs";
import { addedToken, bpe, load, tokenizerJson } from "./oracle.mjs";
import { strings } from "./strings.mjs";

const json = tokenizerJson(bpe(["a", "b", "<s>", "</s>", "<pad>", "<|endoftext|>"]), {
  added_tokens: [addedToken(2, "<s>", true), addedToken(3, "</s>", true)],
});
const files = (more) => ({ "tokenizer.json": json, ...more });
const byName = (tokenizer) =>
  Object.entries(tokenizer.specialTokens).map(([name, { text, id }]) => `${name} ${text} ${id}`);
/** A tokenizer of what another one saves. */
const again = (tokenizer) => Tokenizer.fromPretrained(tokenizer.save());

test("special tokens come from the first file that says them, and stay when they are saved", async () => {
  const cases = [
    [{}, []],
    [
      {
        "tokenizer_config.json": {
          bos_token: { content: "<s>", lstrip: false },
          eos_token: "</s>",
        },
      },
      ["bos <s> 2", "eos </s> 3"],
    ],
    [
      { "special_tokens_map.json": { eos_token: { content: "</s>" }, pad_token: "<pad>" } },
      ["eos </s> 3", "pad <pad> 4"],
    ],
    [
      {
        "tokenizer_config.json": { model_max_length: 8, pad_token: "<pad>" },
        "special_tokens_map.json": { eos_token: "</s>", pad_token: "a" },
      },
      ["eos </s> 3", "pad <pad> 4"],
    ],
    [
      { "config.json": { eos_token_id: [3, 1], bos_token_id: 2, pad_token_id: null } },
      ["bos <s> 2", "eos </s> 3"],
    ],
    [
      {
        "tokenizer_config.json": { eos_token: null, bos_token: "<s>" },
        "config.json": { eos_token_id: 3 },
      },
      ["bos <s> 2"],
    ],
    [
      {
        "tokenizer_config.json": { eos_token: "</s>", bos_token: null },
        "config.json": { bos_token_id: 2 },
      },
      ["eos </s> 3"],
    ],
    [
      { "tokenizer_config.json": { tokenizer_class: "GPT2TokenizerFast" } },
      ["bos <|endoftext|> 5", "eos <|endoftext|> 5", "unk <|endoftext|> 5"],
    ],
    [
      { "tokenizer_config.json": { tokenizer_class: "GemmaTokenizer", eos_token: "</s>" } },
      ["eos </s> 3", "pad <pad> 4"],
    ],
    [{ "tokenizer_config.json": { eos_token: "<none>" } }, ["eos <none> undefined"]],
  ];
  for (const [more, expected] of cases) {
    const tokenizer = await load(files(more));
    assert.deepEqual(byName(tokenizer), expected, JSON.stringify(more));
    assert.equal(tokenizer.endToken, tokenizer.specialTokens.eos?.id);
    assert.deepEqual(byName(await again(tokenizer)), expected, `saved ${JSON.stringify(more)}`);
  }
});

test("templates come from files, or from tokenizer_config.json, by name", async () => {
  const two = [
    { name: "default", template: "D" },
    { name: "tool_use", template: "T" },
  ];
  const cases = [
    [{}, {}],
    [{ "tokenizer_config.json": { chat_template: "C" } }, { default: "C" }],
    [{ "tokenizer_config.json": { chat_template: two } }, { default: "D", tool_use: "T" }],
    [
      { "tokenizer_config.json": { chat_template: { default: "D", rag: "R" } } },
      { default: "D", rag: "R" },
    ],
    [
      { "chat_template.jinja": "J", "tokenizer_config.json": { chat_template: two } },
      { default: "J" },
    ],
    [
      { "chat_template.jinja": "J", "additional_chat_templates/rag.jinja": "R" },
      { default: "J", rag: "R" },
    ],
    [{ "chat_template.json": { chat_template: "P" } }, { default: "P" }],
    [
      {
        "chat_template.json": { chat_template: "P" },
        "tokenizer_config.json": { chat_template: "C" },
      },
      { default: "C" },
    ],
    [
      { "tokenizer_config.json": { chat_template: [{ name: "tool_use", template: "T" }] } },
      { tool_use: "T" },
    ],
  ];
  for (const [more, expected] of cases) {
    const tokenizer = await load(files(more));
    assert.deepEqual(tokenizer.chatTemplates, expected, JSON.stringify(more));
    assert.equal(tokenizer.chatTemplate, expected.default);
    assert.deepEqual(
      (await again(tokenizer)).chatTemplates,
      expected,
      `saved ${JSON.stringify(more)}`,
    );
  }
});

test("a byte-order mark before a file's text is no part of it", async () => {
  const text = (value) => `\ufeff${typeof value === "string" ? value : JSON.stringify(value)}`;
  const tokenizer = await load({
    "tokenizer.json": text(json),
    "tokenizer_config.json": text({ eos_token: "</s>" }),
    "chat_template.jinja": text("J"),
  });
  assert.equal(tokenizer.endToken, 3);
  assert.equal(tokenizer.chatTemplate, "J");
});

test("a dataset keeps what its tokenizer's files say", async () => {
  const tokenizer = await load(
    files({
      "special_tokens_map.json": { eos_token: "</s>" },
      "chat_template.json": { chat_template: "P" },
    }),
  );
  const data = await Dataset.from(new Blob(["ab".repeat(40)]), tokenizer);
  const { tokenizer: loaded } = await Dataset.load(await data.save());
  assert.deepEqual([loaded.endToken, loaded.chatTemplate], [3, "P"]);
});

const folder = join(target, "tokenizer-files");

/** A folder with vocab.json and merges.txt, and without tokenizer.json. */
async function vocabularyFolder(name, config, added) {
  const own = join(folder, name);
  rmSync(own, { recursive: true, force: true });
  mkdirSync(own, { recursive: true });
  const text = `${strings(9, ["<|endoftext|>", "hello"], 200).join("\n")} `;
  const trained = await BpeTokenizer.train(text.repeat(3), { vocabSize: 700 });
  const made = JSON.parse(new TextDecoder().decode(trained.save()["tokenizer.json"]));
  const { vocab, merges } = made.model;
  vocab["<|endoftext|>"] = made.added_tokens[0].id;
  const lines = merges.map((pair) => pair.join(" "));
  writeFileSync(join(own, "vocab.json"), JSON.stringify(vocab));
  writeFileSync(join(own, "merges.txt"), `#version: 0.2\n${lines.join("\n")}\n`);
  writeFileSync(join(own, "tokenizer_config.json"), JSON.stringify(config));
  if (added) writeFileSync(join(own, "added_tokens.json"), JSON.stringify(added));
  return own;
}

const SCRIPT = `
import json, sys
import transformers
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
texts = json.load(sys.stdin)
ids = [tokenizer(text)["input_ids"] for text in texts]
text = [tokenizer.decode(one, clean_up_tokenization_spaces=False) for one in ids]
json.dump({"ids": ids, "text": text, "eos": tokenizer.eos_token_id}, sys.stdout)
`;

test("vocab.json and merges.txt load as transformers loads them", async (t) => {
  const python = await referencePython();
  const texts = strings(11, ["<|endoftext|>"], 160);
  for (const [name, config] of [
    ["gpt2", { tokenizer_class: "GPT2Tokenizer", model_max_length: 1024 }],
    ["qwen2", { tokenizer_class: "Qwen2Tokenizer", eos_token: "<|endoftext|>" }],
  ]) {
    const own = await vocabularyFolder(name, config);
    const input = JSON.stringify(texts);
    const right = JSON.parse(
      execFileSync(python, ["-c", SCRIPT, own], { input, encoding: "utf8", maxBuffer: 1 << 28 }),
    );
    const tokenizer = await Tokenizer.fromPretrained(pathToFileURL(own));
    for (const [at, text] of texts.entries()) {
      assert.deepEqual(
        [...tokenizer.encode(text)],
        right.ids[at],
        `${name}: ${JSON.stringify(text)}`,
      );
      assert.equal(tokenizer.decode(right.ids[at]), right.text[at]);
    }
    assert.equal(tokenizer.endToken, right.eos);
    const { "tokenizer.json": saved } = tokenizer.save();
    assert.ok(saved.length > 0, "it is saved with a tokenizer.json");
    assert.deepEqual((await again(tokenizer)).encode(texts[8]), tokenizer.encode(texts[8]));
  }
  t.diagnostic(`2 folders × ${texts.length} texts, 0 different`);
});

test("folders that are not read name the cure", async () => {
  const vocab = { a: 0, b: 1 };
  const refused = [
    [
      { "tokenizer_config.json": {} },
      /tokenizer.json is missing, and so is vocab.json.*save_pretrained/,
    ],
    [{ "vocab.json": vocab }, /merges.txt.*save_pretrained/],
    [
      {
        "vocab.json": vocab,
        "merges.txt": "",
        "tokenizer_config.json": { tokenizer_class: "CLIPTokenizer" },
      },
      /not for "CLIPTokenizer".*save_pretrained/,
    ],
    [{ "vocab.json": "[]", "merges.txt": "" }, /vocab.json is no JSON object/],
    [{ "vocab.json": vocab, "merges.txt": "#version: 0.2\na b c" }, /model.merges\[0\]/],
  ];
  for (const [given, message] of refused) {
    await assert.rejects(load(given), { code: "invalid-checkpoint", message });
  }
});
