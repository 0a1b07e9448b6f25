/**
 * Where the answers lie in the one text of a whole chat. Its characters say which message they come from; what of the
 * template's text belongs to an answer is told from two shorter texts: the prompt before the answer, which the model
 * does not write, and the chat that ends with the answer, whose end it does write.
 */

import { isTinyloomError } from "../error.js";
import type { Value } from "./jinja/values.js";
import {
  type Chat,
  type ChatTemplate,
  isMarked,
  messageOf,
  ORIGINS,
  OTHER,
  originAt,
  type Rendered,
} from "./templates.js";

/** Where a message's characters begin and end in a text. */
type Extent = readonly [begin: number, end: number];

/** A text, and where the characters of each message lie in it; of other values under {@link OTHER}. */
interface Mapped {
  readonly made: Rendered;
  readonly extents: ReadonlyMap<number, Extent>;
}

function mapped(made: Rendered): Mapped {
  const extents = new Map<number, [number, number]>();
  for (let at = 0; at < made.text.length; at++) {
    const origin = originAt(made, at);
    if (origin === 0) continue;
    const known = extents.get(origin);
    if (known) known[1] = at + 1;
    else extents.set(origin, [at, at + 1]);
  }
  return { made, extents };
}

/** What stands behind the last character of a message, or of one before it; with the number of that message. */
function behind({ made, extents }: Mapped, message: number): readonly [from: number, end: number] {
  for (let from = message; from > 0; from--) {
    const extent = extents.get(from);
    if (extent) return [from, extent[1]];
  }
  const other = extents.get(OTHER);
  return [0, Math.min(other ? other[1] : 0, made.text.length)];
}

const tagged = /<[^<>\s]+>|\[[^[\]\s]+\]/g;

