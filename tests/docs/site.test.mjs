// The static site: it renders without a warning, has every guide, and none of its links is broken.
// reads: docs README.md CHANGELOG.md CONTRIBUTING.md examples scripts typedoc.json package.json tsconfig.base.json
// needs no build
import assert from "node:assert/strict";
import { existsSync, readFileSync, rmSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { before, test } from "node:test";
import { inflateSync } from "node:zlib";
import { filesBelow, root, target } from "../../scripts/lib.mjs";
import { site } from "../../scripts/site.mjs";

const out = join(target, "site");
const all = /(?!)/; // skips no file
let pages;

before(async () => {
  rmSync(out, { recursive: true, force: true });
  await site(out);
  const files = filesBelow([out], all).filter((path) => path.endsWith(".html"));
  pages = new Map(files.map((path) => [resolve(root, path), readFileSync(path, "utf8")]));
});

test("it has every guide and explanation, by its heading", () => {
  const documents = filesBelow(["docs"], /docs\/(api|decisions|figures)/).filter((path) =>
    path.endsWith(".md"),
  );
  assert.ok(documents.length >= 16, `${documents.length} documents`);
  for (const path of documents) {
    const [, title] = /^# (.+)\n/.exec(readFileSync(join(root, path), "utf8"));
    const found = [...pages.values()].some((page) => page.includes(`<title>${title} | tinyloom`));
    assert.ok(found, `${path} is not in typedoc.json's projectDocuments`);
  }
});

test("modules have the names that users import", () => {
  const names = filesBelow([join(out, "modules")], all).map((path) => basename(path, ".html"));
  const wanted = [
    "tinyloom",
    "tinyloom_align",
    "tinyloom_ops",
    "tinyloom_storage",
    "tinyloom_worker",
  ];
  assert.deepEqual(names.sort(), wanted);
});

test("an example is code to be read, and its download is the file", () => {
  const examples = filesBelow(["examples"]).filter((path) => path.endsWith(".html"));
  const files = examples.map((path) => readFileSync(join(root, path), "utf8"));
  const shown = [...pages].filter(([page]) => dirname(page) === join(out, "media"));
  assert.ok(shown.length >= 3, `${shown.length} examples`);
  for (const [page, text] of shown) {
    assert.doesNotMatch(text, /<script/, `${page} runs, without the package beside it`);
    assert.ok(files.includes(readFileSync(`${page}.txt`, "utf8")), `${page}.txt is no example`);
    assert.ok(text.includes(`href="${basename(page)}.txt" download="index.html"`), page);
  }
});

test("the search knows what texts say, not titles alone", () => {
  const text = readFileSync(join(out, "assets", "search.js"), "utf8");
  const packed = Buffer.from(/"([^"]+)"/.exec(text)[1], "base64");
  const index = inflateSync(packed).toString();
  // No title has these words.
  for (const word of ["reload", "perplexity", "strictmode", "schedule"]) {
    assert.ok(index.includes(`["${word}",`), `${word} is not found`);
  }
});

test("no link is broken", (t) => {
  const broken = new Set();
  let count = 0;
  for (const [page, text] of pages) {
    for (const [, link] of text.matchAll(/\s(?:href|src)="([^"]+)"/g)) {
      if (/^[a-z]+:/.test(link)) continue;
      count += 1;
      const [path, anchor] = link.split("#");
      const file = path ? resolve(dirname(page), decodeURI(path)) : page;
      const reached =
        !anchor || !file.endsWith(".html") || pages.get(file)?.includes(`id="${anchor}"`);
      const there = existsSync(file) && reached;
      if (!there) broken.add(`${page.slice(out.length + 1)}: ${link}`);
    }
  }
  t.diagnostic(`${pages.size} pages, ${count} links`);
  assert.ok(count > 1000, `only ${count} links`);
  assert.deepEqual([...broken], []);
});
