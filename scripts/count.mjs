// `npm run count [-- REV]`: lines and files by kind, and what should become fewer, of this tree; with a revision, of
// both.
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { Failure, main, root } from "./lib.mjs";

/** The kind of a file, by the first pattern that its path matches. */
const KINDS = [
  ["tests: Rust", /^(tests|fuzz|crates\/\w+\/tests)\/.*\.rs$/],
  ["scripts", /^scripts\/.*\.(m?js|rs)$|(^|\/)build\.rs$|^crates\/testing\/src\/bin\//],
  [
    "twins and tests in src",
    /^(src|crates)\/(?=.*\.rs$).*(\b(twins?|cases)(\/|\.rs$)|\btesting\b|tests\b)/,
  ],
  ["product Rust", /^(src|crates)\/.*\.rs$/],
  ["shaders", /^(shaders|crates)\/.*\.wgsl$/],
  ["product TypeScript", /^pkg\/src\/.*\.ts$/],
  ["www: TypeScript", /^www\/.*\.m?[jt]s$/],
  ["www: HTML, CSS", /^www\/.*\.(html|css)$/],
  ["bench: programs", /^bench\/.*\.(m?[jt]s|py|html)$/],
  ["bench: results", /^bench\/results\//],
  ["tests: programs", /^tests\/.*\.(m?[jt]s|py|html)$/],
  ["tests: data", /^(tests|crates\/\w+\/tests)\//],
  ["documents", /\.md$/],
];
const PRODUCT = "product Rust";
const TESTS = "twins and tests in src";

function git(args, input) {
  const { status, stdout } = spawnSync("git", args, { cwd: root, input, maxBuffer: 1 << 30 });
  if (status !== 0) throw new Failure(`git ${args.join(" ")} failed`);
  return stdout;
}

/** Contents by path: of a revision, or of the tracked files of this tree. */
function files(revision) {
  const list = revision ? ["ls-tree", "-rz", "--name-only", revision] : ["ls-files", "-z"];
  const names = `${git(list)}`.split("\0").filter((name) => KINDS.some(([, of]) => of.test(name)));
  if (!revision) {
    const there = names.filter((name) => existsSync(join(root, name)));
    return new Map(there.map((name) => [name, readFileSync(join(root, name))]));
  }
  const wanted = names.map((name) => `${revision}:${name}\n`).join("");
  const all = git(["cat-file", "--batch"], wanted);
  let at = 0;
  const next = (name) => {
    const end = all.indexOf("\n", at);
    const size = Number(all.toString("latin1", at, end).split(" ")[2]);
    at = end + 1 + size + 1;
    return [name, all.subarray(end + 1, end + 1 + size)];
  };
  return new Map(names.map(next));
}

/** From a line to the closing brace at its indentation, in text that rustfmt has formatted. */
function block(lines, start) {
  const indentation = /^ */.exec(lines[start])[0];
  if (/[;}]$/.test(lines[start])) return lines.slice(start, start + 1);
  const closing = (line) => line.startsWith(`${indentation}}`) || line === `${indentation};`;
  const end = lines.findIndex((line, index) => index > start && closing(line));
  return lines.slice(start, end + 1);
}

/** Lines of product, and those below `#[cfg(test)]`. */
function divided(text) {
  const lines = text.split("\n");
  const [product, tests] = [[], []];
  while (lines.length > 0) {
    const inline = /^ *#\[cfg\((all\()?(test(ing)?\b|feature = "testing")/.test(lines[0]);
    const own = lines.findIndex((line, index) => index > 0 && !/^ *(#\[|\/\/)/.test(line));
    if (inline && own > 0) tests.push(...lines.splice(0, own + block(lines, own).length));
    else product.push(lines.shift());
  }
  return [product, tests];
}

const FUNCTION = /^ *(pub(\([^)]*\))? )?(default |const |async |unsafe )*fn /;
const PANIC = /\b(panic|unreachable|todo|unimplemented)!|\.expect\(\s*"|\.unwrap\(\)/g;

/** Files and folders that a parent has below `#[cfg(test)]`, in a crate also below the feature `testing`. */
function testModules(path, text) {
  const folder = path.replace(/((^|\/)(mod|lib))?\.rs$/, "");
  const feature = path.startsWith("crates/") ? '|feature = "testing"' : "";
  const declared = text.matchAll(
    new RegExp(
      `#\\[cfg\\((?:all\\()?(?:test(?:ing)?\\b${feature}).*\n *(?:pub(?:\\([^)]*\\))? )?mod (\\w+);`,
      "g",
    ),
  );
  return [...declared].map(([, name]) => `${folder}/${name}`);
}

/** Matches with more than ten arms that are kernels. */
function kernelMatches(lines, variants) {
  const arm = /^ *(?:\| )?(?:\w+::)+(\w+)/;
  const armsOf = (index) => {
    const body = block(lines, index);
    const indentation = `${/^ */.exec(lines[index])[0]}    `;
    const of = (line) => line.startsWith(indentation) && line[indentation.length] !== " ";
    return body.filter((line) => of(line) && variants.has(arm.exec(line)?.[1])).length;
  };
  const heads = lines.flatMap((line, index) => (/\bmatch .*\{$/.test(line) ? [index] : []));
  return heads.filter((index) => armsOf(index) > 10).length;
}

function count(revision) {
  const rows = new Map(KINDS.map(([kind]) => [kind, { files: 0, lines: 0 }]));
  const figures = { modules: 0, matches: 0, long: 0, panics: 0 };
  const all = files(revision);
  const text = (path) => all.get(path).toString("utf8");
  const rust = [...all.keys()].filter((path) => path.endsWith(".rs"));
  const list = /(?:pub enum KernelSpec|macro_rules! families) \{\n([\s\S]*?)\n\}/;
  const specs = rust.map((path) => list.exec(text(path))?.[1]);
  const variants = new Set(specs.join("\n").match(/(?<=^ {4}|[:,] |^ +)[A-Z]\w+/gm));
  const modules = new Set(rust.flatMap((path) => testModules(path, text(path))));
  for (const path of all.keys()) {
    const ofTests = modules.has(path.slice(0, -3)) || modules.has(dirname(path));
    const [kind] = ofTests ? [TESTS] : KINDS.find(([, of]) => of.test(path));
    rows.get(kind).files += 1;
    if (path.endsWith(".safetensors")) continue;
    const lines = text(path).replace(/\n$/, "").split("\n");
    if (path.endsWith(".rs")) figures.matches += kernelMatches(lines, variants);
    if (path.endsWith(".wgsl")) figures.modules += 1;
    if (kind !== PRODUCT) {
      rows.get(kind).lines += lines.length;
      continue;
    }
    const [product, tests] = divided(lines.join("\n"));
    rows.get(PRODUCT).lines += product.length;
    rows.get(TESTS).lines += tests.length;
    const starts = product.flatMap((line, index) => (FUNCTION.test(line) ? [index] : []));
    figures.long += starts.filter((start) => block(product, start).length > 60).length;
    const code = product.filter((line) => !/^ *\/\//.test(line)).join("\n");
    figures.panics += code.match(PANIC)?.length ?? 0;
  }
  return [
    ...[...rows].map(([kind, { files, lines }]) => [kind, lines, files]),
    ["shader modules", figures.modules, ""],
    ["matches with over 10 kernels", figures.matches, ""],
    ["product functions over 60 lines", figures.long, ""],
    ["panics on product paths", figures.panics, ""],
  ];
}

await main(() => {
  const [revision, ...more] = process.argv.slice(2);
  if (more.length > 0) throw new Failure("npm run count [-- REV]", 2);
  const tables = [...(revision ? [count(revision)] : []), count()];
  const heads = [...(revision ? [revision] : []), "this tree"];
  console.log(`| lines and files | ${heads.map((head) => `${head} | files`).join(" | ")} |`);
  console.log(`|---|${"--:|--:|".repeat(heads.length)}`);
  for (const [index, [kind]] of tables[0].entries()) {
    const cells = tables.flatMap((table) => table[index].slice(1));
    console.log(`| ${kind} | ${cells.join(" | ")} |`);
  }
});
