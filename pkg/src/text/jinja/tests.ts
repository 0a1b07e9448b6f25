/** Tests of Jinja 3.1, such as `is defined`. */

import { related } from "./attributes.js";
import { lower, upper } from "./cases.js";
import { toStr } from "./print.js";
import {
  Callable,
  Dict,
  equal,
  fault,
  isFloat,
  isNumber,
  isStr,
  Markup,
  numberOf,
  Once,
  Tuple,
  textOf,
  typeName,
  Undefined,
  type Value,
  View,
} from "./values.js";

const sequence = (value: Value) =>
  isStr(value) ||
  Array.isArray(value) ||
  value instanceof Tuple ||
  value instanceof Dict ||
  value instanceof Undefined;
const relation = (operator: string) => (value: Value, other?: Value) =>
  related(operator, value, other as Value);
const whole = (value: Value) => {
  if (!isNumber(value)) throw fault(`it divides ${typeName(value)}`);
  return numberOf(value);
};

type Test = readonly [parameters: string, run: (value: Value, ...given: Value[]) => boolean];

const TESTS: { readonly [name: string]: Test } = {
  boolean: ["", (value) => typeof value === "boolean"],
  callable: ["", (value) => value instanceof Callable],
  defined: ["", (value) => !(value instanceof Undefined)],
  divisibleby: ["num", (value, by) => whole(value) % whole(by as Value) === 0],
  eq: ["other", relation("==")],
  even: ["", (value) => whole(value) % 2 === 0],
  false: ["", (value) => value === false],
  float: ["", (value) => typeof value !== "boolean" && isNumber(value) && isFloat(value)],
  ge: ["other", relation(">=")],
  gt: ["other", relation(">")],
  in: ["seq", relation("in")],
  integer: ["", (value) => typeof value !== "boolean" && isNumber(value) && !isFloat(value)],
  iterable: ["", (value) => sequence(value) || value instanceof Once || value instanceof View],
  le: ["other", relation("<=")],
  lower: [
    "",
    (value) => CASED.test(textOf(toStr(value))) && equal(toStr(value), lower(toStr(value))),
  ],
  lt: ["other", relation("<")],
  mapping: ["", (value) => value instanceof Dict],
  ne: ["other", relation("!=")],
  none: ["", (value) => value === null],
  number: ["", isNumber],
  odd: ["", (value) => Math.abs(whole(value) % 2) === 1],
  sameas: ["other", (value, other) => identical(value, other as Value)],
  sequence: ["", sequence],
  string: ["", (value) => isStr(value) || value instanceof Markup],
  true: ["", (value) => value === true],
  undefined: ["", (value) => value instanceof Undefined],
  upper: [
    "",
    (value) => CASED.test(textOf(toStr(value))) && equal(toStr(value), upper(toStr(value))),
  ],
};
const CASED = /[\p{Lu}\p{Ll}\p{Lt}]/u;
const TEST_ALIASES: { readonly [name: string]: string } = {
  "==": "eq",
  equalto: "eq",
  "!=": "ne",
  "<": "lt",
  lessthan: "lt",
  "<=": "le",
  ">": "gt",
  greaterthan: "gt",
  ">=": "ge",
};

/** Whether two are one object. Of texts and numbers Python leaves that open. */
function identical(a: Value, b: Value): boolean {
  if ((isStr(a) && isStr(b)) || (typeof a === "number" && typeof b === "number")) {
    throw fault("it asks whether two texts or numbers are the same object");
  }
  return a === b;
}

export function testOf(name: string): Test | undefined {
  const own = Object.hasOwn(TEST_ALIASES, name) ? (TEST_ALIASES[name] as string) : name;
  return Object.hasOwn(TESTS, own) ? TESTS[own] : undefined;
}
