/** Datasets as files, and back. */

import { readText, required } from "../checkpoint-files.js";
import { crc32, hex } from "../crc32.js";
import { type Prepared, TEXT, withStart } from "../dataset-options.js";
import type { TextOptions } from "../dataset-types.js";
import { corrupt, type Source } from "../file-part.js";
import { openSource } from "../file-source.js";
import { jsonIn } from "../json-file.js";
import { tokenizersPart } from "../lazy.js";
import { check, flag, integer, isA, object, oneOf, type Rules, show } from "../options.js";
import { LOAD, LONG, type LongOptions } from "../progress.js";
import { ByteTokenizer, type PretrainedTokenizer } from "../tokenizer.js";
import type { TextEncoding } from "../tokenizer-types.js";
import { DocumentStore } from "./documents.js";
import { Pace } from "./read.js";
import { TokenStore } from "./store.js";
import type { DatasetFiles, TokenizerOptions } from "./types.js";

const FORMAT = "tinyloom-dataset-1";
const TOKENIZER = [
  "tokenizer.json",
  "tokenizer_config.json",
  "special_tokens_map.json",
  "chat_template.jinja",
  "chat_template.json",
];
/** Bytes of dataset.json at most. */
const MOST = 1 << 20;
/** Tokens that are read or written at a time. */
const PIECE = 1 << 20;

/** dataset.json. */
interface Description {
  readonly format: string;
  readonly tokens: number;
  /** Bytes of a token in tokens.bin: little-endian ids. */
  readonly width: 1 | 2 | 4;
  readonly hash: string;
  /** With the ids that windows of one text begin with, where there are any: documents have them among their tokens. */
  readonly options: TextOptions;
  /** Whether the documents are conversations; absent where they are not, and in files of version 0.1. */
  readonly chats?: boolean;
  readonly tokenizer: "files" | "bytes" | null;
  /** Numbers in documents.bin and learned.bin, of four bytes each; absent without the file. */
  readonly documents?: number;
  readonly learned?: number;
}

type Array_ = new (
  buffer: ArrayBuffer,
) => Uint8Array<ArrayBuffer> | Uint16Array<ArrayBuffer> | Uint32Array<ArrayBuffer>;
const ARRAYS: { readonly [width: number]: Array_ } = {
  1: Uint8Array,
  2: Uint16Array,
  4: Uint32Array,
};

const optional = (rule: (value: unknown) => string | undefined) => (value: unknown) =>
  value === undefined ? undefined : rule(value);
const RULES: Rules<Description> = {
  format: () => undefined,
  tokens: integer(1),
  width: oneOf(1, 2, 4),
  hash: (value) => (typeof value === "string" ? undefined : "a string"),
  options: object,
  chats: optional(flag),
  tokenizer: oneOf("files", "bytes", null),
  documents: optional(integer(0)),
  learned: optional(integer(0)),
};

/** `dataset.save`. */
export async function saveDataset(
  store: TokenStore,
  { hash, tokenizer }: { readonly hash: string; readonly tokenizer: TextEncoding | undefined },
  { options, chats }: Pick<Prepared, "options" | "chats">,
  given: LongOptions,
): Promise<DatasetFiles> {
  const long = check("dataset.save", given, LONG);
  const pace = new Pace("dataset.save", long, store.length, "write tokens");
  const width = widthOf(store);
  const tokens = new Uint8Array(store.length * width);
  const view = new (ARRAYS[width] as Array_)(tokens.buffer);
  await pace.done(0);
  for (let at = 0; at < store.length; at += PIECE) {
    const part = store.read(at, Math.min(PIECE, store.length - at), false);
    view.set(part, at);
    await pace.done(part.length);
  }
  const documents = store instanceof DocumentStore ? store : undefined;
  const { packed, learned } = documents ?? {};
  const { windowStart } = store;
  const files = (tokenizer as Partial<PretrainedTokenizer> | undefined)?.save?.();
  const description: Description = {
    format: FORMAT,
    tokens: store.length,
    width,
    hash,
    options: { ...options, ...(windowStart.length > 0 && { startTokens: [...windowStart] }) },
    ...(chats && { chats }),
    tokenizer: files ? "files" : isA(tokenizer, ByteTokenizer) ? "bytes" : null,
    ...(packed && { documents: packed.starts.length }),
    ...(learned && { learned: learned.length }),
  };
  const bytes = (numbers: Uint32Array<ArrayBuffer>) => new Uint8Array(numbers.buffer);
  const summed = { ...description, crc32: sumOf(description) };
  return {
    "dataset.json": new TextEncoder().encode(`${JSON.stringify(summed, null, 2)}\n`),
    "tokens.bin": tokens,
    ...(packed && { "documents.bin": bytes(Uint32Array.from(packed.starts)) }),
    ...(learned && { "learned.bin": bytes(Uint32Array.from(learned)) }),
    ...files,
  };
}

