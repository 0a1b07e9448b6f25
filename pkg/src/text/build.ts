/** Datasets of texts and documents. */

import {
  encoded,
  expectTokenizer,
  type Prepared,
  startOf,
  startsWith,
  TEXT,
  WITHOUT_START,
  withStart,
} from "../dataset-options.js";
import {
  check,
  flag,
  inspect,
  integer,
  invalid,
  isA,
  oneOf,
  orNull,
  type Rules,
  show,
} from "../options.js";
import { LONG } from "../progress.js";
import { ByteTokenizer } from "../tokenizer.js";
import type { TextEncoding } from "../tokenizer-types.js";
import { some } from "../tokens.js";
import { DocumentStore } from "./documents.js";
import { delimiterOf, judged } from "./formats.js";
import { jsonElements } from "./json-array.js";
import { encodePieces } from "./pieces.js";
import { type Opened, openText, Pace, paced, read, textOf } from "./read.js";
import { documentsOf } from "./row-documents.js";
import { csvDocuments, jsonLines, separated } from "./rows.js";
import { TokenStore } from "./store.js";
import type { DocumentOptions, PromptedDocument, SourceOptions } from "./types.js";

const someText = (value: unknown) =>
  typeof value === "string" && value !== "" ? undefined : "a string that is not empty";

const DOCUMENTS: Rules<DocumentOptions> = {
  ...TEXT,
  ...LONG,
  endToken: orNull(integer(0, 0xffff_fffe)),
  joined: flag,
};
const SOURCE: Rules<SourceOptions> = {
  ...DOCUMENTS,
  format: oneOf("text", "jsonl", "json", "csv"),
  column: someText,
  delimiter: (value) =>
    typeof value === "string" && value.length === 1 ? undefined : "one character",
  separator: someText,
};

/** `Dataset.from`, and `Dataset.fromText` of a Blob, which is one text whatever it looks like. */
export async function fromSource(
  where: string,
  source: unknown,
  tokenizer: TextEncoding,
  given: SourceOptions,
): Promise<Prepared> {
  const plain = where === "Dataset.fromText";
  const rules = plain ? ({ ...TEXT, ...LONG } as Rules<SourceOptions>) : SOURCE;
  const checked = check(where, given, rules);
  const { signal, onProgress, format, column, delimiter, separator, ...rest } = checked;
  const { startTokens, endToken, joined, ...options } = rest;
  const encoding = expectTokenizer(where, tokenizer);
  const start = await startOf(encoding, startTokens);
  const opened = await openText(where, source, signal);
  const long = { ...(signal && { signal }), ...(onProgress && { onProgress }) };
  const pace = new Pace(where, long, opened.total, "read text");
  const said = format ?? (plain || separator !== undefined ? "text" : undefined);
  const raw = isA(tokenizer, ByteTokenizer) && separator === undefined;
  const file = { ...opened, chunks: paced(opened.chunks, pace) };
  const { format: kind, chunks, leave } = await judged(where, file, said, raw);
  if (kind === "text" && separator === undefined) {
    const wrong = forRows(where, { column, delimiter }, opened);
    if (wrong) await leave();
    if (wrong) throw wrong;
    const store = new TokenStore();
    await oneText(where, store, chunks, encoding);
    return withStart(prepared(store, options, encoding).store, start, options, encoding);
  }
  const texts = textOf(where, chunks);
  const comma = delimiter ?? delimiterOf(opened);
  const documents = {
    jsonl: () => documentsOf(where, jsonLines(where, texts), column, "line"),
    json: () => documentsOf(where, jsonElements(where, texts), column, "element"),
    csv: () => csvDocuments(where, texts, column, comma),
    text: () => separated(texts, separator as string),
  }[kind]();
  return ofDocuments(documents, encoding, { start, endToken, joined }, options);
}

/** What is wrong with options of rows for what is read as one text. */
function forRows(where: string, options: object, { name }: Opened): Error | undefined {
  const option = Object.entries(options).find(([, value]) => value !== undefined)?.[0];
  if (option === undefined) return undefined;
  return invalid(
    `${where}: ${option} is of rows, and ${name || "the source"} is read as one text; give its format too: "csv", ` +
      '"jsonl" or "json"',
  );
}

