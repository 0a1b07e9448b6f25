// What docs/tested-hosts.md tells of sizes, dates and versions is what `npm run hosts` and the build give.
// reads: tests/hosts docs/tested-hosts.md#tables
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { root } from "../../scripts/lib.mjs";
import { rows } from "./rows.mjs";
import { appSizes, rowsOf, sizesTold } from "./sizes.mjs";

const text = readFileSync(join(root, "docs", "tested-hosts.md"), "utf8");
const table = rowsOf(text);

/** Holds a size of the document to what is measured now: 5 % is more than a compressor's version changes. */
function near(stands, is, what) {
  const off = Math.abs(stands - is) / is;
  assert.ok(off < 0.05, `${what}: ${stands} KB in docs/tested-hosts.md, ${is.toFixed(1)} KB now`);
}

test("the table has every host, with the date and the version that ran", () => {
  const named = table.map((row) => `${row.host}, ${row.way}`);
  assert.deepEqual(
    named,
    rows.map(({ host, way }) => `${host}, ${way}`),
  );
  for (const [at, row] of table.entries()) {
    assert.match(row.date, /^20\d\d-\d\d-\d\d$/, `the date of ${named[at]}`);
    assert.match(row.version, /\d+\.\d+/, `the version of ${named[at]}`);
    assert.match(row.outcome, /^(works|compiles)$/, named[at]);
  }
});

test("the sizes of the table are those of the package as it is", async () => {
  // Rollup's build is not minified.
  const sizes = { minified: await appSizes(true), plain: await appSizes(false) };
  const sized = table.filter((row) => row["JavaScript loaded"] !== "");
  assert.ok(sized.length >= 8, `${sized.length} rows have sizes`);
  for (const row of sized) {
    const { app, copy } = sizes[row.host === "Rollup" ? "plain" : "minified"];
    const [loaded, not] = [row["JavaScript loaded"], row["not loaded"]].map(Number.parseFloat);
    near(loaded + not, (app + copy) / 1000, `${row.host}, ${row.way}`);
    // Where the file answered, its copy in JavaScript is not loaded.
    if (row["module from"] === "file")
      assert.ok(not > copy / 1050, `${row.host}: ${not} KB not loaded`);
  }
});

test("the sizes in its sentences are those of the built files", () => {
  for (const { name, stand, are } of sizesTold(text)) {
    for (const [at, size] of are.entries()) near(stand[at], size, name);
  }
});
