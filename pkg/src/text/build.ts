/** Datasets of texts and documents. */

import { DATASET, encoded, expectTokenizer, type Prepared } from "../dataset-options.js";
import {
  check,
  inspect,
  integer,
  invalid,
  isA,
  oneOf,
  orNull,
  type Rules,
  show,
} from "../options.js";
import { LONG } from "../source.js";
import { ByteTokenizer, type TextEncoding } from "../tokenizer.js";
import { some } from "../tokens.js";
import { DocumentStore } from "./documents.js";
import { encodePieces } from "./pieces.js";
import { type Opened, openText, Pace, paced, read, textOf } from "./read.js";
import { csvColumn, jsonColumn, separated } from "./rows.js";
import { TokenStore } from "./store.js";
import type { DocumentOptions, PromptedDocument, SourceOptions } from "./types.js";

const someText = (value: unknown) =>
  typeof value === "string" && value !== "" ? undefined : "a string that is not empty";

const DOCUMENTS: Rules<DocumentOptions> = {
  ...DATASET,
  ...LONG,
  endToken: orNull(integer(0, 0xffff_fffe)),
};
const SOURCE: Rules<SourceOptions> = {
  ...DOCUMENTS,
  format: oneOf("text", "jsonl", "csv"),
  column: someText,
  delimiter: (value) =>
    typeof value === "string" && value.length === 1 ? undefined : "one character",
  separator: someText,
};

/** `Dataset.from`. */
export async function fromSource(
  where: string,
  source: unknown,
  tokenizer: TextEncoding,
  given: SourceOptions,
): Promise<Prepared> {
  const { signal, onProgress, endToken, format, column, delimiter, separator, ...options } = check(
    where,
    given,
    SOURCE,
  );
  const encoding = expectTokenizer(where, tokenizer);
  const opened = await openText(where, source, signal);
  const long = { ...(signal && { signal }), ...(onProgress && { onProgress }) };
  const pace = new Pace(where, long, opened.total, "read text");
  const chunks = paced(opened.chunks, pace);
  const kind = format ?? formatOf(opened);
  if (kind === "text" && separator === undefined) {
    const store = new TokenStore();
    await oneText(store, chunks, encoding);
    return prepared(store, options, encoding);
  }
  const store = new DocumentStore();
  const texts = textOf(chunks);
  const comma = delimiter ?? (/\.tsv$/i.test(opened.name) ? "\t" : ",");
  const documents =
    kind === "jsonl"
      ? jsonColumn(where, texts, column ?? "text")
      : kind === "csv"
        ? csvColumn(where, texts, column ?? "text", comma)
        : separated(texts, separator as string);
  await addDocuments(store, documents, encoding, endToken);
  return prepared(store, options, encoding);
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
  const { signal, onProgress, endToken, ...options } = check(where, given, DOCUMENTS);
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
  const store = new DocumentStore();
  await addDocuments(store, counted(where, documents, pace, signal), encoding, endToken);
  return prepared(store, options, encoding);
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

/** The format of a file, by its name or its type. */
export function formatOf({ name, type }: Opened): SourceOptions["format"] {
  if (/\.(jsonl|ndjson)$/i.test(name)) return "jsonl";
  if (/\.(csv|tsv)$/i.test(name) || /^text\/(csv|tab-separated-values)/i.test(type)) return "csv";
  return "text";
}

/** The ids of a text, without special tokens around it. */
export function encoder(tokenizer: TextEncoding): (text: string) => Promise<ArrayLike<number>> {
  return (text) => encoded(tokenizer, text);
}

async function oneText(
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
  for await (const ids of encodePieces(textOf(chunks), encoder(tokenizer))) store.append(ids);
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

async function addDocuments(
  store: DocumentStore,
  documents: AsyncIterable<string | PromptedDocument>,
  tokenizer: TextEncoding,
  endToken: number | null | undefined,
): Promise<void> {
  const end = endToken === undefined ? endTokenOf(tokenizer) : (endToken ?? undefined);
  const encode = encoder(tokenizer);
  const append = async (text: string) => {
    for await (const ids of encodePieces([text], encode)) store.append(ids);
  };
  for await (const document of documents) {
    store.begin();
    const before = store.length;
    const prompted = typeof document !== "string";
    if (prompted) await append(document.prompt);
    const learned = store.length;
    await append(prompted ? document.completion : document);
    if (store.length === before) store.drop();
    else if (end !== undefined) store.append([end]);
    if (prompted) store.learn(learned, store.length);
  }
  expectLearned(store, "every completion is empty; give completions");
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
