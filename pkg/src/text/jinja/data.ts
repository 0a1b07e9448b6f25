/** The caller's values as those of templates. */

import { copied } from "../messages.js";
import { Dict, fault, float, integer, Traced, type Value } from "./values.js";

/** Levels of a value at most, since each takes room on the stack. */
const DEEPEST = 200;

/** How the texts of a value are traced: the code of each of their characters. */
export interface Origin {
  readonly code: number;
  /** Names of fields whose texts are the structure's, and not the caller's. */
  readonly structure: readonly string[];
}

/**
 * The value of plain data: objects as dictionaries, in the order of their fields. JavaScript has one kind of numbers:
 * a whole one is an integer, so `1.0` in a file of JSON is printed as `1`, where Python prints `1.0`.
 */
export function toValue(given: unknown, origin?: Origin, depth = 0): Value {
  if (depth > DEEPEST) throw fault(`a value has more than ${DEEPEST} levels`);
  if (given === null || given === undefined) return null;
  if (typeof given === "boolean") return given;
  if (typeof given === "string") {
    return origin && given !== ""
      ? new Traced(given, String.fromCharCode(origin.code).repeat(given.length))
      : given;
  }
  if (typeof given === "bigint") return integer(Number(given));
  if (typeof given === "number") {
    return Number.isInteger(given) ? integer(given) : float(given);
  }
  const inner = (one: unknown) => toValue(one, origin, depth + 1);
  if (Array.isArray(given)) return Array.from(given, inner);
  if (typeof given !== "object") throw fault(`a value is a ${typeof given}`);
  const kind = Object.prototype.toString.call(given).slice("[object ".length, -1);
  if (kind !== "Object" && kind !== "Map" && kind !== "Module") {
    throw fault(
      `a value is a ${kind}, which is no plain data; give a text, a number, an array or an object`,
    );
  }
  const made = new Dict();
  const entries = given instanceof Map ? [...given] : Object.entries(copied(given));
  for (const [key, value] of entries) {
    if (value === undefined || typeof value === "function" || typeof value === "symbol") continue;
    const plain = origin?.structure.includes(String(key)) && typeof value === "string";
    made.set(inner(key), plain ? value : inner(value));
  }
  return made;
}

/** Refuses an object of a class: a template would see its fields, and not what it stands for. */
export function expectPlain(name: string, given: unknown, depth = 0): void {
  if (typeof given !== "object" || given === null || depth > DEEPEST) return;
  const prototype: unknown = Object.getPrototypeOf(given);
  // Plain objects of another realm have its Object.prototype, which inherits from nothing.
  const plain =
    Array.isArray(given) ||
    given instanceof Map ||
    prototype === null ||
    Object.getPrototypeOf(prototype) === null;
  if (!plain) {
    const { constructor: own } = prototype as { constructor?: { name?: unknown } };
    throw fault(`${name} is a ${String(own?.name || "object of a class")}, which is no plain data`);
  }
  const inner = given instanceof Map ? [...given.values()] : Object.values(given);
  for (const one of inner) expectPlain(name, one, depth + 1);
}
