// Chats of a visitor's file, as the fine-tune panel reads them: JSONL, JSON and CSV, and what is refused.
// reads: www
import assert from "node:assert/strict";
import { test } from "node:test";
import { pageModule } from "./page-module.mjs";

const { readChats } = await pageModule("src/tune/chats");
const { exampleFor } = await pageModule("src/tune/examples");
const { tasks } = await pageModule("src/tasks/index");

const read = (text, name) => readChats(new Blob([text]), name);
const turn = (role, content) => ({ role, content });
const PAIR = [turn("user", "why?"), turn("assistant", "so,\nthere")];
const lines = (...values) => values.map((value) => JSON.stringify(value)).join("\n");

test("the same chat in every form", async () => {
  const forms = [
    [lines(PAIR), "a.jsonl"],
    [`\ufeff${lines({ messages: PAIR })}\r\n\r\n`, ""],
    [JSON.stringify([{ messages: PAIR }], null, 2), "a.json"],
    [JSON.stringify(PAIR, null, 2), "a.json"],
    [
      lines({
        conversations: [
          { from: "human", value: "why?" },
          { from: "gpt", value: "so,\nthere" },
        ],
      }),
    ],
    [lines({ prompt: "why?", completion: "so,\nthere" })],
    [lines({ instruction: "why?", input: "", output: "so,\nthere" })],
    ['prompt,completion\nwhy?,"so,\nthere"\n', "a.csv"],
    ['id,Question,Answer\r\n1,why?,"so,\nthere"', ""],
    ['answer\tquestion\n"so,\nthere"\twhy?', "a.tsv"],
    ['question;answer\nwhy?;"so,\nthere"\n\n', ""],
    ['role,content\nuser,why?\nassistant,"so,\nthere"', "a.csv"],
  ];
  for (const [text, name] of forms) assert.deepEqual(await read(text, name), [PAIR], text);
});

test("rows of messages are cut into chats, and quotes and systems are kept", async () => {
  const rows =
    "chat_id,role,content\n1,user,a\n1,assistant,b\n1,user,c\n1,assistant,d\n2,user,e\n2,assistant,f\n";
  const chats = await read(rows, "a.csv");
  assert.deepEqual(
    chats.map((chat) => chat.map(({ content }) => content).join("")),
    ["abcd", "ef"],
  );
  const [quoted] = await read('system,user,assistant\nbe brief,"say ""x""","""x"""\n', "a.csv");
  assert.deepEqual(quoted, [
    turn("system", "be brief"),
    turn("user", 'say "x"'),
    turn("assistant", '"x"'),
  ]);
  const [more] = await read(lines({ instruction: "add", input: "1 2", output: "3" }));
  assert.equal(more[0].content, "add\n\n1 2");
});

test("what is no chat is refused with its place", async () => {
  for (const [text, words, name] of [
    ["", /nothing in it/],
    [`${lines(PAIR)}\nnot json`, /Line 2 is no JSON/],
    ["a,b\n1,2\n", /row 2, which has a, b/, "a.csv"],
    [lines({ text: "x" }), /line 1, which has text/],
    [lines([turn("user", "only")]), /line 1 has no answer/],
    [lines([{ role: "user" }]), /message in line 1/],
    ["prompt,completion\n", /No chat was found/, "a.csv"],
    ["{ nothing", /no JSON/, "a.json"],
  ]) {
    await assert.rejects(read(text, name), { code: "invalid-options", message: words }, text);
  }
  await assert.rejects(readChats({ size: 2 ** 30 }), /1.1 GB, and this page reads at most 64 MB/);
});

test("the built-in examples are chats, of a task with right answers", () => {
  for (const task of [undefined, "reverse", "sort", "add", "brackets"]) {
    const { chats, teaches } = exampleFor(task);
    assert.ok(chats.length > 20 && teaches.includes(chats.length.toLocaleString("en")), teaches);
    const asked = new Set(chats.map(([{ content }]) => content));
    assert.equal(asked.size, chats.length, "no question is there twice");
    for (const [{ content }, answer] of chats) {
      const right = task && `${tasks[task].solve(content)}!`;
      if (task) assert.equal(answer.content, right, content);
      else assert.match(answer.content, /^Ahoy! .+\.$/, content);
    }
  }
  const [question, answer] = exampleFor("reverse").chats.at(-1);
  assert.deepEqual([question.content, answer.content], ["bobbin", "nibbob!"]);
});
