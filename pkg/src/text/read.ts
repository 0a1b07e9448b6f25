/** Files, streams and URLs as pieces of bytes or text. */

import { either } from "../abortable.js";
import { isTinyloomError, throwIfAborted } from "../error.js";
import { fileSystem, inNode } from "../node.js";
import { inspect, invalid, isA, show } from "../options.js";
import { wholeUrl } from "../page-address.js";
import { type LongOptions, report, reported } from "../progress.js";

/** A text that is read piece by piece. A `File` is a `Blob`. */
export type TextSource = Blob | ReadableStream<Uint8Array | string> | URL;

export type Chunk = Uint8Array | string;

/** Bytes of a file that are read at a time in Node. */
const PIECE = 256 << 10;

/** What is read, and what is known of it. */
export interface Opened {
  /** Its name, for guessing the format; empty where it has none. */
  readonly name: string;
  /** The media type, where there is one. */
  readonly type: string;
  /** Bytes in all; 0 where that is not known. */
  readonly total: number;
  readonly chunks: AsyncIterable<Chunk>;
}

/** What some calls take besides a source, and where a text goes that is none to them. */
const OWN: { readonly [where: string]: readonly [own: string, text?: string] } = {
  "BpeTokenizer.train": ["a text, "],
  "Dataset.fromConversations": ["an array of conversations, ", "as JSONL into new Blob([…])"],
};

/** Opens a source. Nothing is read before the first chunk is asked for, except the head of an answer. */
export async function openText(
  where: string,
  source: unknown,
  signal: AbortSignal | undefined,
): Promise<Opened> {
  throwIfAborted(signal, where);
  if (isA(source, Blob)) {
    const name = "name" in source && typeof source.name === "string" ? source.name : "";
    const open = () => streamed(source.stream(), signal);
    const chunks = worded(where, name || "the Blob", open, signal);
    return { name, type: source.type, total: source.size, chunks };
  }
  if (isA(source, URL)) return openUrl(where, source, signal);
  if (inspect(where, () => typeof (source as ReadableStream)?.getReader === "function")) {
    const open = () => streamed(source as ReadableStream<Chunk>, signal);
    const chunks = worded(where, "the stream", open, signal);
    return { name: "", type: "", total: 0, chunks };
  }
  const [own = "", text = "to Dataset.fromText"] = OWN[where] ?? [];
  const hint =
    typeof source === "string" ? `; a text goes ${text}, an address into new URL(…)` : "";
  throw invalid(
    `${where} takes ${own}a File, a Blob, a ReadableStream or a URL, not ${show(source)}${hint}`,
  );
}

async function openUrl(
  where: string,
  given: URL,
  signal: AbortSignal | undefined,
): Promise<Opened> {
  const url = wholeUrl(where, given);
  const name = url.pathname;
  if (url.protocol === "file:" && inNode()) {
    const chunks = worded(where, url.href, () => fileChunks(url), signal);
    return { name, type: "", total: 0, chunks };
  }
  let response: Response;
  try {
    response = await fetch(url, signal ? { signal } : {});
  } catch (cause) {
    throwIfAborted(signal, where);
    throw unreadable(where, url.href, cause);
  }
  if (!response.ok || !response.body) {
    void response.body?.cancel();
    throw invalid(`${where}: ${url.href} answered ${response.status} ${response.statusText}`);
  }
  const { body, headers } = response;
  const length = headers.has("content-encoding") ? 0 : Number(headers.get("content-length") ?? 0);
  const chunks = worded(where, url.href, () => streamed(body, signal), signal);
  return { name, type: headers.get("content-type") ?? "", total: length, chunks };
}

/** The chunks of a stream; leaving them cancels it. Not every browser's streams can be iterated. */
async function* streamed(
  stream: ReadableStream<Chunk>,
  signal: AbortSignal | undefined,
): AsyncGenerator<Chunk> {
  const reader = stream.getReader();
  let ended = false;
  try {
    for (;;) {
      const { value, done } = await either(reader.read(), signal);
      ended = done;
      if (done) return;
      yield value;
    }
  } finally {
    if (!ended) reader.cancel().catch(() => undefined);
  }
}

