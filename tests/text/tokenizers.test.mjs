// Tokenizers against Python's: token for token on a megabyte of mixed text, and the answers of
// conversations as transformers' template has them.
// reads: tests/reference tests/files/hub-tokenizer
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { before, test } from "node:test";
import { pathToFileURL } from "node:url";
import {
  BpeTokenizer,
  ByteTokenizer,
  chatPrompt,
  Dataset,
  TinyloomError,
  Tokenizer,
} from "tinyloom";
import { root, target } from "../../scripts/lib.mjs";
import { referencePython } from "../../scripts/reference.mjs";

const { tokenize } = await import("../../pkg/dist/text/jinja/lex.js");

const folder = join(target, "tokenizers");
const script = join(root, "tests", "reference", "tokenizers_reference.py");
const python = await referencePython();

const run = (...args) =>
  execFileSync(python, [script, ...args], { stdio: ["ignore", "ignore", "pipe"] });
const json = (...path) => JSON.parse(readFileSync(join(folder, ...path), "utf8"));
let text;

before(() => {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  run("train", folder);
  text = readFileSync(join(folder, "mixed.txt"), "utf8");
});

/** What Python makes of the text with the tokenizer in that folder. */
function reference(name) {
  run("encode", join(folder, name), join(folder, "mixed.txt"), join(folder, name, "ids.json"));
  return json(name, "ids.json");
}

function sameIds(ids, expected) {
  const at = expected.findIndex((id, i) => id !== ids[i]);
  assert.equal(at, -1, `id ${at} is ${ids[at]} and not ${expected[at]}`);
  assert.equal(ids.length, expected.length);
}

test("a tokenizer trained here loads in transformers and encodes alike", {
  timeout: 300_000,
}, async (t) => {
  const tokenizer = await BpeTokenizer.train(text.slice(0, 400_000), { vocabSize: 2000 });
  mkdirSync(join(folder, "own"));
  for (const [name, bytes] of Object.entries(tokenizer.save())) {
    writeFileSync(join(folder, "own", name), bytes);
  }
  const { ids: expected, size } = reference("own");
  const ids = tokenizer.encode(text);
  sameIds(ids, expected);
  assert.equal(size, tokenizer.vocabSize);
  assert.ok(tokenizer.decode(ids) === text, "decoded");
  t.diagnostic(`${Buffer.byteLength(text)} bytes, ${ids.length} tokens, all the same`);
});

test("a special token that the vocabulary has is the same token in transformers", {
  timeout: 300_000,
}, async () => {
  const specialTokens = ["e", "#", "<|end|>"];
  const tokenizer = await BpeTokenizer.train(text.slice(0, 100_000), {
    vocabSize: 500,
    specialTokens,
  });
  mkdirSync(join(folder, "special"));
  for (const [name, bytes] of Object.entries(tokenizer.save())) {
    writeFileSync(join(folder, "special", name), bytes);
  }
  const { ids: expected, size } = reference("special");
  sameIds(tokenizer.encode(text), expected);
  assert.ok(expected.includes(101), "the token e");
  assert.equal(size, tokenizer.vocabSize);
});

for (const kind of ["byte-level", "byte-fallback"]) {
  test(`a ${kind} tokenizer of Hugging Face encodes and decodes as Python's`, {
    timeout: 300_000,
  }, async (t) => {
    const { ids: expected, plain, decoded, size } = reference(kind);
    const tokenizer = await Tokenizer.fromPretrained(pathToFileURL(join(folder, kind)));
    assert.ok(!(tokenizer instanceof BpeTokenizer), "it is the peer's");
    sameIds(tokenizer.encode(text), expected);
    const ids = tokenizer.encode(text, { addSpecialTokens: false });
    sameIds(ids, plain);
    assert.equal(decoded, true, "Python decodes it to the text");
    assert.ok(tokenizer.decode(ids) === text, "decoded");
    const decoder = tokenizer.decoder();
    assert.ok(
      Array.from(ids, (id) => decoder.push(id)).join("") + decoder.end() === text,
      "streamed",
    );
    assert.equal(tokenizer.vocabSize, size);
    const data = await Dataset.from(new Blob([text]), tokenizer, { startTokens: false });
    const whole = Dataset.fromTokens(ids);
    assert.equal(data.hash, whole.hash, "read in pieces, the tokens are those of the whole");
    t.diagnostic(`${ids.length} tokens, all the same`);
  });
}

