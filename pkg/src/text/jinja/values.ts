/**
 * The values of templates, as Python has them. Texts of the caller know where they come from: each of their characters
 * has a code beside it, which goes through all that a template does with texts.
 */

import { charge, chargeText, expectLength, fault, times } from "./limits.js";

export { expectLength, fault, TemplateFault, TemplateRefusal } from "./limits.js";

/** A text with a code for each of its UTF-16 units. Texts of the template are plain strings: their code is 0. */
export class Traced {
  constructor(
    readonly text: string,
    readonly codes: string,
  ) {}
}

export type Str = string | Traced;

/** A float of a whole value: other floats are numbers, and whole numbers are integers. */
export class Float {
  constructor(readonly value: number) {}
}

export class Tuple {
  constructor(readonly items: readonly Value[]) {}
}

/** What `range()` gives: numbers like those of a tuple, which are printed as the call. */
export class Range extends Tuple {
  constructor(
    readonly start: number,
    readonly stop: number,
    readonly step: number,
  ) {
    const length = Math.max(0, Math.ceil((stop - start) / step));
    super(Array.from({ length }, (_, at) => start + at * step));
  }
}

/** What has no value. Its text is empty, and most uses of it fail. */
export class Undefined {
  constructor(readonly hint: string) {}
}

/** A value, or one that is undefined: none is a value. */
export const defined = (value: Value | undefined, hint: string): Value =>
  value === undefined ? new Undefined(hint) : value;

/** What can be iterated once, such as the result of `map`. */
export class Once {
  constructor(
    public items: readonly Value[],
    readonly kind: string,
  ) {}
}

/** What `keys()`, `values()` and `items()` give. */
export class View {
  constructor(
    readonly kind: "keys" | "values" | "items",
    readonly of: Dict,
  ) {}
}

/** What `safe` gives. It can be printed; other uses would escape texts. */
export class Markup {
  constructor(readonly text: Str) {}
}

export class Namespace {
  readonly fields = new Map<string, Value>();
}

/** A function, a method or a macro. */
export class Callable {
  constructor(
    readonly name: string,
    readonly call: (args: readonly Value[], named: Named) => Value,
    /** Attributes, of `loop`. */
    readonly fields?: (name: string) => Value | undefined,
  ) {}
}

export type Named = ReadonlyMap<string, Value>;

/** A dictionary: keys that are equal in Python are one. */
export class Dict {
  readonly #entries = new Map<unknown, [Value, Value]>();

  get size(): number {
    return this.#entries.size;
  }

  get(key: Value): Value | undefined {
    return this.#entries.get(identity(key))?.[1];
  }

  has(key: Value): boolean {
    return this.#entries.has(identity(key));
  }

  set(key: Value, value: Value): void {
    const id = identity(key);
    this.#entries.set(id, [
      this.#entries.has(id) ? (this.#entries.get(id) as [Value, Value])[0] : key,
      value,
    ]);
  }

  entries(): [Value, Value][] {
    return [...this.#entries.values()];
  }
}

export type Value =
  | null
  | boolean
  | number
  | Float
  | Str
  | Value[]
  | Tuple
  | Dict
  | Undefined
  | Once
  | View
  | Markup
  | Namespace
  | Callable;

/** What a key is known by. Texts and numbers of JavaScript are never equal. */
function identity(key: Value): unknown {
  if (isStr(key)) return textOf(key);
  if (isNumber(key)) return numberOf(key);
  if (key === null) return null;
  if (key instanceof Tuple && !(key instanceof Range))
    return `\0tuple:${key.items.map((one) => `${typeof identity(one)}${String(identity(one))}`).join("\0")}`;
  throw fault(`${typeName(key)} cannot be a key`);
}

export const isStr = (value: Value): value is Str =>
  typeof value === "string" || value instanceof Traced;
export const textOf = (text: Str) => (typeof text === "string" ? text : text.text);
export const codesOf = (text: Str) =>
  typeof text === "string" ? "\0".repeat(text.length) : text.codes;

/** Part of a text, by UTF-16 units. */
export const cut = (text: Str, begin: number, end?: number): Str =>
  typeof text === "string"
    ? text.slice(begin, end)
    : new Traced(text.text.slice(begin, end), text.codes.slice(begin, end));

export function joined(parts: readonly Str[], between: Str = ""): Str {
  const all: Str[] = [];
  for (const [at, part] of parts.entries()) {
    if (at > 0 && textOf(between) !== "") all.push(between);
    all.push(part);
  }
  const length = all.reduce((sum, part) => sum + textOf(part).length, 0);
  expectLength(length);
  charge(parts.length);
  chargeText(length);
  const text = all.map(textOf).join("");
  return all.some((part) => part instanceof Traced)
    ? new Traced(text, all.map(codesOf).join(""))
    : text;
}