async function* fileChunks(url: URL): AsyncGenerator<Uint8Array> {
  const file = await (await fileSystem()).open(url);
  try {
    for (;;) {
      const piece = new Uint8Array(PIECE);
      const { bytesRead } = await file.read(piece, 0, PIECE);
      if (bytesRead === 0) return;
      yield piece.subarray(0, bytesRead);
    }
  } finally {
    await file.close();
  }
}

/** The chunks, whose failures name where they come from. */
async function* worded(
  where: string,
  place: string,
  open: () => AsyncGenerator<Chunk>,
  signal: AbortSignal | undefined,
): AsyncGenerator<Chunk> {
  try {
    for await (const chunk of open()) {
      if (typeof chunk !== "string" && !(chunk instanceof Uint8Array)) {
        throw invalid(`${where}: ${place} gave ${show(chunk)}; it has to give bytes or strings`);
      }
      yield chunk;
    }
  } catch (cause) {
    throwIfAborted(signal, where);
    throw isTinyloomError(cause) ? cause : unreadable(where, place, cause);
  }
}

/** What can be iterated; what it throws of its own names where it comes from. */
export async function* read<T>(
  where: string,
  place: string,
  from: Iterable<T> | AsyncIterable<T>,
  signal: AbortSignal | undefined,
): AsyncGenerator<T> {
  // What the user of the values throws does not come by here.
  try {
    yield* iterated(from, signal);
  } catch (cause) {
    throwIfAborted(signal, where);
    throw isTinyloomError(cause) ? cause : unreadable(where, place, cause);
  }
}

/** The values one by one. The signal also ends the wait for one that never comes. */
async function* iterated<T>(
  from: Iterable<T> | AsyncIterable<T>,
  signal: AbortSignal | undefined,
): AsyncGenerator<T> {
  const iterator = iteratorOf(from);
  /** Whether it has given its last value or failed, and is not to be told of the end. */
  let over = false;
  let waits = false;
  const next = async () => {
    waits = true;
    try {
      const { value, done } = await iterator.next();
      over = !!done;
      return { value: (await value) as T, done };
    } catch (error) {
      over = true;
      throw error;
    } finally {
      waits = false;
    }
  };
  try {
    for (;;) {
      throwIfAborted(signal, "the call"); // while nothing is waited for, so that the end is awaited
      const { value, done } = await either(next(), signal);
      if (done) return;
      yield value;
    }
  } finally {
    const ended = over ? undefined : (async () => iterator.return?.())();
    // One that still waits for its next value may never answer.
    if (waits) ended?.catch(() => undefined);
    else await ended;
  }
}

function iteratorOf<T>(from: Iterable<T> | AsyncIterable<T>): Iterator<T> | AsyncIterator<T> {
  const later = (from as AsyncIterable<T>)[Symbol.asyncIterator]?.();
  return later ?? (from as Iterable<T>)[Symbol.iterator]();
}

function unreadable(where: string, place: string, cause: unknown) {
  return invalid(`${where}: ${place} could not be read: ${show(cause)}`, "invalid-options", cause);
}

/** Milliseconds of work after which the page gets its turn. */
const TURN = 16;

/** Lets the page do its own work now and then, and tells of progress. */
export class Pace {
  readonly #where: string;
  readonly #options: LongOptions;
  readonly #total: number;
  readonly #stage: string;
  #loaded = 0;
  #began = performance.now();

