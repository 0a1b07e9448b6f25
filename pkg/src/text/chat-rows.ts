/** Rows of files in the forms that chats have: messages, ShareGPT, Alpaca, prompts with completions. */

import { inspect, invalid, show } from "../options.js";
import type { LongOptions } from "../progress.js";
import { judged } from "./formats.js";
import { jsonElements } from "./json-array.js";
import { copied, type Fields } from "./messages.js";
import { openText, Pace, paced, textOf } from "./read.js";
import { jsonLines } from "./rows.js";
import type { Conversation } from "./types.js";

/**
 * The conversations of an array, or of a file: JSONL with one in each line, or a JSON array of them. They come in
 * lists, since what is yielded is awaited.
 *
 * @param otherwise - what to do with a file in another form.
 */
export async function* chatRows(
  where: string,
  source: unknown,
  long: LongOptions,
  otherwise: string,
): AsyncGenerator<[Conversation]> {
  let index = 0;
  const next = (row: unknown): [Conversation] => [
    chatOf(where, `conversation ${index++}`, row) as Conversation,
  ];
  if (Array.isArray(source)) {
    const all = inspect(where, () => Array.from<unknown>(source));
    const pace = new Pace(where, long, all.length, "read conversations");
    await pace.done(0);
    for (const one of all) {
      yield next(one);
      await pace.done(1);
    }
    return;
  }
  const opened = await openText(where, source, long.signal);
  const pace = new Pace(where, long, opened.total, "read conversations");
  const file = { ...opened, chunks: paced(opened.chunks, pace) };
  const { format, chunks, leave } = await judged(where, file, undefined, false);
  if (format === "csv") {
    await leave();
    throw invalid(
      `${where} reads JSONL and JSON arrays, and ${opened.name || "the file"} is CSV; ${otherwise}`,
    );
  }
  const texts = textOf(where, chunks);
  const rows = format === "json" ? jsonElements(where, texts) : jsonLines(where, texts, otherwise);
  for await (const [row] of rows) yield next(row);
}

const isObject = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Who speaks in ShareGPT, and the role that templates know. */
const SPEAKERS: { readonly [from: string]: string } = {
  human: "user",
  user: "user",
  gpt: "assistant",
  chatgpt: "assistant",
  bot: "assistant",
  model: "assistant",
  assistant: "assistant",
  system: "system",
  developer: "developer",
  tool: "tool",
  observation: "tool",
  function_response: "tool",
};

/** Fields in which a row has its messages. */
const LISTS = ["messages", "conversations", "conversation"];

/**
 * A row as a conversation: a list of messages, or an object that has them in `messages`. Known are messages
 * with `role` and `content`; ShareGPT, with `from` and `value`; Alpaca, with `instruction`, `input` and `output`;
 * and lists of messages in `prompt` and `completion`. Any other value is given back, for `expectConversation` to refuse.
 * Each property of the caller's objects is read once: what is given back has copies.
 *
 * @param what - the row's name in messages, such as "conversation 3".
 */
export function chatOf(where: string, what: string, row: unknown): unknown {
  return inspect(`${where}: ${what}`, () => {
    const refuse = (why: string) => invalid(`${where}: ${what} ${why}`);
    if (Array.isArray(row)) {
      const list = copiesOf(row);
      return spoken(list) ? shared(refuse, list) : list;
    }
    if (typeof row !== "object" || row === null) return row;
    const fields = copied(row);
    const name = LISTS.find((one) => Array.isArray(fields[one]));
    if (name !== undefined) return listed(refuse, fields, name);
    if (typeof fields["instruction"] === "string") return alpaca(refuse, fields);
    return paired(refuse, fields);
  });
}

/** Copies of messages; what is none stays for whoever refuses it. */
const copiesOf = (list: readonly unknown[]): unknown[] =>
  Array.from(list, (one) => (isObject(one) ? copied(one) : one));

type Refuse = (why: string) => Error;

/** Whether these are messages of ShareGPT. */
const spoken = ([first]: readonly unknown[]) =>
  isObject(first) && first["role"] === undefined && typeof first["from"] === "string";

