/** Functions that every template has. */

import { bound, someText } from "./arguments.js";
import { listOf } from "./attributes.js";
import { charge } from "./limits.js";
import { dateText, toStr } from "./print.js";
import {
  Callable,
  Dict,
  fault,
  type Named,
  Namespace,
  Range,
  TemplateRefusal,
  textOf,
  type Value,
} from "./values.js";

/** Numbers that `range` gives at most: it makes them all at once. Jinja's sandbox allows as many. */
const LONGEST_RANGE = 100_000;

function range(args: readonly Value[], named: Named): Value {
  const numbers = args.map((one) => (typeof one === "boolean" ? Number(one) : one));
  const count = numbers.length;
  const whole = numbers.every((one) => typeof one === "number" && Number.isSafeInteger(one));
  if (count < 1 || count > 3 || !whole || named.size > 0)
    throw fault("range() takes one to three whole numbers");
  const [start, stop, step = 1] = (count === 1 ? [0, ...numbers] : numbers) as [
    number,
    number,
    number?,
  ];
  const length = Math.max(0, Math.ceil((stop - start) / step));
  if (!(length <= LONGEST_RANGE)) {
    throw fault(
      `range(${numbers}) has ${step === 0 ? "a step of 0" : `${length} numbers`}; at most ${LONGEST_RANGE} are allowed`,
    );
  }
  charge(length);
  return new Range(start, stop, step);
}

/** Names and values of one dictionary, or of keywords. */
function pairs(name: string, args: readonly Value[], named: Named): [Value, Value][] {
  const [first] = args;
  if (args.length > 1) throw fault(`it calls ${name}() with ${args.length} values`);
  const own: [Value, Value][] =
    first === undefined
      ? []
      : first instanceof Dict
        ? first.entries()
        : listOf(first).map((pair) => listOf(pair) as [Value, Value]);
  return [...own, ...named];
}

function cycler(args: readonly Value[]): Value {
  let at = 0;
  if (args.length === 0) throw fault("it calls cycler() without values");
  const current = () => args[at] as Value;
  return new Callable(
    "cycler",
    () => fault("it calls a cycler") as never,
    (name) => {
      if (name === "current") return current();
      if (name === "reset") {
        return new Callable(name, () => {
          at = 0;
          return null;
        });
      }
      if (name !== "next") return undefined;
      return new Callable(name, () => {
        const value = current();
        at = (at + 1) % args.length;
        return value;
      });
    },
  );
}

function joiner(args: readonly Value[], named: Named): Value {
  const [by] = bound("joiner()", "sep?", args, named);
  let used = false;
  return new Callable("joiner", () => {
    const first = !used;
    used = true;
    return first ? "" : by === undefined ? ", " : by;
  });
}

export function globals(date: () => Date): [string, Value][] {
  const functions: { readonly [name: string]: Callable["call"] } = {
    range,
    cycler,
    joiner,
    dict(args, named) {
      const made = new Dict();
      for (const [key, value] of pairs("dict", args, named)) made.set(key, value);
      return made;
    },
    namespace(args, named) {
      const made = new Namespace();
      for (const [key, value] of pairs("namespace", args, named)) {
        made.fields.set(textOf(someText("namespace()", key)), value);
      }
      return made;
    },
    raise_exception(args) {
      throw new TemplateRefusal(textOf(toStr(args[0] ?? null)));
    },
    strftime_now(args, named) {
      const [format] = bound("strftime_now()", "format", args, named);
      return dateText(date(), someText("strftime_now()", format));
    },
    lipsum() {
      throw fault("it calls lipsum(), which is not known here");
    },
  };
  return Object.entries(functions).map(([name, call]) => [name, new Callable(name, call)]);
}
