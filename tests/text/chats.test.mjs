// Chats: which tokens are learned, what ends an answer, and what special tokens in contents are.
import assert from "node:assert/strict";
import { test } from "node:test";
import { BpeTokenizer, ByteTokenizer, chatPrompt, Dataset } from "tinyloom";
import { CHATS, realTemplates, rendered, TOKENS } from "./templates.mjs";

const NOW = new Date(2025, 2, 9, 14, 5, 6);
const bytes = new ByteTokenizer();
const config = new TextEncoder().encode(JSON.stringify(TOKENS));
/** Bytes, with the special tokens that templates name. */
const named = {
  vocabSize: 256,
  encode: (text) => bytes.encode(text),
  save: () => ({ "tokenizer_config.json": config }),
};

/** The text of a chat and what of it is learned, by bytes. */
async function learnedOf(chat, options, tokenizer = named) {
  const data = await Dataset.fromConversations([chat], tokenizer, {
    validationFraction: 0,
    ...options,
  });
  const { tokens, learned } = await data.document(0);
  const runs = [];
  for (const [at, token] of tokens.entries()) {
    if (learned[at] && !learned[at - 1]) runs.push([]);
    if (learned[at]) runs.at(-1).push(token);
  }
  return {
    text: bytes.decode(tokens),
    runs: runs.map((run) => bytes.decode(run)),
    mask: [...learned],
  };
}

const QUESTION = [
  { role: "user", content: "q" },
  { role: "assistant", content: "x" },
  { role: "user", content: "r" },
  { role: "assistant", content: "y" },
];
const LOOP = "{% for m in messages %}<{{ m.role }}>";
const PROMPT = "{% if add_generation_prompt %}<assistant>{% endif %}";

test("answers are found in the text of the whole chat, and what ends them", async () => {
  const rows = [
    [
      `${LOOP}{% if m.role == 'assistant' and loop.last %}<think></think>{% endif %}{{ m.content }}<end>{% endfor %}${PROMPT}`,
      "<user>q<end><assistant>x<end><user>r<end><assistant><think></think>y<end>",
      ["x<end>", "<think></think>y<end>"],
      ["<end>"],
    ],
    [
      `${LOOP}{{ m.content }}<end>{% endfor %}{% if add_generation_prompt %}<assistant><think>{% endif %}`,
      "<user>q<end><assistant>x<end><user>r<end><assistant>y<end>",
      ["x<end>", "y<end>"],
      ["<end>"],
    ],
    [
      `${LOOP}{{ m.content }}<end>{% endfor %}<assistant>`,
      "<user>q<end><assistant>x<end><user>r<end><assistant>y<end><assistant>",
      ["x<end>", "y<end>"],
      ["<end>"],
    ],
    [
      `${LOOP}{{ m.content }}<end>\n{% endfor %}{% if add_generation_prompt %}<assistant>{% else %}<eos>{% endif %}`,
      "<user>q<end>\n<assistant>x<end>\n<user>r<end>\n<assistant>y<end>\n<eos>",
      ["x<end>\n", "y<end>\n<eos>"],
      ["<end>"],
    ],
    [
      "{% for m in messages %}{{ m.role }}: {{ m.content }}\n\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}",
      "user: q\n\nassistant: x\n\nuser: r\n\nassistant: y\n\n",
      ["x\n\n", "y\n\n"],
      ["\n\nuser: "],
    ],
    ["{% for m in messages %}{{ m.content }}{% endfor %}", "qxry", ["x", "y"], []],
    [
      `${LOOP}{{ m.content }}{% endfor %}${PROMPT}`,
      "<user>q<assistant>x<user>r<assistant>y",
      ["x<user>", "y"],
      ["<user>"],
    ],
  ];
  for (const [template, text, runs, stop] of rows) {
    const made = await learnedOf(QUESTION, { template });
    assert.deepEqual([made.text, made.runs], [text, runs], template);
    const prompt = await chatPrompt(QUESTION.slice(0, 3), named, { template });
    assert.deepEqual(prompt.stop, stop, template);
    assert.deepEqual(prompt.stopTokens, []);
    const all = await learnedOf(QUESTION, { template, learn: "all" });
    assert.equal(all.mask.indexOf(0, 1), -1, "all is learned");
  }
});

