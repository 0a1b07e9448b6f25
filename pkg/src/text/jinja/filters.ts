/** Filters and tests of Jinja 3.1, and `tojson` of transformers. */

import { plainText, someInteger, someText } from "./arguments.js";
import { binary, byPath, item, listOf, roundFilter } from "./attributes.js";
import { capitalized, lower, titleFilter, upper } from "./cases.js";
import { expectItems, times } from "./limits.js";
import { toFloat, toInt } from "./numerals.js";
import { toJson, toStr } from "./print.js";
import { centred, replaced, split, splitLines, strip } from "./texts.js";
import {
  between,
  characters,
  compare,
  Dict,
  defined,
  equal,
  fault,
  float,
  isFloat,
  isNumber,
  isStr,
  iterate,
  joined,
  lengthOf,
  Markup,
  numberOf,
  Once,
  type Str,
  Tuple,
  textOf,
  truth,
  typeName,
  Undefined,
  type Value,
  View,
} from "./values.js";

/** The text of a value. What Jinja does to a text marked safe would stay marked. */
function soft(value: Value): Str {
  if (value instanceof Markup) throw fault("it changes a text marked safe");
  return toStr(value);
}

type Filter = readonly [
  parameters: string,
  run: (value: Value, ...given: (Value | undefined)[]) => Value,
];

/** A text in lower case where case does not count. */
const folded = (value: Value, sensitive: Value | undefined) =>
  isStr(value) && !(sensitive !== undefined && truth(sensitive)) ? lower(value) : value;

/** How many items a value has. */
export function size(value: Value): number {
  if (isStr(value)) return lengthOf(value);
  if (value instanceof Dict) return value.size;
  if (value instanceof View) return value.of.size;
  if (Array.isArray(value) || value instanceof Tuple || value instanceof Undefined)
    return iterate(value).length;
  throw fault(`it asks for the length of ${typeName(value)}`);
}

function sorted(
  list: readonly Value[],
  key: (one: Value) => Value,
  reverse: Value | undefined,
): Value[] {
  const keyed = list.map((one) => [key(one), one] as const);
  const back = reverse !== undefined && truth(reverse);
  keyed.sort(([a], [b]) => (back ? compare(b, a) : compare(a, b)));
  return keyed.map(([, one]) => one);
}

const fields = (attribute: Value | undefined, sensitive: Value | undefined) => {
  const paths =
    attribute === undefined || attribute === null
      ? []
      : isStr(attribute)
        ? textOf(attribute).split(",")
        : [attribute];
  return (one: Value): Value =>
    paths.length === 0
      ? folded(one, sensitive)
      : new Tuple(paths.map((path) => folded(byPath(one, path), sensitive)));
};
const field = (attribute: Value | undefined, sensitive: Value | undefined) => (one: Value) =>
  folded(attribute === undefined || attribute === null ? one : byPath(one, attribute), sensitive);

function most(name: string, sign: 1 | -1): Filter {
  return [
    "case_sensitive? attribute?",
    (value, sensitive, attribute) => {
      const key = field(attribute, sensitive);
      let best: readonly [Value, Value] | undefined;
      for (const one of iterate(value)) {
        const own = key(one);
        if (!best || compare(own, best[0]) * sign > 0) best = [own, one];
      }
      return best ? best[1] : new Undefined(`${name} of nothing`);
    },
  ];
}

function dictSorted(value: Value, sensitive?: Value, by?: Value, reverse?: Value): Value {
  if (!(value instanceof Dict)) throw fault(`it sorts ${typeName(value)} as a dictionary`);
  const at = ["key", "value"].indexOf(plainText("dictsort", by) ?? "key");
  if (at < 0) throw fault("it sorts a dictionary by what is neither key nor value");
  const pairs = value.entries().map((pair) => new Tuple(pair));
  return sorted(pairs, (one) => folded((one as Tuple).items[at] as Value, sensitive), reverse);
}

