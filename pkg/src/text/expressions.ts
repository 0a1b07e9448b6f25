/**
 * Expressions of tokenizer.json, which are Oniguruma's. `@huggingface/tokenizers` turns them into JavaScript's. It takes
 * no notice of what JavaScript lacks, and texts would get other ids: here atomic groups and possessive quantifiers
 * become a lookahead and what it has found, letters without regard to case get those beyond ASCII, and what has no
 * equal is refused.
 */

import { corrupt } from "../file-part.js";
import { show } from "../options.js";

/** An expression that matches a text and nothing else. */
export const literal = (text: string): Expression => ({
  text: Array.from(text, (one) => `\\x{${(one.codePointAt(0) as number).toString(16)}}`).join(""),
  captures: false,
  empty: text === "",
});

/** The beginnings of groups that JavaScript has too. */
const GROUP = /^\((?:\?(?:<[=!]|[:=!]|<(?![=!])[A-Za-z_]\w*>))?/;
const QUANTIFIER = /^(?:[*+?]|\{\d+(?:,\d*)?\}|\{,\d+\})/;
const ESCAPE = /^\\(?:[pPxu]\{[^}]*\}|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|c[A-Za-z]|[\s\S])/u;
/** Two letters that are one in another case: ß, ﬀ, ﬁ, ﬂ, ﬆ. */
const LIGATURES = ["ss", "ff", "fi", "fl", "st"];

/** A group that is open. */
interface Open {
  /** Where it begins in what is written. */
  readonly at: number;
  readonly fold: boolean;
  /** What closes it. */
  readonly close: string;
  /** Whether it only looks, and matches no character itself. */
  readonly looks: boolean;
  /** The widths outside of it. */
  readonly widths: Widths;
}

/** The least characters that are matched: by this alternative so far, and by the shortest of those before. */
interface Widths {
  readonly sum: number;
  readonly least: number;
}

const NONE: Widths = { sum: 0, least: Number.POSITIVE_INFINITY };

/** An expression that the package computes as Python does. */
export interface Expression {
  readonly text: string;
  /** Whether it has groups that keep what they match. */
  readonly captures: boolean;
  /** Whether it may match without a character. */
  readonly empty: boolean;
}

/**
 * An expression that the package computes as Python does.
 *
 * @param what - what it is, for the message.
 * @throws TinyloomError `invalid-checkpoint` for what has no equal in JavaScript.
 */
export function expression(what: string, source: string): Expression {
  return new Rewriter(what, source).whole();
}

class Rewriter {
  readonly #what: string;
  readonly #source: string;
  readonly #references: boolean;
  readonly #open: Open[] = [];
  #at = 0;
  #out = "";
  /** Where the last atom begins in what is written; -1 where there is none to repeat. */
  #atom = -1;
  #fold = false;
  /** The letter before, where cases are not told apart. */
  #before = "";
  #atomic = 0;
  #widths = NONE;
  /** Whether something is held not to be before a place: V8 finds that within a character of two units too. */
  #without = false;
  /** The least characters of the last atom. */
  #width = 0;

  constructor(what: string, source: string) {
    this.#what = what;
    this.#source = source;
    this.#references = /\\(?:[1-9]|k)/.test(source.replaceAll("\\\\", ""));
  }

  whole(): Expression {
    while (this.#at < this.#source.length) this.#next();
    if (this.#open.length > 0) throw this.#refused("a group that is not closed");
    const { sum, least } = this.#widths;
    const captures = this.#references || /\(\?<[A-Za-z_]/.test(this.#out);
    const empty = Math.min(sum, least) === 0;
    if (empty && this.#without) throw this.#refused("a place with nothing before it");
    return { text: this.#out, captures, empty };
  }

  #refused(what: string): Error {
    return corrupt(
      `${this.#what} is ${show(this.#source)}; ${what} has no equal in JavaScript, and texts would get other ids`,
    );
  }

  #next(): void {
    const rest = this.#source.slice(this.#at);
    const quantifier = this.#atom < 0 ? undefined : QUANTIFIER.exec(rest)?.[0];
    const [first] = rest;
    if (quantifier) this.#quantify(quantifier);
    else if (first === "\\") this.#escape((ESCAPE.exec(rest) ?? [first])[0]);
    else if (first === "[") this.#emit(this.#class(rest), classLength(rest));
    else if (first === "(") this.#begin(rest);
    else if (first === ")") this.#end();
    else if (first === "|") {
      this.#emit("|", 1, 0);
      this.#atom = -1;
      const { sum, least } = this.#widths;
      this.#widths = { sum: 0, least: Math.min(sum, least) };
    } else this.#letter(String.fromCodePoint(rest.codePointAt(0) as number));
  }

  #emit(text: string, length: number, width = 1): void {
    this.#widen(width);
    this.#atom = this.#out.length;
    this.#out += text;
    this.#at += length;
    this.#before = "";
  }

  #escape(text: string): void {
    if (text === "\\G") throw this.#refused("\\G, the end of the match before,");
    if (this.#fold && /^\\[pP]\{\^?(L[ult]|Lower|Upper)/i.test(text)) {
      throw this.#refused(`${text} within (?i:`);
    }
    this.#emit(text, text.length, /^\\[AzZbBk1-9]$/.test(text) ? 0 : 1);
    this.#without ||= /^\\[AB]$/.test(text);
  }

