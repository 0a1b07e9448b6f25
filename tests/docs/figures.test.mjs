// The documents' figures and tables show the newest results.
// reads: docs/figures bench scripts README.md#tables docs/attention.md#tables docs/guides/browsers.md#tables
// reads: docs/guides/objectives.md#tables docs/guides/preferences.md#tables docs/reliability.md#tables docs/speed.md#tables
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { FIGURES } from "../../bench/figures/charts.mjs";
import { mark, newest } from "../../bench/figures/sources.mjs";
import { DOCUMENTS, documentWithTables } from "../../bench/figures/tables.mjs";
import { root } from "../../scripts/lib.mjs";

for (const [name, { workload }] of Object.entries(FIGURES)) {
  test(`docs/figures/${name}.svg is of the newest results`, () => {
    const figure = readFileSync(join(root, "docs", "figures", `${name}.svg`), "utf8");
    const expected = mark(newest(workload).file);
    assert.ok(figure.includes(expected), `run npm run figures: it is not ${expected}`);
  });
}

for (const path of DOCUMENTS) {
  test(`the tables of ${path} are of the newest results`, () => {
    const { text, wanted } = documentWithTables(path);
    assert.ok(text.includes("<!-- table: "), `${path} has no table`);
    assert.equal(text, wanted, "run npm run figures");
  });
}

test("the film of the page moves, and is no larger than a README may load", () => {
  const bytes = readFileSync(join(root, "docs", "figures", "demo.webp"));
  assert.equal(bytes.toString("latin1", 8, 16), "WEBPVP8X");
  assert.ok(bytes[20] & 2, "it is a still picture");
  assert.ok(bytes.toString("latin1").split("ANMF").length > 40, "it has few pictures");
  assert.ok(bytes.length < 600_000, `${bytes.length} bytes`);
});