/** Texts, or prompts with their completions. */
type Documents = Iterable<string | PromptedDocument> | AsyncIterable<string | PromptedDocument>;

/** `Dataset.fromDocuments`. */
export async function fromDocuments(
  documents: Documents,
  tokenizer: TextEncoding,
  given: DocumentOptions,
): Promise<Prepared> {
  const where = "Dataset.fromDocuments";
  const checked = check(where, given, DOCUMENTS);
  const { signal, onProgress, startTokens, endToken, joined, ...options } = checked;
  const encoding = expectTokenizer(where, tokenizer);
  const iterable = inspect(where, () => {
    const list = documents as { [Symbol.iterator]?: unknown; [Symbol.asyncIterator]?: unknown };
    return (
      typeof documents === "object" && (list?.[Symbol.iterator] ?? list?.[Symbol.asyncIterator])
    );
  });
  if (!iterable)
    throw invalid(`${where} takes texts, such as an array of strings, not ${show(documents)}`);
  const long = { ...(signal && { signal }), ...(onProgress && { onProgress }) };
  const pace = new Pace(
    where,
    long,
    Array.isArray(documents) ? documents.length : 0,
    "read documents",
  );
  const start = await startOf(encoding, startTokens);
  const list = counted(where, documents, pace, signal);
  return ofDocuments(list, encoding, { start, endToken, joined }, options);
}

async function* counted(
  where: string,
  documents: Documents,
  pace: Pace,
  signal: AbortSignal | undefined,
): AsyncGenerator<string | PromptedDocument> {
  await pace.done(0);
  let index = 0;
  let first: string | undefined;
  for await (const document of read(where, "the documents", documents, signal)) {
    const name = `${where}: document ${index}`;
    const kind = inspect(name, () => kindOf(document));
    if (!kind) {
      throw invalid(
        `${name} is ${show(document)}; give a string, or an object of the strings prompt and completion`,
      );
    }
    first ??= kind;
    if (kind !== first) {
      throw invalid(
        `${name} is ${kind}, and those before it are ${first}; make a text into an object with prompt ""`,
      );
    }
    index += 1;
    yield document;
    await pace.done(1);
  }
}

function kindOf(document: string | PromptedDocument): string | undefined {
  if (typeof document === "string") return "a text";
  const { prompt, completion } = Object(document) as PromptedDocument;
  return typeof prompt === "string" && typeof completion === "string"
    ? "a prompt with its completion"
    : undefined;
}

/** A store that is complete, with the options of its dataset. */
export function prepared(
  store: TokenStore,
  options: Prepared["options"],
  tokenizer: TextEncoding,
): Prepared {
  if (store.length === 0) some("the text", new Uint32Array());
  return { store: store.end(), options, tokenizer };
}

/** The ids of a text, without special tokens around it. */
export function encoder(tokenizer: TextEncoding): (text: string) => Promise<ArrayLike<number>> {
  return (text) => encoded(tokenizer, text);
}

async function oneText(
  where: string,
  store: TokenStore,
  chunks: AsyncIterable<Uint8Array | string>,
  tokenizer: TextEncoding,
): Promise<void> {
  if (isA(tokenizer, ByteTokenizer)) {
    const encode = new TextEncoder();
    // Strings are joined first: half of a character has no bytes of its own.
    for await (const chunk of wholeStrings(chunks)) {
      store.append(typeof chunk === "string" ? encode.encode(chunk) : chunk);
    }
    return;
  }
  for await (const ids of encodePieces(textOf(where, chunks), encoder(tokenizer)))
    store.append(ids);
}

async function* wholeStrings(chunks: AsyncIterable<Uint8Array | string>) {
  let half = "";
  for await (const chunk of chunks) {
    if (typeof chunk !== "string") {
      yield chunk;
      continue;
    }
    const text = half + chunk;
    half = /[\ud800-\udbff]$/.test(text) ? text.slice(-1) : "";
    yield half ? text.slice(0, -1) : text;
  }
  if (half) yield half;
}

