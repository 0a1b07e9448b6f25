/** What crosses between the page and its worker, and how values are prepared for it. */

import { TinyloomError, toError } from "../error.js";
import { show } from "../options.js";
import type { Page } from "../page-services.js";
import { ByteTokenizer } from "../tokenizer.js";

/** Key that marks an object as a stand-in for a value that cannot be cloned. */
export const WIRE = "tinyloom:wire";

/** Key that marks the message which opens a connection. */
export const CONNECT = "tinyloom:connect";

/** What a member of a class is. A `settable` is a property with a setter. */
export type Kind = "method" | "iterator" | "property" | "settable";
export type Members = { readonly [name: string]: Kind };

/** The members of a class, or of an object with functions. */
export interface Shape {
  readonly name: string;
  readonly members: Members;
}

/** Properties of an object, each as it crosses. */
export type Properties = { readonly [name: string]: unknown };

/** Stand-ins for values that cannot be cloned. */
export type Wire =
  /** An object of the worker. The first object of a shape brings it; a new object brings its properties. */
  | { [WIRE]: "object"; id: number; shapeId: number; shape?: Shape; properties?: Properties }
  | { [WIRE]: "signal"; id: number; aborted: boolean; reason: unknown }
  | { [WIRE]: "function"; port: unknown; name: string }
  | { [WIRE]: "url"; href: string }
  | { [WIRE]: "response"; body: ArrayBuffer | undefined }
  | { [WIRE]: "local"; name: LocalClass }
  | { [WIRE]: "error"; error: WireError }
  /** A property whose getter throws. */
  | { [WIRE]: "thrown"; error: WireError }
  /** A property that is a promise: the page asks for its end. */
  | { [WIRE]: "promise" }
  /** A GPU object. */
  | { [WIRE]: "stays"; type: string };

/** What ends a stream that a call was given and did not take. */
export const UNUSED = "no call took this stream";

/** An error as plain data. */
export interface WireError {
  readonly code: string;
  readonly message: string;
  readonly cause?: unknown;
}

/** How a call ended, and the properties that it changed, by object. */
export interface Reply {
  readonly value?: unknown;
  readonly error?: WireError;
  readonly updates?: readonly (readonly [id: number, properties: Properties])[];
  /** Whether a step of an iterator was the last one. */
  readonly done?: boolean;
}

/** An export of the worker. */
export type Exported =
  | { kind: "class"; shapeId: number; shape: Shape; statics: Members; constants: Properties }
  | { kind: "method" | "iterator" }
  | { kind: "value"; value: unknown };

/** The object of a call: an object's number, or the name of an export. */
export type Target = number | string;

/** What the worker does for the page. */
export interface HostApi {
  hello(base: string | undefined, page: Page): Promise<{ [name: string]: Exported }>;
  call(target: Target, member: string, values: unknown[]): Promise<Reply>;
  set(target: number, member: string, values: unknown[]): Reply;
  iterate(id: number, target: Target, member: string, values: unknown[]): Promise<Reply>;
  next(id: number): Promise<Reply>;
  end(id: number): Promise<Reply>;
  settled(target: number, member: string): Promise<Reply>;
  abort(id: number, reason: unknown): void;
  release(id: number, count: number): void;
}

/** Classes whose objects are copied to the other side, which has the class too. */
const LOCAL = { ByteTokenizer };
export type LocalClass = keyof typeof LOCAL;

/** What the page has of its own. */
export const PAGE = { ...LOCAL, TinyloomError };

/** Whether the page has this export of its own. */
export const isLocal = (value: unknown) => Object.values<unknown>(PAGE).includes(value);

/** The class of an object that is copied. */
export function localName(value: object): LocalClass | undefined {
  const names = Object.keys(LOCAL) as LocalClass[];
  return names.find((name) => Object.getPrototypeOf(value) === LOCAL[name].prototype);
}

