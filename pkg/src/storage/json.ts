/** Values of the caller's that are kept as JSON. */

import { isTinyloomError } from "../error.js";
import { inspect, integer, invalid, object, show } from "../options.js";
import type { Entry } from "./log.js";

/**
 * A copy of a value, as JSON has it. What JSON would leave out or change is refused by name. A field that is
 * undefined counts as absent, and -0 is 0.
 *
 * @param where - the call, as the user wrote it, for the message.
 * @param name - of the value.
 * @param nulls - whether numbers that are not finite are kept as null.
 */
export function jsonCopy(where: string, name: string, given: unknown, nulls = false): unknown {
  const refuse = (what: string, cause?: unknown) =>
    invalid(
      `${where}: ${what}; give what JSON can hold: strings, finite numbers, true, false, null, arrays and plain ` +
        "objects",
      "invalid-options",
      cause,
    );
  // `this` has the value itself, `value` what its `toJSON` made of it.
  function keep(this: { readonly [key: string]: unknown }, key: string, value: unknown) {
    const own = this[key];
    const kept = typeof own === "number" ? nulls || Number.isFinite(own) : holds(own, this);
    if (!kept) throw refuse(`${key || name} is ${show(own)}`);
    return value;
  }
  return inspect(where, () => {
    let text: string | undefined;
    try {
      text = JSON.stringify(given, keep);
    } catch (cause) {
      throw isTinyloomError(cause) ? cause : refuse(`${name} is not JSON: ${show(cause)}`, cause);
    }
    return text === undefined ? undefined : JSON.parse(text);
  });
}

/** Whether JSON has this value, which is no number, as it is. */
function holds(value: unknown, within: unknown): boolean {
  if (value === undefined) return !Array.isArray(within);
  if (typeof value !== "object") return !/^(bigint|function|symbol)$/.test(typeof value);
  if (value === null) return true;
  if (typeof (value as { toJSON?: unknown }).toJSON === "function") return false;
  // An array's holes, and what it has besides its items, are lost.
  return Array.isArray(value)
    ? Object.keys(value).length === value.length
    : object(value) === undefined && Object.getOwnPropertySymbols(value).length === 0;
}

/** A copy of an entry of a log, or why it cannot be kept. */
export function entryOf(where: string, given: unknown, nulls = false): Entry {
  const copy = jsonCopy(where, "what was given", given, nulls) as Partial<Entry> | null | undefined;
  const allowed = integer(0, 0xffff_ffff)(copy?.step);
  if (allowed) throw invalid(`${where}: step is ${show(copy?.step)}; give ${allowed}`);
  return copy as Entry;
}
