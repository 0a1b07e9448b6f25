/** `Dataset.fromConversations`: templates, and which tokens are answers. */

import { DATASET, expectTokenizer, type Prepared } from "../dataset-options.js";
import { check, inspect, invalid, isA, oneOf, type Rules, show } from "../options.js";
import { LONG } from "../source.js";
import { ByteTokenizer, type PretrainedTokenizer, type TextEncoding } from "../tokenizer.js";
import { encoder, prepared } from "./build.js";
import { DocumentStore } from "./documents.js";
import { load } from "./peers.js";
import { openText, Pace, paced, textOf } from "./read.js";
import { jsonLines } from "./rows.js";
import { bytesOf } from "./trained.js";
import type {
  Conversation,
  ConversationOptions,
  Message,
  TemplateOptions,
  TokenizerFiles,
} from "./types.js";

const WHERE = "Dataset.fromConversations";

/** Rules of what says how conversations are rendered. */
export const TEMPLATE: Rules<TemplateOptions> = {
  template: (value) => (typeof value === "string" && value ? undefined : "a template in Jinja"),
  library: (value) =>
    ["string", "object"].includes(typeof value) && value
      ? undefined
      : "the module @huggingface/jinja, or its address",
};

const RULES: Rules<ConversationOptions> = {
  ...DATASET,
  ...LONG,
  ...TEMPLATE,
  learn: oneOf("answers", "all"),
};

interface Jinja {
  readonly Template: new (text: string) => { render(values: object): string };
}

/** A conversation as text, and the characters of it that are answers: begin and end in turns. */
export interface Rendered {
  readonly text: string;
  readonly answers: readonly number[];
}

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
  for await (const conversation of conversations(list, long)) {
    const { text, answers } = render(conversation, index++);
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
  return prepared(store, options, encoding);
}

/** The conversations of an array, or of JSONL with one in each line. */
async function* conversations(
  list: unknown,
  long: ConversationOptions,
): AsyncGenerator<Conversation> {
  if (Array.isArray(list)) {
    const pace = new Pace(WHERE, long, list.length, "read conversations");
    await pace.done(0);
    for (const one of list as Conversation[]) {
      yield one;
      await pace.done(1);
    }
    return;
  }
  const opened = await openText(WHERE, list, long.signal);
  const pace = new Pace(WHERE, long, opened.total, "read conversations");
  for await (const [value] of jsonLines(WHERE, textOf(paced(opened.chunks, pace)))) {
    yield value as Conversation;
  }
}

/** Texts of special tokens by the names that templates use. */
function specialTokens(where: string, tokenizer: TextEncoding): { [name: string]: unknown } {
  return inspect(`${where}: the tokenizer's save()`, () => {
    const files = (tokenizer as { save?(): Partial<TokenizerFiles> | undefined }).save?.();
    const file = files?.["tokenizer_config.json"];
    if (!file) return {};
    const config = JSON.parse(new TextDecoder().decode(file)) as { [name: string]: unknown } | null;
    const texts = Object.entries(config ?? {})
      .filter(([name]) => name.endsWith("_token"))
      .map(([name, value]) => [name, (value as { content?: unknown } | null)?.content ?? value]);
    return Object.fromEntries(texts.filter(([, text]) => typeof text === "string"));
  });
}

