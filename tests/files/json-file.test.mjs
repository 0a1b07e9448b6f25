// The place at which a file stops being JSON: the same in every engine, and there is one where JSON.parse refuses a text.
import assert from "node:assert/strict";
import { test } from "node:test";
import { jsonIn } from "../../pkg/dist/json-file.js";
import { mulberry32 } from "../random.mjs";

const message = (text) => {
  try {
    jsonIn("a.json", text, "invalid-config");
  } catch (error) {
    assert.equal(error.code, "invalid-config");
    assert.equal(error.cause instanceof SyntaxError, true);
    return error.message;
  }
  return undefined;
};

test("the place is that of the first token that cannot stand there", () => {
  for (const [text, place] of [
    ['{\n "a": 1,\n}', 'line 3, column 1 cannot be "}"'],
    ['{"a": tru}', 'line 1, column 7 cannot be "tru}"'],
    ["{'a': 1}", "line 1, column 2 cannot be \"'a': 1}\""],
    ['{"a" 1}', 'line 1, column 6 cannot be "1}"'],
    ['{"a": 1 "b": 2}', 'line 1, column 9 cannot be "\\"b\\": 2}"'],
    ["[1,, 2]", 'line 1, column 4 cannot be ", 2]"'],
    ["[1] 2", 'line 1, column 5 cannot be "2"'],
    ["[NaN]", 'line 1, column 2 cannot be "NaN]"'],
    ["[1}", 'line 1, column 3 cannot be "}"'],
    ['{"a": [1, 2', "it ends too early, at line 1, column 12"],
    ['{"a": "b', 'line 1, column 7 cannot be "\\"b"'],
    ["\n\n", "it is empty"],
  ]) {
    assert.ok(message(text).startsWith(`a.json is not JSON: ${place}`), message(text));
  }
  assert.match(message("<!doctype html>"), /^a\.json is not JSON, but a web page: /);
  const began = performance.now();
  assert.match(message(`{"a": "${"x".repeat(1 << 22)}`), /line 1, column 7/);
  assert.match(message(`[${'"\\n",'.repeat(1 << 18)}`), /ends too early/);
  assert.ok(performance.now() - began < 5000, "milliseconds of long files");
});

test("a place is found where JSON.parse refuses a text, and only there", () => {
  const whole = JSON.stringify({
    a: [1, -2.5e3, "x\\\u00e9\n"],
    b: { c: null, d: [{}, []] },
    e: true,
  });
  const letters = [..."{}[],:\"\\ 0e-.tnxu\n'"];
  const next = mulberry32(7);
  const draw = (count) => Math.floor(next() * count);
  for (let round = 0; round < 20_000; round++) {
    const at = draw(whole.length);
    const put = draw(3) === 0 ? "" : letters[draw(letters.length)];
    const text = whole.slice(0, at) + put + whole.slice(at + draw(2));
    const said = message(text);
    if (said !== undefined) assert.match(said, /line 1, column|line 2, column/, text);
  }
});
