/** Rows of JSONL and CSV, and texts between separators. */

import { invalid, show } from "../options.js";
import { PAIR } from "./row-documents.js";
import type { PromptedDocument } from "./types.js";

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

/**
 * Documents of CSV, whose first row names the columns (RFC 4180): those of a column, by default of `text`. Without
 * a column of that name and with `prompt` and `completion`, each row is such a pair.
 */
export async function* csvDocuments(
  where: string,
  texts: AsyncIterable<string>,
  column: string | undefined,
  delimiter: string,
): AsyncGenerator<string | PromptedDocument> {
  let columns: readonly Column[] | undefined;
  let number = 0;
  for await (const row of csvRows(where, texts, delimiter)) {
    number += 1;
    // Programs write rows without a value as their delimiters alone.
    if (row.every((field) => field === "")) continue;
    if (columns === undefined) {
      columns = columnsOf(where, row, column, delimiter);
      continue;
    }
    const [first, second] = columns.map(([name, index]) => {
      const field = row[index];
      if (field !== undefined) return field;
      throw invalid(
        `${where}: row ${number} has ${row.length} columns, and ${show(name)} is ${index + 1}`,
      );
    });
    yield second === undefined
      ? (first as string)
      : { prompt: first as string, completion: second };
  }
}

/** Its name, and which one it is. */
type Column = readonly [name: string, index: number];

/** Where the text is, or a prompt and its completion. */
function columnsOf(
  where: string,
  row: readonly string[],
  column: string | undefined,
  delimiter: string,
): readonly Column[] {
  const name = column ?? "text";
  if (row.includes(name)) return [[name, row.indexOf(name)]];
  if (column === undefined && PAIR.every((one) => row.includes(one))) {
    return PAIR.map((one) => [one, row.indexOf(one)]);
  }
  const other = [";", "\t", ","].find(
    (one) => one !== delimiter && row.length === 1 && row[0]?.includes(one),
  );
  const advice = other
    ? `set delimiter to ${JSON.stringify(other)}`
    : `set column to one of them, not ${show(name)}, or name two of them prompt and completion`;
  throw invalid(`${where}: the columns are ${row.map(show).join(", ")}; ${advice}`);
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
      `${where}: a quote in row ${rows} has no end, so everything after it would be one field; close it, or ` +
        'double each " that belongs to a text',
    );
  }
  if (field !== "" || row.length > 0) yield [...row, field.replace(/\r$/, "")];
}
