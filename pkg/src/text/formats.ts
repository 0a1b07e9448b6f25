/** What a file is: judged by its first bytes, and by its name where these leave a choice. */

import { invalid, show } from "../options.js";
import { refuseBinary } from "./binary.js";
import type { Chunk, Opened } from "./read.js";

/** Forms of text that are read. */
export type Format = "text" | "jsonl" | "json" | "csv";

/** A file whose form is known. */
export interface Judged {
  readonly format: Format;
  /** All of its chunks, those that were looked at too. */
  readonly chunks: AsyncIterable<Chunk>;
  /** Ends the reading of a file whose chunks nobody has asked for. */
  leave(): Promise<void>;
}

/** Bytes or characters that are looked at. */
const HEAD = 1 << 16;

/**
 * Looks at the beginning of a file. What is no text is refused by name.
 *
 * @param given - the format that the caller has said; then only what is no text is refused.
 * @param raw - whether bytes serve as they are, so that a file need not be text.
 */
export async function judged(
  where: string,
  opened: Opened,
  given: Format | undefined,
  raw: boolean,
): Promise<Judged> {
  if (raw && given === "text") {
    return { format: given, chunks: opened.chunks, leave: async () => undefined };
  }
  const { first, ended, all, leave } = await peeked(opened.chunks);
  try {
    const name = opened.name || "the file";
    if (typeof first[0] !== "string") refuseBinary(where, name, bytesOf(first), ended, raw);
    const format = given ?? formatOf(where, opened, headOf(first), ended);
    return { format, chunks: all(), leave };
  } catch (error) {
    await leave();
    throw error;
  }
}

/** The first chunks, and a way to read them with all others. */
async function peeked(chunks: AsyncIterable<Chunk>) {
  const iterator = chunks[Symbol.asyncIterator]();
  const first: Chunk[] = [];
  let ended = false;
  for (let size = 0; size < HEAD; ) {
    const { value, done } = await iterator.next();
    if (done) {
      ended = true;
      break;
    }
    first.push(value);
    size += value.length;
  }
  const begun = [...first];
  const leave = async () => void (await iterator.return?.());
  async function* all(): AsyncGenerator<Chunk> {
    let over = ended;
    try {
      // Each is let go of before the next is read.
      for (let one = begun.shift(); one !== undefined; one = begun.shift()) yield one;
      while (!over) {
        const { value, done } = await iterator.next();
        over = done === true;
        if (!over) yield value;
      }
    } finally {
      if (!over) await leave();
    }
  }
  return { first, ended, all, leave };
}

/** The bytes of the first chunks up to a string. */
function bytesOf(chunks: readonly Chunk[]): Uint8Array {
  const head = new Uint8Array(HEAD);
  let used = 0;
  for (const chunk of chunks) {
    if (typeof chunk === "string" || used === HEAD) break;
    const part = chunk.subarray(0, HEAD - used);
    head.set(part, used);
    used += part.length;
  }
  return head.subarray(0, used);
}

function headOf(chunks: readonly Chunk[]): string {
  const decoder = new TextDecoder();
  const texts = chunks.map((chunk) =>
    typeof chunk === "string"
      ? chunk.slice(0, HEAD)
      : decoder.decode(chunk.subarray(0, HEAD), { stream: true }),
  );
  return texts.join("").replace(/^\ufeff/, "");
}

/** What the name or the type of a file says. */
export function namedFormat({ name, type }: Opened): Format | undefined {
  if (/\.(jsonl|ndjson)$/i.test(name) || /^application\/(x-ndjson|jsonl)/i.test(type))
    return "jsonl";
  if (/\.json$/i.test(name) || /^application\/json/i.test(type)) return "json";
  if (/\.(csv|tsv)$/i.test(name) || /^text\/(csv|tab-separated-values)/i.test(type)) return "csv";
  return undefined;
}

/** What is between two columns of a file with that name or type. */
export const delimiterOf = ({ name, type }: Opened): string =>
  /\.tsv$/i.test(name) || (!/\.csv$/i.test(name) && /^text\/tab-separated-values/i.test(type))
    ? "\t"
    : ",";

/** A text in JSON, as the beginning of a pattern. */
const TEXT = String.raw`"(?:[^"\\\n]|\\.)*"`;
/** An object that has begun: its first name is there. */
const OBJECT = new RegExp(String.raw`^\{\s*${TEXT}\s*:`);
/** A line with which a value in JSON does not end. */
const GOES_ON = /[{[,:]\s*$/;
/** A list of objects, of lists of objects, or of texts. */
const ROWS = new RegExp(String.raw`^\[\s*(?:(?:\[\s*)?\{\s*${TEXT}\s*:|${TEXT}\s*[,\]])`);
/** A list of messages: one conversation. */
const MESSAGES = /^\[\s*\{\s*"(?:role|content|from|value)"\s*:/;

/** The form of a text, by its beginning; `ended` says that this is all of it. */
function formatOf(where: string, opened: Opened, head: string, ended: boolean): Format {
  const named = namedFormat(opened);
  const start = head.trimStart();
  expectNoPage(where, opened, start);
  const end = start.indexOf("\n");
  const [line, rest] =
    end < 0 ? [ended ? start : undefined, ""] : [start.slice(0, end), start.slice(end).trim()];
  const value = parsed(line);
  if (isObject(value)) return "jsonl";
  if (OBJECT.test(start)) {
    if (line === undefined) return "jsonl"; // a row that is longer than what was looked at
    if (GOES_ON.test(line)) throw oneObject(where, opened, start);
    return named === "json" ? "jsonl" : (named ?? "text");
  }
  if (!start.startsWith("[") || (named === undefined && !ROWS.test(start))) return named ?? "text";
  if (Array.isArray(value)) {
    // Further lines, each a conversation; a conversation alone may be a file of one line.
    const lines = rest === "" ? MESSAGES.test(start) : /^[[{]/.test(rest);
    return lines ? "jsonl" : "json";
  }
  if (named === "csv" && !ROWS.test(start)) return named;
  const long = line === undefined && (named === "jsonl" || named === undefined);
  return long && MESSAGES.test(start) ? "jsonl" : "json";
}

const isObject = (value: unknown) =>
  typeof value === "object" && value !== null && !Array.isArray(value);

function parsed(line: string | undefined): unknown {
  try {
    return line === undefined ? undefined : JSON.parse(line);
  } catch {
    return undefined;
  }
}

/** A server that shows a file, or lacks it, answers with a page. */
function expectNoPage(where: string, { name }: Opened, start: string): void {
  if (!/^<!doctype html/i.test(start) || !/\.(?!html?$)\w+$/i.test(name)) return;
  throw invalid(
    `${where}: ${name} is a web page (HTML); give the address of the file itself: on Hugging Face it has resolve in the ` +
      'place of blob, on GitHub raw; format: "text" takes the page as one text',
  );
}

function oneObject(where: string, { name }: Opened, start: string) {
  const first = new RegExp(TEXT).exec(start)?.[0] ?? "";
  return invalid(
    `${where}: ${name || "the file"} is one JSON object over several lines, whose first field is ${show(first.slice(1, -1))}; give ` +
      "rows: JSONL, which has an object in each line, or a JSON array of the objects, such as " +
      'new Blob([JSON.stringify(JSON.parse(await file.text()).rows)]); format: "text" takes it as one text',
  );
}
