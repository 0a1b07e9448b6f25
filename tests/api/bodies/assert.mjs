// Assertions for test bodies: these run in browsers too, where node:assert is not.

class AssertionError extends Error {
  name = "AssertionError";
}

const show = (value) => {
  const text = typeof value === "object" ? JSON.stringify(value) : String(value);
  return text.length > 300 ? `${text.slice(0, 300)}…` : text;
};

/** Fails unless the condition holds. */
export function ok(condition, message) {
  if (!condition) throw new AssertionError(message);
}

/** Fails unless both are the same, or the same as JSON. */
export function equal(actual, expected, message = "values differ") {
  const same = Object.is(actual, expected) || JSON.stringify(actual) === JSON.stringify(expected);
  ok(same, `${message}: got ${show(actual)}, expected ${show(expected)}`);
}

/** Fails unless the numbers are within `tolerance` of each other. */
export function close(actual, expected, tolerance, message = "numbers differ") {
  const near = Math.abs(actual - expected) <= tolerance;
  ok(near, `${message}: got ${actual}, expected ${expected} ± ${tolerance}`);
}

/** Fails unless both arrays hold the same bytes; says where they part. */
export function sameBytes(actual, expected, message = "bytes differ") {
  equal(actual.byteLength, expected.byteLength, `${message} in length`);
  const bytes = (array) => new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
  const [a, b] = [bytes(actual), bytes(expected)];
  const at = a.findIndex((value, index) => value !== b[index]);
  ok(at === -1, `${message}: first at byte ${at} of ${a.length}`);
}

/** Fails unless each file of one set has the bytes of the same file in the other. */
export function sameFiles(actual, expected, message = "files differ") {
  equal(Object.keys(actual).sort(), Object.keys(expected).sort(), `${message} in names`);
  for (const name of Object.keys(actual))
    sameBytes(actual[name], expected[name], `${message}: ${name}`);
}

/** Fails unless the work ends in a TinyloomError of that code, whose message has every word. */
export async function refuses(code, words, work) {
  let error;
  try {
    const result = await work();
    if (typeof result?.next === "function") for await (const _ of result);
  } catch (caught) {
    error = caught;
  }
  ok(error !== undefined, `nothing was thrown where code "${code}" was expected`);
  ok(
    error.name === "TinyloomError",
    `a ${error.name} was thrown, not a TinyloomError: ${error.stack}`,
  );
  equal(error.code, code, `wrong code; the message is "${error.message}"`);
  for (const word of [words].flat()) {
    ok(error.message.includes(word), `the message "${error.message}" does not name "${word}"`);
  }
  return error;
}