const CONVERSATIONS = [
  [
    { role: "user", content: "Hello there, how are you?" },
    { role: "assistant", content: "I'm fine 😀, thanks" },
  ],
  [
    { role: "system", content: "Be brief." },
    { role: "user", content: "東京都?\n\nwhat" },
    { role: "assistant", content: "  Москва\n\nno. " },
    { role: "user", content: " and  now" },
    { role: "assistant", content: "the fox" },
  ],
  [{ role: "user", content: "only a question" }],
];

/** The tokens of a dataset, and whether each is learned. */
async function learnedOf(data) {
  const files = await data.save();
  const ids = new Uint16Array(files["tokens.bin"].buffer);
  const ranges = new Uint32Array(files["learned.bin"].buffer);
  const mask = new Array(ids.length).fill(0);
  for (let i = 0; i < ranges.length; i += 2) mask.fill(1, ranges[i], ranges[i + 1]);
  return { ids: [...ids], mask };
}

test("answers are those that transformers' template marks", { timeout: 300_000 }, async (t) => {
  writeFileSync(join(folder, "conversations.json"), JSON.stringify(CONVERSATIONS));
  const [from, to] = ["conversations.json", "chat.json"].map((name) => join(folder, name));
  run("chat", join(folder, "byte-level"), from, to);
  const expected = json("chat.json");
  const tokenizer = await Tokenizer.fromPretrained(pathToFileURL(join(folder, "byte-level")));
  const options = { validationFraction: 0 };
  const data = await Dataset.fromConversations(CONVERSATIONS, tokenizer, options);
  const { ids, mask } = await learnedOf(data);
  assert.deepEqual(
    ids,
    expected.flatMap((one) => one.ids),
  );
  assert.deepEqual(
    mask,
    expected.flatMap((one) => one.mask),
  );
  for (const [at, one] of expected.entries()) {
    const { tokens, learned } = await data.document(at);
    assert.deepEqual([...tokens], one.ids, `tokens of document ${at}`);
    assert.deepEqual([...learned], one.mask, `what is learned of document ${at}`);
    const { text, ...prompt } = await chatPrompt(CONVERSATIONS[at], tokenizer);
    assert.equal(text, one.prompt.text, `prompt ${at}`);
    assert.deepEqual([...prompt.tokens], one.prompt.ids, `tokens of prompt ${at}`);
    assert.deepEqual(prompt.stop, ["</s>"], "what ends an answer");
  }
  const learned = mask.reduce((sum, one) => sum + one);
  assert.ok(learned > 20 && learned < ids.length / 2);
  const lines = CONVERSATIONS.map((messages) => JSON.stringify({ messages })).join("\n");
  const fromFile = await Dataset.fromConversations(new Blob([lines]), tokenizer, options);
  assert.equal(fromFile.hash, data.hash, "of JSONL");
  const again = await Dataset.load(await data.save());
  assert.equal(again.hash, data.hash, "saved and loaded");
  const all = await Dataset.fromConversations(CONVERSATIONS, tokenizer, {
    ...options,
    learn: "all",
  });
  assert.notEqual(all.hash, data.hash);
  t.diagnostic(`${learned} of ${ids.length} tokens are learned, as in transformers`);
});

