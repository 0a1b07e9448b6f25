/** Methods of texts, as Python has them. What they give keeps where each character comes from. */

import { bound, type Defined, plainText, sliceBounds, someInteger, someText } from "./arguments.js";
import { capitalized, caseFolded, lower, titleCase, upper } from "./cases.js";
import { formatted } from "./format.js";
import { SPACE } from "./lex.js";
import { charge, chargeText, times } from "./limits.js";
import {
  between,
  Callable,
  characters,
  cut,
  expectLength,
  fault,
  iterate,
  joined,
  lengthOf,
  type Str,
  Traced,
  Tuple,
  textOf,
  type Value,
} from "./values.js";

const BLANK = new RegExp(`^[${SPACE}]$`);
const WORDS = new RegExp(`[^${SPACE}]+`, "g");
// biome-ignore lint/suspicious/noControlCharactersInRegex: they end lines in Python
const LINES = /\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/g;

/** `strip` and its relatives. */
export function strip(
  text: Str,
  characters: Value | undefined,
  sides: "left" | "right" | "both",
): Str {
  const set = plainText("strip()", characters);
  const all = set === undefined ? undefined : new Set(set);
  const cuts = (one: string) => (all ? all.has(one) : BLANK.test(one));
  const own = textOf(text);
  let [begin, end] = [0, own.length];
  const first = () => String.fromCodePoint(own.codePointAt(begin) as number);
  if (sides !== "right") while (begin < end && cuts(first())) begin += first().length;
  if (sides !== "left")
    while (end > begin && cuts(lastCharacter(own, begin, end))) {
      end -= lastCharacter(own, begin, end).length;
    }
  charge(own.length - (end - begin));
  return cut(text, begin, end);
}

/** The character before a place. */
function lastCharacter(text: string, from: number, end: number): string {
  const pair = text.slice(Math.max(from, end - 2), end);
  return /^[\ud800-\udbff][\udc00-\udfff]$/.test(pair) ? pair : text.slice(end - 1, end);
}

/** Places of a text within another, at most `most` of them. */
function places(text: string, part: string, most: number): number[] {
  chargeText(text.length);
  const found: number[] = [];
  let at = text.indexOf(part);
  while (at >= 0 && found.length < most) {
    charge(1);
    found.push(at);
    at = text.indexOf(part, at + part.length);
  }
  return found;
}

export function split(
  text: Str,
  separator: Value | undefined,
  limit: number,
  last: boolean,
): Str[] {
  const own = textOf(text);
  const most = limit < 0 ? Number.POSITIVE_INFINITY : limit;
  const by = plainText("split()", separator);
  if (by === "") throw fault("it splits a text at an empty one");
  if (by === undefined) return words(text, most, last);
  const found = last ? lastPlaces(own, by, most) : places(own, by, most);
  const parts: Str[] = [];
  let after = 0;
  for (const at of found) {
    parts.push(cut(text, after, at));
    after = at + by.length;
  }
  return [...parts, cut(text, after)];
}

function lastPlaces(text: string, part: string, most: number): number[] {
  chargeText(text.length);
  const found: number[] = [];
  let at = text.lastIndexOf(part);
  while (at >= 0 && found.length < most) {
    charge(1);
    found.push(at);
    at = at < part.length ? -1 : text.lastIndexOf(part, at - part.length);
  }
  return found.reverse();
}

/** What stands between white space. What is after the last split keeps its own. */
function words(text: Str, most: number, last: boolean): Str[] {
  chargeText(textOf(text).length);
  const found = [...textOf(text).matchAll(WORDS)].map(
    ({ index, 0: word }) => [index, index + word.length] as [number, number],
  );
  charge(found.length);
  if (found.length > most) {
    const rest = found.length - most;
    if (last) found.splice(0, rest, [0, (found[rest - 1] as [number, number])[1]]);
    else found.splice(most, rest, [(found[most] as [number, number])[0], textOf(text).length]);
  }
  return found.map(([begin, end]) => cut(text, begin, end));
}

function lines(text: Str, keep: boolean): Str[] {
  chargeText(textOf(text).length);
  const all: Str[] = [];
  let after = 0;
  for (const { index, 0: end } of textOf(text).matchAll(LINES)) {
    charge(1);
    all.push(cut(text, after, index + (keep ? end.length : 0)));
    after = index + end.length;
  }
  if (after < textOf(text).length) all.push(cut(text, after));
  return all;
}

export const splitLines = (text: Str) => lines(text, false);

export function replaced(text: Str, old: Str, by: Str, limit: number): Str {
  const part = textOf(old);
  const most = limit < 0 ? Number.POSITIVE_INFINITY : limit;
  if (part === "") {
    const each = characters(text);
    const parts: Str[] = [];
    expectLength(textOf(text).length + textOf(by).length * Math.min(most, each.length + 1));
    for (const [at, one] of each.entries()) {
      if (at < most) parts.push(by);
      parts.push(one);
    }
    return joined(each.length < most ? [...parts, by] : parts);
  }
  const parts: Str[] = [];
  let after = 0;
  for (const at of places(textOf(text), part, most)) {
    parts.push(cut(text, after, at), by);
    after = at + part.length;
  }
  return parts.length > 0 ? joined([...parts, cut(text, after)]) : text;
}

