// docs/decisions: pages of at most 20 lines, all in the index, and none cited that is not there.
// reads: docs bench scripts src crates shaders pkg/src
// needs no build
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { test } from "node:test";
import { filesBelow, root } from "../../scripts/lib.mjs";

const read = (path) => readFileSync(join(root, path), "utf8");
const pages = filesBelow(["docs/decisions"]).filter((path) => !path.endsWith("/README.md"));

test("the index has each page by its title, newest first", () => {
  const rows = read("docs/decisions/README.md").matchAll(
    /^\| (\d+) \| \S+ \| \[(.+)\]\((.+)\) \|$/gm,
  );
  const listed = [...rows].map(([, number, title, file]) => `${file}: ${number} ${title}`);
  const titles = pages.map((path) => {
    const file = basename(path);
    return `${file}: ${file.slice(0, 3)} ${/^# (.+)\n/.exec(read(path))[1]}`;
  });
  assert.ok(titles.length > 40, `${titles.length} pages`);
  assert.deepEqual(listed, titles.reverse());
});

test("a page has at most 20 lines: a question, what was measured and the decision", () => {
  for (const path of pages) {
    const text = read(path);
    assert.ok(text.trimEnd().split("\n").length <= 20, path);
    for (const part of ["Question", "Measured", "Decision"]) {
      assert.ok(text.includes(`\n**${part}.** `), `${path} has no ${part}`);
    }
  }
});

test("every page that is cited is there", () => {
  const files = filesBelow(["docs", "bench", "scripts", "src", "crates", "shaders", "pkg/src"]);
  const texts = files
    .filter((path) => /\.(rs|wgsl|mjs|ts|md)$/.test(path))
    .map(read)
    .join("\n");
  const cited = new Set(texts.match(/decisions\/\d{3}-[\w-]+\.md/g));
  assert.ok(cited.size > 5, `${cited.size} citations`);
  const there = new Set(pages.map((path) => path.slice("docs/".length)));
  assert.deepEqual(
    [...cited].filter((path) => !there.has(path)),
    [],
  );
});
