// The files and commands that documents name are there, and the README is short.
// reads: README.md CHANGELOG.md CONTRIBUTING.md package.json .github docs bench crates examples pkg scripts shaders src tests www
// needs no build
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { basename, dirname, join, normalize } from "node:path";
import { test } from "node:test";
import { root } from "../../scripts/lib.mjs";
import { sourcesBelow } from "../gate/inputs.mjs";

const FOLDERS = [
  "docs",
  "bench",
  "crates",
  "examples",
  "pkg",
  "scripts",
  "shaders",
  "src",
  "tests",
];
const TOP = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"];
const files = [...sourcesBelow([...FOLDERS, "www", ".github"]), ...TOP];
const documents = files.filter((path) => path.endsWith(".md"));
const ENDING = /^[\w./-]+\.(mjs|rs|ts|wgsl|py|md|toml|json|yml|css|html)$/;
/** Words of a path that stand for any, and files that a run makes. */
const NOT_THERE = /\b[A-Z]{2,}\b|^target\/|\bNN_name\b|^shaders\/\d\d_NAME/;
/** Files of models, of users and of other projects. */
const OTHERS = /^(\.\/)?(node_modules|dist|chat)\//;

/** Inline code of a document, without its programs. */
const inline = (text) =>
  [...text.replace(/```[\s\S]*?```/g, "").matchAll(/`([^`\n]+)`/g)].map(([, code]) => code);

const codes = documents.flatMap((document) =>
  inline(readFileSync(join(root, document), "utf8")).map((code) => ({ document, code })),
);

test("paths", (t) => {
  const ends = new Map();
  for (const path of files) {
    const name = basename(path);
    ends.set(name, [...(ends.get(name) ?? []), `/${path}`]);
  }
  const there = (document, path) =>
    [path, normalize(join(dirname(document), path))].some((one) =>
      ends.get(basename(one))?.some((known) => known.endsWith(`/${one}`)),
    );
  const named = codes
    .flatMap(({ document, code }) => code.split(/\s+/).map((path) => ({ document, path })))
    .filter(({ path }) => path.includes("/") && ENDING.test(path) && !NOT_THERE.test(path))
    .filter(({ path }) => !OTHERS.test(path));
  t.diagnostic(`${named.length} paths in ${documents.length} documents`);
  assert.ok(named.length > 150, `only ${named.length} paths`);
  const dead = named.filter(({ document, path }) => !there(document, path));
  assert.deepEqual(
    dead.map(({ document, path }) => `${document}: ${path}`),
    [],
  );
});

test("npm's scripts", () => {
  const { scripts } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const named = codes.flatMap(({ document, code }) =>
    [...code.matchAll(/\bnpm run ([\w:]+)/g)].map(([, name]) => ({ document, name })),
  );
  assert.ok(named.length > 40, `only ${named.length} commands`);
  const dead = named.filter(({ name }) => !Object.hasOwn(scripts, name));
  assert.deepEqual(
    dead.map(({ document, name }) => `${document}: npm run ${name}`),
    [],
  );
});

test("the README has fewer than 150 lines", () => {
  const lines = readFileSync(join(root, "README.md"), "utf8").trimEnd().split("\n");
  assert.ok(lines.length < 150, `it has ${lines.length}`);
});