/** Another text made of one: where their lengths differ, all of it comes from where the first traced character did. */
export function like(text: Str, made: string): Str {
  chargeText(made.length);
  if (typeof text === "string") return made;
  if (made.length === text.text.length) return new Traced(made, text.codes);
  const code = /[^\0]/.exec(text.codes)?.[0] ?? "\0";
  return new Traced(made, times(code, made.length));
}

/** The last text that was asked for its characters: templates go through one by its places. */
let asked: { readonly text: string; readonly starts: readonly number[] | undefined } | undefined;
/** Texts up to this length are quickly read again. */
const SHORT = 32;
/** Texts beyond this length are not kept. */
const KEPT = 1 << 22;

/** Where each character of a text begins, and where the last ends; undefined where all are one unit. */
function starts(text: string): readonly number[] | undefined {
  if (text.length <= SHORT) return startsOf(text);
  if (asked?.text === text) return asked.starts;
  chargeText(text.length);
  const found = startsOf(text);
  asked = text.length <= KEPT ? { text, starts: found } : undefined;
  return found;
}

function startsOf(text: string): number[] | undefined {
  if (!/[\ud800-\udbff][\udc00-\udfff]/.test(text)) return undefined;
  charge(text.length);
  const all: number[] = [];
  let at = 0;
  for (const character of text) {
    all.push(at);
    at += character.length;
  }
  all.push(at);
  return all;
}

/** How many characters a text has: code points, as in Python. */
export function lengthOf(text: Str): number {
  const points = starts(textOf(text));
  return points ? points.length - 1 : textOf(text).length;
}

/** The characters of a text. */
export function characters(text: Str): Str[] {
  const whole = textOf(text);
  charge(whole.length);
  const points = starts(whole);
  return points
    ? points.slice(1).map((end, at) => cut(text, points[at] as number, end))
    : Array.from({ length: whole.length }, (_, at) => cut(text, at, at + 1));
}

/** A character by its place; undefined where there is none. */
export function characterAt(text: Str, at: number): Str | undefined {
  const points = starts(textOf(text));
  const count = points ? points.length - 1 : textOf(text).length;
  const place = at < 0 ? at + count : at;
  if (!(place >= 0 && place < count)) return undefined;
  return points
    ? cut(text, points[place] as number, points[place + 1] as number)
    : cut(text, place, place + 1);
}

/** Part of a text by its characters, with `0 <= begin <= end`. */
export function between(text: Str, begin: number, end: number): Str {
  const points = starts(textOf(text));
  return points ? cut(text, points[begin] as number, points[end] as number) : cut(text, begin, end);
}

export const isNumber = (value: Value): value is boolean | number | Float =>
  typeof value === "number" || typeof value === "boolean" || value instanceof Float;
export const numberOf = (value: boolean | number | Float) =>
  value instanceof Float ? value.value : Number(value);
export const isFloat = (value: Value) =>
  value instanceof Float || (typeof value === "number" && !Number.isInteger(value));
export const float = (value: number): Value => (Number.isInteger(value) ? new Float(value) : value);
export function integer(value: number): number {
  if (Number.isSafeInteger(value)) return value === 0 ? 0 : value;
  throw fault(`it has the number ${value}, which is no whole number below 2 to the power of 53`);
}

/** Whether a value counts as true. */
export function truth(value: Value): boolean {
  if (value === null || value instanceof Undefined) return false;
  if (isNumber(value)) return numberOf(value) !== 0;
  if (isStr(value)) return textOf(value) !== "";
  if (value instanceof Markup) return textOf(value.text) !== "";
  if (Array.isArray(value)) return value.length > 0;
  if (value instanceof Tuple) return value.items.length > 0;
  if (value instanceof Dict) return value.size > 0;
  if (value instanceof View) return value.of.size > 0;
  return true;
}

/** What iterating over a value gives. Each item counts as work. */
export function iterate(value: Value): readonly Value[] {
  const items = itemsIn(value);
  charge(items.length);
  return items;
}

function itemsIn(value: Value): readonly Value[] {
  if (Array.isArray(value)) return value;
  if (value instanceof Tuple) return value.items;
  if (isStr(value)) return characters(value);
  if (value instanceof Dict) return value.entries().map(([key]) => key);
  if (value instanceof View) {
    const { kind, of } = value;
    return of
      .entries()
      .map(([key, one]) =>
        kind === "items" ? new Tuple([key, one]) : kind === "keys" ? key : one,
      );
  }
  if (value instanceof Undefined) return [];
  if (value instanceof Once) {
    const { items } = value;
    value.items = [];
    return items;
  }
  throw fault(`${typeName(value)} cannot be iterated`);
}