/** The copy. */
export const makeLocal = (name: LocalClass) => new LOCAL[name]();

/** Names of symbols that cross as members. */
export const SYMBOLS: { readonly [name: string]: symbol | undefined } = {
  "@@dispose": (Symbol as { dispose?: symbol }).dispose,
  "@@asyncDispose": (Symbol as { asyncDispose?: symbol }).asyncDispose,
};

/** The stand-in's kind, if the value is one. */
export function wireKind(value: object): Wire[typeof WIRE] | undefined {
  return Object.hasOwn(value, WIRE) ? (value as Wire)[WIRE] : undefined;
}

/** Whether the object is one of a literal, from whichever realm. */
export function isPlain(value: object): boolean {
  const prototype: object | null = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

/** Whether the object is of the platform: structured cloning knows what to do with it. */
export function isPlatform(value: object): boolean {
  const made: unknown = value.constructor;
  if (typeof made !== "function" || made === Object) return false;
  const known = (globalThis as Record<string, unknown>)[made.name] === made;
  return known || /^function \w+\(\) \{\s*\[native code\]/.test(String(made));
}

/** Whether the object is a part of WebGPU, which lives where its device does. */
export const isGpuObject = (value: object) => /^GPU/.test(value.constructor?.name ?? "");

/**
 * A copy of the value in which `replace` has put stand-ins, or what they stand for; parts without any are
 * shared with the value. `replace` gets each object with its name in the object around it, and gives
 * undefined for what it leaves alone.
 */
export function replaceDeep(
  value: unknown,
  replace: (value: object, name: string) => unknown,
  name = "",
  within: readonly object[] = [],
): unknown {
  if ((typeof value !== "object" && typeof value !== "function") || value === null) return value;
  const replaced = replace(value, name);
  if (replaced !== undefined) return replaced;
  if (within.includes(value)) return value;
  const inner = [...within, value];
  if (Array.isArray(value)) {
    let copy: unknown[] | undefined;
    value.forEach((one, index) => {
      const made = replaceDeep(one, replace, name, inner);
      if (made === one) return;
      copy ??= value.slice();
      copy[index] = made;
    });
    return copy ?? value;
  }
  if (typeof value !== "object" || !isPlain(value)) return value;
  let copy: Record<string, unknown> | undefined;
  for (const [key, one] of Object.entries(value)) {
    const made = replaceDeep(one, replace, key, inner);
    if (made === one) continue;
    copy ??= { ...value };
    copy[key] = made;
  }
  return copy ?? value;
}

/** The buffers of arrays that fill theirs: these move to the other side without a copy. */
export function wholeBuffers(value: unknown): ArrayBuffer[] {
  const found = new Set<ArrayBuffer>();
  replaceDeep(value, (one) => {
    if (one instanceof ArrayBuffer) found.add(one);
    else if (ArrayBuffer.isView(one)) {
      const { buffer } = one;
      if (buffer instanceof ArrayBuffer && buffer.byteLength === one.byteLength) found.add(buffer);
    } else return undefined;
    return one;
  });
  return [...found];
}

/** The error as plain data. */
export function packError(thrown: unknown): WireError {
  const { code, message, cause } = toError(thrown);
  return { code, message, ...(cause !== undefined && { cause: packCause(cause) }) };
}

function packCause(cause: unknown): unknown {
  if (cause instanceof TinyloomError) return { [WIRE]: "error", error: packError(cause) };
  try {
    return structuredClone(cause);
  } catch {
    return show(cause);
  }
}

/** The error of plain data. */
export function unpackError({ code, message, cause }: WireError): TinyloomError {
  const nested = typeof cause === "object" && cause !== null && wireKind(cause) === "error";
  const under = nested ? unpackError((cause as { error: WireError }).error) : cause;
  const options = under === undefined ? undefined : { cause: under };
  return new TinyloomError(code as TinyloomError["code"], message, options);
}
