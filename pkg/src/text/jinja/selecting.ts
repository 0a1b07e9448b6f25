/** Filters that take another filter, a test or any number of values: `map`, `select` and its relatives, `format`. */

import { someText } from "./arguments.js";
import { byPath } from "./attributes.js";
import { percent } from "./format.js";
import { toStr } from "./print.js";
import {
  Dict,
  fault,
  iterate,
  type Named,
  Once,
  Tuple,
  textOf,
  truth,
  Undefined,
  type Value,
} from "./values.js";

/** How a filter or a test is called from within another, such as `map`. */
export type Apply = (
  kind: "filter" | "test",
  name: string,
  value: Value,
  args: readonly Value[],
  named: Named,
) => Value;

/** Filters that take another filter or a test: undefined where the name is none of them. */
export function selecting(
  name: string,
  value: Value,
  args: readonly Value[],
  named: Named,
  apply: Apply,
): Value | undefined {
  const name1 = (at: number) => textOf(someText(name, args[at]));
  if (name === "map") return new Once(mapped(value, args, named, apply), "map");
  if (name === "format") {
    if (args.length > 0 && named.size > 0) throw fault("it formats with both kinds of values");
    if (named.size === 0) return percent(toStr(value), new Tuple(args));
    const given = new Dict();
    for (const [key, one] of named) given.set(key, one);
    return percent(toStr(value), given);
  }
  const match = /^(select|reject)(attr)?$/.exec(name);
  if (!match) return undefined;
  const [, kind, attr] = match;
  const path = attr ? args[0] : undefined;
  if (attr && path === undefined) throw fault(`it calls ${name} without an attribute`);
  const at = attr ? 1 : 0;
  const list = iterate(value).filter((one) => {
    const own = path === undefined ? one : byPath(one, path);
    const holds =
      args.length > at
        ? truth(apply("test", name1(at), own, args.slice(at + 1), named))
        : truth(own);
    return holds === (kind === "select");
  });
  return new Once(list, name);
}

function mapped(value: Value, args: readonly Value[], named: Named, apply: Apply): Value[] {
  const attribute = named.get("attribute");
  if (args.length === 0 && attribute !== undefined) {
    const other = named.get("default");
    if (named.size > (other === undefined ? 1 : 2))
      throw fault("it calls map with what is not known here");
    return iterate(value).map((one) => {
      const found = byPath(one, attribute);
      return found instanceof Undefined && other !== undefined ? other : found;
    });
  }
  const [name, ...rest] = args;
  return iterate(value).map((one) =>
    apply("filter", textOf(someText("map", name)), one, rest, named),
  );
}
