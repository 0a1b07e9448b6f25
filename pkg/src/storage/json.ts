/** Values of the caller's that are kept as JSON. */

import { isTinyloomError } from "../error.js";
import { inspect, integer, invalid, object, show } from "../options.js";
import type { Entry } from "./log.js";

/**
 * A copy of a value, as JSON has it. What JSON would leave out or change is refused by name.
 *
 * @param where - the call, as the user wrote it, for the message.
 * @param name - of the value.
 */
export function jsonCopy(where: string, name: string, given: unknown): unknown {
  const refuse = (what: string, cause?: unknown) =>
    invalid(
      `${where}: ${what}; give what JSON can hold: strings, numbers, true, false, null, arrays and plain objects`,
      "invalid-options",
      cause,
    );
  const keep = (key: string, value: unknown) => {
    const kept =
      typeof value === "object"
        ? value === null || Array.isArray(value) || object(value) === undefined
        : !/^(bigint|function|symbol)$/.test(typeof value);
    if (!kept) throw refuse(`${key || name} is ${show(value)}`);
    return value;
  };
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

/** A copy of an entry of a log, or why it cannot be kept. */
export function entryOf(where: string, given: unknown): Entry {
  const copy = jsonCopy(where, "what was given", given) as Partial<Entry> | null | undefined;
  const allowed = integer(0, 0xffff_ffff)(copy?.step);
  if (allowed) throw invalid(`${where}: step is ${show(copy?.step)}; give ${allowed}`);
  return copy as Entry;
}