function grouped(value: Value, attribute?: Value, other?: Value, sensitive?: Value): Value {
  const get = (one: Value) => {
    const found = byPath(one, attribute as Value);
    return found instanceof Undefined && other !== undefined && other !== null ? other : found;
  };
  const groups: [Value, Value[]][] = [];
  for (const one of sorted(listOf(value), (each) => folded(get(each), sensitive), undefined)) {
    const last = groups.at(-1);
    if (last && equal(folded(last[0], sensitive), folded(get(one), sensitive))) last[1].push(one);
    else groups.push([get(one), [one]]);
  }
  return groups.map(([key, list]) => new Tuple([key, list]));
}

function unique(value: Value, sensitive?: Value, attribute?: Value): Value {
  const seen = new Dict();
  const key = field(attribute, sensitive);
  const made = listOf(value).filter((one) => {
    const own = key(one);
    if (seen.has(own)) return false;
    seen.set(own, true);
    return true;
  });
  return new Once(made, "unique");
}

function indented(value: Value, width?: Value, first?: Value, blank?: Value): Value {
  const text = someText("indent", value);
  const by: Str =
    width !== undefined && isStr(width) ? width : times(" ", someInteger("indent", width, 4));
  const all = splitLines(joined([text, "\n"]));
  const empties = blank !== undefined && truth(blank);
  const made = all.map((line, at) =>
    at > 0 && (empties || textOf(line) !== "") ? joined([by, line]) : line,
  );
  return joined([first !== undefined && truth(first) ? by : "", joined(made, "\n")]);
}

function truncated(value: Value, length?: Value, kill?: Value, end?: Value, leeway?: Value): Value {
  const text = someText("truncate", value);
  const [most, room] = [someInteger("truncate", length, 255), someInteger("truncate", leeway, 5)];
  const tail = end === undefined ? "..." : someText("truncate", end);
  if (most < lengthOf(tail) || room < 0) throw fault("it shortens a text to less than its end");
  if (lengthOf(text) <= most + room) return text;
  const cutOff = between(text, 0, most - lengthOf(tail));
  if (kill !== undefined && truth(kill)) return joined([cutOff, tail]);
  return joined([split(cutOff, " ", 1, true)[0] as Str, tail]);
}

function json(value: Value, ...given: (Value | undefined)[]): Value {
  const [ascii, indent = null, separators = null, sort] = given;
  const by =
    indent === null
      ? undefined
      : isStr(indent)
        ? textOf(indent)
        : times(" ", someInteger("tojson", indent, 0));
  const own =
    separators === null
      ? undefined
      : listOf(separators).map((one) => textOf(someText("tojson", one)));
  if (own && own.length !== 2) throw fault("it gives tojson other separators than two");
  return toJson(value, {
    ascii: ascii !== undefined && truth(ascii),
    indent: by,
    separators: (own as [string, string] | undefined) ?? [by === undefined ? ", " : ",", ": "],
    sorted: sort !== undefined && truth(sort),
  });
}

function batched(value: Value, count?: Value, fill?: Value): Value {
  const each = someInteger("batch", count, 0);
  if (each < 1) throw fault("it makes batches of less than 1");
  const made: Value[][] = [];
  for (const one of iterate(value)) {
    const last = made.at(-1);
    if (last && last.length < each) last.push(one);
    else made.push([one]);
  }
  const last = made.at(-1);
  if (last && fill !== undefined && fill !== null) expectItems(each);
  while (last && fill !== undefined && fill !== null && last.length < each) last.push(fill);
  return new Once(made, "batch");
}

const some = (list: readonly Value[], at: number) =>
  defined(list.at(at), "an item of nothing is undefined");

