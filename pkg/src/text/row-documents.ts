/** Documents of rows in JSON. */

import { invalid, show } from "../options.js";
import type { PromptedDocument } from "./types.js";

/** Fields of a document of which a part is learned. */
export const PAIR = ["prompt", "completion"];

type Fields = { readonly [name: string]: unknown };

/**
 * The documents of rows. A row is a text, or an object: of its fields, `column` is the text, by default `text`. An
 * object without such a field and with the texts `prompt` and `completion` is a pair of these.
 *
 * @param unit - what a row is called in messages, such as "line".
 */
export async function* documentsOf(
  where: string,
  rows: AsyncIterable<[value: unknown, number: number]>,
  column: string | undefined,
  unit: string,
): AsyncGenerator<string | PromptedDocument> {
  let pairs: boolean | undefined;
  for await (const [value, number] of rows) {
    const document = documentOf(value, column);
    const name = `${where}: ${unit} ${number}`;
    if (document === undefined) throw invalid(`${name} ${withoutText(value, column ?? "text")}`);
    const pair = typeof document !== "string";
    pairs ??= pair;
    if (pair !== pairs) {
      const kind = (one: boolean) => (one ? "a prompt with its completion" : "a text");
      throw invalid(
        `${name} is ${kind(pair)}, and those before it are ${kind(pairs)}; give one kind`,
      );
    }
    yield document;
  }
}

function documentOf(
  value: unknown,
  column: string | undefined,
): string | PromptedDocument | undefined {
  if (typeof value === "string") return column === undefined ? value : undefined;
  if (Array.isArray(value)) return undefined;
  const fields = Object(value) as Fields;
  const text = fields[column ?? "text"];
  if (typeof text === "string") return text;
  const { prompt, completion } = fields;
  const paired = column === undefined && text === undefined;
  return paired && typeof prompt === "string" && typeof completion === "string"
    ? { prompt, completion }
    : undefined;
}

/** Fields in which rows of chats have their messages. */
const CHATS = ["messages", "conversations", "conversation"];

/** What a row has instead of the text, and what to do with it. */
function withoutText(value: unknown, column: string): string {
  const fields = Object(value) as Fields;
  const names = Array.isArray(value) ? [] : Object.keys(fields);
  const lists = Array.isArray(value) ? [value] : CHATS.map((name) => fields[name]);
  if (lists.some((list) => Array.isArray(list) && typeof list[0] === "object")) {
    return "is a conversation; give the file to Dataset.fromConversations";
  }
  if (typeof fields["instruction"] === "string" && typeof fields["output"] === "string") {
    return (
      "is a task of Alpaca; Dataset.fromConversations reads the file for a chat model; otherwise write prompts in " +
      "words of your own, as objects { prompt, completion }"
    );
  }
  if (PAIR.every((name) => Array.isArray(fields[name]))) {
    return "is a conversation in prompt and completion; give the file to Dataset.fromConversations";
  }
  if (fields["chosen"] !== undefined && fields["rejected"] !== undefined) {
    return "has chosen and rejected, answers to compare, and no text; a document is a text, or { prompt, completion }";
  }
  const given = fields[column] === undefined ? "" : `: ${column} is ${show(fields[column])}`;
  const none = `has no text ${show(column)}${given}`;
  const texts = names.filter((name) => typeof fields[name] === "string");
  if (texts.length > 0) return `${none}; set column to a field with the text: ${texts.join(", ")}`;
  const list = names.find((name) => Array.isArray(fields[name]));
  if (list) return `${none}; where ${list} has the rows, give them as a JSON array of their own`;
  return `${none}, and no other text; it is ${show(value)}`;
}
