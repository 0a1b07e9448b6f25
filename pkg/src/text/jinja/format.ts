/** Texts with places for values: `%` and `format()`, as Python has them. */

import { times } from "./limits.js";
import { repr, toStr } from "./print.js";
import {
  between,
  cut,
  Dict,
  fault,
  isFloat,
  isNumber,
  joined,
  lengthOf,
  type Named,
  numberOf,
  Range,
  type Str,
  Tuple,
  textOf,
  typeName,
  type Value,
} from "./values.js";

/** The operator `%` of a text. */
export function percent(format: Str, given: Value): Str {
  const all = textOf(format);
  const pattern = /%(?:\(([^()]*)\))?([-+ #0]*)(\d*)(?:\.(\d*))?(.?)/gsu;
  if (given instanceof Range) throw fault(`it formats ${typeName(given)}`);
  const list = given instanceof Tuple ? [...given.items] : [given];
  let used = 0;
  const parts: Str[] = [];
  let after = 0;
  for (const match of all.matchAll(pattern)) {
    const [place, key, flags = "", width = "", digits, kind = ""] = match;
    parts.push(cut(format, after, match.index));
    after = match.index + place.length;
    if (kind === "%") {
      parts.push("%");
      continue;
    }
    let value: Value | undefined;
    if (key === undefined) {
      value = list[used];
      used += 1;
    } else if (given instanceof Dict) {
      value = given.get(key);
      used = list.length;
    } else throw fault(`it formats ${JSON.stringify(place)} without a dictionary`);
    if (value === undefined) throw fault(`it formats ${JSON.stringify(place)} without a value`);
    parts.push(placed(place, value, flags, Number(width), digits, kind));
  }
  if (used < list.length && !(given instanceof Dict) && !Array.isArray(given)) {
    throw fault("it formats a text with more values than it has places");
  }
  return joined([...parts, cut(format, after)]);
}

/** A value in a place of `%`. */
function placed(
  place: string,
  value: Value,
  flags: string,
  width: number,
  digits: string | undefined,
  kind: string,
): Str {
  let text: Str;
  if (kind === "s" || kind === "r") {
    text = kind === "s" ? toStr(value) : repr(value);
    if (digits !== undefined) text = between(text, 0, Math.min(lengthOf(text), Number(digits)));
  } else if (isNumber(value) && /[dif]/.test(kind)) text = numeral(value, flags, digits, kind);
  else if (isNumber(value) && /[xXo]/.test(kind) && !isFloat(value) && !/[#+ ]/.test(flags)) {
    const made = numberOf(value).toString(kind === "o" ? 8 : 16);
    text = kind === "X" ? made.toUpperCase() : made;
  } else
    throw fault(
      `it formats ${typeName(value)} as ${JSON.stringify(place)}, which is not known here`,
    );
  const space = width - lengthOf(text);
  if (space <= 0) return text;
  if (flags.includes("-")) return joined([text, times(" ", space)]);
  if (!flags.includes("0") || /[sr]/.test(kind)) return joined([times(" ", space), text]);
  const sign = /^[-+ ]/.test(textOf(text)) ? 1 : 0;
  return joined([cut(text, 0, sign), times("0", space), cut(text, sign)]);
}

function numeral(
  value: Parameters<typeof numberOf>[0],
  flags: string,
  digits: string | undefined,
  kind: string,
): string {
  const number = numberOf(value);
  if (!Number.isFinite(number) || Math.abs(number) >= 1e15) {
    throw fault(`it formats the number ${number}, which is not known here`);
  }
  if (kind !== "f" && digits !== undefined)
    throw fault(`it formats a whole number with .${digits}`);
  const made = kind === "f" ? fixed(number, Number(digits ?? 6)) : String(Math.trunc(number));
  const sign = made.startsWith("-")
    ? ""
    : flags.includes("+")
      ? "+"
      : flags.includes(" ")
        ? " "
        : "";
  return sign + made;
}

/** As `toFixed`, which rounds the exact value as Python does. It has no more than 100 digits. */
function fixed(number: number, digits: number): string {
  if (digits > 100) throw fault(`it formats a number with ${digits} digits`);
  const made = Math.abs(number).toFixed(digits);
  // Where the value lies exactly between two, Python takes the even one, and toFixed the greater.
  const scaled = Math.abs(number) * 10 ** digits;
  const tie = digits < 22 && scaled % 1 === 0.5 && Number.isSafeInteger(scaled * 2);
  const even =
    tie && Math.floor(scaled) % 2 === 0
      ? (Math.floor(scaled) / 10 ** digits).toFixed(digits)
      : made;
  return (number < 0 || Object.is(number, -0) ? "-" : "") + even;
}

/** Python's `round`. */
export function rounded(number: number, digits: number): number {
  if (digits < 0) {
    const scale = 10 ** -digits;
    return rounded(number / scale, 0) * scale;
  }
  return Number.isFinite(number) ? Number(fixed(number, digits)) : number;
}

/** The method `format` of a text, without forms after a colon. */
export function formatted(format: Str, args: readonly Value[], named: Named): Str {
  const all = textOf(format);
  const parts: Str[] = [];
  let [after, next] = [0, 0];
  for (const match of all.matchAll(/\{\{|\}\}|\{([^{}]*)\}|[{}]/g)) {
    const [place, name] = match;
    parts.push(cut(format, after, match.index));
    after = match.index + place.length;
    if (place === "{{" || place === "}}") parts.push(place.slice(1));
    else if (name === undefined || !/^(\d*|[\p{L}_][\p{L}\p{N}_]*)$/u.test(name)) {
      throw fault(`it formats ${JSON.stringify(place)}, which is not known here`);
    } else {
      const value = /^\d*$/.test(name)
        ? args[name === "" ? next++ : Number(name)]
        : named.get(name);
      if (value === undefined) throw fault(`it formats ${JSON.stringify(place)} without a value`);
      parts.push(toStr(value));
    }
  }
  return joined([...parts, cut(format, after)]);
}
