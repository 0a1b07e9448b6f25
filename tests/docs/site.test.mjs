// The static site: it renders without a warning, has every guide, and none of its links is broken.
// reads: docs README.md CHANGELOG.md CONTRIBUTING.md examples shaders/lib scripts typedoc.json package.json tsconfig.base.json
// reads: bench/*.md bench/peers/*.md tests/*.md tests/real/*.md tests/gate/*.md
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

/** The title of a document, as its page has it. */
function titleOf(path) {
  const [, title] = /^# (.+)\n/.exec(readFileSync(join(root, path), "utf8"));
  return title
    .replaceAll("`", "")
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll("'", "&#39;");
}

/** The page of a document. */
const pageOf = (path) =>
  [...pages].find(([, page]) => page.includes(`<title>${titleOf(path)} | tinyloom`))?.[0];

/** The data that a script of the site has. */
function packed(script) {
  const text = readFileSync(join(out, "assets", script), "utf8");
  const bytes = Buffer.from(/"([^"]+)"/.exec(text)[1], "base64");
  return JSON.parse(inflateSync(bytes).toString());
}

test("it has every guide, explanation and decision, by its heading", () => {
  const documents = filesBelow(["docs", "examples"], /docs\/(api|figures)/).filter((path) =>
    path.endsWith(".md"),
  );
  assert.ok(documents.length >= 100, `${documents.length} documents`);
  for (const path of documents) {
    assert.ok(pageOf(path), `${path} is not in typedoc.json's projectDocuments`);
  }
});

test("the navigation has a group for each kind, and the decisions are one, newest first", () => {
  const groups = packed("navigation.js");
  const names = groups.map(({ text }) => text);
  assert.deepEqual(names, [
    "Tutorials",
    "How-to guides",
    "Reference",
    "Explanations",
    "Modules",
    "Project",
    "Decisions",
  ]);
  const own = filesBelow(["docs/decisions"]).filter((path) => !path.endsWith("/README.md"));
  const [index, ...decisions] = groups.at(-1).children.map(({ path }) => join(out, path));
  assert.equal(index, pageOf("docs/decisions/README.md"));
  assert.deepEqual(decisions, own.reverse().map(pageOf));
});

test("a link to a document leads to its page", () => {
  const texts = filesBelow([join(out, "media")], all).filter((path) => path.endsWith(".md"));
  assert.deepEqual(texts, [], "documents that are linked to, but not in typedoc.json");
  const links = (page) =>
    [...pages.get(page).matchAll(/\shref="([^"#]+)/g)].map(([, link]) =>
      resolve(dirname(page), decodeURI(link)),
    );
  const decisions = filesBelow(["docs/decisions"]).filter((path) => !path.endsWith("/README.md"));
  const listed = new Set(links(pageOf("docs/decisions/README.md")));
  assert.deepEqual(
    decisions.filter((path) => !listed.has(pageOf(path))),
    [],
  );
  const linked = [
    ["README.md", "examples/README.md"],
    ["README.md", "docs/decisions/056-pytorch-on-the-same-gpu.md"],
    ["README.md", "bench/peers/README.md"],
    ["docs/demo.md", "docs/decisions/072-teaching-by-hand.md"],
    ["docs/testing.md", "tests/gate/broken-changes.md"],
  ];
  for (const [from, to] of linked) {
    const page = from === "README.md" ? join(out, "index.html") : pageOf(from);
    assert.ok(links(page).includes(pageOf(to)), `${from} has no link to the page of ${to}`);
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

test("a program is code to be read, and its download is the file", () => {
  const programs = filesBelow(["examples", "shaders/lib"]);
  const files = new Map(programs.map((path) => [readFileSync(join(root, path), "utf8"), path]));
  const shown = [...pages].filter(([page]) => dirname(page) === join(out, "media"));
  assert.ok(shown.length >= 14, `${shown.length} programs`);
  for (const [page, text] of shown) {
    assert.doesNotMatch(text, /<script/, `${page} runs, without the package beside it`);
    const [, file, as] = /href="([^"]+)" download="([^"]+)"/.exec(text);
    const path = files.get(readFileSync(join(out, "media", file), "utf8"));
    assert.equal(basename(path ?? ""), as, `${page} is no program of examples or shaders`);
  }
  const raw = filesBelow([join(out, "media")], all).filter((path) => /\.(m?js|py|rs)$/.test(path));
  assert.deepEqual(raw, [], "programs that are no pages");
});

test("the search knows what texts say, not titles alone", () => {
  const index = JSON.stringify(packed("search.js"));
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