  constructor(where: string, options: LongOptions, total: number, stage: string) {
    [this.#where, this.#options, this.#total, this.#stage] = [where, options, total, stage];
  }

  /** So many units are done. */
  async done(units: number): Promise<void> {
    throwIfAborted(this.#options.signal, this.#where);
    this.#loaded += units;
    report(this.#options, { loaded: this.#loaded, total: this.#total, stage: this.#stage });
    await reported(this.#options);
    if (performance.now() - this.#began < TURN) return;
    await new Promise((turn) => setTimeout(turn));
    this.#began = performance.now();
  }
}

/** The chunks as they are used, with progress in bytes, or characters of a stream of strings. */
export async function* paced(chunks: AsyncIterable<Chunk>, pace: Pace): AsyncGenerator<Chunk> {
  await pace.done(0);
  for await (const chunk of chunks) {
    yield chunk;
    await pace.done(chunk.length);
  }
}

/**
 * The text of the chunks. No character is cut in two; a byte-order mark at the start is left out. Bytes that are no
 * UTF-8 are refused, and so are zero bytes: they would be taken for characters that nobody wrote.
 */
export async function* textOf(where: string, chunks: AsyncIterable<Chunk>): AsyncGenerator<string> {
  const decoder = new Utf8(where);
  let half = "";
  let begins = true;
  for await (const chunk of chunks) {
    let text = half + (typeof chunk === "string" ? chunk : decoder.push(chunk));
    half = /[\ud800-\udbff]$/.test(text) ? text.slice(-1) : "";
    if (half) text = text.slice(0, -1);
    if (!text) continue;
    // The decoder leaves the mark out of bytes.
    if (begins && typeof chunk === "string") text = text.replace(/^\ufeff/, "");
    begins = false;
    if (text) yield text;
  }
  const rest = half + decoder.end();
  if (rest) yield rest;
}

/** A decoder of UTF-8 that says where bytes are none. */
class Utf8 {
  readonly #where: string;
  readonly #decoder = new TextDecoder("utf-8", { fatal: true });
  /** Bytes before the chunk. */
  #read = 0;
  /** The last bytes before the chunk, with which a character may have begun. */
  #before = new Uint8Array();

  constructor(where: string) {
    this.#where = where;
  }

  push(chunk: Uint8Array): string {
    const zero = chunk.indexOf(0);
    if (zero >= 0) {
      throw invalid(
        `${this.#where}: byte ${this.#read + zero} is zero, so this is no text in UTF-8; of text in UTF-16, give ` +
          'file.stream().pipeThrough(new TextDecoderStream("utf-16le"))',
      );
    }
    const text = this.#decoded(chunk, chunk);
    this.#read += chunk.length;
    const last = joined(this.#before, chunk.subarray(-3));
    this.#before = last.slice(-3);
    return text;
  }

  end(): string {
    return this.#decoded(new Uint8Array());
  }

  /** @param more - what may be followed by more. */
  #decoded(bytes: Uint8Array, more?: Uint8Array): string {
    try {
      return more ? this.#decoder.decode(bytes, { stream: true }) : this.#decoder.decode();
    } catch (cause) {
      const all = joined(this.#before, bytes);
      const at = this.#read - this.#before.length + firstWrong(all);
      throw invalid(
        `${this.#where}: the bytes from ${at} on are no UTF-8; save the file as UTF-8, or name its encoding, as in ` +
          'file.stream().pipeThrough(new TextDecoderStream("windows-1252"))',
        "invalid-options",
        cause,
      );
    }
  }
}

function joined(a: Uint8Array, b: Uint8Array): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(a.length + b.length);
  all.set(a);
  all.set(b, a.length);
  return all;
}

/** The first byte that is part of no character. A character that began before the bytes is passed over. */
function firstWrong(bytes: Uint8Array): number {
  let at = 0;
  while (at < bytes.length && at < 3 && ((bytes[at] as number) & 0xc0) === 0x80) at++;
  const begun = bytes.length > 3 ? at : 0;
  let [low, high] = [begun, bytes.length];
  // The longest beginning that may go on to be a text.
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (fits(bytes.subarray(begun, middle))) low = middle;
    else high = middle - 1;
  }
  // The character that does not go on begins before that.
  let first = low;
  while (first > begun && !fits(bytes.subarray(begun, first), true)) first--;
  return first;
}

/** Whether bytes are UTF-8; or its beginning, unless they are whole. */
function fits(bytes: Uint8Array, whole = false): boolean {
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: !whole });
    return true;
  } catch {
    return false;
  }
}
