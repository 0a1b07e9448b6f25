/** Attributes and items of values, in the order in which Jinja looks for them, and arithmetic. */

import { type Defined, methodOf, sliceBounds, someInteger } from "./arguments.js";
import { percent, rounded } from "./format.js";
import { charge, expectItems } from "./limits.js";
import { repeated, textMethod } from "./texts.js";
import {
  between,
  Callable,
  characterAt,
  characters,
  compare,
  contains,
  Dict,
  defined,
  equal,
  fault,
  float,
  integer,
  isFloat,
  isNumber,
  isStr,
  iterate,
  joined,
  lengthOf,
  Markup,
  Namespace,
  numberOf,
  Range,
  Tuple,
  textOf,
  typeName,
  Undefined,
  type Value,
  View,
} from "./values.js";

const DICT_METHODS: { readonly [name: string]: Defined } = {
  get: [
    "_key _default?",
    (self, key, other) => {
      const found = (self as Dict).get(key as Value);
      return found !== undefined ? found : other === undefined ? null : other;
    },
  ],
  items: ["", (self) => new View("items", self as Dict)],
  keys: ["", (self) => new View("keys", self as Dict)],
  values: ["", (self) => new View("values", self as Dict)],
  copy: [
    "",
    (self) => {
      const made = new Dict();
      for (const [key, value] of (self as Dict).entries()) made.set(key, value);
      return made;
    },
  ],
};
const LIST_METHODS: { readonly [name: string]: Defined } = {
  count: [
    "_item",
    (self, item) => itemsOf(self as Value[]).filter((one) => equal(one, item as Value)).length,
  ],
  index: [
    "_item",
    (self, item) => {
      const at = itemsOf(self as Value[]).findIndex((one) => equal(one, item as Value));
      if (at < 0) throw fault("it asks for the place of what is not in a list");
      return at;
    },
  ],
  copy: [
    "",
    (self) => {
      expectItems((self as Value[]).length);
      return [...(self as Value[])];
    },
  ],
};
/** Methods that change a value, which the sandbox of transformers refuses, and those that are not known here. */
const CHANGING: { readonly [type: string]: readonly string[] } = {
  "a dictionary": "clear pop popitem setdefault update fromkeys".split(" "),
  "a list": "append clear extend insert pop remove reverse sort".split(" "),
  "a number":
    "as_integer_ratio bit_count bit_length conjugate denominator from_bytes fromhex hex imag is_integer numerator real to_bytes".split(
      " ",
    ),
};

const itemsOf = (value: Value[] | Tuple) => (Array.isArray(value) ? value : value.items);

/** What Python's `getattr` gives; undefined where there is nothing. */
function own(of: Value, name: string): Value | undefined {
  const methods =
    of instanceof Dict
      ? DICT_METHODS
      : Array.isArray(of) || of instanceof Tuple
        ? LIST_METHODS
        : {};
  const method = Object.hasOwn(methods, name) ? methods[name] : undefined;
  if (method) return methodOf(name, method, of);
  if (CHANGING[typeName(of)]?.includes(name)) {
    throw fault(`it uses ${name} of ${typeName(of)}, which is not allowed in templates`);
  }
  if (isStr(of)) return textMethod(of, name);
  if (of instanceof Namespace) return of.fields.get(name);
  if (of instanceof Callable) {
    if (!of.fields) throw fault(`it reads ${name} of ${typeName(of)}`);
    return of.fields(name);
  }
  if (of instanceof Markup || of instanceof View)
    throw fault(`it reads ${name} of ${typeName(of)}`);
  return undefined;
}

/** What an item is by its key or its place; undefined where there is nothing. */
function itemOf(of: Value, key: Value): Value | undefined {
  if (of instanceof Dict)
    return key instanceof Dict || Array.isArray(key) ? undefined : of.get(key);
  if (!isNumber(key) || isFloat(key)) return undefined;
  const at = numberOf(key);
  if (isStr(of)) return characterAt(of, at);
  const items = Array.isArray(of) || of instanceof Tuple ? itemsOf(of) : [];
  return items[at < 0 ? at + items.length : at];
}

function expectDefined(of: Value, what: string): void {
  if (of instanceof Undefined) throw fault(`it reads ${what} of ${typeName(of)}`);
}

/** `of.name` */
export function attribute(of: Value, name: string): Value {
  expectDefined(of, name);
  const found = own(of, name);
  return defined(found === undefined ? itemOf(of, name) : found, `${name} is undefined`);
}

/** `of[key]` */
export function item(of: Value, key: Value): Value {
  expectDefined(of, "an item");
  const text = isStr(key) ? textOf(key) : undefined;
  const found = itemOf(of, key);
  if (found !== undefined || text === undefined) return defined(found, "an item is undefined");
  return defined(own(of, text), `${text} is undefined`);
}

/** `of[begin:end:step]` */
export function slice(of: Value, [begin, end, by]: readonly (Value | undefined)[]): Value {
  expectDefined(of, "a part");
  const step = someInteger("a slice", by ?? undefined, 1);
  if (step === 0) throw fault("it takes a part of a list with a step of 0");
  if (isStr(of) && step === 1) {
    return between(of, ...sliceBounds(lengthOf(of), begin ?? undefined, end ?? undefined));
  }
  const items = isStr(of)
    ? characters(of)
    : Array.isArray(of) || of instanceof Tuple
      ? itemsOf(of)
      : undefined;
  if (!items) return new Undefined("a part is undefined"); // as Jinja has it for what has no parts
  if (of instanceof Range && step > 0) {
    const [from, to] = sliceBounds(items.length, begin ?? undefined, end ?? undefined);
    charge(to - from);
    return new Range(of.start + from * of.step, of.start + to * of.step, of.step * step);
  }
  if (of instanceof Range) throw fault("it takes a part of a range() from its end");
  const made = step > 0 ? forwards(items, begin, end, step) : backwards(items, begin, end, step);
  if (isStr(of)) return joined(made as (string | typeof of)[]);
  return of instanceof Tuple ? new Tuple(made) : made;
}

