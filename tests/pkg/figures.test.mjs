// The documents' figures show the newest results, as they are drawn today.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { FIGURES } from "../../bench/figures/charts.mjs";
import { mark, newest } from "../../bench/figures/sources.mjs";
import { root } from "../../scripts/lib.mjs";

for (const [name, { suite }] of Object.entries(FIGURES)) {
  test(`docs/figures/${name}.svg is of the newest results`, () => {
    const figure = readFileSync(join(root, "docs", "figures", `${name}.svg`), "utf8");
    const expected = mark(newest(suite).file);
    assert.ok(figure.includes(expected), `run npm run figures: it is not ${expected}`);
  });
}