/** How a text's tags are found: special tokens of the tokenizer, or what looks like them. */
export function tagsBy(special: readonly string[]): RegExp {
  if (special.length === 0) return tagged;
  const longest = [...special].sort((a, b) => b.length - a.length);
  const escaped = longest.map((one) => one.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&"));
  return new RegExp(escaped.join("|"), "g");
}

/** The first tag of a text. */
export function firstTag(
  text: string,
  tags: RegExp,
): { readonly index: number; readonly text: string } | undefined {
  tags.lastIndex = 0;
  const found = tags.exec(text);
  return found ? { index: found.index, text: found[0] } : undefined;
}

/**
 * The end of a turn within what two texts have in common: up to its first tag and the white space behind, since the next
 * header may begin alike. Without a tag, its whole lines.
 */
export function endOfTurn(common: string, tags: RegExp): string {
  const tag = firstTag(common, tags);
  if (tag) {
    const end = tag.index + tag.text.length;
    return common.slice(0, end) + (/^\s*/.exec(common.slice(end))?.[0] ?? "");
  }
  return common.slice(0, common.lastIndexOf("\n") + 1);
}

/** The beginning that two texts have in common. */
export function common(a: string, b: string): string {
  let at = 0;
  while (at < a.length && at < b.length && a[at] === b[at]) at += 1;
  return a.slice(0, at);
}

/** What a template makes of messages behind their last character; undefined where it refuses them. */
export function tailOf(
  template: ChatTemplate,
  chat: Chat,
  messages: readonly Value[],
  prompt: boolean,
): { readonly tail: string; readonly from: number } | undefined {
  try {
    const all = mapped(template.render(chat, messages, prompt));
    const [from, end] = behind(all, messages.length);
    return { tail: all.made.text.slice(end), from };
  } catch (cause) {
    if (isTinyloomError(cause)) return undefined;
    throw cause;
  }
}

/** What a template puts between two messages; undefined where it refuses the chat, or does not render both. */
export function textBetween(
  template: ChatTemplate,
  chat: Chat,
  messages: readonly Value[],
  first: number,
): string | undefined {
  try {
    const { made, extents } = mapped(template.render(chat, messages, false));
    const [left, right] = [extents.get(first), extents.get(first + 1)];
    return left && right ? made.text.slice(left[1], right[0]) : undefined;
  } catch (cause) {
    if (isTinyloomError(cause)) return undefined;
    throw cause;
  }
}

/** Where the text of messages lies that is learned, ascending: begin and end, alternating. */
export function learnedSpans(
  template: ChatTemplate,
  chat: Chat,
  made: Rendered,
  learned: readonly boolean[],
  special: readonly string[],
): number[] {
  const spans: Extent[] = [];
  const whole = mapped(made);
  const marks = template.marks(chat);
  const isAnswer = (at: number) => chat.given.messages[at]?.role === "assistant";
  if (marks) spans.push(...markedSpans(made, (at) => learned[at] === true));
  const tags = tagsBy(special);
  for (const [at, wanted] of learned.entries()) {
    if (!wanted || (marks && isAnswer(at))) continue;
    // Of a text that the template leaves out there is nothing to learn.
    if (!whole.extents.has(at + 1) && textIn(chat.given.messages[at]?.content)) continue;
    spans.push(spanOf(template, chat, whole, at, isAnswer(at), tags));
  }
  return merged(spans);
}

const textIn = (content: unknown) => typeof content === "string" && content.trim() !== "";

/** What the template marks of messages that are learned. */
function markedSpans(made: Rendered, wanted: (message: number) => boolean): Extent[] {
  const spans: Extent[] = [];
  let owner = 0;
  for (let at = 0; at < made.text.length; ) {
    if (!isMarked(made, at)) {
      const origin = originAt(made, at);
      if (origin !== 0 && origin !== OTHER) owner = origin;
      at += 1;
      continue;
    }
    const begin = at;
    let own = 0;
    for (; at < made.text.length && isMarked(made, at); at++) {
      const origin = originAt(made, at);
      if (origin === 0 || origin === OTHER) continue;
      if (own !== 0 && origin !== own) break;
      own = origin;
    }
    // A run without a character of a message is of the one behind the last.
    if (own !== 0) owner = own;
    if (wanted(own !== 0 ? own - 1 : owner) || (own === 0 && owner > 0 && wanted(owner - 1))) {
      spans.push([begin, at]);
    }
  }
  return spans;
}

function spanOf(
  template: ChatTemplate,
  chat: Chat,
  whole: Mapped,
  at: number,
  answer: boolean,
  tags: RegExp,
): Extent {
  const { made, extents } = whole;
  const { text } = made;
  const own = extents.get(at + 1);
  const before = chat.messages.slice(0, at);
  const [anchor, from] = behind(whole, at);
  const prompt = answer ? tailOf(template, chat, before, true) : undefined;
  let begin = own?.[0] ?? from;
  if (prompt && prompt.from === anchor && (!own || from <= own[0])) {
    const supplied = common(text.slice(from), prompt.tail);
    const whole = supplied.length === prompt.tail.length;
    begin = from + (whole ? supplied.length : beforeTag(text, from, from + supplied.length) - from);
  }
  const end = endOf(template, chat, whole, at, prompt?.tail, tags);
  return [begin, Math.max(begin, end)];
}

/** A place, or where the tag begins that is open there. */
function beforeTag(text: string, from: number, at: number): number {
  const open = /[<[][^<>[\]\s]*$/.exec(text.slice(from, at));
  return open ? from + open.index : at;
}

function endOf(
  template: ChatTemplate,
  chat: Chat,
  whole: Mapped,
  at: number,
  prompt: string | undefined,
  tags: RegExp,
): number {
  const { made } = whole;
  const through = tailOf(template, chat, chat.messages.slice(0, at + 1), false);
  const [anchor, from] = behind(whole, at + 1);
  const after = made.text.slice(from);
  if (!through || through.from !== anchor) {
    const next = nextMessage(made, from);
    return next < 0 ? made.text.length : from + endOfTurn(made.text.slice(from, next), tags).length;
  }
  const { tail } = through;
  const opens = prompt !== undefined && opensAnswer(template, chat, at, tail, prompt);
  if (!opens && after.startsWith(tail)) return from + tail.length + nextTag(tail, made, from, tags);
  return from + endOfTurn(common(after, tail), tags).length;
}

/**
 * Whether the end of a chat already opens the next answer, though no prompt was asked for: some templates always do. Then
 * the chat goes on otherwise where a user's message follows.
 */
function opensAnswer(
  template: ChatTemplate,
  chat: Chat,
  at: number,
  tail: string,
  prompt: string,
): boolean {
  const plain = tailOf(template, chat, chat.messages.slice(0, at), false)?.tail;
  if (prompt !== plain || !tail.trim()) return false;
  const last = prompt.trimEnd().split("\n").at(-1) ?? "";
  const tag = [...last.matchAll(tagged)].at(-1)?.[0] ?? last;
  if (tag === "" || !tail.trimEnd().endsWith(tag)) return false;
  const next = messageOf("user", "Why?", at + 2);
  const messages = [...chat.messages.slice(0, at + 1), next];
  return textBetween(template, chat, messages, at + 1)?.startsWith(tail) !== true;
}

/** Where a template puts nothing behind an answer, the tag of the next turn ends it: how long that is. */
function nextTag(tail: string, made: Rendered, from: number, tags: RegExp): number {
  const tag = tail === "" ? firstTag(made.text.slice(from, from + 100), tags) : undefined;
  return tag?.index === 0 && originAt(made, from) === 0 ? tag.text.length : 0;
}

/** Where the next message's characters begin; -1 where none do. */
function nextMessage(made: Rendered, from: number): number {
  for (let at = from; at < made.text.length; at++) {
    const origin = originAt(made, at);
    if (origin !== 0 && (origin & ORIGINS) !== OTHER) return at;
  }
  return -1;
}

/** Spans in their order, those that meet as one. */
function merged(spans: readonly Extent[]): number[] {
  const all: number[] = [];
  for (const [begin, end] of [...spans].sort(([a], [b]) => a - b)) {
    if (end <= begin) continue;
    const last = all.length - 1;
    if (last > 0 && begin <= (all[last] as number)) all[last] = Math.max(all[last] as number, end);
    else all.push(begin, end);
  }
  return all;
}
