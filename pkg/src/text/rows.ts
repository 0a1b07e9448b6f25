/** Texts of JSONL and CSV, and those between separators. */

import { invalid, show } from "../options.js";

/** The texts between the separators; none is empty. */
export async function* separated(
  texts: AsyncIterable<string>,
  separator: string,
): AsyncGenerator<string> {
  let rest = "";
  for await (const text of texts) {
    // What was there before has no separator, except for one whose end is in this text.
    let from = Math.max(0, rest.length - separator.length + 1);
    rest += text;
    let begin = 0;
    for (;;) {
      const end = rest.indexOf(separator, from);
      if (end < 0) break;
      if (end > begin) yield rest.slice(begin, end);
      begin = end + separator.length;
      from = begin;
    }
    rest = rest.slice(begin);
  }
  if (rest) yield rest;
}

/**
 * The values of JSONL: one per line that is not blank, with the line's number.
 *
 * @param otherwise - what to do where the text is no JSONL.
 */
export async function* jsonLines(
  where: string,
  texts: AsyncIterable<string>,
  otherwise?: string,
): AsyncGenerator<[value: unknown, line: number]> {
  let line = 0;
  for await (const text of lines(texts)) {
    line += 1;
    if (!text.trim()) continue;
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch (cause) {
      const hint = otherwise ? `; where this is no JSONL, ${otherwise}` : "";
      const message = `${where}: line ${line} is not JSON: ${show(cause)}${hint}`;
      throw invalid(message, "invalid-options", cause);
    }
    yield [value, line];
  }
}

/** All lines, the empty ones too: their numbers count. */
async function* lines(texts: AsyncIterable<string>): AsyncGenerator<string> {
  let rest = "";
  for await (const text of texts) {
    const parts = text.split("\n");
    parts[0] = rest + parts[0];
    rest = parts.pop() as string;
    yield* parts;
  }
  if (rest) yield rest;
}

/** A field of each JSON object. */
export async function* jsonColumn(
  where: string,
  texts: AsyncIterable<string>,
  column: string,
): AsyncGenerator<string> {
  for await (const [value, line] of jsonLines(where, texts)) {
    const text = (value as { [name: string]: unknown } | null)?.[column];
    if (typeof text !== "string")
      throw invalid(`${where}: line ${line} ${withoutText(value, column)}`);
    yield text;
  }
}

/** What a line has instead of the text, and what to do with it. */
function withoutText(value: unknown, column: string): string {
  const fields = Object(value) as { readonly [name: string]: unknown };
  const messages = Array.isArray(value) ? value : fields["messages"];
  if (Array.isArray(messages) && typeof messages[0] === "object") {
    return "is a conversation; give the file to Dataset.fromConversations";
  }
  const names = Array.isArray(value) ? [] : Object.keys(fields);
  if (PAIR.every((name) => typeof fields[name] === "string"))
    return `has ${names.join(", ")}; ${PAIRS}`;
  const given = fields[column] === undefined ? "" : `: ${column} is ${show(fields[column])}`;
  const none = `has no text ${show(column)}${given}`;
  const texts = names.filter((name) => typeof fields[name] === "string");
  if (texts.length > 0) return `${none}; set column to a field with the text: ${texts.join(", ")}`;
  return `${none}, and no other text; it is ${show(value)}`;
}

/** Fields of what is learned in part. */
const PAIR = ["prompt", "completion"];
const PAIRS =
  "Dataset.fromDocuments takes such pairs: parse the rows, and give it the objects { prompt, completion }";

/** A column of CSV, whose first row names the columns (RFC 4180). */
export async function* csvColumn(
  where: string,
  texts: AsyncIterable<string>,
  column: string,
  delimiter: string,
): AsyncGenerator<string> {
  let index: number | undefined;
  let number = 0;
  for await (const row of csvRows(where, texts, delimiter)) {
    number += 1;
    if (row.length === 1 && row[0] === "") continue;
    if (index === undefined) {
      index = row.indexOf(column);
      if (index >= 0) continue;
      const names = row.map(show).join(", ");
      const pairs = PAIR.every((name) => row.includes(name));
      const advice = pairs ? PAIRS : `set column to one of them, not ${show(column)}`;
      throw invalid(`${where}: the columns are ${names}; ${advice}`);
    }
    const text = row[index];
    if (text === undefined) {
      throw invalid(
        `${where}: row ${number} has ${row.length} columns, and ${show(column)} is ${index + 1}`,
      );
    }
    yield text;
  }
}

/** The rows; a quoted field may hold delimiters, line ends and doubled quotes. */
async function* csvRows(
  where: string,
  texts: AsyncIterable<string>,
  delimiter: string,
): AsyncGenerator<string[]> {
  let rows = 1;
  let row: string[] = [];
  let field = "";
  let quoted = false;
  /** Whether the last character was a quote within quotes: the end of them, or half of a doubled one. */
  let quote = false;
  for await (const text of texts) {
    let from = 0;
    for (let at = 0; at < text.length; at++) {
      const c = text[at] as string;
      if (quoted) {
        if (quote) {
          quote = false;
          if (c === '"') continue; // `from` is at it: one of the two stays
          quoted = false;
          from = at;
        } else {
          if (c === '"') {
            field += text.slice(from, at);
            from = at + 1;
            quote = true;
          }
          continue;
        }
      }
      if (c === '"' && field === "" && at === from) {
        quoted = true;
        from = at + 1;
      } else if (c === delimiter) {
        row.push(field + text.slice(from, at));
        [field, from] = ["", at + 1];
      } else if (c === "\n") {
        row.push((field + text.slice(from, at)).replace(/\r$/, ""));
        yield row;
        rows += 1;
        [row, field, from] = [[], "", at + 1];
      }
    }
    field += text.slice(from);
  }
  if (quoted && !quote) {
    throw invalid(
      `${where}: a quote in row ${rows} has no end, so everything behind it would be one field; close it, or ` +
        'double each " that belongs to a text',
    );
  }
  if (field !== "" || row.length > 0) yield [...row, field.replace(/\r$/, "")];
}