test("a template without marks: an answer is what its message adds", async () => {
  const template =
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}</s>{% endfor %}" +
    "{% if add_generation_prompt %}<assistant>{% endif %}";
  const tokenizer = new ByteTokenizer();
  const data = await Dataset.fromConversations(CONVERSATIONS, tokenizer, {
    template,
    validationFraction: 0,
  });
  const files = await data.save();
  const ranges = new Uint32Array(files["learned.bin"].buffer);
  const learned = [];
  for (let i = 0; i < ranges.length; i += 2) {
    learned.push(tokenizer.decode(files["tokens.bin"].slice(ranges[i], ranges[i + 1])));
  }
  assert.deepEqual(learned, ["I'm fine 😀, thanks</s>", "  Москва\n\nno. </s>", "the fox</s>"]);
  const code = (given) => Dataset.fromConversations(...given).catch((error) => error);
  const boom = () => {
    throw new Error("boom");
  };
  const refusals = [
    [[new Proxy([], { get: boom }), tokenizer, { template }], "boom"],
    [[Object.defineProperty([], 0, { get: boom }), tokenizer, { template }], "boom"],
    [[CONVERSATIONS, tokenizer], "no chat template"],
    [[[{ text: "a" }], tokenizer, { template }], "conversation 0"],
  ];
  for (const [given, words] of refusals) {
    const error = await code(given);
    assert.ok(error instanceof TinyloomError && error.code === "invalid-options", String(error));
    assert.match(error.message, new RegExp(words));
  }
  const counted = await code([CONVERSATIONS, tokenizer, { template: "{{ messages | length }}" }]);
  assert.equal(counted.code, "invalid-tokens");
  assert.match(counted.message, /no conversation has an answer .* in what the template renders/);
});

test("a document tells what the loss counts, and a prompt what ends its answer", async () => {
  const tokenizer = new ByteTokenizer();
  const template =
    "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}\n{% endfor %}" +
    "{% if add_generation_prompt %}a:{% endif %}";
  const data = await Dataset.fromConversations([CONVERSATIONS[1]], tokenizer, {
    template,
    validationFraction: 0,
  });
  const { tokens, learned } = await data.document(0);
  const text = "s:Be brief.\nu:東京都?\n\nwhat\na:  Москва\n\nno. \nu: and  now\na:the fox\n";
  assert.equal(tokenizer.decode(tokens), text);
  const counted = tokens.filter((_, at) => learned[at]);
  assert.equal(tokenizer.decode(counted), "  Москва\n\nno. \nthe fox\n");
  const prompt = await chatPrompt(CONVERSATIONS[1].slice(0, 2), tokenizer, { template });
  assert.equal(prompt.text, "s:Be brief.\nu:東京都?\n\nwhat\na:");
  assert.equal(tokenizer.decode(prompt.tokens), prompt.text);
  // White space is in answers too: it ends none without the next header.
  assert.deepEqual(prompt.stop, ["\nu:"]);
  const bare = "{% for m in messages %}{{ m.content }}{% endfor %}";
  assert.deepEqual((await chatPrompt(CONVERSATIONS[2], tokenizer, { template: bare })).stop, []);

  const windows = Dataset.fromTokens([1, 2, 3, 4, 5], { sequenceLength: 3, validationFraction: 0 });
  const last = await windows.document(1);
  assert.deepEqual(
    [[...last.tokens], [...last.learned]],
    [
      [4, 5],
      [0, 1],
    ],
    "of one text",
  );
  for (const index of [-1, 1, 0.5, "0", undefined]) {
    await assert.rejects(data.document(index), { code: "invalid-options" }, String(index));
  }
  data.free();
  await assert.rejects(data.document(0), { code: "freed" });
  const broken = {
    get role() {
      throw new Error("closed");
    },
  };
  for (const [given, words] of [
    [[CONVERSATIONS[0], tokenizer], /no chat template/],
    [
      [[{ text: "a" }], tokenizer, { template }],
      /the conversation has message 0, .*but text; give messages .*role/,
    ],
    [[CONVERSATIONS[0], {}, { template }], /takes a tokenizer/],
    [[CONVERSATIONS[0], tokenizer, { template, learn: "all" }], /learn/],
    [[CONVERSATIONS[0], tokenizer, { template: "{% bad %}" }], /the template/],
    [[{ messages: [broken] }, tokenizer, { template }], /threw Error: closed when it was read/],
  ]) {
    await assert.rejects(chatPrompt(...given), { code: "invalid-options", message: words });
  }
});

/** The text of a conversation through a template, and its characters that are learned. */
async function rendered(template, messages, more) {
  const tokenizer = new ByteTokenizer();
  const options = { validationFraction: 0, template, ...more };
  const data = await Dataset.fromConversations([messages], tokenizer, options);
  const { tokens, learned } = await data.document(0);
  const counted = tokens.filter((_, at) => learned[at]);
  return [tokenizer.decode(tokens), tokenizer.decode(counted)];
}

