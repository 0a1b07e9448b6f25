/**
 * What the classes offer, read from the classes themselves: a new method or property needs no entry here.
 * Only methods that give an iterator are listed, since the page has to know of them before it calls; the
 * compiler refuses a list that lacks one.
 */

import type * as direct from "../index.js";
import { batchSeeded, type Seeded, seeded } from "../seeds.js";
import type * as storage from "../storage/index.js";
import { type Kind, type Members, SYMBOLS } from "./wire.js";

type Direct = typeof direct & typeof storage;

/** The instances of a class; never of a function. */
export type InstanceOf<E> = E extends (...args: never[]) => unknown
  ? never
  : E extends { readonly prototype: infer P }
    ? P
    : never;

type IteratorsOf<T> = {
  readonly [K in keyof T as T[K] extends (...args: never[]) => AsyncIterable<unknown>
    ? K
    : never]: true;
};

/** The classes that have such a method. */
type WithIterators = {
  [K in keyof Direct]: [InstanceOf<Direct[K]>] extends [never]
    ? never
    : keyof IteratorsOf<InstanceOf<Direct[K]>> extends never
      ? never
      : K;
}[keyof Direct];

/** Every method of the API that gives an async iterator, by class. */
const ITERATORS: { readonly [K in WithIterators]: IteratorsOf<InstanceOf<Direct[K]>> } = {
  Model: { generate: true, generateBatch: true },
  Trainer: { run: true },
};

type Called = (...values: never[]) => unknown;

/** Functions that give one. */
const FUNCTIONS: {
  readonly [K in keyof Direct as Direct[K] extends Called
    ? ReturnType<Direct[K]> extends AsyncIterable<unknown>
      ? K
      : never
    : never]: true;
} = { chat: true };

/** Whose iterators tell their seed, by class or "" and by name: it is drawn on the page. */
const SEEDED: { readonly [name: string]: { readonly [member: string]: Seed } } = {
  Model: { generate: (values) => seeded(values, 1), generateBatch: batchSeeded },
  "": { chat: (values) => seeded(values, 3) },
};

type Seed = (values: unknown[]) => Seeded;

/** What an iterator's call is made with, and what it tells. */
export function seededCall(name: string, member: string, values: unknown[]): Seeded {
  try {
    return SEEDED[name]?.[member]?.(values) ?? { values, own: {} };
  } catch {
    return { values, own: {} }; // the call tells what threw
  }
}

/** Whether the function gives an async iterator. */
type Listed = { readonly [name: string]: { readonly [member: string]: true } };

function givesIterator(name: string, member: string, work: unknown): boolean {
  const listed: Listed = { ...ITERATORS, "": FUNCTIONS };
  return (
    listed[name]?.[member] === true ||
    Object.prototype.toString.call(work) === "[object AsyncGeneratorFunction]"
  );
}

/** What a function is to the page. */
export function functionKind(name: string, member: string, work: unknown): Kind {
  return givesIterator(name, member, work) ? "iterator" : "method";
}

/** Whether the value is a class: its prototype cannot be replaced. */
export function isClass(value: unknown): value is { readonly prototype: object } {
  return (
    typeof value === "function" &&
    Object.getOwnPropertyDescriptor(value, "prototype")?.writable === false
  );
}

const HIDDEN = /^(_|constructor$)/;
/** What every function has. An object's property may have such a name too. */
const OF_FUNCTIONS = /^(length|name|prototype|arguments|caller)$/;

/**
 * The public members of an object and of what it inherits from, up to the built-in prototypes. Names that
 * begin with an underscore are the project's own.
 *
 * @param name - of its class.
 */
export function membersOf(name: string, object: object): Members {
  const members: Record<string, Kind> = {};
  const builtIn: readonly unknown[] = [Object.prototype, Function.prototype, null];
  for (let one = object; !builtIn.includes(one); one = Object.getPrototypeOf(one)) {
    for (const key of Object.getOwnPropertyNames(one)) {
      if (HIDDEN.test(key) || Object.hasOwn(members, key)) continue;
      if (typeof one === "function" && OF_FUNCTIONS.test(key)) continue;
      members[key] = kindOf(name, key, Object.getOwnPropertyDescriptor(one, key));
    }
    for (const [key, symbol] of Object.entries(SYMBOLS)) {
      if (symbol !== undefined && Object.hasOwn(one, symbol)) members[key] = "method";
    }
  }
  return members;
}

function kindOf(name: string, key: string, property: PropertyDescriptor | undefined): Kind {
  if (typeof property?.value === "function") return functionKind(name, key, property.value);
  return property?.set ? "settable" : "property";
}
