/** How values are printed: as Python's `str` and `repr`, as JSON, and dates. */

import { charge, notePrinted, times } from "./limits.js";
import {
  codesOf,
  compare,
  Dict,
  Float,
  fault,
  isNumber,
  isStr,
  joined,
  like,
  Markup,
  Range,
  type Str,
  Traced,
  Tuple,
  textOf,
  typeName,
  Undefined,
  type Value,
  View,
} from "./values.js";

/** Python's `str`. */
export function toStr(value: Value): Str {
  if (isStr(value)) return value;
  if (value instanceof Markup) return value.text;
  if (value instanceof Undefined) return "";
  if (typeof value === "object" && value !== null) notePrinted(value);
  return repr(value);
}

export function repr(value: Value): Str {
  charge(1);
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (isNumber(value)) return value instanceof Float ? floatText(value.value) : numberText(value);
  if (isStr(value)) return like(value, quoted(textOf(value)));
  if (Array.isArray(value)) return joined(["[", joined(value.map(repr), ", "), "]"]);
  if (value instanceof Range) {
    const { start, stop, step } = value;
    return `range(${start}, ${stop}${step === 1 ? "" : `, ${step}`})`;
  }
  if (value instanceof Tuple) {
    return joined([
      "(",
      joined(value.items.map(repr), ", "),
      value.items.length === 1 ? ",)" : ")",
    ]);
  }
  if (value instanceof Dict) {
    const pairs = value.entries().map(([key, one]) => joined([repr(key), ": ", repr(one)]));
    return joined(["{", joined(pairs, ", "), "}"]);
  }
  if (value instanceof View) {
    const entries = value.of.entries();
    const items = entries.map(([key, one]) =>
      value.kind === "items" ? new Tuple([key, one]) : value.kind === "keys" ? key : one,
    );
    return joined([`dict_${value.kind}(`, repr(items), ")"]);
  }
  throw fault(`it prints ${typeName(value)}`);
}

const floatText = (value: number) => {
  const text = numberText(value);
  return text.includes("e") ? text : `${text === "0" && Object.is(value, -0) ? "-0" : text}.0`;
};