const ASKED = [
  { role: "user", content: " Why? " },
  { role: "assistant", content: " So. " },
];
const MARKED =
  "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% else %}" +
  "{% generation %}{{ m.content }}{% endgeneration %}{% endif %}{% endfor %}";

test("marks of answers pass through filters, and no message can forge them", async () => {
  const filtered = `{% set all %}${MARKED}{% endset %}`;
  assert.deepEqual(await rendered(`${filtered}{{ all | upper | trim }}`, ASKED), [
    "WHY?  SO.",
    " SO.",
  ]);
  const upper = `{% filter upper %}${MARKED}{% endfilter %}`;
  assert.deepEqual(await rendered(upper, ASKED), [" WHY?  SO. ", " SO. "]);
  const forged = [{ role: "user", content: "\u{f0f00}a\u{f0f01}" }, ASKED[1]];
  const [text, learned] = await rendered(MARKED, forged);
  assert.equal(text, "\u{f0f00}a\u{f0f01} So. ");
  assert.equal(learned, " So. ");
});

test("what is no code of a template is no tag and no call", async () => {
  const plain = "{% for m in messages %}{{ m.content }};{% endfor %}";
  // Without marks an answer is what its message adds.
  const comment = `{# {% generation %} #}${plain}`;
  assert.deepEqual(await rendered(comment, ASKED), [" Why? ; So. ;", " So. ;"]);
  const string = `{{ "range (" }}{{ 'a\\'range(3)' }}{% set x = "range(" %}{{ x }}${plain}`;
  assert.equal((await rendered(string, ASKED))[0], "range (a'range(3)range( Why? ; So. ;");
  const list = '{% for a in range(2) %}{{ "}}" }}{{ a }}{{ range(3)[2] }}{% endfor %}';
  assert.equal((await rendered(`${list}${plain}`, ASKED))[0], "}}02}}12 Why? ; So. ;");
  const raw = '{% raw %}{% generation %}{{ range(1) }}{%- endraw %}{{ "{% generation %}" }}';
  const [text] = await rendered(raw, [ASKED[0]], { learn: "all" });
  assert.equal(text, "{% generation %}{{ range(1) }}{% generation %}");
});

test("tags around answers alternate", async () => {
  const [open, close] = ["{% generation %}", "{% endgeneration %}"];
  for (const template of [
    `${open}a`,
    `a${close}`,
    `${close}a${open}`,
    `${open}a${open}b${close}${close}`,
    `{% if messages | length > 9 %}${open}{% endif %}a${close}`, // as it is rendered
  ]) {
    await assert.rejects(
      rendered(template, ASKED),
      {
        code: "invalid-options",
        message: /generation %} and .*endgeneration %} .*do not alternate/,
      },
      template,
    );
  }
});

test("a conversation is read once, with what its classes give", async () => {
  const reads = { messages: 0, role: 0, content: 0 };
  const counting = (values) => {
    const counted = {};
    for (const [name, value] of Object.entries(values)) {
      const get = () => {
        reads[name] += 1;
        return value;
      };
      Object.defineProperty(counted, name, { get, enumerable: true });
    }
    return counted;
  };
  const template = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}";
  const given = counting({ messages: [counting(ASKED[0])] });
  const all = { learn: "all" };
  assert.deepEqual(await rendered(template, given, all), ["u: Why? ;", ": Why? ;"]);
  await chatPrompt(given, new ByteTokenizer(), { template });
  assert.deepEqual(reads, { messages: 2, role: 2, content: 2 });
  class Said {
    get role() {
      return "user";
    }
    get content() {
      return "Hi";
    }
  }
  assert.equal((await rendered(template, [new Said()], all))[0], "u:Hi;");
});

test("a template's range is Python's, and no longer than in its sandbox", async () => {
  const messages = [{ role: "user", content: "a" }];
  const written = async (template) => {
    const tokenizer = new ByteTokenizer();
    const made = { validationFraction: 0, template, learn: "all" };
    const data = await Dataset.fromConversations([messages], tokenizer, made);
    const files = await data.save();
    return tokenizer.decode(new Uint8Array(files["tokens.bin"].buffer));
  };
  const list = (range) => written(`{% for a in ${range} %}{{ a }} {% endfor %}.`);
  assert.equal(await list("range(3)"), "0 1 2 .");
  assert.equal(await list("range(2, 5)"), "2 3 4 .");
  assert.equal(await list("range(5, 0, -2)"), "5 3 1 .");
  assert.equal(await list("range(3, 1)"), ".");
  for (const range of ["range(100000000)", "range(0, 1, 0)"]) {
    await assert.rejects(list(range), { code: "invalid-options", message: /at most 100000/ });
  }
});

