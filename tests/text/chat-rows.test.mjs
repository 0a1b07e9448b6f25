// Rows of files as conversations: what is converted, what stays, what is refused by name.
import assert from "node:assert/strict";
import { test } from "node:test";

const { chatOf } = await import("../../pkg/dist/text/chat-rows.js");
const of = (row) => chatOf("call", "conversation 3", row);
const user = (content) => ({ role: "user", content });
const assistant = (content) => ({ role: "assistant", content });

test("messages stay as they are", () => {
  const list = [user("a"), assistant("b")];
  const row = { messages: list, tools: [1], id: 4 };
  assert.deepEqual(of(list), list);
  assert.deepEqual(of(row), row);
  for (const other of [null, 3, "text", [], { text: "a" }]) assert.deepEqual(of(other), other);
});

test("ShareGPT has from and value", () => {
  const conversations = [
    { from: "human", value: "a" },
    { from: "gpt", value: "b", weight: 0 },
    { from: "function_call", value: '{"name":"f","arguments":{"x":1}}' },
    { from: "observation", value: "c" },
  ];
  const made = of({ conversations, system: "S", tools: '[{"name":"f"}]', id: 7 });
  assert.deepEqual(made, {
    id: 7,
    tools: [{ name: "f" }],
    messages: [
      { role: "system", content: "S" },
      user("a"),
      { ...assistant("b"), weight: 0 },
      {
        ...assistant(""),
        tool_calls: [{ type: "function", function: { name: "f", arguments: { x: 1 } } }],
      },
      { role: "tool", content: "c" },
    ],
  });
  assert.deepEqual(of(conversations.slice(0, 1)), [user("a")], "a list alone");
  assert.deepEqual(of({ messages: conversations.slice(0, 1) }), { messages: [user("a")] });
  assert.deepEqual(of({ conversations: [user("a")] }), { messages: [user("a")] });
});

test("Alpaca has instruction, input and output", () => {
  const chat = (...messages) => ({ messages });
  const row = { instruction: "Add.", input: "1, 2", output: "3" };
  assert.deepEqual(of(row), chat(user("Add.\n\n1, 2"), assistant("3")));
  for (const input of ["", null, undefined]) {
    assert.deepEqual(of({ ...row, input }), chat(user("Add."), assistant("3")));
  }
  assert.deepEqual(
    of({ ...row, input: "", system: "S", history: [["q", "a"]] }),
    chat({ role: "system", content: "S" }, user("q"), assistant("a"), user("Add."), assistant("3")),
  );
});

test("a prompt and a completion of messages are one conversation", () => {
  const row = { prompt: [user("a")], completion: [assistant("b")], tools: [1] };
  assert.deepEqual(of(row), { tools: [1], messages: [user("a"), assistant("b")] });
});

test("other rows are refused by name", () => {
  const refuses = (row, ...words) => {
    let error;
    try {
      of(row);
    } catch (thrown) {
      error = thrown;
    }
    assert.equal(error?.code, "invalid-options");
    for (const word of ["call: conversation 3", ...words]) {
      assert.ok(error.message.includes(word), error.message);
    }
  };
  const spoken = (from, value) => ({ conversations: [{ from, value }] });
  refuses(spoken("narrator", "a"), 'from "narrator"', "human", "role and content");
  refuses(spoken("constructor", "a"), 'from "constructor"');
  refuses(spoken("gpt", null), "null as the value of message 0");
  refuses(spoken("function_call", "f()"), "message 0", "not JSON");
  refuses({ instruction: "a", output: null }, "null as its output");
  refuses({ instruction: "a", input: 3, output: "b" }, "3 as its input");
  refuses({ instruction: "a", output: "b", history: ["q"] }, "undefined in its history");
  refuses({ conversations: [], tools: "f" }, "tools");
  refuses({ prompt: "a", completion: "b" }, "Dataset.fromDocuments", 'role: "user"');
  refuses({ prompt: [user("a")], chosen: [], rejected: [] }, "chosen and rejected");
  const trap = {
    get messages() {
      throw new Error("boom");
    },
  };
  refuses(trap, "boom");
});
