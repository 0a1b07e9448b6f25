/** Validation of option objects: every refusal names the value, what is allowed and what to do. */

import { type ErrorCode, isTinyloomError, TinyloomError } from "./error.js";
import { hints } from "./hints.js";
import { show } from "./value-text.js";

export { show } from "./value-text.js";

/** A rule for one option: returns what is allowed, in words, when the value is not. */
export type Rule = (value: unknown) => string | undefined;

/** The options an entry point knows. */
export type Rules<T> = { readonly [K in keyof Required<T>]: Rule };

/** Whatever is given, as it is: it is for others to judge. */
export const anything: Rule = () => undefined;

/** Any number: which ones are allowed is for others to judge. */
export const numeric: Rule = (value) => (typeof value === "number" ? undefined : "a number");

/** A finite number within [low, high]; `above` excludes the lower end. */
export function number(low: number, high = Number.POSITIVE_INFINITY, above = false): Rule {
  const lower = above ? `above ${low}` : `of at least ${low}`;
  const allowed =
    high === Infinity ? `a finite number ${lower}` : `a number ${lower} and at most ${high}`;
  return (value) =>
    typeof value === "number" &&
    Number.isFinite(value) &&
    (above ? value > low : value >= low) &&
    value <= high
      ? undefined
      : allowed;
}

/** A number in [low, high), as the decay rates of the moments are. */
export function fraction(low = 0, high = 1): Rule {
  return (value) =>
    typeof value === "number" && value >= low && value < high
      ? undefined
      : `a number of at least ${low} and below ${high}`;
}

/** What the rule allows, or null. */
export function orNull(rule: Rule): Rule {
  return (value) => {
    const allowed = value === null ? undefined : rule(value);
    return allowed && `${allowed}, or null`;
  };
}

/** A whole number within [low, high]. */
export function integer(low: number, high = Number.MAX_SAFE_INTEGER): Rule {
  return (value) => {
    const whole = Number.isInteger(value) && (value as number) >= low;
    const above = whole && (value as number) > high;
    if (whole && !above) return undefined;
    const upper = above || high < Number.MAX_SAFE_INTEGER ? ` and at most ${high}` : "";
    return `a whole number of at least ${low}${upper}`;
  };
}

/** A seed: an unsigned 32-bit whole number. */
export const seed: Rule = integer(0, 0xffff_ffff);

/** The number of a layer or a head: an unsigned 32-bit whole number, of which the module knows the most. */
export const index: Rule = seed;

/** One of a list of values. */
export function oneOf(...allowed: readonly unknown[]): Rule {
  const words = allowed.map((value) => JSON.stringify(value)).join(" | ");
  return (value) => (allowed.includes(value) ? undefined : words);
}

/** True or false. */
export const flag: Rule = oneOf(true, false);

/** A list of token ids. */
export const tokenList: Rule = (value) =>
  (Array.isArray(value) || value instanceof Uint32Array) &&
  Array.from(value).every((id) => Number.isInteger(id) && id >= 0 && id <= 0xffff_ffff)
    ? undefined
    : "an array of token ids (whole numbers of at least 0)";

/** What gives the texts of tokens. */
export const tokenizer: Rule = (value) =>
  typeof (value as { readonly decoder?: unknown } | null)?.decoder === "function"
    ? undefined
    : "a tokenizer, which has decoder()";

/** An AbortSignal, from whichever realm. */
export const abortSignal: Rule = (value) =>
  typeof value === "object" &&
  value !== null &&
  typeof (value as AbortSignal).aborted === "boolean" &&
  typeof (value as AbortSignal).addEventListener === "function" &&
  typeof (value as AbortSignal).removeEventListener === "function"
    ? undefined
    : "an AbortSignal";

/** An array, whose elements are judged later. */
export const list: Rule = (value) => (Array.isArray(value) ? undefined : "an array");

/** A callback. */
export const callback: Rule = (value) => (typeof value === "function" ? undefined : "a function");

/** A plain object, from whichever realm: no array, Map or instance of a class. */
export const object: Rule = (value) => {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return "an object";
  const prototype: object | null = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null
    ? undefined
    : "a plain object";
};

