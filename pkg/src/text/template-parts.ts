/** The parts of a template in Jinja, as far as it has to be rewritten. */

/** A part of a template. */
export interface Part {
  /**
   * - `code`: an expression or a statement;
   * - `begin`, `end`: the tags around an answer;
   * - `plain`: what stays as it is, which is text, comments and what `{% raw %}` surrounds.
   */
  readonly kind: "plain" | "code" | "begin" | "end";
  readonly text: string;
  /** Of a tag, how it takes white space before it and behind it: `-`, `+` or nothing. */
  readonly trims?: readonly [string, string];
}

/** A string, for a longer expression. */
export const STRING = /"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'/.source;
/** Where a comment, an expression or a statement begins. */
const OPENING = /\{[{%#]/g;
const TAG = /\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}/y;
const RAW = /\{%[-+]?\s*raw\s*[-+]?%\}/y;
const RAW_END = /\{%[-+]?\s*endraw\s*[-+]?%\}/g;
/** What decides where code ends. A string without an end takes all that follows. */
const DECIDING = new RegExp(`${STRING}|["'].*|%\\}|[{}]`, "gs");

/** The parts in their order; together they are the template. The time grows with its length alone. */
export function* partsOf(source: string): Generator<Part> {
  let behind = 0;
  for (;;) {
    const at = matchFrom(OPENING, source, behind)?.index ?? source.length;
    if (at > behind) yield { kind: "plain", text: source.slice(behind, at) };
    if (at === source.length) return;
    const part = tagAt(source, at) ?? untouchedAt(source, at) ?? codeAt(source, at);
    yield part;
    behind = at + part.text.length;
  }
}

function tagAt(source: string, at: number): Part | undefined {
  const tag = matchFrom(TAG, source, at);
  if (!tag) return undefined;
  const [text, left = "", close, right = ""] = tag;
  return { kind: close ? "end" : "begin", text, trims: [left, right] };
}

/** A comment, or what stands raw. */
function untouchedAt(source: string, at: number): Part | undefined {
  let end: number;
  if (source[at + 1] === "#") end = source.indexOf("#}", at + 2) + 2;
  else if (matchFrom(RAW, source, at)) end = matchFrom(RAW_END, source, at) ? RAW_END.lastIndex : 0;
  else return undefined;
  return { kind: "plain", text: source.slice(at, end > at ? end : source.length) };
}

function codeAt(source: string, at: number): Part {
  const close = source[at + 1] === "%" ? "%}" : "}}";
  let [end, depth] = [source.length, 0]; // a dictionary's braces end nothing
  let found = matchFrom(DECIDING, source, at + 2);
  for (; found; found = DECIDING.exec(source)) {
    if (depth === 0 && source.startsWith(close, found.index)) {
      end = found.index + close.length;
      break;
    }
    if (found[0] === "{") depth += 1;
    if (found[0] === "}" && depth > 0) depth -= 1;
  }
  return { kind: "code", text: source.slice(at, end) };
}

/** The first match of the expression from this place on; of a sticky one, the match at this place. */
function matchFrom(expression: RegExp, text: string, at: number): RegExpExecArray | null {
  expression.lastIndex = at;
  return expression.exec(text);
}
