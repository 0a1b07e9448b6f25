/** What stands at the ends of turns in rendered chats. */

import { isTinyloomError } from "../error.js";
import type { Value } from "./jinja/values.js";
import { type Chat, type ChatTemplate, OTHER, originAt, type Rendered } from "./templates.js";

/** Where a message's characters begin and end in a text. */
export type Extent = readonly [begin: number, end: number];

/** A text, and where the characters of each message lie in it; of other values under {@link OTHER}. */
export interface Mapped {
  readonly made: Rendered;
  readonly extents: ReadonlyMap<number, Extent>;
}

export function mapped(made: Rendered): Mapped {
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

/** Where a message ends; of a message without characters, where the one before it ends. With the number of that message. */
export function endOf(
  { made, extents }: Mapped,
  message: number,
): readonly [from: number, end: number] {
  for (let from = message; from > 0; from--) {
    const extent = extents.get(from);
    if (extent) return [from, extent[1]];
  }
  const other = extents.get(OTHER);
  return [0, Math.min(other ? other[1] : 0, made.text.length)];
}

export const tagged = /<[^<>\s]+>|\[[^[\]\s]+\]/g;

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
 * The end of a turn within what two texts have in common: up to its first tag and the white space after it, since the next
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

/** The end of messages as a template renders them. */
export interface Tail {
  /** What stands after their last character. */
  readonly text: string;
  /** The number of the message whose character that is. */
  readonly from: number;
  /** How many characters of the last message there are. */
  readonly count: number;
}

/** The end of messages; undefined where the template refuses them. */
export function tailOf(
  template: ChatTemplate,
  chat: Chat,
  messages: readonly Value[],
  prompt: boolean,
): Tail | undefined {
  try {
    const all = mapped(template.render(chat, messages, prompt));
    const [from, end] = endOf(all, messages.length);
    const count = countOf(all.made, messages.length);
    return { text: all.made.text.slice(end), from, count };
  } catch (cause) {
    if (isTinyloomError(cause)) return undefined;
    throw cause;
  }
}

function countOf(made: Rendered, message: number): number {
  let count = 0;
  for (let at = 0; at < made.text.length; at++) if (originAt(made, at) === message) count += 1;
  return count;
}

/**
 * Where a message ends of which at most `most` characters count. Templates may write some of them again: the name of a tool
 * stands in its call, and before what it gave.
 */
export function endOfMessage({ made, extents }: Mapped, message: number, most: number): number {
  const [begin, end] = extents.get(message) ?? [0, 0];
  let count = 0;
  for (let at = begin; at < end; at++) {
    if (originAt(made, at) === message) count += 1;
    if (count === most) return at + 1;
  }
  return end;
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
