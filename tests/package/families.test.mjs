// A model family is one file of crates/model/src/arch: no product code outside that crate names one.
// reads: src crates
// needs no build
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { filesBelow, root } from "../../scripts/lib.mjs";

/** Every family's file and name from the list of families, without its version: "qwen2" is "qwen", but "phi3" stays. */
const [, list] = /pub static FAMILIES[^=]*= &\[([^\]]*)\]/.exec(
  readFileSync(join(root, "crates/model/src/arch/mod.rs"), "utf8"),
);
const names = [...list.matchAll(/\w+/g)]
  .map(([name]) => name.toLowerCase())
  .filter((name) => name !== "tinyloom")
  .map((name) => name.replace(/(?<=[a-z]{4})\d+$/, "").replace(/_|(?=\d)/, "[-_]?"));
const NAMES = new RegExp([...new Set(names)].join("|").replace("llama", "llama(?!\\.cpp)"), "i");
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
  for (const name of ["Llama", "mistral", "Qwen3", "gpt2", "GPT-NeoX", "phi-3", "stablelm"]) {
    assert.match(name, NAMES);
  }
  const found = product.flatMap((path) =>
    code(path).flatMap((line) => (NAMES.test(line) ? [`${path}: ${line.trim()}`] : [])),
  );
  assert.deepEqual(found, []);
});