function forwards(
  items: readonly Value[],
  begin: Value | undefined,
  end: Value | undefined,
  step: number,
) {
  const [from, to] = sliceBounds(items.length, begin ?? undefined, end ?? undefined);
  expectItems(to - from);
  return items.slice(from, to).filter((_, at) => at % step === 0);
}

function backwards(
  items: readonly Value[],
  begin: Value | undefined,
  end: Value | undefined,
  step: number,
) {
  const last = items.length - 1;
  const place = (value: Value | undefined, byDefault: number) => {
    if (value === undefined || value === null) return byDefault;
    const at = someInteger("a slice", value, 0);
    return Math.min(last, at < 0 ? Math.max(-1, at + items.length) : at);
  };
  const made: Value[] = [];
  const before = place(end, -1);
  expectItems(Math.max(0, place(begin, last) - before));
  for (let at = place(begin, last); at > before; at += step) made.push(items[at] as Value);
  return made;
}

/** Whether a value is a tuple; a range() is none where Python computes with it. */
const isTuple = (value: Value): value is Tuple =>
  value instanceof Tuple && !(value instanceof Range);

/** Two lists as one. */
function both(a: readonly Value[], b: readonly Value[]): Value[] {
  expectItems(a.length + b.length);
  return [...a, ...b];
}

/** Values between an operator, as Python computes them. */
export function binary(operator: string, a: Value, b: Value): Value {
  if (isNumber(a) && isNumber(b)) return arithmetic(operator, a, b);
  if (operator === "+") {
    if (isStr(a) && isStr(b)) return joined([a, b]);
    if (Array.isArray(a) && Array.isArray(b)) return both(a, b);
    if (isTuple(a) && isTuple(b)) return new Tuple(both(a.items, b.items));
  }
  if (operator === "%" && isStr(a)) return percent(a, b);
  if (operator === "*") {
    const [many, times] = isNumber(a) ? [b, a] : [a, b];
    if (isStr(many)) return repeated(many, times);
    if (Array.isArray(many) || isTuple(many)) {
      const count = Math.max(0, someInteger("*", times, 0));
      const items = itemsOf(many);
      expectItems(items.length * count);
      if (items.length === 0) return many instanceof Tuple ? new Tuple([]) : [];
      const made = Array.from({ length: count }, () => items).flat();
      return many instanceof Tuple ? new Tuple(made) : made;
    }
  }
  throw fault(`it computes ${typeName(a)} ${operator} ${typeName(b)}`);
}

function arithmetic(
  operator: string,
  a: Parameters<typeof numberOf>[0],
  b: Parameters<typeof numberOf>[0],
): Value {
  const [left, right] = [numberOf(a), numberOf(b)];
  const floats = isFloat(a) || isFloat(b);
  if (/[/%]/.test(operator) && right === 0) throw fault("it divides by 0");
  const made = computed(operator, left, right);
  if (operator === "/" || floats || (operator === "**" && right < 0)) return float(made);
  return integer(made);
}

function computed(operator: string, a: number, b: number): number {
  switch (operator) {
    case "+":
      return a + b;
    case "-":
      return a - b;
    case "*":
      return a * b;
    case "/":
      return a / b;
    case "//":
      return Math.floor((a - modulo(a, b)) / b + 0.5);
    case "%":
      return modulo(a, b);
    default:
      if (a < 0 && !Number.isInteger(b)) throw fault("it has a power that is no real number");
      return a ** b;
  }
}

/** The rest with the sign of the divisor. */
function modulo(a: number, b: number): number {
  const rest = a % b;
  return rest !== 0 && rest < 0 !== b < 0 ? rest + b : rest;
}

/** Python's `round`, of Jinja's filter. */
export function roundFilter(value: Value, precision: Value | undefined, method: string): Value {
  if (!isNumber(value)) throw fault(`it rounds ${typeName(value)}`);
  const digits = someInteger("round", precision, 0);
  const number = numberOf(value);
  if (method === "common")
    return isFloat(value) ? float(rounded(number, digits)) : integer(rounded(number, digits));
  if (method !== "ceil" && method !== "floor") throw fault(`it rounds by ${method}`);
  return float(Math[method](number * 10 ** digits) / 10 ** digits);
}

/** Whether two values are in a relation. */
export function related(operator: string, a: Value, b: Value): boolean {
  switch (operator) {
    case "==":
      return equal(a, b);
    case "!=":
      return !equal(a, b);
    case "in":
      return contains(b, a);
    case "not in":
      return !contains(b, a);
    case "<":
      return compare(a, b) < 0;
    case "<=":
      return compare(a, b) <= 0;
    case ">":
      return compare(a, b) > 0;
    default:
      return compare(a, b) >= 0;
  }
}

/** A value by a path such as `function.name`, for filters with `attribute`. */
export function byPath(of: Value, path: Value): Value {
  if (!isStr(path)) return item(of, path);
  return textOf(path)
    .split(".")
    .reduce<Value>((value, part) => item(value, /^\d+$/.test(part) ? Number(part) : part), of);
}

/** Copies what can be iterated once or more into a list. */
export const listOf = (value: Value): Value[] => [...iterate(value)];

/** A number with a sign before it. */
export function signed(kind: "negative" | "positive", value: Value): Value {
  if (!isNumber(value)) throw fault(`it has a sign before ${typeName(value)}`);
  const number = numberOf(value) * (kind === "negative" ? -1 : 1);
  return isFloat(value) ? float(number) : integer(number);
}
