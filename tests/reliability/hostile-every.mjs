// Calls in which one thing is nonsense: each argument, each option and each first element, with each kind of nonsense.
import { NONSENSE } from "./hostile-arguments.mjs";
import { isPlain } from "./hostile-calls.mjs";

/** Options that many calls take. */
const COMMON = ["signal", "onProgress", "unknown"];
/** Each of these opens threads or devices: `npm run reliability -- hostile` draws some. */
const SLOW = /^(connect|Runtime\.create)$/;

/** Where a value can be replaced: itself, fields of its plain objects, and first elements of its lists. */
function* places(value, path = []) {
  yield path;
  if (Array.isArray(value)) {
    if (value.length > 0) yield* places(value[0], [...path, 0]);
  } else if (isPlain(value)) {
    for (const key of Object.keys(value)) yield* places(value[key], [...path, key]);
    for (const key of COMMON) if (!(key in value)) yield [...path, key];
  }
}

/** The value with another one in that place; what does not change stays the caller's. */
function replaced(value, [key, ...rest], other) {
  if (key === undefined) return other;
  const copy = Array.isArray(value) ? [...value] : { ...value };
  copy[key] = replaced(copy[key], rest, other);
  return copy;
}

/**
 * Every call of a stage's targets with one piece of nonsense, in a fixed order.
 *
 * @param stage - the `Calls`, open.
 */
export function* every(stage) {
  for (const { name, call } of stage.targets) {
    if (SLOW.test(name)) continue;
    const good = typeof stage.good[name] === "function" ? stage.good[name] : () => [];
    const arity = good().length;
    for (let argument = 0; argument <= arity; argument++) {
      for (const place of places(good()[argument], [argument])) {
        for (const [kind, make] of NONSENSE.entries()) {
          yield {
            name,
            call,
            /** Good arguments are made when the call is. */
            args: () => replaced(good(), place, make()),
            text: () => `nonsense ${kind} as [${place.join("][")}]`,
          };
        }
      }
    }
  }
}