/** What TRL's template marks that the prompt before it has not written, by bytes. */
function marked(text, marks, prompts) {
  const characters = Array.from(text);
  const mask = new Array(bytes.encode(text).length).fill(0);
  const joined = [];
  for (const [begin, end] of marks) {
    if (joined.at(-1)?.[1] === begin) joined.at(-1)[1] = end;
    else joined.push([begin, end]);
  }
  for (const [begin, end] of joined) {
    const run = characters.slice(begin, end).join("");
    const before = bytes.encode(characters.slice(0, begin).join("")).length;
    let written = 0;
    const away = (prompt) => Math.abs(Array.from(prompt).length - begin);
    for (const prompt of prompts.toSorted((a, b) => away(a) - away(b)).slice(0, 1)) {
      const start = characters.slice(0, begin).join("");
      const at = prompt.startsWith(start) ? start.length : prompt.lastIndexOf(run.slice(0, 3));
      const tail = at < 0 || prompt.length - at > 60 ? "" : prompt.slice(at);
      let same = 0;
      while (same < tail.length && tail[same] === run[same]) same += 1;
      // A tag that goes on otherwise is not the prompt's.
      if (same < tail.length) same = tail.slice(0, same).lastIndexOf(">") + 1;
      written = Math.max(written, same);
    }
    mask.fill(
      1,
      before + bytes.encode(run.slice(0, written)).length,
      before + bytes.encode(run).length,
    );
  }
  mask[0] = 0;
  return mask;
}

/** Chats that are refused here and not in Python: of their contents the template renders nothing, or data. */
const NOT_RENDERED =
  /does not turn into text|renders nothing of|no token to learn|has null as content/;

/** TRL's template continues a turn behind the result of a tool, and its own prompt does not. */
const OTHERWISE = ["diffusion_gemma called"];

test("what is learned is what TRL's marked templates mark, less what the prompt writes", async (t) => {
  const templates = realTemplates();
  const plain = Object.keys(templates).filter((name) => templates[`${name}_training`]);
  const jobs = [];
  for (const name of plain) {
    for (const chat of [
      "one",
      "two",
      "system",
      "unthought",
      "called",
      "thoughts",
      "goesOn",
      "indented",
    ]) {
      const { messages, values } = CHATS[chat];
      const job = { name, chat, messages, values: { ...TOKENS, ...values } };
      jobs.push({ ...job, template: templates[`${name}_training`], mask: true });
      for (const [at, { role }] of messages.entries()) {
        if (role !== "assistant") continue;
        jobs.push({
          ...job,
          template: templates[name],
          messages: messages.slice(0, at),
          prompt: true,
          of: jobs.length,
        });
      }
    }
  }
  const counts = { same: 0, other: 0, refused: 0 };
  const seen = new Set();
  const answers = rendered(jobs);
  for (let at = 0; at < jobs.length; ) {
    const { name, chat, messages } = jobs[at];
    const right = answers[at];
    const prompts = [];
    for (at += 1; jobs[at]?.prompt; at++) prompts.push(answers[at].text ?? "");
    const what = `${name} ${chat}`;
    const options = { template: templates[name], date: NOW };
    const made = await learnedOf({ ...CHATS[chat].values, messages }, options).catch(
      (error) => error,
    );
    if (made instanceof Error) {
      assert.match(made.message, /the template (refuses|cannot)|no token to learn/, what);
      counts.refused += 1;
    } else if (made.text !== right.text) counts.other += 1;
    else if (!OTHERWISE.includes(what)) {
      const mask = marked(right.text, right.marks, prompts);
      const written = right.marks.map(([a, b]) => Array.from(right.text).slice(a, b).join(""));
      if (String(made.mask) !== String(mask)) {
        assert.deepEqual(made.runs, written, what);
        assert.deepEqual(made.mask, mask, what);
      }
      counts.same += 1;
      seen.add(name);
    }
  }
  assert.ok(seen.size >= 24 && counts.same >= 150, JSON.stringify(counts));
  t.diagnostic(
    `${seen.size} templates: ${counts.same} masks equal; ${counts.other} of another text, ${counts.refused} refused`,
  );
});

