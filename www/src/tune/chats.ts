/** Chats of a file or of what was pasted: JSONL, JSON or CSV, with the names of fields that are common. */
import { type Message, TinyloomError } from "tinyloom/worker";
import { bytes } from "../dom.ts";
import { inTurns } from "../turns.ts";
import { csvRows } from "./csv.ts";

export type Chat = readonly Message[];

/** Larger files are not for a page: all chats of them are in memory. */
const MOST = 64e6;

/** What others call the roles. */
const ROLES: { readonly [name: string]: string } = {
  human: "user",
  prompter: "user",
  gpt: "assistant",
  bot: "assistant",
  model: "assistant",
};
/** Fields of a question, of what belongs to it, and of its answer. */
const ASKS = ["prompt", "question", "instruction", "user"];
const MORE = ["input", "context"];
const ANSWERS = ["completion", "answer", "output", "response", "assistant"];

/** What a visitor is told of a file that is not understood. */
const refused = (words: string): TinyloomError => new TinyloomError("invalid-options", words);

const FORMS =
  'give messages with "role" and "content", or a question and an answer in fields such as "prompt" and "completion"';

interface Fields {
  readonly [name: string]: unknown;
}

const text = (value: unknown): string | undefined =>
  typeof value === "string" ? value : undefined;

/** The first of some fields that is there. */
function first(fields: Fields, names: readonly string[]): string | undefined {
  return names.map((name) => text(fields[name])).find((value) => value?.trim());
}

function turnOf(value: unknown, place: string): Message {
  const fields = (value ?? {}) as Fields;
  const role = text(fields["role"]) ?? text(fields["from"]);
  const content = text(fields["content"]) ?? text(fields["value"]);
  if (role === undefined || content === undefined) {
    throw refused(`A message in ${place} has no "role" or no "content" of text: ${FORMS}.`);
  }
  return { role: ROLES[role] ?? role, content };
}

/** A chat in any of the forms. */
function chatOf(value: unknown, place: string): Chat {
  const fields = (value ?? {}) as Fields;
  const list = Array.isArray(value) ? value : (fields["messages"] ?? fields["conversations"]);
  const turns = Array.isArray(list) ? list.map((one) => turnOf(one, place)) : pairOf(fields, place);
  if (turns.some(({ role }) => role === "assistant")) return turns;
  throw refused(`The chat in ${place} has no answer, so nothing can be learned from it: ${FORMS}.`);
}

/** A question with its answer. */
function pairOf(fields: Fields, place: string): Chat {
  const [asked, more] = [first(fields, ASKS), first(fields, MORE)];
  const answer = first(fields, ANSWERS);
  if (asked === undefined || answer === undefined) {
    const names = Object.keys(fields).slice(0, 6).join(", ") || "no fields";
    throw refused(`No chat was found in ${place}, which has ${names}: ${FORMS}.`);
  }
  const system = text(fields["system"]);
  const question = more === undefined ? asked : `${asked}\n\n${more}`;
  return [
    ...(system?.trim() ? [{ role: "system", content: system }] : []),
    { role: "user", content: question },
    { role: "assistant", content: answer },
  ];
}

function* ofLines(content: string): Generator<Chat, void, undefined> {
  let line = 0;
  for (let at = 0; at < content.length; ) {
    const found = content.indexOf("\n", at);
    const end = found < 0 ? content.length : found;
    const one = content.slice(at, end);
    line++;
    at = end + 1;
    if (!one.trim()) continue;
    let value: unknown;
    try {
      value = JSON.parse(one);
    } catch {
      throw refused(`Line ${line} is no JSON. A JSONL file has one chat in each line.`);
    }
    yield chatOf(value, `line ${line}`);
  }
}

/** A row is a question with its answer; or a message, where there are columns for role and content. */
function* ofRows(content: string, delimiter: string): Generator<Chat, void, undefined> {
  const rows = csvRows(content, delimiter);
  const names = (rows.next().value ?? []).map((name) => name.trim().toLowerCase());
  const key = names.find((name) => /^(chat|conversation|dialog|dialogue)(_?id)?$/.test(name));
  let number = 1;
  let chat: Message[] = [];
  let last: unknown;
  for (const row of rows) {
    const place = `row ${++number}`;
    const fields = Object.fromEntries(names.map((name, at) => [name, row[at] ?? ""]));
    if (!names.includes("role")) {
      yield chatOf(fields, place);
      continue;
    }
    // Without a column for it, a chat begins where a question follows an answer.
    const turn = turnOf(fields, place);
    const begins = key
      ? fields[key] !== last
      : turn.role !== "assistant" && chat.at(-1)?.role === "assistant";
    if (begins && chat.length > 0) {
      yield chatOf(chat, `the rows before ${place}`);
      chat = [];
    }
    if (key) last = fields[key];
    chat.push(turn);
  }
  if (chat.length > 0) yield chatOf(chat, "the last rows");
}

/** All values of a JSON file: a list of chats. */
function* ofJson(content: string): Generator<Chat, void, undefined> {
  let value: unknown;
  try {
    value = JSON.parse(content);
  } catch {
    throw refused("This is no JSON.");
  }
  const list = Array.isArray(value) ? value : [value];
  // A list of messages is one chat.
  const chats = list.some((one) => one?.role !== undefined) ? [list] : list;
  for (const [at, one] of chats.entries()) yield chatOf(one, `chat ${at + 1}`);
}

/** What the text is, by its name or else by its look. */
function readerOf(content: string, name: string): Generator<Chat, void, undefined> {
  if (/\.tsv$/i.test(name)) return ofRows(content, "\t");
  if (/\.csv$/i.test(name)) return ofRows(content, ",");
  const [head] = content.trimStart();
  if (head !== "{" && head !== "[") {
    const [line = ""] = content.split("\n", 1);
    return ofRows(content, line.includes("\t") ? "\t" : line.includes(";") ? ";" : ",");
  }
  try {
    JSON.parse(content.trimStart().split("\n", 1)[0]!);
    return ofLines(content);
  } catch {
    return ofJson(content);
  }
}

/** The chats of a file, or of a pasted text. The page gets its turn meanwhile. */
export async function readChats(file: Blob, name = ""): Promise<Chat[]> {
  if (file.size > MOST) {
    throw refused(
      `This file has ${bytes(file.size)}, and this page reads at most ${bytes(MOST)} of chats: take a part of it.`,
    );
  }
  const content = (await file.text()).replace(/^\ufeff/, "");
  if (content.trim() === "") throw refused("There is nothing in it. Give chats as JSONL or CSV.");
  const chats = await inTurns(readerOf(content, name));
  if (chats.length === 0) throw refused(`No chat was found: ${FORMS}.`);
  return chats;
}