  #widen(width: number): void {
    const { sum, least } = this.#widths;
    this.#widths = { sum: sum + width, least };
    this.#width = width;
  }

  #letter(character: string): void {
    const before = this.#before;
    const width = character === "^" || character === "$" ? 0 : 1;
    this.#emit(this.#fold ? this.#folded(character) : character, character.length, width);
    this.#without ||= character === "^";
    if (!this.#fold) return;
    this.#before = character.toLowerCase();
    if (LIGATURES.includes(before + this.#before)) {
      throw this.#refused(
        `${before}${this.#before} within (?i:, which is one letter in another case,`,
      );
    }
  }

  /** A letter in every case. ASCII's own cases the package has. */
  #folded(character: string): string {
    if (/[sS]/.test(character)) return "[sS\\x{17f}]";
    if (/[kK]/.test(character)) return "[kK\\x{212a}]";
    const [lower, upper] = [character.toLowerCase(), character.toUpperCase()];
    if (character < "\x80" || lower === upper) return character;
    const single = [lower, upper].every((one) => Array.from(one).length === 1);
    const turns = lower.toUpperCase() === upper && upper.toLowerCase() === lower;
    if (!single || !turns) throw this.#refused(`${character} within (?i:`);
    return `[${lower}${upper}]`;
  }

  /** A class of characters as it is, with the letters beyond ASCII that cases add. */
  #class(rest: string): string {
    const length = classLength(rest);
    const text = rest.slice(0, length);
    if (!this.#fold) return text;
    const inner = text.slice(1, -1);
    if (/\[|&&|\\[pP]|[^ -~\s]/.test(inner.replaceAll("’", ""))) {
      throw this.#refused(`${text} within (?i:`);
    }
    // A negated class is closed under cases as its complement is: what is named is added.
    const has = (letters: string) => new RegExp(`[${inner.replace(/^\^/, "")}]`, "i").test(letters);
    const more = `${has("s") ? "\\x{17f}" : ""}${has("k") ? "\\x{212a}" : ""}`;
    return `${text.slice(0, -1)}${more}]`;
  }

  #begin(rest: string): void {
    const insensitive = rest.startsWith("(?i:");
    const atomic = rest.startsWith("(?>");
    const group = insensitive ? "(?i:" : atomic ? "(?>" : (GROUP.exec(rest) as RegExpExecArray)[0];
    if (group === "(" && rest[1] === "?") throw this.#refused(`the group ${rest.slice(0, 4)}`);
    const name = atomic ? this.#mark() : "";
    const close = atomic ? `))\\k<${name}>)` : ")";
    const looks = /^\(\?<?[=!]/.test(group);
    this.#without ||= group === "(?<!";
    const outside = { at: this.#out.length, fold: this.#fold, widths: this.#widths };
    this.#open.push({ ...outside, close, looks });
    this.#widths = NONE;
    this.#fold ||= insensitive;
    // Groups that nothing refers to would be pieces of what is split.
    const plain = group === "(" && !this.#references ? "(?:" : group;
    this.#out += atomic ? `(?:(?=(?<${name}>` : plain;
    this.#at += group.length;
    this.#atom = -1;
    this.#before = "";
  }

  #end(): void {
    const open = this.#open.pop();
    if (!open) throw this.#refused("a parenthesis that closes nothing");
    this.#out += open.close;
    this.#at += 1;
    const { sum, least } = this.#widths;
    this.#widths = open.widths;
    this.#widen(open.looks ? 0 : Math.min(sum, least));
    [this.#atom, this.#fold, this.#before] = [open.at, open.fold, ""];
  }

  /** The name of a group for what an atomic one has found. It has no letters, which the package would change. */
  #mark(): string {
    if (this.#references) throw this.#refused("a reference beside an atomic group");
    this.#atomic += 1;
    return `_${this.#atomic}`;
  }

  #quantify(quantifier: string): void {
    this.#at += quantifier.length;
    this.#before = "";
    const repeated = this.#out.slice(this.#atom);
    const following = this.#source[this.#at];
    const counted = quantifier.startsWith("{");
    const left =
      /^(?:[*?]|\{0|\{,)/.test(quantifier) || (following === "?" && /^\{\d+\}$/.test(quantifier));
    if (left) this.#widths = { ...this.#widths, sum: this.#widths.sum - this.#width };
    if (left) this.#width = 0;
    if (following === "+" && !counted) {
      this.#at += 1;
      const name = this.#mark();
      this.#out = `${this.#out.slice(0, this.#atom)}(?:(?=(?<${name}>${repeated}${quantifier}))\\k<${name}>)`;
      return;
    }
    if (following === "?" && /^\{\d+\}$/.test(quantifier)) {
      // In Oniguruma's default syntax this is no lazy count, but one that may be left out.
      this.#at += 1;
      this.#out = `${this.#out.slice(0, this.#atom)}(?:${repeated}${quantifier})?`;
      this.#atom = -1;
      return;
    }
    const lazy = following === "?" ? "?" : "";
    this.#at += lazy.length;
    this.#out = `${this.#out.slice(0, this.#atom)}(?:${repeated}${quantifier}${lazy})`;
  }
}

/** The length of the class of characters with which a text begins. */
function classLength(text: string): number {
  let depth = 0;
  for (let at = 0; at < text.length; at++) {
    if (text[at] === "\\") at += 1;
    else if (text[at] === "[") {
      depth += 1;
      // A bracket at the beginning is a character.
      const first = /^\[\^?\]/.exec(text.slice(at))?.[0];
      if (first) at += first.length - 1;
    } else if (text[at] === "]") {
      depth -= 1;
      if (depth === 0) return at + 1;
    }
  }
  return text.length;
}
