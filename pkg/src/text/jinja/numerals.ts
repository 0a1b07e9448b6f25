/** Numbers out of texts, as Python reads them. */

import { strip } from "./texts.js";
import {
  fault,
  float,
  integer,
  isNumber,
  isStr,
  numberOf,
  textOf,
  typeName,
  Undefined,
  type Value,
} from "./values.js";

/** The filter `int`. */
export function toInt(value: Value, byDefault?: Value, base?: Value): Value {
  const other = byDefault === undefined ? 0 : byDefault;
  if (value instanceof Undefined) throw fault(`it makes a number of ${typeName(value)}`);
  if (base !== undefined && base !== 10) throw fault("it reads a number of another base than 10");
  if (isNumber(value))
    return Number.isFinite(numberOf(value)) ? integer(Math.trunc(numberOf(value))) : other;
  const read = isStr(value) ? numeral(textOf(value)) : undefined;
  return read === undefined || !Number.isFinite(read) ? other : integer(Math.trunc(read));
}

/** A number as Python reads one; undefined where it is none. */
function numeral(text: string): number | undefined {
  const own = textOf(strip(text, undefined, "both")).replace(/(?<=\d)_(?=\d)/g, "");
  if (/^[-+]?(inf(inity)?|nan)$/i.test(own)) {
    return /nan/i.test(own)
      ? Number.NaN
      : own.startsWith("-")
        ? Number.NEGATIVE_INFINITY
        : Number.POSITIVE_INFINITY;
  }
  return /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(own) ? Number(own) : undefined;
}

/** The filter `float`. */
export function toFloat(value: Value, byDefault?: Value): Value {
  if (value instanceof Undefined) throw fault(`it makes a number of ${typeName(value)}`);
  const read = isNumber(value)
    ? numberOf(value)
    : isStr(value)
      ? numeral(textOf(value))
      : undefined;
  if (read !== undefined) return float(read);
  return byDefault === undefined ? float(0) : byDefault;
}