const FILTERS: { readonly [name: string]: Filter } = {
  abs: [
    "",
    (value) =>
      isNumber(value)
        ? isFloat(value)
          ? float(Math.abs(numberOf(value)))
          : Math.abs(numberOf(value))
        : binary("-", 0, value),
  ],
  attr: ["name", (value, name) => item(value, name as Value)],
  batch: ["linecount fill_with?", batched],
  capitalize: ["", (value) => capitalized(soft(value))],
  center: ["width?", (value, width) => centred(soft(value), width === undefined ? 80 : width)],
  default: [
    "default_value? boolean?",
    (value, other = "", falsy = false) =>
      value instanceof Undefined || (truth(falsy) && !truth(value)) ? other : value,
  ],
  dictsort: ["case_sensitive? by? reverse?", dictSorted],
  first: ["", (value) => some(iterate(value), 0)],
  float: ["default?", toFloat],
  groupby: ["attribute default? case_sensitive?", grouped],
  indent: ["width? first? blank?", indented],
  int: ["default? base?", toInt],
  items: [
    "",
    (value) => {
      if (value instanceof Undefined) return new Once([], "items");
      if (value instanceof Dict) return new Once(listOf(new View("items", value)), "items");
      throw fault(`it takes the items of ${typeName(value)}`);
    },
  ],
  join: [
    "d? attribute?",
    (value, by = "", attribute = null) => {
      const list = iterate(value).map((one) =>
        toStr(attribute === null ? one : byPath(one, attribute)),
      );
      return joined(list, toStr(by));
    },
  ],
  last: [
    "",
    (value) => {
      if (value instanceof Once) throw fault(`it asks for the last of ${typeName(value)}`);
      return some(iterate(value), -1);
    },
  ],
  length: ["", size],
  list: ["", listOf],
  lower: ["", (value) => lower(soft(value))],
  max: most("max", 1),
  min: most("min", -1),
  replace: [
    "old new count?",
    (value, old, by, count) =>
      replaced(
        toStr(value),
        toStr(old as Value),
        toStr(by as Value),
        someInteger("replace", count ?? undefined, -1),
      ),
  ],
  reverse: [
    "",
    (value) =>
      isStr(value)
        ? joined(characters(value).reverse())
        : new Once(listOf(value).reverse(), "reverse"),
  ],
  round: [
    "precision? method?",
    (value, precision, method) =>
      roundFilter(value, precision, plainText("round", method) ?? "common"),
  ],
  safe: ["", (value) => (value instanceof Markup ? value : new Markup(toStr(value)))],
  sort: [
    "reverse? case_sensitive? attribute?",
    (value, reverse, sensitive, attribute) =>
      sorted(listOf(value), fields(attribute, sensitive), reverse),
  ],
  string: ["", (value) => (value instanceof Markup ? value : toStr(value))],
  sum: [
    "attribute? start?",
    (value, attribute = null, start = 0) => {
      if (isStr(start)) throw fault("it sums texts");
      return iterate(value).reduce<Value>(
        (sum, one) => binary("+", sum, attribute === null ? one : byPath(one, attribute)),
        start,
      );
    },
  ],
  title: ["", (value) => titleFilter(soft(value))],
  tojson: ["ensure_ascii? indent? separators? sort_keys?", json],
  trim: ["chars?", (value, set) => strip(soft(value), set, "both")],
  truncate: ["length? killwords? end? leeway?", truncated],
  unique: ["case_sensitive? attribute?", unique],
  upper: ["", (value) => upper(soft(value))],
  wordcount: ["", (value) => (textOf(toStr(value)).match(/[\p{L}\p{N}_]+/gu) ?? []).length],
};
const ALIASES: { readonly [name: string]: string } = { count: "length", d: "default" };

/** A filter by its name; undefined where none has it. */
export function filterOf(name: string): Filter | undefined {
  const own = Object.hasOwn(ALIASES, name) ? (ALIASES[name] as string) : name;
  return Object.hasOwn(FILTERS, own) ? FILTERS[own] : undefined;
}
