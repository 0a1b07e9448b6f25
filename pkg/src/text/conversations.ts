/** `Dataset.fromConversations`: which tokens are answers. */

import { DATASET, expectTokenizer, type Prepared } from "../dataset-options.js";
import { awaited, check, flag, invalid, isA, type Rules, show } from "../options.js";
import { LONG } from "../progress.js";
import { ByteTokenizer } from "../tokenizer.js";
import type { TextEncoding } from "../tokenizer-types.js";
import { expectLearned, prepared } from "./build.js";
import { chatEncoder, type Encode } from "./chat-encoding.js";
import { chatRows } from "./chat-rows.js";
import { renderChat } from "./contents.js";
import { DocumentStore } from "./documents.js";
import { expectConversation } from "./messages.js";
import { learnedSpans } from "./spans.js";
import { specialTexts } from "./special-tokens.js";
import { type Chat, openTemplate, type Rendered, TEMPLATE } from "./templates.js";
import { bytesOf } from "./trained.js";
import type { ConversationOptions } from "./types.js";

const WHERE = "Dataset.fromConversations";

const RULES: Rules<ConversationOptions> = {
  ...DATASET,
  ...LONG,
  ...TEMPLATE,
  learnThinking: flag,
  learn: (value) =>
    value === "answers" || value === "all" || typeof value === "function"
      ? undefined
      : '"answers" | "all" | a function of a message',
};

/** What to do with chats in another form. */
const OTHERWISE =
  'parse it (JSON with JSON.parse), make messages of each chat, such as [{ role: "user", content: "…" }, { role: "assistant", content: "…" }], and ' +
  "give an array of these";

/** The day that `strftime_now` writes where no date is given: with today's, the same chats would be others tomorrow. */
const A_DAY = new Date(2024, 6, 26);

export async function fromConversations(
  list: unknown,
  tokenizer: TextEncoding,
  given: ConversationOptions,
): Promise<Prepared> {
  const {
    signal,
    onProgress,
    template,
    variables,
    date,
    specialTokens,
    learn,
    learnThinking,
    ...options
  } = check(WHERE, given, RULES);
  const encoding = expectTokenizer(WHERE, tokenizer);
  const rendering = {
    ...(template !== undefined && { template }),
    ...(variables && { variables }),
    ...(date && { date }),
  };
  const opened = openTemplate(WHERE, encoding, rendering, () => A_DAY);
  const special = specialTexts(WHERE, encoding);
  const encode = chatEncoder(encoding, special, specialTokens ?? "text");
  const store = new DocumentStore();
  const long = { ...(signal && { signal }), ...(onProgress && { onProgress }) };
  let index = 0;
  let empty: number | undefined;
  for await (const [conversation] of chatRows(WHERE, list, long, OTHERWISE)) {
    const what = `conversation ${index++}`;
    const chat = opened.chat(what, expectConversation(WHERE, conversation, what));
    const made = renderChat(WHERE, opened, chat, false);
    if (made.text === "") empty ??= index - 1;
    const ids = await encode(made);
    if (ids.length === 0) continue;
    const start = store.length;
    store.begin();
    store.append(ids);
    if (learn === "all") continue;
    store.learn(start, start); // of a conversation without answers nothing is learned
    const spans = learnedSpans(
      opened,
      chat,
      made,
      await chosen(chat, learn),
      special,
      learnThinking ?? false,
    );
    const ranges = await tokenRanges(encoding, encode, made, ids, spans);
    for (let i = 0; i < ranges.length; i += 2) {
      store.learn(start + (ranges[i] as number), start + (ranges[i + 1] as number));
    }
  }
  if (store.length === 0 && empty !== undefined) {
    throw invalid(
      `${WHERE}: conversation ${empty}: the template rendered nothing; look at what it does with messages`,
    );
  }
  expectLearned(
    store,
    `no conversation has an answer (of role "assistant") in what the template renders; give answers, or learn: "all"`,
  );
  // Version 0.1 took special tokens in contents for what they spell.
  const before = special.length > 0 && specialTokens !== "parse" ? ['specialTokens: "parse"'] : [];
  return { ...prepared(store, options, encoding), chats: true, before };
}