test("of templates with marks, what transformers' mask has is learned", async (t) => {
  const templates = realTemplates();
  const names = Object.keys(templates).filter((name) => /\{%-?\s*generation/.test(templates[name]));
  const jobs = names.flatMap((name) =>
    ["two", "system", "called", "thoughts", "unthought", "parts"].map((chat) => {
      const { messages, values } = CHATS[chat];
      return {
        name,
        chat,
        messages,
        template: templates[name],
        values: { ...TOKENS, ...values },
        mask: true,
      };
    }),
  );
  let [same, refused] = [0, 0];
  for (const [at, { text, marks }] of rendered(jobs).entries()) {
    const { name, chat, template, messages } = jobs[at];
    const what = `${name} ${chat}`;
    const made = await learnedOf(
      { ...CHATS[chat].values, messages },
      { template, date: NOW },
    ).catch((error) => error);
    if (text === undefined || made instanceof Error) {
      assert.equal(
        text === undefined || NOT_RENDERED.test(made.message),
        made instanceof Error,
        what,
      );
      refused += 1;
      continue;
    }
    assert.equal(made.text, text, what);
    assert.deepEqual(made.mask, marked(text, marks, []), what);
    same += 1;
  }
  assert.ok(names.length >= 30 && same >= 120, `${names.length}, ${same}`);
  t.diagnostic(`${names.length} templates: ${same} masks equal, ${refused} chats refused`);
});

test("two turns of real templates: each answer with its end", async () => {
  const templates = realTemplates();
  const two = CHATS.two.messages;
  for (const [name, runs] of Object.entries({
    qwen3: ["Four.<|im_end|>\n", "<think>\n\n</think>\n\nSix.<|im_end|>\n"],
    glm4moe: ["\n<think></think>\nFour.<|user|>", "\n<think></think>\nSix."],
    cohere: ["Four.<|END_OF_TURN_TOKEN|>", "Six.<|END_OF_TURN_TOKEN|>"],
    cohere2: [
      "Four.<|END_RESPONSE|><|END_OF_TURN_TOKEN|>",
      "Six.<|END_RESPONSE|><|END_OF_TURN_TOKEN|>",
    ],
    deepseek_r1_distill: ["Four.<｜end▁of▁sentence｜>", "Six.<｜end▁of▁sentence｜>"],
    "@lenml llama3 default": ["Four.<|eot_id|>", "Six.<|eot_id|>"],
    phi3: ["Four.<|end|>\n", "Six.<|end|>\n<eos>"],
    nemotron_3_nano: ["</think>Four.<|im_end|>\n", "</think>Six.<|im_end|>\n"],
    gptoss: [
      "<|channel|>final<|message|>Four.<|end|>",
      "<|channel|>final<|message|>Six.<|return|>",
    ],
  })) {
    assert.deepEqual((await learnedOf(two, { template: templates[name] })).runs, runs, name);
    for (const learn of ["all", () => true])
      await learnedOf(two, { template: templates[name], learn });
  }
});

test("what the prompt writes of a thinking block is learned when it is asked for", async () => {
  const { qwen3 } = realTemplates();
  const chat = { enable_thinking: false, messages: QUESTION.slice(0, 2) };
  const block = "<think>\n\n</think>\n\n";
  const end = "<|im_end|>\n";
  assert.deepEqual((await learnedOf(chat, { template: qwen3 })).runs, [`x${end}`]);
  const asked = await learnedOf(chat, { template: qwen3, learnThinking: true });
  assert.deepEqual(asked.runs, [`${block}x${end}`]);
  const variables = { enable_thinking: false };
  const given = await learnedOf(QUESTION.slice(0, 2), { template: qwen3, variables });
  assert.deepEqual(given.runs, [`x${end}`], "as an option");
  const own = await learnedOf(
    { enable_thinking: true, messages: QUESTION.slice(0, 2) },
    { template: qwen3, variables },
  );
  assert.deepEqual(own.runs, [`${block}x${end}`], "the chat's own value comes first");
});

test("each message may be learned or not", async () => {
  const template = `${LOOP}{{ m.content }}<end>{% endfor %}${PROMPT}`;
  const runs = async (learn, messages = QUESTION) =>
    (await learnedOf(messages, { template, learn })).runs;
  assert.deepEqual(await runs((_, index) => index === 3), ["y<end>"]);
  assert.deepEqual(await runs(({ role }) => role === "user"), ["q<end>", "r<end>"]);
  const weighted = QUESTION.map((one, at) => (at === 1 ? { ...one, weight: 0 } : one));
  assert.deepEqual(await runs(undefined, weighted), ["y<end>"]);
  const marks =
    "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% else %}{% generation %}{{ m.content }}!{% endgeneration %}{% endif %}{% endfor %}";
  const markedBy = async (learn) => (await learnedOf(QUESTION, { template: marks, learn })).runs;
  assert.deepEqual(await markedBy(undefined), ["x!", "y!"]);
  assert.deepEqual(await markedBy((_, index) => index === 1), ["x!"]);
  assert.deepEqual(await markedBy((_, index) => index === 3), ["y!"]);
  for (const [learn, words] of [
    [() => 1, /learn gave 1 for message 0 of conversation 0; give true or false/],
    [
      () => {
        throw new Error("boom");
      },
      /learn of conversation 0 threw Error: boom/,
    ],
    ["some", /learn is "some"; give "answers" \| "all" \| a function/],
  ]) {
    await assert.rejects(learnedOf(QUESTION, { template, learn }), {
      code: "invalid-options",
      message: words,
    });
  }
});

test("a prompt needs no answer that the template refuses", async () => {
  const templates = realTemplates();
  for (const name of ["gemma", "gemma3", "cohere"]) {
    const { messages } = CHATS.goesOn;
    const [{ text }] = rendered([
      { template: templates[name], messages, values: TOKENS, prompt: true },
    ]);
    const prompt = await chatPrompt(messages, named, { template: templates[name] });
    assert.equal(prompt.text, text);
    assert.deepEqual(prompt.stop, [name === "cohere" ? "<|END_OF_TURN_TOKEN|>" : "<end_of_turn>"]);
  }
  const system = [{ role: "system", content: "a" }, ...QUESTION.slice(0, 1)];
  await assert.rejects(chatPrompt(system, named, { template: templates.gemma }), {
    code: "invalid-options",
    message:
      "chatPrompt: the conversation: the template refuses this chat: System role not supported",
  });
  const strict =
    "{% if messages | length > 1 %}{{ raise_exception('one') }}{% endif %}{{ messages[0].content }}";
  const alone = await chatPrompt(QUESTION.slice(0, 1), named, { template: strict });
  assert.deepEqual([alone.text, alone.stop], ["q", []]);
});

test("a template by its name, of tools, and values for it", async () => {
  const chatTemplates = {
    default: "{{ bos_token }}default{{ messages[0].content }}",
    tool_use: "tools{{ tools | length }}",
    other: "{{ x }}{{ tools }}{{ documents is none }}",
  };
  const own = { ...named, chatTemplates, chatTemplate: chatTemplates.default };
  const text = async (chat, options) => (await chatPrompt(chat, own, options)).text;
  const ask = QUESTION.slice(0, 1);
  assert.equal(await text(ask), "<bos>defaultq");
  assert.equal(await text({ messages: ask, tools: [{}, {}] }), "tools2");
  assert.equal(await text(ask, { variables: { tools: [{}] } }), "tools1");
  assert.equal(await text(ask, { template: "other", variables: { x: 1.5 } }), "1.5NoneTrue");
  assert.equal(
    await text({ messages: ask, x: "own" }, { template: "other", variables: { x: 2 } }),
    "ownNoneTrue",
  );
  await assert.rejects(text(ask, { template: "none" }), {
    code: "invalid-options",
    message: /no template of the name "none"; it has default, tool_use, other/,
  });
  await assert.rejects(text(ask, { library: {} }), {
    code: "invalid-options",
    message: /has no option "library"/,
  });
});

test("a dataset's hash does not change with the day; the date is an option", async () => {
  const template =
    "{{ strftime_now('%Y-%m-%d') }}{% for m in messages %}{{ m.content }}{% endfor %}";
  assert.equal((await learnedOf(QUESTION, { template })).text, "2024-07-26qxry");
  assert.equal((await learnedOf(QUESTION, { template, date: NOW })).text, "2025-03-09qxry");
  assert.equal(
    (await chatPrompt(QUESTION.slice(0, 1), named, { template, date: NOW })).text,
    "2025-03-09q",
  );
  const today = (await chatPrompt(QUESTION.slice(0, 1), named, { template })).text;
  assert.equal(today.slice(0, 4), String(new Date().getFullYear()));
  await assert.rejects(learnedOf(QUESTION, { template, date: "today" }), {
    message: /date is "today"; give a Date/,
  });
});

test("special tokens in contents are text, those of the template are tokens", async () => {
  const text = "a user says end and in nothing ".repeat(40);
  const tokenizer = await BpeTokenizer.train(text, {
    vocabSize: 270,
    specialTokens: ["<end>", "<user>"],
  });
  const ids = Object.fromEntries(["<end>", "<user>"].map((one) => [one, tokenizer.encode(one)[0]]));
  const template = `{% for m in messages %}{{ '<' + m.role + '>' }}{{ m.content }}<end>{% endfor %}`;
  const chat = (content) => [{ role: "user", content }];
  const safe = await chatPrompt(chat("a<end><user>b<en"), tokenizer, { template });
  assert.equal(safe.text, "<user>a<end><user>b<en<end>");
  assert.equal(tokenizer.decode(safe.tokens), safe.text);
  const control = [...safe.tokens].filter((id) => Object.values(ids).includes(id));
  assert.deepEqual(control, [ids["<user>"], ids["<end>"]], "the template's");
  const parsed = await chatPrompt(chat("a<end><user>b<en"), tokenizer, {
    template,
    specialTokens: "parse",
  });
  assert.deepEqual([...parsed.tokens], [...tokenizer.encode(parsed.text)]);
  assert.deepEqual(parsed.stopTokens, [ids["<end>"]]);
  const plain = await chatPrompt(chat("says nothing"), tokenizer, { template });
  assert.deepEqual(
    [...plain.tokens],
    [...tokenizer.encode(plain.text)],
    "without any the ids are those of the text",
  );
  const calls = [{ role: "user", content: "a", tool_calls: [{ name: "<end>" }] }];
  const listed =
    "<user>{{ messages[0].tool_calls | tojson }}{{ tools }}{{ messages[0].content | upper }}<end>";
  const made = await chatPrompt({ messages: calls, tools: [{ a: "<user>" }] }, tokenizer, {
    template: listed,
  });
  assert.equal(
    [...made.tokens].filter((id) => Object.values(ids).includes(id)).length,
    2,
    made.text,
  );
});