/** A text between as many spaces, or other characters, as make it that wide. */
function padded(
  name: string,
  text: Str,
  width: Value,
  fill: Value | undefined,
  left: (space: number) => number,
): Str {
  const space = someInteger(name, width, 0) - lengthOf(text);
  const one = fill === undefined ? " " : someText(name, fill);
  if (lengthOf(one) !== 1)
    throw fault(`it calls ${name} with ${textOf(one)}; one character is allowed`);
  if (space <= 0) return text;
  const before = left(space);
  // What fills is one character, or one with its two halves; its code is that of each of its units.
  const filled = (count: number): Str => {
    const made = times(textOf(one), count);
    return typeof one === "string" ? made : new Traced(made, times(one.codes, count));
  };
  return joined([filled(before), text, filled(space - before)]);
}

export const centred = (text: Str, width: Value, fill?: Value) =>
  padded("center()", text, width, fill, (space) => {
    const whole = space + lengthOf(text);
    return (space >> 1) + (space & whole & 1);
  });

/** Whether a text begins or ends with another, or with one of a tuple, between two of its characters. */
function borders(
  name: string,
  text: Str,
  part: Value,
  begin: Value | undefined,
  end: Value | undefined,
) {
  const own = textOf(between(text, ...sliceBounds(lengthOf(text), begin, end)));
  const all = part instanceof Tuple ? part.items : [part];
  return all.some((one) => {
    const other = textOf(someText(name, one));
    return name === "startswith()" ? own.startsWith(other) : own.endsWith(other);
  });
}

/** The place of a text within another, by characters; -1 where it is nowhere. */
function place(
  text: Str,
  part: Value,
  begin: Value | undefined,
  end: Value | undefined,
  last: boolean,
): number {
  const [from, to] = sliceBounds(lengthOf(text), begin, end);
  const own = textOf(between(text, from, to));
  const other = textOf(someText("find()", part));
  if (someInteger("find()", begin ?? undefined, 0) > lengthOf(text)) return -1;
  const at = last ? own.lastIndexOf(other) : own.indexOf(other);
  return at < 0 ? -1 : from + lengthOf(own.slice(0, at));
}

function found(at: number): number {
  if (at < 0) throw fault("it asks for the place of a text that is not there");
  return at;
}

function count(text: Str, part: Value, begin: Value | undefined, end: Value | undefined): number {
  const own = textOf(between(text, ...sliceBounds(lengthOf(text), begin, end)));
  const other = textOf(someText("count()", part));
  return other === "" ? lengthOf(own) + 1 : places(own, other, Number.POSITIVE_INFINITY).length;
}

function partition(text: Str, by: Value, last: boolean): Tuple {
  const other = textOf(someText("partition()", by));
  if (other === "") throw fault("it splits a text at an empty one");
  const at = last ? textOf(text).lastIndexOf(other) : textOf(text).indexOf(other);
  if (at < 0) return new Tuple(last ? ["", "", text] : [text, "", ""]);
  return new Tuple([
    cut(text, 0, at),
    cut(text, at, at + other.length),
    cut(text, at + other.length),
  ]);
}

function joinedBy(text: Str, list: Value): Str {
  const parts = iterate(list).map((one) => someText("join()", one));
  return joined(parts, text);
}

function filledWithZeros(text: Str, width: Value): Str {
  const sign = /^[-+]/.exec(textOf(text))?.[0].length ?? 0;
  const zeros = someInteger("zfill()", width, 0) - lengthOf(text);
  return zeros > 0 ? joined([cut(text, 0, sign), times("0", zeros), cut(text, sign)]) : text;
}

/** Digits that are no decimals, such as those above a line. */
const DIGITS =
  /^[\p{Nd}\xb2\xb3\xb9\u1369-\u1371\u19da\u2070\u2074-\u2079\u2080-\u2089\u2460-\u2468\u2474-\u247c\u2488-\u2490\u24ea\u24f5-\u24fd\u24ff\u2776-\u277e\u2780-\u2788\u278a-\u2792]+$/u;
const CASED = /[\p{Lu}\p{Ll}\p{Lt}]/u;
const is = (pattern: RegExp): Defined => ["", (self) => pattern.test(textOf(self as Str))];