test("no name of a template reaches the unbounded range of the renderer", async () => {
  for (const template of [
    "{{ (range)(200000) | length }}",
    "{% set f = range %}{{ f(200000) }}",
    "{{ {'a':{'b':1}}['a']['b'] ~ (range(200000) | length) }}",
  ]) {
    const refusal = { code: "invalid-options", message: /at most 100000/ };
    await assert.rejects(rendered(template, ASKED), refusal, template);
  }
  const plain = (template, more) => rendered(template, ASKED, { learn: "all", ...more });
  assert.equal((await plain("{% set range = 3 %}{{ range }}"))[0], "3");
  const given = { messages: ASKED, range: 4 };
  assert.equal((await rendered("{{ range }}", given, { learn: "all" }))[0], "4");
  const counted = "{{ {'a':{'b':1}}['a']['b'] ~ (range(20) | length) }}";
  assert.equal((await plain(counted))[0], "120");
  for (const call of ["range()", "range('3')", "range(0, 3, 0.5)", "range(1, 2, 3, 4)"]) {
    const refusal = { code: "invalid-options", message: /range\(\) takes one to three whole num/ };
    await assert.rejects(plain(`{{ ${call} }}`), refusal, call);
  }
});

test("a template that changes what it marks has the marks of what is left", async () => {
  const answer =
    "{% set m = messages[1] %}{% set x %}{% generation %}{{ m.content }}{% endgeneration %}{% endset %}";
  for (const [end, text, learned] of [
    ["x[:3]", " So", " So"],
    ["x.split('o')[1]", ". ", ". "],
    ["x | replace('S', '1') | trim", "1o.", "o."],
    ["x.strip() | upper", "SO.", "SO."],
    ["'a' ~ x ~ 'b'", "a So. b", " So. "],
    ["[x] | join('-')", " So. ", " So. "],
  ]) {
    const made = await rendered(`.${answer}{{ ${end} }}`, ASKED);
    assert.deepEqual(made, [`.${text}`, learned], end);
  }
});

test("templates are read in a time that grows with their length alone", () => {
  for (const piece of ["{{", "{{ '", "{# ", "{% raw %}", "{{ {", " ", "{{ 1 }} \n"]) {
    const source = piece.repeat(65_536 / piece.length);
    const began = performance.now();
    try {
      tokenize(source);
    } catch {}
    const took = performance.now() - began;
    assert.ok(took < 1000, `${took} ms for ${piece}`);
  }
});

test("what getters of a conversation's classes give reaches the template", async () => {
  class Call {
    get role() {
      return "user";
    }
    get content() {
      return "";
    }
    get tool_calls() {
      return [{ name: "look" }];
    }
  }
  class Chat {
    get messages() {
      return [new Call()];
    }
    get tools() {
      return [{ name: "look" }, { name: "hear" }];
    }
  }
  const template =
    "{% for m in messages %}{% for c in m.tool_calls %}{{ c.name }}.{% endfor %}{% endfor %}" +
    "{% for t in tools %}{{ t.name }};{% endfor %}";
  assert.equal((await rendered(template, new Chat(), { learn: "all" }))[0], "look.look;hear;");
});

test("a library that is not there is named", async () => {
  const json = { model: { type: "WordPiece", vocab: {} } };
  const files = { "tokenizer.json": new TextEncoder().encode(JSON.stringify(json)) };
  const library = pathToFileURL(join(folder, "none.mjs")).href;
  const error = await Tokenizer.fromPretrained(files, { library }).catch((thrown) => thrown);
  assert.equal(error.code, "module-unavailable");
  assert.match(error.message, /npm install @huggingface\/tokenizers/);
  const missing = await Tokenizer.fromPretrained({}).catch((thrown) => thrown);
  assert.equal(missing.code, "invalid-checkpoint");
});
