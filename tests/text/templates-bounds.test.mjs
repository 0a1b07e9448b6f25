// Templates: names of JavaScript's objects, bounds of time and memory, and texts that Python writes otherwise.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ByteTokenizer, chatPrompt, Dataset } from "tinyloom";
import { rendered } from "./templates.mjs";

const bytes = new ByteTokenizer();
const USER = [{ role: "user", content: "q" }];

/** The text that a template makes. */
async function made(template, { messages = USER, variables = {}, ...more } = {}) {
  const chat = Object.keys(more).length > 0 ? { messages, ...more } : messages;
  const prompt = await chatPrompt(chat, bytes, { template, variables });
  return prompt.text ?? bytes.decode(prompt.tokens);
}

test("names of JavaScript's objects are names like others", async () => {
  const template =
    "{{ messages[0].constructor }}{{ toString }}{{ valueOf }}{{ hasOwnProperty is defined }}" +
    "{{ {'a': 1}.constructor is defined }}{{ 'x'.__proto__ is defined }}q";
  assert.equal(await made(template), "FalseFalseFalseq");
  assert.equal(
    await made("{{ valueOf }}{{ constructor }}q", { variables: { valueOf: "v" } }),
    "vq",
  );
  for (const name of ["constructor", "toString", "__proto__"]) {
    await assert.rejects(made(`{{ 'q' | ${name} }}`), /the filter \S+, which is not known/);
    await assert.rejects(made(`{{ 'q' is ${name} }}`), /the test \S+, which is not known/);
  }
});

test("a field __proto__ is a field", async () => {
  const chat = JSON.parse(
    '[{"role":"user","content":"q","__proto__":{"role":"system","name":"n"}}]',
  );
  const template =
    "{% for m in messages %}{{ m.role }} {{ m.name is defined }} {{ m.content }}{% endfor %}";
  assert.equal(await made(template, { messages: chat }), "user False q");
  const hidden = JSON.parse('[{"__proto__":{"role":"system","content":"q"}}]');
  await assert.rejects(
    made(template, { messages: hidden }),
    /message 0, which has no text as role/,
  );
  const variables = JSON.parse('{"__proto__":{"v":"inherited"}}');
  assert.equal(await made("{{ v is defined }}q", { variables }), "Falseq");
});

const LONG = "2000000000";
test("texts and lists are refused before they take the memory", async () => {
  const characters = [
    `'x'.ljust(${LONG})`,
    `'x'.rjust(${LONG}, '-')`,
    `'x'.center(${LONG})`,
    `'x'.zfill(${LONG})`,
    `'x' * ${LONG}`,
    `'x' | center(${LONG})`,
    `'x\ny' | indent(${LONG})`,
    `[1] | tojson(indent=${LONG})`,
    `'%${LONG}s' % 'x'`,
    `'%0${LONG}d' % 1`,
  ];
  for (const one of characters)
    await assert.rejects(made(`{{ ${one} }}`), /a text of more than 268435456 characters/, one);
  const doubled =
    "{% set ns = namespace(l=L) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}q";
  for (const list of ["[1]", "(1,)"]) {
    await assert.rejects(made(doubled.replace("L", list)), /a list of more than 1000000 items/);
  }
  await assert.rejects(
    made(doubled.replace("L", "'ab'")),
    /a text of more than|more than \d+ steps/,
  );
  for (const one of ["[1] * 2000000", "(1,) * 2000000", `[1] | batch(${LONG}, 0) | list`]) {
    await assert.rejects(made(`{{ ${one} }}`), /a list of more than 1000000 items/, one);
  }
  assert.equal(await made(`{{ [] * ${LONG} }}q`), "[]q");
  await assert.rejects(made("{{ '\\U00110000' }}"), /which is no escape/);
});

test("the work of filters counts, and not only the nodes of the template", async () => {
  const content = "ab ".repeat(30_000);
  const messages = [{ role: "user", content }];
  for (const one of [
    "c | sort",
    "c | list",
    "c.split() | join(',')",
    "c.replace('a', 'bb')",
    "c[::-1]",
    "c.count('b')",
  ]) {
    const template = `{% set c = messages[0].content %}{% for i in range(100000) %}{% set x = ${one} %}{% endfor %}q`;
    await assert.rejects(made(template, { messages }), /takes more than 20000000 steps/, one);
  }
});