export const TEXT_METHODS: { readonly [name: string]: Defined } = {
  capitalize: ["", (self) => capitalized(self as Str)],
  casefold: ["", (self) => caseFolded(self as Str)],
  center: ["_width _fill?", (self, width, fill) => centred(self as Str, width as Value, fill)],
  count: [
    "_part _begin? _end?",
    (self, ...given) => count(self as Str, ...(given as [Value, Value, Value])),
  ],
  endswith: [
    "_part _begin? _end?",
    (self, ...given) => borders("endswith()", self as Str, ...(given as [Value, Value, Value])),
  ],
  find: [
    "_part _begin? _end?",
    (self, part, begin, end) => place(self as Str, part as Value, begin, end, false),
  ],
  index: [
    "_part _begin? _end?",
    (self, part, begin, end) => found(place(self as Str, part as Value, begin, end, false)),
  ],
  isalnum: is(/^[\p{L}\p{N}]+$/u),
  isalpha: is(/^\p{L}+$/u),
  isascii: is(/^\p{ASCII}*$/u),
  isdecimal: is(/^\p{Nd}+$/u),
  isdigit: is(DIGITS),
  islower: [
    "",
    (self) => CASED.test(textOf(self as Str)) && textOf(self as Str) === textOf(lower(self as Str)),
  ],
  isspace: is(new RegExp(`^[${SPACE}]+$`)),
  isupper: [
    "",
    (self) => CASED.test(textOf(self as Str)) && textOf(self as Str) === textOf(upper(self as Str)),
  ],
  join: ["_list", (self, list) => joinedBy(self as Str, list as Value)],
  ljust: [
    "_width _fill?",
    (self, width, fill) => padded("ljust()", self as Str, width as Value, fill, () => 0),
  ],
  lower: ["", (self) => lower(self as Str)],
  lstrip: ["_characters?", (self, set) => strip(self as Str, set, "left")],
  partition: ["_by", (self, by) => partition(self as Str, by as Value, false)],
  removeprefix: [
    "_part",
    (self, part) => {
      const other = textOf(someText("removeprefix()", part));
      return textOf(self as Str).startsWith(other) ? cut(self as Str, other.length) : (self as Str);
    },
  ],
  removesuffix: [
    "_part",
    (self, part) => {
      const other = textOf(someText("removesuffix()", part));
      const own = textOf(self as Str);
      return own.endsWith(other) ? cut(self as Str, 0, own.length - other.length) : (self as Str);
    },
  ],
  replace: [
    "_old _new count?",
    (self, old, by, limit) =>
      replaced(
        self as Str,
        someText("replace()", old),
        someText("replace()", by),
        someInteger("replace()", limit, -1),
      ),
  ],
  rfind: [
    "_part _begin? _end?",
    (self, part, begin, end) => place(self as Str, part as Value, begin, end, true),
  ],
  rindex: [
    "_part _begin? _end?",
    (self, part, begin, end) => found(place(self as Str, part as Value, begin, end, true)),
  ],
  rjust: [
    "_width _fill?",
    (self, width, fill) => padded("rjust()", self as Str, width as Value, fill, (space) => space),
  ],
  rpartition: ["_by", (self, by) => partition(self as Str, by as Value, true)],
  rsplit: [
    "sep? maxsplit?",
    (self, by, limit) => split(self as Str, by, someInteger("rsplit()", limit, -1), true),
  ],
  rstrip: ["_characters?", (self, set) => strip(self as Str, set, "right")],
  split: [
    "sep? maxsplit?",
    (self, by, limit) => split(self as Str, by, someInteger("split()", limit, -1), false),
  ],
  splitlines: [
    "keepends?",
    (self, keep) => lines(self as Str, keep !== undefined && keep !== false && keep !== 0),
  ],
  startswith: [
    "_part _begin? _end?",
    (self, ...given) => borders("startswith()", self as Str, ...(given as [Value, Value, Value])),
  ],
  strip: ["_characters?", (self, set) => strip(self as Str, set, "both")],
  title: ["", (self) => titleCase(self as Str)],
  upper: ["", (self) => upper(self as Str)],
  zfill: ["_width", (self, width) => filledWithZeros(self as Str, width as Value)],
};

/** What else Python's texts have: it is refused by its name, and not taken for something undefined. */
const OTHERS =
  "encode expandtabs format_map isidentifier isnumeric isprintable istitle maketrans swapcase translate".split(
    " ",
  );

export function textMethod(self: Str, name: string): Callable | undefined {
  const method = Object.hasOwn(TEXT_METHODS, name) ? TEXT_METHODS[name] : undefined;
  if (method) {
    return new Callable(name, (args, named) =>
      method[1](self, ...(bound(`${name}()`, method[0], args, named) as Value[])),
    );
  }
  if (name === "format") return new Callable(name, (args, named) => formatted(self, args, named));
  if (OTHERS.includes(name)) throw fault(`it calls ${name}() of a text, which is not known here`);
  return undefined;
}

/** A text as often as that. */
export function repeated(text: Str, by: Value): Str {
  const count = someInteger("*", by, 0);
  if (count <= 0) return "";
  const made = times(textOf(text), count);
  chargeText(made.length);
  return typeof text === "string" ? made : new Traced(made, times(text.codes, count));
}