/** A number as Python prints it. */
function numberText(value: number): string {
  if (Number.isInteger(value) && Math.abs(value) < 1e16) return String(value);
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  const [digits = "", exponent = "0"] = value.toExponential().split("e");
  const power = Number(exponent);
  if (power >= -4 && power < 16) {
    const text = String(value);
    return text.includes("e") ? value.toFixed(digits.replace(/^-?\d\.?/, "").length - power) : text;
  }
  return `${digits}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
}

/** Characters that Python does not print as they are: controls, marks of format, spaces but the plain one. */
const UNPRINTABLE = /[\\\p{C}\p{Z}]/gu;
const ESCAPES: { readonly [character: string]: string } = {
  "\\": "\\\\",
  "\n": "\\n",
  "\r": "\\r",
  "\t": "\\t",
  " ": " ",
};

function quoted(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const escaped = text.replace(UNPRINTABLE, (one) => {
    const code = one.codePointAt(0) as number;
    const [letter, width] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
    return ESCAPES[one] ?? `\\${letter}${code.toString(16).padStart(width as number, "0")}`;
  });
  return `${quote}${quote === "'" ? escaped.replaceAll("'", "\\'") : escaped}${quote}`;
}

/** How `tojson` writes. */
export interface JsonOptions {
  readonly ascii: boolean;
  /** What indents by one level; undefined for one line. */
  readonly indent: string | undefined;
  readonly separators: readonly [between: string, colon: string];
  readonly sorted: boolean;
}

/** Python's `json.dumps`. */
export function toJson(value: Value, options: JsonOptions, level = 0): Str {
  if (level > 200) throw fault("it writes JSON of more than 200 levels");
  charge(1);
  if (value === null) return "null";
  if (typeof value === "boolean") return String(value);
  if (isNumber(value)) return jsonNumber(value);
  if (isStr(value)) return jsonText(value, options.ascii);
  const [comma, colon] = options.separators;
  const list = (parts: Str[], open: string, close: string): Str => {
    if (parts.length === 0) return open + close;
    if (options.indent === undefined) return joined([open, joined(parts, comma), close]);
    const line = `\n${times(options.indent, level + 1)}`;
    const end = `\n${times(options.indent, level)}`;
    return joined([open, line, joined(parts, comma + line), end, close]);
  };
  if (Array.isArray(value) || (value instanceof Tuple && !(value instanceof Range))) {
    const items = Array.isArray(value) ? value : value.items;
    return list(
      items.map((one) => toJson(one, options, level + 1)),
      "[",
      "]",
    );
  }
  if (value instanceof Dict) {
    const entries = value.entries();
    if (options.sorted) entries.sort(([a], [b]) => compare(a, b));
    const parts = entries.map(([key, one]) =>
      joined([jsonKey(key, options.ascii), colon, toJson(one, options, level + 1)]),
    );
    return list(parts, "{", "}");
  }
  throw fault(`it writes ${typeName(value)} as JSON`);
}

function jsonNumber(value: number | boolean | Float): string {
  const text = textOf(repr(value));
  const named: { readonly [text: string]: string } = {
    nan: "NaN",
    inf: "Infinity",
    "-inf": "-Infinity",
  };
  return named[text] ?? text;
}

function jsonKey(key: Value, ascii: boolean): Str {
  if (isStr(key)) return jsonText(key, ascii);
  if (key === null || typeof key === "boolean") return `"${key}"`;
  if (isNumber(key)) return `"${jsonNumber(key)}"`;
  throw fault(`it writes ${typeName(key)} as a key of JSON`);
}

const JSON_ESCAPES: { readonly [character: string]: string } = {
  '"': '\\"',
  "\\": "\\\\",
  "\n": "\\n",
  "\r": "\\r",
  "\t": "\\t",
  "\f": "\\f",
  "\b": "\\b",
};

function jsonText(text: Str, ascii: boolean): Str {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: JSON escapes them
  const escaped = ascii ? /["\\]|[^ -~]/g : /["\\\u0000-\u001f]/g;
  const replaced = (one: string) =>
    JSON_ESCAPES[one] ?? `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`;
  if (typeof text === "string") return `"${text.replace(escaped, replaced)}"`;
  const parts: string[] = [];
  const codes: string[] = [];
  let after = 0;
  for (const match of text.text.matchAll(escaped)) {
    const made = replaced(match[0]);
    parts.push(text.text.slice(after, match.index), made);
    codes.push(
      text.codes.slice(after, match.index),
      (text.codes[match.index] as string).repeat(made.length),
    );
    after = match.index + 1;
  }
  parts.push(text.text.slice(after));
  codes.push(text.codes.slice(after));
  const inner = new Traced(parts.join(""), codes.join(""));
  return joined(['"', inner, '"']);
}

const MONTHS =
  "January February March April May June July August September October November December".split(
    " ",
  );
const DAYS = "Sunday Monday Tuesday Wednesday Thursday Friday Saturday".split(" ");

/** `strftime` of Python, in its locale C. Other directives than these are refused. */
export function dateText(date: Date, format: Str): Str {
  const two = (value: number) => String(value).padStart(2, "0");
  const hour = date.getHours() % 12 || 12;
  const [month, day] = [MONTHS[date.getMonth()] as string, DAYS[date.getDay()] as string];
  const year = date.getFullYear();
  const dayOfYear =
    Math.round((Date.UTC(year, date.getMonth(), date.getDate()) - Date.UTC(year, 0, 1)) / 864e5) +
    1;
  const values: { readonly [directive: string]: string } = {
    Y: String(year),
    y: two(year % 100),
    m: two(date.getMonth() + 1),
    d: two(date.getDate()),
    e: String(date.getDate()).padStart(2, " "),
    B: month,
    b: month.slice(0, 3),
    h: month.slice(0, 3),
    A: day,
    a: day.slice(0, 3),
    H: two(date.getHours()),
    I: two(hour),
    M: two(date.getMinutes()),
    S: two(date.getSeconds()),
    p: date.getHours() < 12 ? "AM" : "PM",
    j: String(dayOfYear).padStart(3, "0"),
    w: String(date.getDay()),
    u: String(date.getDay() || 7),
    F: `${year}-${two(date.getMonth() + 1)}-${two(date.getDate())}`,
    T: `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`,
    R: `${two(date.getHours())}:${two(date.getMinutes())}`,
    D: `${two(date.getMonth() + 1)}/${two(date.getDate())}/${two(year % 100)}`,
    n: "\n",
    t: "\t",
    "%": "%",
  };
  const made = textOf(format).replace(/%(-?)(.?)/gsu, (all, bare: string, name: string) => {
    const value = values[name];
    if (value === undefined || (bare && !/\d/.test(value))) {
      throw fault(`it writes a date with ${JSON.stringify(all)}, which is not known here`);
    }
    return bare ? value.replace(/^[0 ]+(?=\d)/, "") : value;
  });
  return codesOf(format).replaceAll("\0", "") === "" ? made : like(format, made);
}