test("a text is gone through by its places in time", async () => {
  const content = "a😀".repeat(20_000);
  const template =
    "{% set c = messages[0].content %}{% set ns = namespace(n=0) %}{% for i in range(c | length) %}" +
    "{% if c[i] == 'a' and c[i - 1] == '😀' %}{% set ns.n = ns.n + 1 %}{% endif %}{% endfor %}{{ ns.n }}q{{ c[-1] }}{{ c[99999] is defined }}";
  assert.equal(await made(template, { messages: [{ role: "user", content }] }), "20000q😀False");
});

test("a macro called often is read once, and still refuses what it does not use", async () => {
  const template =
    "{% macro f() %}{{ varargs | length }}{% endmacro %}{% for i in range(3) %}{{ f(1, 2) }}{% endfor %}q";
  assert.equal(await made(template), "222q");
  await assert.rejects(
    made("{% macro f() %}x{% endmacro %}{{ f(1) }}"),
    /with more values than it takes/,
  );
});

/** Beside Python's jinja2. */
const AS_PYTHON = [
  "'Straße ΟΔΟΣ ς İ ſ é A'.casefold()",
  "'ŉa ŉ'.title()",
  "'中abc ab中cd ქართული'.title()",
  "'ქართული'.capitalize()",
  "range(3)",
  "range(1, 8, 2)",
  "[range(2)]",
  "range(10)[2:5]",
  "range(10)[2:9:3] | list",
  "range(3)[1]",
  "range(3) == range(3)",
  "range(3) == (0, 1, 2)",
  "range(3) | length",
  "2 in range(3)",
  "range(3) is sequence",
  "range(0) is true",
  "range(3) | string",
  "range(3) + range(2)",
  "range(3) | tojson",
  "range(3) * 2",
  "'  a😀 '.strip() ~ '|' ~ '😀a😀'.strip('😀') ~ '|' ~ 'x😀'.rstrip('😀')",
  "'aXbXcX'.rsplit('X', 2)",
  "'aaaa'.rsplit('aa')",
  "'a😀b😀c'[1:3]",
  "'abc'[-2:]",
  "'abc'[5:]",
  "[1] | tojson(indent=-1)",
  "'\\U0001F600\\u00e9\\x41\\X41\\101\\q'",
];
test("texts are those of Python", async () => {
  const jobs = AS_PYTHON.map((one) => ({ template: `q{{ ${one} }}`, messages: USER }));
  for (const [at, { text }] of rendered(jobs).entries()) {
    const own = await made(jobs[at].template).catch((error) => error);
    if (text === undefined) assert.equal(own.code, "invalid-options", AS_PYTHON[at]);
    else assert.equal(own, text, `${AS_PYTHON[at]} ${own.message ?? ""}`);
  }
  for (const one of ["ı", "Ꭰ"])
    await assert.rejects(
      made(`{{ '${one}'.casefold() }}`),
      /casefold\(\) of ., which is not known/,
    );
});

test("what is no plain data is refused by its name", async () => {
  class Point {
    x = 1;
  }
  for (const [value, kind] of [
    [new Date(0), "Date"],
    [new Point(), "Point"],
    [{ inner: [new Point()] }, "Point"],
    [new Set([1]), "Set"],
  ]) {
    await assert.rejects(made("q{{ at }}", { variables: { at: value } }), {
      code: "invalid-options",
      message: new RegExp(`the variable "?at"? is a ${kind}`),
    });
  }
  await assert.rejects(
    made("{{ messages[0].content }}", {
      messages: [{ role: "user", content: "q", at: new Date(0) }],
    }),
    /a value is a Date, which is no plain data/,
  );
  const plain = { at: Object.assign(Object.create(null), { a: 1 }), map: new Map([["b", 2]]) };
  assert.equal(await made("q{{ at.a }}{{ map.b }}", { variables: plain }), "q12");
});