/** Bytes of the widest token. */
function widthOf(store: TokenStore): 1 | 2 | 4 {
  let most = 0;
  for (let at = 0; at < store.length; at += PIECE) {
    const part = store.read(at, Math.min(PIECE, store.length - at), false);
    for (const id of part) if (id > most) most = id;
  }
  if (most < 1 << 8) return 1;
  return most < 1 << 16 ? 2 : 4;
}

/** `Dataset.load`. */
export async function loadDataset(source: unknown, given: TokenizerOptions): Promise<Prepared> {
  const where = "Dataset.load";
  const { library, ...long } = check<TokenizerOptions>(where, given, {
    ...LOAD,
    library: () => undefined,
  });
  const from = openSource(where, source, long);
  const description = await describe(from);
  const { documents, learned, tokens, width, hash, chats = false } = description;
  const { startTokens, ...options } = description.options;
  const store = documents === undefined ? new TokenStore() : new DocumentStore();
  const starts = await numbers(from, "documents.bin", documents);
  const ranges = await numbers(from, "learned.bin", learned);
  const file = await required(from, "tokens.bin");
  if (file.size !== tokens * width) {
    throw corrupt(`${file.place} has ${file.size} bytes; ${tokens} tokens take ${tokens * width}`);
  }
  const pace = new Pace(where, long, tokens, "read tokens");
  let document = 0;
  for (let at = 0; at < tokens; at += PIECE) {
    const end = Math.min(tokens, at + PIECE);
    const bytes = Uint8Array.from(await file.read(at * width, end * width));
    const ids = new (ARRAYS[width] as Array_)(bytes.buffer);
    let done = at;
    for (; document < starts.length && (starts[document] as number) < end; document++) {
      const start = starts[document] as number;
      store.append(ids.subarray(done - at, start - at));
      done = start;
      (store as DocumentStore).begin();
    }
    store.append(ids.subarray(done - at));
    await pace.done(end - at);
  }
  file.rest?.();
  if (store instanceof DocumentStore && learned !== undefined) {
    store.learn(0, 0);
    for (let i = 0; i < ranges.length; i += 2)
      store.learn(ranges[i] as number, ranges[i + 1] as number);
  }
  store.end();
  if (startTokens && documents === undefined)
    store.windowStart = Array.from(startTokens as number[]);
  if (store.hash !== hash) {
    throw corrupt(
      `${from.place("tokens.bin")} has the hash ${store.hash}, and dataset.json says ${hash}`,
    );
  }
  const tokenizer = await tokenizerOf(description, from, { ...long, ...(library && { library }) });
  return { ...withStart(store, store.windowStart, options, tokenizer), chats };
}

async function tokenizerOf(
  { tokenizer }: Description,
  from: Source,
  options: TokenizerOptions,
): Promise<TextEncoding | undefined> {
  if (tokenizer === "bytes") return new ByteTokenizer();
  if (tokenizer !== "files") return undefined;
  const files: { [name: string]: Uint8Array } = {};
  for (const name of TOKENIZER) {
    const file = await from.find(name);
    if (file) files[name] = Uint8Array.from(await file.read(0, file.size));
    file?.rest?.();
  }
  return (await tokenizersPart()).loadTokenizer(files, options);
}

async function describe(from: Source): Promise<Description> {
  const text = await readText(from, "dataset.json", MOST);
  const place = from.place("dataset.json");
  const found = jsonIn(place, text, "invalid-checkpoint") as
    | (Partial<Description> & { readonly crc32?: unknown })
    | null;
  if (found?.format !== FORMAT) {
    throw corrupt(`${place} is none that this version reads: ${FORMAT}`);
  }
  const { crc32: sum, ...description } = found;
  if (sum !== undefined && sum !== sumOf(description)) {
    throw corrupt(`${place} is not as it was written: its crc32 differs; save the dataset again`);
  }
  for (const [name, rule] of Object.entries(RULES)) {
    const value: unknown = description[name as keyof Description];
    const allowed = rule(value);
    if (allowed) throw corrupt(`${place}: ${name} is ${show(value)}, and has to be ${allowed}`);
  }
  const given = description as Description;
  try {
    const options = check<TextOptions>("options", given.options, TEXT);
    if (typeof options.startTokens !== "boolean") return { ...given, options };
    throw new Error("startTokens is no list of ids");
  } catch (cause) {
    throw corrupt(`${place}: ${(cause as Error).message}`, cause);
  }
}

/** The checksum of what dataset.json says. */
const sumOf = (description: object): string =>
  hex(crc32(new TextEncoder().encode(JSON.stringify(description))));

async function numbers(
  from: Source,
  name: string,
  count: number | undefined,
): Promise<Uint32Array> {
  if (count === undefined) return new Uint32Array();
  const file = await required(from, name);
  if (file.size !== count * 4) {
    throw corrupt(`${file.place} has ${file.size} bytes; ${count} numbers take ${count * 4}`);
  }
  const bytes = Uint8Array.from(await file.read(0, file.size));
  file.rest?.();
  return new Uint32Array(bytes.buffer);
}
