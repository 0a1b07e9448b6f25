/**
 * The tokens that were added to a vocabulary: they are found in texts before anything else. `@huggingface/tokenizers`
 * finds them too, but has no way to read special ones as plain text, no whole words, and takes white space as
 * JavaScript has it. So it is given texts that have none.
 */

import type { AddedToken } from "./tokenizer-json.js";

/** Part of a text: text that is still to be encoded, or an added token. */
export interface Section {
  readonly text: string;
  readonly token?: AddedToken;
}

/** A node of the tree of contents; `token` where one ends. */
interface Node {
  readonly next: Map<number, Node>;
  token?: AddedToken;
}

/** Finds tokens in texts: of those that begin first the longest, as in Python. */
export class AddedTokens {
  readonly #root: Node = { next: new Map() };
  /** The characters with which tokens begin. */
  readonly #begins: RegExp | undefined;

  constructor(tokens: readonly AddedToken[]) {
    const begins = new Set<string>();
    // Of two tokens with one text, the special one is found, and of these the first.
    const ordered = [...tokens].sort((a, b) => Number(b["special"]) - Number(a["special"]));
    for (const token of ordered) {
      const { content } = token;
      if (!content) continue;
      begins.add(content.charAt(0));
      const node = this.#add(content);
      node.token ??= token;
    }
    const class_ = Array.from(begins, (one) => `\\u${hex4(one.charCodeAt(0))}`).join("");
    if (class_) this.#begins = new RegExp(`[${class_}]`, "g");
  }

  #add(text: string): Node {
    let node = this.#root;
    for (let at = 0; at < text.length; at++) {
      const unit = text.charCodeAt(at);
      const next = node.next.get(unit) ?? { next: new Map() };
      node.next.set(unit, next);
      node = next;
    }
    return node;
  }

  /** The longest token that begins there, and where it ends. */
  #longest(text: string, begin: number): { token: AddedToken; end: number } | undefined {
    let found: { token: AddedToken; end: number } | undefined;
    let node = this.#root.next.get(text.charCodeAt(begin));
    for (let at = begin + 1; node; at++) {
      if (node.token) found = { token: node.token, end: at };
      node = at < text.length ? node.next.get(text.charCodeAt(at)) : undefined;
    }
    return found;
  }

  /** @param special - whether special tokens are tokens, or plain text. */
  split(text: string, special: boolean): Section[] {
    if (!this.#begins) return [{ text }];
    const sections: Section[] = [];
    let done = 0;
    const begins = this.#begins;
    begins.lastIndex = 0;
    for (let match = begins.exec(text); match; match = begins.exec(text)) {
      const found = this.#longest(text, match.index);
      if (!found) continue;
      const { token, end } = found;
      begins.lastIndex = end;
      if (token["special"] && !special) continue;
      if (token["single_word"] && inWord(text, match.index, end)) continue;
      const begin = token["lstrip"] ? spaceBefore(text, match.index) : match.index;
      const from = Math.max(begin, done);
      if (from > done) sections.push({ text: text.slice(done, from) });
      done = token["rstrip"] ? spaceAfter(text, end) : end;
      sections.push({ text: text.slice(from, done), token });
    }
    if (done < text.length) sections.push({ text: text.slice(done) });
    return sections;
  }
}

const hex4 = (unit: number) => unit.toString(16).padStart(4, "0");

/** A letter of a word as Rust's `\w` has it. */
const WORD = String.raw`[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]`;
const ENDS_WITH_WORD = new RegExp(`${WORD}$`, "u");
const BEGINS_WITH_WORD = new RegExp(`^${WORD}`, "u");

function inWord(text: string, begin: number, end: number): boolean {
  // Two units have the whole of a character.
  return (
    ENDS_WITH_WORD.test(text.slice(Math.max(0, begin - 2), begin)) ||
    BEGINS_WITH_WORD.test(text.slice(end, end + 2))
  );
}

const SPACE = /\p{White_Space}/u;

function spaceBefore(text: string, begin: number): number {
  let at = begin;
  while (at > 0 && SPACE.test(text.charAt(at - 1))) at--;
  return at;
}

function spaceAfter(text: string, end: number): number {
  let at = end;
  while (at < text.length && SPACE.test(text.charAt(at))) at++;
  return at;
}
