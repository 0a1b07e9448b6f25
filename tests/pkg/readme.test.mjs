// The README's programs, word for word, with the packed tarball: `npm run try` as a test.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { root } from "../../scripts/lib.mjs";
import { tryReadme } from "../../scripts/try.mjs";

test("the README has fewer than 150 lines", () => {
  const lines = readFileSync(join(root, "README.md"), "utf8").trimEnd().split("\n");
  assert.ok(lines.length < 150, `it has ${lines.length}`);
});

test("the README's programs train with the packed tarball", { timeout: 600_000 }, async (t) => {
  // On a CPU it compiles in a third of the time that Chromium takes, whose engine and adapter Node has.
  const { page, node } = await tryReadme("firefox");
  for (const [name, { seconds, losses }] of Object.entries({ page, node })) {
    t.diagnostic(`${name}: ${seconds.toFixed(0)} s, loss ${losses[0]} to ${losses.at(-1)}`);
  }
});
