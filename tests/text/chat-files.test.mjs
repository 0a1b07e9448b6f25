// Files of chats in every form that is read give the dataset of their messages.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ByteTokenizer, Dataset } from "tinyloom";

const template =
  "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}{% generation %}{{ m.content }}" +
  "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}";
const options = { template, validationFraction: 0 };
const from = (source) => Dataset.fromConversations(source, new ByteTokenizer(), options);

const ASKED = ["is it old?", 'a "quoted"\nline', "é"];
const messages = ASKED.map((asked, i) => [
  { role: "user", content: `${asked}\n\n${i}` },
  { role: "assistant", content: `answer ${i}` },
]);
const FORMS = {
  "lists of messages": messages,
  "objects with messages": messages.map((list, id) => ({ id, messages: list })),
  ShareGPT: messages.map((list, id) => ({
    id,
    conversations: list.map(({ role, content }) => ({
      from: role === "user" ? "human" : "gpt",
      value: content,
    })),
  })),
  Alpaca: ASKED.map((instruction, i) => ({ instruction, input: `${i}`, output: `answer ${i}` })),
  "prompt and completion": messages.map(([asked, answer]) => ({
    prompt: [asked],
    completion: [answer],
  })),
};

for (const [form, rows] of Object.entries(FORMS)) {
  test(`${form}: a list, JSONL and JSON arrays, under any name`, async () => {
    const { hash, documents } = await from(messages);
    assert.equal(documents, 3);
    assert.equal((await from(rows)).hash, hash, "a list");
    const lines = rows.map((row) => JSON.stringify(row));
    for (const content of [
      lines.join("\n"),
      `\ufeff${lines.join("\r\n\r\n")}\r\n`,
      JSON.stringify(rows),
      JSON.stringify(rows, null, 2),
      `[\n${lines.join(",\n")}\n]`,
    ]) {
      for (const name of ["chats.json", "chats.jsonl", "chats.txt", ""]) {
        const source = name ? new File([content], name) : new Blob([content]);
        assert.equal((await from(source)).hash, hash, `${name}: ${content.slice(0, 60)}`);
      }
    }
    // One alone, in a line.
    const alone = (await from([rows[0]])).hash;
    for (const name of ["chats.json", "chats.jsonl", ""]) {
      assert.equal((await from(new File([lines[0]], name))).hash, alone, name);
    }
  });
}

test("a file of chats in another form is refused by name", async () => {
  for (const [content, name, words] of [
    ["user,assistant\na,b\n", "chats.csv", /chats.csv is CSV; parse it/],
    ["user: a\nassistant: b\n", "chats.txt", /line 1 is not JSON.*parse it/],
    ['{"a": 1}', "chats.jsonl", /conversation 0 has no list of messages, but a/],
    [
      `${JSON.stringify(messages[0])}\n{"prompt":"a","completion":"b"}`,
      "",
      /conversation 1 has prompt/,
    ],
    ['{\n"data": []\n}', "chats.json", /one JSON object/],
  ]) {
    await assert.rejects(from(new File([content], name)), {
      code: "invalid-options",
      message: words,
    });
  }
});
