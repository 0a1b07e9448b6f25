// A family of models is one file of crates/model/src/arch: no product code outside that crate names one.
// reads: src crates
// needs no build
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { filesBelow, root } from "../../scripts/lib.mjs";

const NAMES = /llama(?!\.cpp)|mistral|qwen|gemma|gpt2|gpt_?neo/i;
const TESTS = /^crates\/(model|testing)\/|\/(tests|testing|twins|cases)\/|(tests?|twin|cases)\.rs$/;

/** The lines of product code, without comments and what stands below `#[cfg(test)]` at a file's end. */
const code = (path) =>
  readFileSync(join(root, path), "utf8")
    .split(/^#\[cfg\(test\)\]\n(?:#.*\n)*mod \w+ \{/m)[0]
    .split("\n")
    .filter((line) => !/^\s*\/\//.test(line));

test("only crates/model knows a family by name", () => {
  const files = filesBelow(["src", "crates"]).filter((path) => /\.rs$/.test(path));
  const product = files.filter((path) => !TESTS.test(path));
  assert.ok(product.length > 150, `${product.length} files`);
  const found = product.flatMap((path) =>
    code(path).flatMap((line) => (NAMES.test(line) ? [`${path}: ${line.trim()}`] : [])),
  );
  assert.deepEqual(found, []);
});
