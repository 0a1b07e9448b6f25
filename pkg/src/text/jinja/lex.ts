/** Templates as tokens: white space is taken as transformers has Jinja take it, with trim_blocks and lstrip_blocks. */

import { fault } from "./limits.js";

export interface Token {
  readonly kind: "data" | "name" | "string" | "integer" | "float" | "operator" | "begin" | "end";
  /** Of `begin` and `end`: `{%`, `%}`, `{{` or `}}`. */
  readonly text: string;
  readonly line: number;
}

/** White space of Python's texts. */
export const SPACE =
  "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";

const OPENING = /\{[%#{]/g;
const RAW = new RegExp(`\\{%([-+]?)[${SPACE}]*raw[${SPACE}]*(?:-%\\}[${SPACE}]*|%\\})`, "y");
const RAW_END = new RegExp(
  `\\{%([-+]?)[${SPACE}]*endraw[${SPACE}]*(?:\\+%\\}|-%\\}[${SPACE}]*|%\\}\\n?)`,
  "g",
);
const COMMENT_END = new RegExp(`\\+#\\}|-#\\}[${SPACE}]*|#\\}\\n?`, "g");
const BLOCK_END = new RegExp(`(?:\\+%\\}|-%\\}[${SPACE}]*|%\\}\\n?)`, "y");
const VARIABLE_END = new RegExp(`(?:-\\}\\}[${SPACE}]*|\\}\\})`, "y");
const BLANK = new RegExp(`[${SPACE}]+`, "y");
const PARTS: readonly [kind: Token["kind"], pattern: RegExp][] = [
  ["float", /(?<!\.)(?:\d+_)*\d+(?:(?:\.(?:\d+_)*\d+)?e[+-]?(?:\d+_)*\d+|\.(?:\d+_)*\d+)/iy],
  ["integer", /0b(?:_?[01])+|0o(?:_?[0-7])+|0x(?:_?[\da-f])+|[1-9](?:_?\d)*|0(?:_?0)*/iy],
  ["name", /[\p{L}\p{Nl}_][\p{L}\p{Nl}\p{Nd}\p{M}_]*/uy],
  ["string", /'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*"/sy],
  ["operator", /\*\*|\/\/|==|!=|>=|<=|[-+/*%~[\](){}<>=.:|,;]/y],
];
/** A map: of an object, names such as `constructor` would be found too. */
const CLOSES = new Map([
  ["(", ")"],
  ["[", "]"],
  ["{", "}"],
]);
const STRIPPED = new RegExp(`[${SPACE}]+$`);
const ALL_BLANK = new RegExp(`^[${SPACE}]+$`);

/** The match of a sticky expression at a place, or of a global one from there on. */
function match(expression: RegExp, text: string, at: number): RegExpExecArray | null {
  expression.lastIndex = at;
  return expression.exec(text);
}

/** The tokens of a template. The time grows with its length alone. */
export function tokenize(template: string): Token[] {
  return new Lexer(template.replace(/\r\n|\r/g, "\n").replace(/\n$/, "")).tokens();
}

class Lexer {
  readonly #source: string;
  readonly #tokens: Token[] = [];
  #at = 0;
  #line = 1;
  /** Whether what is next begins a line. */
  #lineStarts = true;

  constructor(source: string) {
    this.#source = source;
  }

  tokens(): Token[] {
    while (this.#at < this.#source.length) {
      const found = match(OPENING, this.#source, this.#at);
      if (found) this.#tag(found[0], found.index);
      else {
        this.#push("data", this.#source.slice(this.#at));
        break;
      }
    }
    return this.#tokens;
  }

  #push(kind: Token["kind"], text: string): void {
    this.#tokens.push({ kind, text, line: this.#line });
  }

  #take(text: string): void {
    this.#at += text.length;
    for (let i = text.indexOf("\n"); i >= 0; i = text.indexOf("\n", i + 1)) this.#line += 1;
    this.#lineStarts = text.endsWith("\n");
  }

  /** Text before a tag, as the tag takes its white space. */
  #data(end: number, sign: string | undefined, variable: boolean): void {
    const text = this.#source.slice(this.#at, end);
    let own = text;
    if (sign === "-") own = trimmedEnd(text);
    else if (sign !== "+" && !variable) {
      const from = text.lastIndexOf("\n") + 1;
      if ((from > 0 || this.#lineStarts) && ALL_BLANK.test(text.slice(from)))
        own = text.slice(0, from);
    }
    if (own) this.#push("data", own);
    this.#take(text);
  }

  /** A tag, a comment, or what stands raw, with the text before it. */
  #tag(open: string, index: number): void {
    const source = this.#source;
    const sign = source[index + 2];
    this.#data(index, sign, open === "{{");
    const raw = open === "{%" ? match(RAW, source, index) : null;
    if (!raw && open !== "{#") {
      this.#push("begin", open);
      this.#take(open + (sign === "-" || sign === "+" ? sign : ""));
      this.#code(open === "{%");
      return;
    }
    this.#take(raw ? raw[0] : open);
    const end = match(raw ? RAW_END : COMMENT_END, source, this.#at);
    if (!end) throw fault(`line ${this.#line}: ${raw ? "{% raw %}" : "a comment"} has no end`);
    if (raw) this.#data(end.index, end[1], false);
    else this.#take(source.slice(this.#at, end.index));
    this.#take(end[0]);
  }

  /** What stands within a tag, and its end. A bracket that is open keeps the end from being one. */
  #code(block: boolean): void {
    const open: string[] = [];
    for (;;) {
      const end =
        open.length === 0 && match(block ? BLOCK_END : VARIABLE_END, this.#source, this.#at);
      if (end) {
        this.#push("end", block ? "%}" : "}}");
        this.#take(end[0]);
        return;
      }
      const blank = match(BLANK, this.#source, this.#at);
      if (blank) this.#take(blank[0]);
      else this.#part(open);
    }
  }

  #part(open: string[]): void {
    for (const [kind, pattern] of PARTS) {
      const text = match(pattern, this.#source, this.#at)?.[0];
      if (!text) continue;
      if (CLOSES.has(text)) open.push(text);
      else if (/^[)\]}]$/.test(text) && CLOSES.get(open.pop() ?? "") !== text) {
        throw fault(`line ${this.#line}: ${text} closes nothing`);
      }
      this.#push(kind, kind === "string" ? unescaped(text.slice(1, -1), this.#line) : text);
      this.#take(text);
      return;
    }
    const rest = this.#source.slice(this.#at, this.#at + 12);
    throw fault(
      `line ${this.#line}: ${rest ? `${JSON.stringify(rest)} is no code` : "a tag has no end"}`,
    );
  }
}

/** Cut from the end in one pass: an expression would try each run of white space. */
function trimmedEnd(text: string): string {
  let end = text.length;
  while (end > 0 && STRIPPED.test(text[end - 1] as string)) end -= 1;
  return text.slice(0, end);
}

const SIMPLE: { readonly [letter: string]: string } = {
  "\n": "",
  "\\": "\\",
  "'": "'",
  '"': '"',
  a: "\x07",
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
  v: "\v",
};

/** A string of Python without its quotes. */
function unescaped(text: string, line: number): string {
  const escapes = /\\(?:([0-7]{1,3})|x([\da-fA-F]{2})|u([\da-fA-F]{4})|U([\da-fA-F]{8})|(.))/gs;
  return text.replace(escapes, (all, octal, x, u, long, one: string) => {
    if (octal !== undefined) return String.fromCodePoint(Number.parseInt(octal, 8));
    const code = (/^\\[xuU]/.test(all) && (x ?? u ?? long)) || undefined;
    const point = code === undefined ? 0 : Number.parseInt(code, 16);
    if (code !== undefined && point <= 0x10ffff) return String.fromCodePoint(point);
    if (one !== undefined && SIMPLE[one] !== undefined) return SIMPLE[one];
    if (/^\\[xuUN]/.test(all))
      throw fault(`line ${line}: the string has ${all}, which is no escape`);
    return all;
  });
}
