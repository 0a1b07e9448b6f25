/** Arguments of functions, methods and filters. */

import {
  Callable,
  fault,
  isNumber,
  isStr,
  type Named,
  numberOf,
  type Str,
  textOf,
  typeName,
  type Value,
} from "./values.js";

/** What a function gets: undefined for what is not given. */
export type Given = readonly (Value | undefined)[];

/** A function with its parameters: `?` after those that need not be given, `_` before those that have no keyword. */
export type Defined = readonly [parameters: string, run: (...given: Value[]) => Value];

/** Arguments in the order of the parameters. */
export function bound(
  name: string,
  parameters: string,
  args: readonly Value[],
  named: Named,
): Given {
  const list = parameters === "" ? [] : parameters.split(" ");
  if (args.length > list.length) {
    throw fault(`it calls ${name} with ${args.length} values; ${list.length} are allowed`);
  }
  const keys = list.map((one) => one.replace("?", ""));
  for (const key of named.keys()) {
    const at = keys.indexOf(key);
    if (at < 0 || at < args.length)
      throw fault(`it calls ${name} with ${key}=, which is not known here`);
  }
  return list.map((one, at) => {
    const value = at < args.length ? args[at] : named.get(keys[at] as string);
    if (value === undefined && !one.endsWith("?"))
      throw fault(`it calls ${name} without ${keys[at]}`);
    return value;
  });
}

/** A method of a value. */
export function methodOf(name: string, [parameters, run]: Defined, self: Value): Callable {
  return new Callable(name, (args, named) =>
    run(self, ...(bound(`${name}()`, parameters, args, named) as Value[])),
  );
}

/** A text that has to be one. */
export function someText(name: string, value: Value | undefined): Str {
  if (value !== undefined && isStr(value)) return value;
  throw fault(`it gives ${name} ${typeName(value ?? null)}, where a text has to be`);
}

/** A whole number that has to be one. */
export function someInteger(name: string, value: Value | undefined, byDefault: number): number {
  if (value === undefined) return byDefault;
  if (isNumber(value) && (typeof value === "boolean" || Number.isSafeInteger(value)))
    return numberOf(value);
  throw fault(`it gives ${name} ${typeName(value)}, where a whole number has to be`);
}

/** An optional text, which may also be none. */
export const plainText = (name: string, value: Value | undefined): string | undefined =>
  value === undefined || value === null ? undefined : textOf(someText(name, value));

/** Begin and end of part of a list, as Python understands them. */
export function sliceBounds(
  length: number,
  begin: Value | undefined,
  end: Value | undefined,
): [number, number] {
  const place = (value: Value | undefined, byDefault: number) => {
    const at = someInteger("a slice", value ?? undefined, byDefault);
    return Math.min(length, at < 0 ? Math.max(0, at + length) : at);
  };
  const from = place(begin, 0);
  return [from, Math.max(from, place(end, length))];
}
