/**
 * Where the answers lie in the one text of a whole chat. Its characters say which message they come from; what of the
 * template's text belongs to an answer is told from two shorter texts: the prompt before the answer, which the model
 * does not write, and the chat that ends with the answer, whose end it does write.
 */

import {
  common,
  type Extent,
  endOf,
  endOfMessage,
  endOfTurn,
  firstTag,
  type Mapped,
  mapped,
  type Tail,
  tagged,
  tagsBy,
  tailOf,
  textBetween,
} from "./tails.js";
import {
  type Chat,
  type ChatTemplate,
  isMarked,
  messageOf,
  OTHER,
  originAt,
  type Rendered,
} from "./templates.js";

/**
 * Where the text of messages lies that is learned, ascending: begin and end, alternating.
 *
 * @param thinking - whether the thinking block is learned that the template's prompt opens.
 */
export function learnedSpans(
  template: ChatTemplate,
  chat: Chat,
  made: Rendered,
  learned: readonly boolean[],
  special: readonly string[],
  thinking: boolean,
): number[] {
  const spans: Extent[] = [];
  const whole = mapped(made);
  const marks = template.marks(chat);
  const isAnswer = (at: number) => chat.given.messages[at]?.role === "assistant";
  if (marks) spans.push(...markedSpans(made, (at) => learned[at] === true));
  const finder = new Finder(template, chat, whole, tagsBy(special), thinking);
  for (const [at, wanted] of learned.entries()) {
    if (!wanted || (marks && isAnswer(at))) continue;
    // Of a text that the template leaves out there is nothing to learn.
    if (!whole.extents.has(at + 1) && textIn(chat.given.messages[at]?.content)) continue;
    spans.push(finder.span(at, isAnswer(at)));
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
    // A run without a character of a message belongs to the message after the last one.
    if (own !== 0) owner = own;
    if (wanted(own !== 0 ? own - 1 : owner) || (own === 0 && owner > 0 && wanted(owner - 1))) {
      spans.push([begin, at]);
    }
  }
  return spans;
}

/** Finds the spans of one chat's messages. */
class Finder {
  readonly #template: ChatTemplate;
  readonly #chat: Chat;
  readonly #whole: Mapped;
  readonly #tags: RegExp;
  readonly #thinking: boolean;
  readonly #tails = new Map<number, Tail | undefined>();

  constructor(template: ChatTemplate, chat: Chat, whole: Mapped, tags: RegExp, thinking: boolean) {
    this.#template = template;
    this.#chat = chat;
    this.#whole = whole;
    this.#tags = tags;
    this.#thinking = thinking;
  }

  /** The span of a message. An answer begins after what the template's prompt for it has written. */
  span(at: number, answer: boolean): Extent {
    const { made, extents } = this.#whole;
    const own = extents.get(at + 1);
    const [anchor, from] = endOf(this.#whole, at);
    const prompt = answer ? this.#tail(at, true) : undefined;
    let begin = own?.[0] ?? from;
    if (prompt && prompt.from === anchor && (!own || from <= own[0])) {
      const written = this.#thinking ? withoutThinking(prompt.text) : prompt.text;
      const supplied = common(made.text.slice(from), written).length;
      const all = supplied === written.length;
      begin = all ? from + supplied : beforeTag(made.text, from, from + supplied);
    }
    return [begin, Math.max(begin, this.#end(at, begin, prompt?.text))];
  }

  /** The end of the messages before one. Neighbours ask for the same, so the last ones are kept. */
  #tail(at: number, prompt: boolean): Tail | undefined {
    const key = 2 * at + Number(prompt);
    if (this.#tails.has(key)) return this.#tails.get(key);
    for (const old of this.#tails.keys()) if (old < 2 * (at - 1)) this.#tails.delete(old);
    const made = tailOf(this.#template, this.#chat, this.#chat.messages.slice(0, at), prompt);
    this.#tails.set(key, made);
    return made;
  }

  #end(at: number, begin: number, prompt: string | undefined): number {
    const { made } = this.#whole;
    const through = this.#tail(at + 1, false);
    const [anchor, last] = endOf(this.#whole, at + 1);
    if (!through || through.from !== anchor) {
      const next = nextMessage(made, last);
      if (next < 0) return made.text.length;
      return last + endOfTurn(made.text.slice(last, next), this.#tags).length;
    }
    const own = anchor === at + 1;
    const from = own ? endOfMessage(this.#whole, anchor, through.count) : begin;
    // Of a message without characters the header stands in both.
    const tail = own ? through.text : through.text.slice(begin - last);
    const after = made.text.slice(from);
    const opens = prompt !== undefined && this.#opensAnswer(at, tail, prompt);
    if (!opens && tail !== "" && after.startsWith(tail)) return from + tail.length;
    const end = endOfTurn(common(after, tail), this.#tags).length;
    return from + (end > 0 ? end : this.#nextTag(from));
  }

  /**
   * Whether the end of a chat already opens the next answer, though no prompt was asked for: some templates always do.
   * Then the chat goes on otherwise where a user's message follows.
   */
  #opensAnswer(at: number, tail: string, prompt: string): boolean {
    if (!tail.trim()) return false;
    const last = prompt.trimEnd().split("\n").at(-1) ?? "";
    const tag = [...last.matchAll(tagged)].at(-1)?.[0] ?? last;
    if (tag === "" || !tail.trimEnd().endsWith(tag)) return false;
    // What is rendered is asked last: few templates come to it.
    if (prompt !== this.#tail(at, false)?.text) return false;
    const next = messageOf("user", "Why?", at + 2);
    const messages = [...this.#chat.messages.slice(0, at + 1), next];
    return textBetween(this.#template, this.#chat, messages, at + 1)?.startsWith(tail) !== true;
  }

  /** Where the end of a chat is another than that of a turn, or none, the next tag ends an answer: how long that is. */
  #nextTag(from: number): number {
    const { made } = this.#whole;
    const tag = firstTag(made.text.slice(from, from + 100), this.#tags);
    return tag?.index === 0 && originAt(made, from) === 0 ? tag.text.length : 0;
  }
}

/** A prompt up to where it opens a thinking block. */
const withoutThinking = (prompt: string) =>
  prompt.replace(/(<think|\[THINK\]|<\|channel>)[\s\S]*$/, "");

/** A place, or where the tag begins that is open there. */
function beforeTag(text: string, from: number, at: number): number {
  const open = /[<[][^<>[\]\s]*$/.exec(text.slice(from, at));
  return open ? from + open.index : at;
}

/** Where the next message's characters begin; -1 where none do. */
function nextMessage(made: Rendered, from: number): number {
  for (let at = from; at < made.text.length; at++) {
    const origin = originAt(made, at);
    if (origin !== 0 && origin !== OTHER) return at;
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