/** What is put around documents, and how those of two parts are encoded. */
interface Framing {
  readonly start: readonly number[];
  readonly endToken: number | null | undefined;
  readonly joined: boolean | undefined;
}

async function ofDocuments(
  documents: AsyncIterable<string | PromptedDocument>,
  tokenizer: TextEncoding,
  { start, endToken, joined = true }: Framing,
  options: Prepared["options"],
): Promise<Prepared> {
  const end = endToken === undefined ? endTokenOf(tokenizer) : (endToken ?? undefined);
  const store = new DocumentStore();
  const encode = encoder(tokenizer);
  const append = async (text: string) => {
    for await (const ids of encodePieces([text], encode)) addTokens(store, start, ids);
  };
  let pairs = false;
  for await (const document of documents) {
    store.begin();
    const before = store.length;
    let learned = before;
    if (typeof document === "string") await append(document);
    else if (joined) {
      const { ids, prompt } = await encodedPair(document, encode);
      addTokens(store, start, ids);
      learned = store.length - (ids.length - prompt);
    } else {
      await append(document.prompt);
      learned = store.length;
      await append(document.completion);
    }
    if (store.length === before) store.drop();
    else if (end !== undefined) store.append([end]);
    if (typeof document !== "string") {
      pairs = true;
      store.learn(Math.min(Math.max(learned, before + start.length), store.length), store.length);
    } else if (start.length > 1)
      store.learn(Math.min(before + start.length, store.length), store.length);
  }
  expectLearned(store, "every completion is empty; give completions");
  const old = [
    ...(start.length > 0 ? [WITHOUT_START] : []),
    ...(pairs && joined ? ["joined: false"] : []),
  ];
  return { ...prepared(store, options, tokenizer), before: old };
}

/** Appends tokens of a document, after what stands once before each. */
function addTokens(store: DocumentStore, start: readonly number[], ids: ArrayLike<number>): void {
  if (ids.length === 0) return;
  if (store.begun === store.length && !startsWith(ids, start)) store.append(start);
  store.append(ids);
}

/**
 * The tokens of a prompt with its completion, encoded as one text: a tokenizer may join characters of both, and many put
 * a space before what they are given. The completion is what follows the tokens that the prompt alone has too.
 */
async function encodedPair(
  { prompt, completion }: PromptedDocument,
  encode: (text: string) => Promise<ArrayLike<number>>,
): Promise<{ ids: readonly number[]; prompt: number }> {
  const tokens = async (text: string) => {
    const ids: number[] = [];
    for await (const part of encodePieces([text], encode)) {
      for (let i = 0; i < part.length; i++) ids.push(part[i] as number);
    }
    return ids;
  };
  const [ids, alone] = [await tokens(prompt + completion), await tokens(prompt)];
  const differs = ids.findIndex((id, at) => id !== alone[at]);
  return { ids, prompt: differs < 0 ? ids.length : differs };
}

/** Refuses documents of which no token is to be learned; `why` says so, and what to do. */
export function expectLearned({ learned, length }: DocumentStore, why: string): void {
  if (length > 0 && learned?.length === 0)
    throw invalid(`there is no token to learn: ${why}`, "invalid-tokens");
}

/** The id with which a tokenizer ends texts, if it has one. */
function endTokenOf(tokenizer: TextEncoding): number | undefined {
  return inspect("the tokenizer", () => {
    const { endToken, vocabSize } = tokenizer as { endToken?: unknown; vocabSize: unknown };
    if (endToken === undefined || endToken === null) return undefined;
    const most = Number.isSafeInteger(vocabSize) ? (vocabSize as number) - 1 : 0xffff_fffe;
    const allowed = integer(0, Math.min(most, 0xffff_fffe))(endToken);
    if (!allowed) return endToken as number;
    throw invalid(
      `the tokenizer's endToken is ${show(endToken)}; it has to be ${allowed}, or give the option endToken`,
    );
  });
}