test("tools and documents have to be lists", async () => {
  for (const name of ["tools", "documents"]) {
    for (const value of ["weather", 3, { a: 1 }]) {
      const options = {
        code: "invalid-options",
        message: new RegExp(`${name} is .*give an array, or null`),
      };
      await assert.rejects(made("{{ messages[0].content }}", { [name]: value }), options);
      await assert.rejects(
        made("{{ messages[0].content }}", { variables: { [name]: value } }),
        options,
      );
    }
    assert.equal(await made(`q{{ ${name} }}`, { [name]: null }), "qNone");
    assert.equal(await made(`q{{ ${name} }}`, { [name]: [1] }), "q[1]");
  }
});

test("what is no message is told by its place", async () => {
  await assert.rejects(made("q{{ 1 }}", { messages: [null] }), /has null as message 0/);
  await assert.rejects(made("q{{ 1 }}", { messages: [USER[0], 5] }), /has 5 as message 1/);
});

test("a content that one rendering printed as data is judged anew in the next", async () => {
  const { openTemplate } = await import("../../pkg/dist/text/templates.js");
  const template =
    "{% if add_generation_prompt %}{{ messages[0].content }}{% else %}{{ messages[0].content[0].text }}{% endif %}";
  const opened = openTemplate("test", bytes, { template }, () => new Date());
  const chat = opened.chat("chat", {
    messages: [{ role: "user", content: [{ type: "text", text: "q" }] }],
  });
  const content = chat.messages[0].get("content");
  for (const prompt of [true, false, true]) {
    const printed = new Set();
    opened.render(chat, chat.messages, prompt, printed);
    assert.equal(printed.has(content), prompt);
  }
});

test("a tokenizer's files and its templates are read once", async () => {
  let saved = 0;
  const config = new TextEncoder().encode('{"bos_token":"<s>"}');
  const json = new TextEncoder().encode(
    '{"added_tokens":[{"content":"<s>","special":true,"id":1}]}',
  );
  const tokenizer = {
    vocabSize: 256,
    encode: (text) => bytes.encode(text),
    save: () => {
      saved += 1;
      return { "tokenizer_config.json": config, "tokenizer.json": json };
    },
  };
  const template = "{{ bos_token }}{{ messages[0].content }}";
  for (let i = 0; i < 3; i++) await chatPrompt(USER, tokenizer, { template });
  await Dataset.fromConversations([USER], tokenizer, {
    template,
    learn: "all",
    validationFraction: 0,
  });
  assert.equal(saved, 1);
});

test("200 turns: renderings and encoded characters grow with the turns", async () => {
  const turns = 200;
  const chat = Array.from({ length: turns }, (_, at) => [
    { role: "user", content: `question ${at} of some length` },
    { role: "assistant", content: `answer ${at} of some length` },
  ]).flat();
  const template =
    "{{ strftime_now('%Y') }}{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
  let [characters, renderings] = [0, 0];
  // Ids that spell nothing that is known: words, each by a number.
  const words = new Map();
  const tokenizer = {
    vocabSize: 1 << 16,
    encode(text) {
      characters += text.length;
      const found = text.match(/<[^<>]*>|\s+|[^\s<]+/g) ?? [];
      return found.map((one) => words.get(one) ?? words.set(one, words.size).get(one));
    },
  };
  const date = new (class extends Date {
    getFullYear() {
      renderings += 1;
      return 2024;
    }
  })();
  const data = await Dataset.fromConversations([chat], tokenizer, {
    template,
    date,
    validationFraction: 0,
  });
  const { tokens, learned } = await data.document(0);
  const spelled = [...words.keys()];
  const text = [...tokens].map((id) => spelled[id]);
  const answers = text.filter((_, at) => learned[at]).join("");
  assert.equal(
    answers,
    chat
      .filter(({ role }) => role === "assistant")
      .map(({ content }) => `${content}<end>\n`)
      .join(""),
  );
  const length = text.join("").length;
  assert.ok(characters < 4 * length, `${characters} characters were encoded of ${length}`);
  assert.ok(renderings <= 2 * turns + 2, `${renderings} renderings`);
});