/** Which messages are learned. An answer with `weight: 0` is only read, as in files for OpenAI's fine-tuning. */
async function chosen(
  { what, given }: Chat,
  learn: ConversationOptions["learn"],
): Promise<boolean[]> {
  const { messages } = given;
  if (typeof learn !== "function")
    return messages.map(({ role, weight }) => role === "assistant" && weight !== 0);
  const all: boolean[] = [];
  for (const [at, message] of messages.entries()) {
    // To a worker, a function of the page gives promises.
    const wanted: unknown = await awaited(`learn of ${what}`, () => learn(message, at));
    if (typeof wanted !== "boolean") {
      throw invalid(
        `${WHERE}: learn gave ${show(wanted)} for message ${at} of ${what}; give true or false`,
      );
    }
    all.push(wanted);
  }
  return all;
}

/** The tokens that have a character of a range: begin and end, alternating. */
async function tokenRanges(
  tokenizer: TextEncoding,
  encode: Encode,
  made: Rendered,
  ids: readonly number[],
  characters: readonly number[],
): Promise<number[]> {
  const { text } = made;
  const ends = byteEnds(tokenizer, text, ids);
  const utf8 = new TextEncoder();
  // Spans ascend, so one walk forward is enough.
  let [after, bytes] = [0, 0];
  const byteAt = (at: number) => {
    bytes += utf8.encode(text.slice(after, at)).length;
    after = at;
    return bytes;
  };
  const beginnings = new Beginnings(encode, made, ids);
  const ranges: number[] = [];
  for (let i = 0; i < characters.length; i += 2) {
    const [begin, end] = [characters[i] as number, characters[i + 1] as number];
    if (end <= begin) continue;
    if (ends) {
      const [first, last] = [byteAt(begin), byteAt(end)];
      ranges.push(firstBeyond(ends, first), firstBeyond(ends, last - 1) + 1);
    } else {
      ranges.push(await beginnings.tokens(begin), await beginnings.tokens(end));
    }
  }
  return ranges;
}

/** The first token that ends after a byte. */
function firstBeyond(ends: readonly number[], byte: number): number {
  let [low, high] = [0, ends.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((ends[middle] as number) <= byte) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Counts the tokens that beginnings of a text, each longer than the last, have in common with the whole. */
class Beginnings {
  readonly #encode: Encode;
  readonly #made: Rendered;
  readonly #ids: readonly number[];
  /** A place where a token ends, and the tokens up to there. */
  #place = 0;
  #tokens = 0;

  constructor(encode: Encode, made: Rendered, ids: readonly number[]) {
    this.#encode = encode;
    this.#made = made;
    this.#ids = ids;
  }

  /** Only what is after the last place is encoded, so that the time does not grow with the square of the text. */
  async tokens(end: number): Promise<number> {
    const { same, all } = await this.#same(this.#place, this.#tokens, end);
    if (all) {
      [this.#place, this.#tokens] = [end, this.#tokens + same];
      return this.#tokens;
    }
    if (same > 0 || this.#place === 0) return this.#tokens + same;
    // The tokenizer takes a beginning otherwise than what goes on: it has put a space before it, for one.
    const whole = await this.#same(0, 0, end);
    if (whole.all) [this.#place, this.#tokens] = [end, whole.same];
    return whole.same;
  }

  /** How many tokens of part of the text are those of the whole from a place on. */
  async #same(begin: number, from: number, end: number): Promise<{ same: number; all: boolean }> {
    const { text, codes } = this.#made;
    const part = { text: text.slice(begin, end), codes: codes.slice(begin, end) };
    const own = part.text === "" ? [] : await this.#encode(part);
    const other = own.findIndex((id, at) => id !== this.#ids[from + at]);
    return other < 0 ? { same: own.length, all: true } : { same: other, all: false };
  }
}

/** Where each token ends in the text's bytes; undefined where the tokens do not spell the text. */
function byteEnds(
  tokenizer: TextEncoding,
  text: string,
  ids: readonly number[],
): readonly number[] | undefined {
  if (isA(tokenizer, ByteTokenizer)) return ids.map((_, at) => at + 1);
  const of = bytesOf(tokenizer);
  if (!of) return undefined;
  const bytes = new TextEncoder().encode(text);
  const spells = (at: number, piece: Uint8Array) =>
    piece.every((byte, i) => bytes[at + i] === byte);
  const ends: number[] = [];
  let at = 0;
  for (const id of ids) {
    const piece = of(id);
    // A space that the tokenizer has put before a word is no character of the text.
    const own = spells(at, piece) || piece[0] !== 0x20 ? piece : piece.subarray(1);
    if (!spells(at, own)) return undefined;
    at += own.length;
    ends.push(at);
  }
  return at === bytes.length ? ends : undefined;
}