/** Numbers that `range` of a template gives at most: it makes them all at once. Jinja's sandbox allows as many. */
const LONGEST_RANGE = 100_000;
/** A call of it. The renderer's own has no bound, and its name cannot be given to another. */
const RANGE = /(?<![.\w"'])range(?=\s*\()/g;

/** A template's `range`, which is Python's. */
function range(...given: unknown[]): number[] {
  const bounds = given.filter((one) => typeof one === "number"); // a call also ends with its keywords
  const [start, stop, step = 1] = bounds.length === 1 ? [0, ...bounds] : bounds;
  const count = Math.ceil(((stop as number) - (start as number)) / step);
  if (!(Math.abs(count) <= LONGEST_RANGE)) {
    throw invalid(
      `the template: range(${bounds}) has ${step === 0 ? "a step of 0" : `${count} numbers`}; at most ` +
        `${LONGEST_RANGE} are allowed`,
    );
  }
  return Array.from({ length: Math.max(0, count) }, (_, at) => (start as number) + at * step);
}

/** Characters of the private use areas, which mark the answers' begin and end in what is rendered. */
const [BEGIN, END] = ["\u{f0f00}", "\u{f0f01}"];

/** A template that was read, and what it says of itself. */
export interface ChatTemplate {
  /** Whether it marks the answers. */
  readonly marks: boolean;
  /**
   * The text of a conversation's messages, with BEGIN and END where the template marks an answer.
   *
   * @param prompt - whether the beginning of an answer comes behind them.
   */
  render(what: string, conversation: Messages, prompt: boolean): string;
}

interface Messages {
  readonly messages: readonly Message[];
  readonly [name: string]: unknown;
}

/** Reads the template that is given, or else the tokenizer's. */
export async function openTemplate(
  where: string,
  tokenizer: TextEncoding,
  template: string | undefined,
  library: unknown,
): Promise<ChatTemplate> {
  const own = inspect(where, () => (tokenizer as Partial<PretrainedTokenizer>).chatTemplate);
  const source: unknown = template ?? own;
  if (typeof source !== "string" || !source) {
    throw invalid(
      `${where}: the tokenizer has ${own === undefined ? "no chat template" : `${show(own)} as chat template`}; ` +
        "give { template }, a text in Jinja",
    );
  }
  const { Template } = await load<Jinja>("jinja", library);
  const tokens = specialTokens(where, tokenizer);
  const tag = /\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}/g;
  const marks = tag.test(source);
  // Each tag becomes its mark, and takes white space as it did.
  const marked = source.replace(tag, (_, left: string, close: string, right: string) => {
    return `{%${left} if true %}${close ? END : BEGIN}{% endif ${right}%}`;
  });
  const limited = marked.replace(/\{[%{].*?[%}]\}/gs, (code) =>
    code.replace(RANGE, "limited_range"),
  );
  const read = inspect(`${where}: the template`, () => new Template(limited));
  return {
    marks,
    render: (what, conversation, prompt) =>
      inspect(`${where}: ${what}`, () =>
        read.render({
          limited_range: range,
          ...tokens,
          ...conversation,
          add_generation_prompt: prompt,
        }),
      ),
  };
}

/**
 * Renders conversations. Answers are what the template puts between `{% generation %}` and
 * `{% endgeneration %}`, as in transformers. Of a template without these, an answer is what an assistant's
 * message adds behind the prompt for it.
 */
function rendererOf({ marks, render }: ChatTemplate): Render {
  return (given, index) =>
    inspect(WHERE, () => {
      const conversation = expectConversation(WHERE, given, `conversation ${index}`);
      const made = (messages: readonly Message[], prompt: boolean) =>
        render(`conversation ${index}`, { ...conversation, messages }, prompt);
      const { messages } = conversation;
      return marks ? unmarked(made(messages, false)) : byPrefix(messages, made, index);
    });
}

/** The messages of a conversation, in an object. */
export function expectConversation(where: string, given: unknown, what: string): Messages {
  return inspect(where, () => {
    const conversation = (Array.isArray(given) ? { messages: given } : given) as Messages;
    const messages = conversation?.messages;
    if (Array.isArray(messages) && !messages.some((one) => typeof one?.role !== "string"))
      return conversation;
    throw invalid(
      `${where}: ${what} is ${show(given)}; give messages such as ` +
        '[{ role: "user", content: "…" }, { role: "assistant", content: "…" }]',
    );
  });
}

/** The text without its marks, and where they were. */
export function unmarked(text: string): Rendered {
  const answers: number[] = [];
  let plain = "";
  for (const part of text.split(/(\u{f0f00}|\u{f0f01})/u)) {
    if (part === BEGIN || part === END) answers.push(plain.length);
    else plain += part;
  }
  return { text: plain, answers };
}

function byPrefix(
  messages: readonly Message[],
  made: (some: readonly Message[], prompt: boolean) => string,
  index: number,
): Rendered {
  const text = made(messages, false);
  const answers: number[] = [];
  messages.forEach(({ role }, at) => {
    if (role !== "assistant") return;
    const before = made(messages.slice(0, at), true);
    const through = made(messages.slice(0, at + 1), false);
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

/** The tokens that have a character of a range: begin and end in turns. */
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
