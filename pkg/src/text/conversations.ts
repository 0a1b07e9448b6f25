/** `Dataset.fromConversations`: which tokens are answers. */

import { DATASET, expectTokenizer, type Prepared } from "../dataset-options.js";
import { check, invalid, isA, oneOf, type Rules } from "../options.js";
import { LONG } from "../source.js";
import { ByteTokenizer, type TextEncoding } from "../tokenizer.js";
import { encoder, expectLearned, prepared } from "./build.js";
import { chatRows } from "./chat-rows.js";
import { expectContents } from "./contents.js";
import { DocumentStore } from "./documents.js";
import {
  type ChatTemplate,
  expectConversation,
  openTemplate,
  type Rendered,
  TEMPLATE,
} from "./templates.js";
import { bytesOf } from "./trained.js";
import type { Conversation, ConversationOptions, Message } from "./types.js";

const WHERE = "Dataset.fromConversations";

const RULES: Rules<ConversationOptions> = {
  ...DATASET,
  ...LONG,
  ...TEMPLATE,
  learn: oneOf("answers", "all"),
};

/** What to do with chats in another form. */
const OTHERWISE =
  'parse it (JSON with JSON.parse), make messages of each chat, such as [{ role: "user", content: "…" }, { role: "assistant", content: "…" }], and ' +
  "give an array of these";

type Render = (conversation: Conversation, index: number) => Rendered;

export async function fromConversations(
  list: unknown,
  tokenizer: TextEncoding,
  given: ConversationOptions,
): Promise<Prepared> {
  const { signal, onProgress, template, learn, library, ...options } = check(WHERE, given, RULES);
  const encoding = expectTokenizer(WHERE, tokenizer);
  const render = rendererOf(await openTemplate(WHERE, encoding, template, library));
  const encode = encoder(encoding);
  const store = new DocumentStore();
  const long = { ...(signal && { signal }), ...(onProgress && { onProgress }) };
  let index = 0;
  let empty: number | undefined;
  for await (const [conversation] of chatRows(WHERE, list, long, OTHERWISE)) {
    const { text, answers } = render(conversation, index++);
    if (text === "") empty ??= index - 1;
    const ids = Array.from(await encode(text));
    if (ids.length === 0) continue;
    const start = store.length;
    store.begin();
    store.append(ids);
    if (learn === "all") continue;
    store.learn(start, start); // of a conversation without answers nothing is learned
    const ranges = await tokenRanges(encoding, encode, text, ids, answers);
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
  return { ...prepared(store, options, encoding), chats: true };
}

/**
 * Renders conversations. Answers are what the template puts between `{% generation %}` and
 * `{% endgeneration %}`, as in transformers. Of a template without these, an answer is what an assistant's
 * message adds behind the prompt for it.
 */
function rendererOf(template: ChatTemplate): Render {
  const { marks, render } = template;
  return (given, index) => {
    const what = `conversation ${index}`;
    const conversation = expectConversation(WHERE, given, what);
    expectContents(WHERE, what, conversation, template);
    const made = (messages: readonly Message[], prompt: boolean) =>
      render(what, { ...conversation, messages }, prompt);
    const { messages } = conversation;
    return marks ? made(messages, false) : byPrefix(messages, made, index);
  };
}

function byPrefix(
  messages: readonly Message[],
  made: (some: readonly Message[], prompt: boolean) => Rendered,
  index: number,
): Rendered {
  const { text } = made(messages, false);
  const answers: number[] = [];
  messages.forEach(({ role }, at) => {
    if (role !== "assistant") return;
    const { text: before } = made(messages.slice(0, at), true);
    const { text: through } = made(messages.slice(0, at + 1), false);
    if (!text.startsWith(through) || !through.startsWith(before)) {
      throw invalid(
        `${WHERE}: the template renders conversation ${index} differently as it grows, so answer ${at} cannot ` +
          "be told from the rest; put {% generation %} and {% endgeneration %} around answers in the template",
      );
    }
    answers.push(before.length, through.length);
  });
  return { text, answers };
}

/** The tokens that have a character of a range: begin and end, alternating. */
async function tokenRanges(
  tokenizer: TextEncoding,
  encode: (text: string) => Promise<ArrayLike<number>>,
  text: string,
  ids: readonly number[],
  characters: readonly number[],
): Promise<number[]> {
  const ends = byteEnds(tokenizer, text, ids);
  const utf8 = new TextEncoder();
  const ranges: number[] = [];
  for (let i = 0; i < characters.length; i += 2) {
    const [begin, end] = [characters[i] as number, characters[i + 1] as number];
    if (end <= begin) continue;
    if (ends) {
      const first = utf8.encode(text.slice(0, begin)).length;
      const last = first + utf8.encode(text.slice(begin, end)).length;
      ranges.push(firstBeyond(ends, first), firstBeyond(ends, last - 1) + 1);
    } else {
      ranges.push(
        await common(encode, text.slice(0, begin), ids),
        await common(encode, text.slice(0, end), ids),
      );
    }
  }
  return ranges;
}

/** The first token that ends behind a byte. */
function firstBeyond(ends: readonly number[], byte: number): number {
  let [low, high] = [0, ends.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((ends[middle] as number) <= byte) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Tokens that a beginning of the text has in common with the whole. */
async function common(
  encode: (text: string) => Promise<ArrayLike<number>>,
  beginning: string,
  ids: readonly number[],
): Promise<number> {
  const own = Array.from(await encode(beginning));
  const first = own.findIndex((id, at) => id !== ids[at]);
  return first < 0 ? own.length : first;
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