export function equal(a: Value, b: Value): boolean {
  if (isNumber(a) && isNumber(b)) return numberOf(a) === numberOf(b);
  if (isStr(a) && isStr(b)) {
    if (textOf(a).length === textOf(b).length) chargeText(textOf(a).length);
    return textOf(a) === textOf(b);
  }
  if (Array.isArray(a) && Array.isArray(b)) return same(a, b);
  if (a instanceof Tuple && b instanceof Tuple)
    return a instanceof Range === b instanceof Range && same(a.items, b.items);
  if (a instanceof Dict && b instanceof Dict) {
    return (
      a.size === b.size &&
      a.entries().every(([key, value]) => {
        const other = b.get(key);
        return other !== undefined && equal(value, other);
      })
    );
  }
  if (a instanceof Undefined && b instanceof Undefined) return true;
  for (const one of [a, b]) {
    if (one instanceof Markup || one instanceof View) throw fault(`it compares ${typeName(one)}`);
  }
  return a === b;
}

const same = (a: readonly Value[], b: readonly Value[]) =>
  a.length === b.length &&
  a.every((one, at) => {
    charge(1);
    return equal(one, b[at] as Value);
  });

/** Below 0, 0 or above 0, as Python orders values. */
export function compare(a: Value, b: Value): number {
  charge(1);
  if (isNumber(a) && isNumber(b)) return numberOf(a) - numberOf(b);
  if (isStr(a) && isStr(b)) return order(textOf(a), textOf(b));
  const ranges = a instanceof Range || b instanceof Range;
  const lists =
    Array.isArray(a) && Array.isArray(b)
      ? [a, b]
      : a instanceof Tuple && b instanceof Tuple && !ranges
        ? [a.items, b.items]
        : undefined;
  if (!lists) throw fault(`it orders ${typeName(a)} and ${typeName(b)}`);
  const [left, right] = lists as [readonly Value[], readonly Value[]];
  const at = left.findIndex((one, i) => i >= right.length || !equal(one, right[i] as Value));
  if (at < 0 || at >= right.length) return left.length - right.length;
  return compare(left[at] as Value, right[at] as Value);
}

/** By code points. UTF-16 units have another order from U+E000 on: halves of characters beyond U+FFFF come last. */
function order(a: string, b: string): number {
  const unit = (text: string, at: number) => {
    const code = text.charCodeAt(at);
    return code >= 0xd800 && code < 0xe000 ? code + 0x10000 : code;
  };
  let at = 0;
  while (at < a.length && at < b.length && a[at] === b[at]) at += 1;
  chargeText(at);
  return at < a.length && at < b.length ? unit(a, at) - unit(b, at) : a.length - b.length;
}

export function contains(container: Value, item: Value): boolean {
  if (isStr(container)) {
    if (isStr(item)) {
      chargeText(textOf(container).length);
      return textOf(container).includes(textOf(item));
    }
    throw fault(`it looks for ${typeName(item)} in a text`);
  }
  if (container instanceof Dict) return container.has(item);
  return iterate(container).some((one) => equal(one, item));
}

/** What a value is, for messages. */
export function typeName(value: Value): string {
  if (value === null) return "none";
  if (isStr(value)) return "a text";
  if (isNumber(value)) return typeof value === "boolean" ? "a boolean" : "a number";
  if (Array.isArray(value)) return "a list";
  if (value instanceof Range) return "a range()";
  if (value instanceof Tuple) return "a tuple";
  if (value instanceof Dict) return "a dictionary";
  if (value instanceof Undefined) return `what is undefined (${value.hint})`;
  if (value instanceof Markup) return "a text marked safe";
  if (value instanceof View) return `a dictionary's ${value.kind}()`;
  if (value instanceof Namespace) return "a namespace";
  return value instanceof Once ? `the result of ${value.kind}` : `the function ${value.name}`;
}

/** The bit of a code that says: this character lies between `{% generation %}` and `{% endgeneration %}`. */
export const MARKED = 0x8000;

/** The text with the bit of what is marked in each code. */
export function marked(text: Str): Str {
  const codes = codesOf(text);
  charge(codes.length);
  let made = "";
  for (let at = 0; at < codes.length; at++)
    made += String.fromCharCode(codes.charCodeAt(at) | MARKED);
  return new Traced(textOf(text), made);
}