/** What work makes of a caller's value, whose getters and traps may throw. */
export function inspect<T>(where: string, work: () => T, code: ErrorCode = "invalid-options"): T {
  try {
    return work();
  } catch (cause) {
    if (isTinyloomError(cause)) throw cause;
    throw invalid(`${where}: what was given threw ${show(cause)} when it was read`, code, cause);
  }
}

/** Whether a value is of the class; a proxy that throws is not. */
export function isA<T>(value: unknown, type: { readonly prototype: T }): value is T {
  try {
    return value instanceof (type as unknown as abstract new () => T);
  } catch {
    return false;
  }
}

/** What a callback of the caller's gives; what it throws becomes the cause of "invalid-options". */
export function called<T>(what: string, callback: () => T): T {
  try {
    return callback();
  } catch (cause) {
    throw invalid(`${what} threw ${show(cause)}`, "invalid-options", cause);
  }
}

/** What a callback of the caller's gives that may give a promise; what fails becomes the cause of "invalid-options". */
export async function awaited<T>(what: string, callback: () => T | Promise<T>): Promise<T> {
  const given = called(what, callback);
  try {
    return await given;
  } catch (cause) {
    if (isTinyloomError(cause)) throw cause;
    throw invalid(`${what} threw ${show(cause)}`, "invalid-options", cause);
  }
}

/**
 * A copy of plain data. `structuredClone` would not copy memory that threads share.
 *
 * @param levels - how many levels of objects and arrays are copied. No option is deeper. What lies deeper is passed on
 *   as it is; it may refer to itself, and the rules refuse it.
 */
export function copied<T>(value: T, levels?: number): T;
export function copied(value: unknown, levels = 5): unknown {
  // A Buffer's `slice` copies nothing. Of a DataView, and of what was transferred, there is nothing to copy.
  if (ArrayBuffer.isView(value))
    return (value as Uint8Array).length
      ? (value.constructor as typeof Uint8Array).from(value as Uint8Array)
      : value;
  if (!levels--) return value;
  if (Array.isArray(value)) return Array.from(value, (one) => copied(one, levels));
  return object(value) === undefined
    ? Object.fromEntries(
        Object.entries(value as object).map(([name, one]) => [name, copied(one, levels)]),
      )
    : value;
}

/**
 * Checks an option object against its rules and returns a copy without undefined entries.
 *
 * @param where - the call, as the user wrote it, for the message.
 * @param required - the option that cannot be left out, if there is one.
 */
export function check<T extends object>(
  where: string,
  options: unknown,
  rules: Rules<T>,
  required?: keyof T & string,
): T {
  return inspect(where, () => checked(where, options, rules, required));
}

function checked<T extends object>(
  where: string,
  options: unknown,
  rules: Rules<T>,
  required: string | undefined,
): T {
  const given = options ?? {};
  if (object(given) !== undefined) {
    throw invalid(`${where} takes a plain object of options, not ${show(options)}`);
  }
  const known = Object.keys(rules);
  const result: Record<string, unknown> = {};
  for (const [key, one] of Object.entries(given)) {
    if (!Object.hasOwn(rules, key)) {
      const meant = hints.option?.(key, known) ?? "";
      throw invalid(`${where} has no option "${key}"${meant}; it takes ${known.join(", ")}`);
    }
    const rule: Rule = rules[key as keyof T];
    // What a list gives at a second reading nobody has checked.
    const value = rule !== anything && Array.isArray(one) ? Array.from(one) : one;
    if (value === undefined) continue;
    const allowed = rule(value);
    if (allowed !== undefined) {
      const otherwise = key === required ? "" : ", or leave it out";
      throw invalid(`${where}: ${key} is ${show(value)}; give ${allowed}${otherwise}`);
    }
    result[key] = value;
  }
  if (required && !Object.hasOwn(result, required)) {
    throw invalid(`${where} needs ${required}: ${rules[required as keyof T](undefined)}`);
  }
  return result as T;
}

/** An "invalid-options" error. */
export function invalid(
  message: string,
  code: ErrorCode = "invalid-options",
  cause?: unknown,
): TinyloomError {
  return new TinyloomError(code, message, { cause });
}
