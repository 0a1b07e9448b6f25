// Chats of which nothing would be learned, or not what their words say: they are refused with the place.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ByteTokenizer, chatPrompt, Dataset } from "tinyloom";

test("a message that the template renders nothing of, or as data, is refused", async () => {
  const plain = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
  const added =
    "{% for m in messages %}{{ '<' + m['role'] + '>' + m['content'] + '\n' }}{% endfor %}";
  const parts =
    "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% elif m.content %}" +
    "{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %}" +
    "{% for call in m.tool_calls or [] %}{{ call | tojson }}{% endfor %}{% endfor %}";
  const textsOnly =
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% endif %}{% endfor %}";
  const calls = { content: null, tool_calls: [{ name: "add" }] };
  const list = { content: [{ type: "text", text: "b" }] };
  const made = (template, fields, role = "assistant") => {
    const messages = [
      { role: "user", content: "a" },
      { role, ...fields },
    ];
    const options = { template, validationFraction: 0, learn: "all" };
    return Dataset.fromConversations([messages], new ByteTokenizer(), options);
  };
  for (const [template, fields, words] of [
    [
      plain,
      { text: "b" },
      /conversation 0: message 1 \(of role "assistant"\) has no content.*of text;/,
    ],
    [added, { text: "b" }, /message 1 .* has no content.*of text;/],
    [plain, { content: null }, /has null as content; give content/],
    [plain, {}, /has no content; give content/],
    [plain, calls, /null as content, and the template renders nothing of tool_calls/],
    [added, calls, /null as content, and the template renders nothing of tool_calls/],
    [plain, list, /an array of length 1 as content, which the template does not turn into text/],
    [added, list, /an array of length 1 as content/],
    [textsOnly, list, /an array of length 1 as content/],
    ["{% for m in messages %}{{ m.content | trim }}{% endfor %}", list, /an array of length 1/],
    [plain, { content: { text: "b" } }, /an object \(Object\) as content/],
    [plain, { content: 5 }, /5 as content/],
  ]) {
    const refused = { code: "invalid-options", message: words };
    await assert.rejects(made(template, fields), refused, JSON.stringify([template, fields]));
  }
  const asked = [{ role: "user", text: "b" }];
  await assert.rejects(chatPrompt(asked, new ByteTokenizer(), { template: plain }), {
    message: /chatPrompt: the conversation: message 0 .* has no content/,
  });
  const text = async (...given) => {
    const data = await made(...given);
    return new ByteTokenizer().decode((await data.document(0)).tokens);
  };
  assert.equal(await text(plain, { content: "" }), "<user>a<assistant>", "an empty text");
  assert.equal(await text(parts, list), "<user>a<assistant>b", "a list of parts");
  assert.equal(await text(parts, calls), '<user>a<assistant>{"name": "add"}', "calls of tools");
  const result = await text(plain, { content: { sum: 3 } }, "tool");
  assert.equal(result, "<user>a<tool>{'sum': 3}", "what a tool gave, as Python prints it");
  const own = "{% for m in messages %}{{ m.said or m.content }}{% endfor %}";
  assert.equal(await text(own, { said: "b" }), "ab", "a field of one's own");
});

test("a file of chats in another form says in which", async () => {
  const chat = [
    { role: "user", content: "Hello there, how are you?" },
    { role: "assistant", content: "I'm fine 😀, thanks" },
  ];
  const shared = { conversations: [{ from: "human", value: "a" }], id: 1 };
  const template = "{{ messages[0].content }}";
  const options = { template, learn: "all", validationFraction: 0 };
  const from = (line, indent) =>
    Dataset.fromConversations(
      new Blob([JSON.stringify(line, null, indent)]),
      new ByteTokenizer(),
      options,
    );
  for (const [line, chats] of [
    [[chat, chat], 2],
    [[{ messages: chat }], 1],
    [shared, 1],
    [[shared, shared, shared], 3],
    [{ messages: shared.conversations }, 1],
  ]) {
    assert.equal((await from(line)).documents, chats, JSON.stringify(line));
    if (Array.isArray(line)) assert.equal((await from(line, 2)).documents, chats, "indented");
  }
  for (const [line, words] of [
    [[chat, [chat]], /conversation 1 is a list of 1 chats, not one/],
    [{ rows: [] }, /conversation 0 has no list of messages, but rows; give messages/],
    [[...chat, { content: "a" }], /has message 2, .*, but content;/],
    [["a"], /is "a"; give messages/],
    [{}, /is an object \(Object\); give messages/],
    [5, /is 5; give messages/],
  ]) {
    const refused = { code: "invalid-options", message: words };
    await assert.rejects(from(line), refused, JSON.stringify(line));
  }
});