/** A row with a list of messages; its other fields go to the template, as `tools` does. */
function listed(refuse: Refuse, row: Fields, name: string): Fields {
  const list = copiesOf(row[name] as readonly unknown[]);
  const own = spoken(list);
  if (name === "messages" && !own) return { ...row, messages: list };
  const { [name]: _, system, tools, ...rest } = row;
  const messages = own ? shared(refuse, list) : [...list];
  const begins = (messages[0] as Fields | undefined)?.["role"] === "system";
  if (typeof system === "string" && system && !begins) {
    messages.unshift({ role: "system", content: system });
  }
  return { ...rest, ...(tools ? { tools: parsedTools(refuse, tools) } : {}), messages };
}

/** Messages of ShareGPT. Further fields of a message stay. */
function shared(refuse: Refuse, list: readonly unknown[]): unknown[] {
  return list.map((one, at) => {
    const { from, value, ...rest } = isObject(one) ? one : ({} as Fields);
    const who = String(from).toLowerCase();
    if (who === "function_call") {
      const call = json(value);
      if (!isObject(call))
        throw refuse(`has a call, message ${at}, that is not JSON: ${show(value)}`);
      const calls = [{ type: "function", function: call }];
      return { role: "assistant", content: "", tool_calls: calls, ...rest };
    }
    const role = Object.hasOwn(SPEAKERS, who) ? SPEAKERS[who] : undefined;
    if (role === undefined) {
      throw refuse(
        `has message ${at} from ${show(from)}; known are ${Object.keys(SPEAKERS).join(", ")}, function_call: give ` +
          "messages with role and content instead",
      );
    }
    if (typeof value !== "string") {
      throw refuse(`has ${show(value)} as the value of message ${at}; give a text`);
    }
    return { role, content: value, ...rest };
  });
}

/** Tools as templates take them: some files have them as a text in JSON. */
function parsedTools(refuse: Refuse, tools: unknown): unknown {
  if (typeof tools !== "string") return tools;
  const list = json(tools);
  if (!Array.isArray(list)) throw refuse(`has tools that are no list in JSON: ${show(tools)}`);
  return list;
}

function json(text: unknown): unknown {
  try {
    return JSON.parse(String(text));
  } catch {
    return undefined;
  }
}

/** A row of Alpaca: `input` stands below the instruction, `history` has the turns before. */
function alpaca(refuse: Refuse, row: Fields): Fields {
  const { instruction, input, output, system, history } = row;
  if (typeof output !== "string") {
    throw refuse(`has an instruction, and ${show(output)} as its output; give a text`);
  }
  if (input !== undefined && input !== null && typeof input !== "string") {
    throw refuse(`has ${show(input)} as its input; give a text, or leave it out`);
  }
  const messages =
    typeof system === "string" && system ? [{ role: "system", content: system }] : [];
  const turns: readonly unknown[] = Array.isArray(history) ? history : [];
  const said = (content: unknown, role: string) => {
    if (typeof content !== "string")
      throw refuse(`has ${show(content)} in its history; give texts`);
    messages.push({ role, content });
  };
  for (const turn of turns) {
    const [question, answer]: readonly unknown[] = Array.isArray(turn) ? turn : [];
    said(question, "user");
    said(answer, "assistant");
  }
  said(input ? `${instruction}\n\n${input}` : instruction, "user");
  said(output, "assistant");
  return { messages };
}

/** A prompt with its completion, each a list of messages, as TRL has them. */
function paired(refuse: Refuse, row: Fields): Fields {
  const { prompt, completion, ...rest } = row;
  if (Array.isArray(prompt) && Array.isArray(completion)) {
    return { ...rest, messages: [...prompt, ...completion] };
  }
  if (typeof prompt === "string" && typeof completion === "string") {
    throw refuse(
      "has prompt and completion, which are texts: Dataset.from and Dataset.fromDocuments take them; for a " +
        'chat give [{ role: "user", content: prompt }, { role: "assistant", content: completion }]',
    );
  }
  if (row["chosen"] !== undefined && row["rejected"] !== undefined) {
    throw refuse(
      "has chosen and rejected, answers to compare, and a chat has one answer; give the messages of the chosen one",
    );
  }
  return row;
}
