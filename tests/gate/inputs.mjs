// What a test depends on, as hashes of files: the one list of what counts as harness, the product's sources, and what a
// test file itself reads.
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { capture, filesBelow, root } from "../../scripts/lib.mjs";
import { findBrowser, lavapipe } from "../../scripts/machine.mjs";
import { keyOf } from "./key.mjs";
import { Kernels } from "./made.mjs";

/** Versions of every dependency. */
const LOCKS = ["Cargo.lock", "package-lock.json"];

/** The test code of the crates: no build that users make has it. */
const RUST_TESTS =
  /^crates\/testing\/|^crates\/kernels\/src\/(testing|twins)\/|^crates\/\w+\/tests\/|\/(twin|cases)(\.rs$|\/)/;

let ignored;

/** The files below some paths that git does not ignore: what is made beside sources is in no key, and no key in another. */
export function sourcesBelow(paths) {
  const args = ["ls-files", "--others", "--ignored", "--exclude-standard", "--directory"];
  ignored ??= (capture("git", args) ?? "").split("\n").filter(Boolean);
  const made = (file) =>
    ignored.some((path) => (path.endsWith("/") ? file.startsWith(path) : file === path));
  return filesBelow(paths).filter((file) => !made(file) && !file.startsWith("tests/passed/"));
}

const rust = () => [...sourcesBelow(["src", "crates"]), "Cargo.toml"];
const withoutTests = (files) => files.filter((file) => !RUST_TESTS.test(file));

/** Sets of files by name: what a test may depend on. */
export const SETS = {
  /** The crates as users build them, without the texts of the kernels. */
  rust: () => withoutTests(rust()),
  shaders: () => sourcesBelow(["shaders"]),
  /** The crates with their test code. */
  crate: rust,
  /** The npm package, and what builds and packs it. */
  package: () => [
    ...sourcesBelow(["pkg", "scripts/bindgen"]),
    ...["build", "bundle", "pack", "address"].map((name) => `scripts/${name}.mjs`),
    "tsconfig.base.json",
  ],
  /**
   * Whatever takes a kernel case from its source to a verdict, beside the case: a change of one of these makes all cases
   * new. The kernels' own code is not here: a case's key has the texts that it makes.
   */
  harness: () => [
    ...sourcesBelow(["crates/gpu", "crates/kernels/src/plan"]),
    ...["model/src/error", "model/src/random", "kernels/src/caps"].map(
      (name) => `crates/${name}.rs`,
    ),
    ...["chromium.test", "firefox.test", "native.test", "cases", "harness", "lane", "level"].map(
      (name) => `tests/lanes/${name}.mjs`,
    ),
    ...["gpu_adapters", "harness", "lane", "ledger", "measure", "mod", "results"].map(
      (name) => `crates/kernels/src/testing/${name}.rs`,
    ),
    ...["src/lib", "src/on_device", "src/web", "tests/kernels"].map(
      (name) => `crates/testing/${name}.rs`,
    ),
    "src/web/runtime.rs",
    ...["browser", "machine", "server"].map((name) => `scripts/${name}.mjs`),
    ...["", "crates/model/", "crates/kernels/", "crates/testing/"].map((at) => `${at}Cargo.toml`),
  ],
};

const contents = new Map();

/** The hash of a file's contents. */
function fileHash(file) {
  if (!contents.has(file)) {
    contents.set(
      file,
      createHash("sha256")
        .update(readFileSync(join(root, file)))
        .digest("hex"),
    );
  }
  return contents.get(file);
}

/** The hash of files with their names. */
export const hashOf = (files) =>
  keyOf(...[...new Set(files)].sort().map((f) => `${f} ${fileHash(f)}`));

/** Crates of other projects: a kernel case does not depend on which crates are our own. */
const OTHER_CRATES = /^name = .+\nversion = .+\nsource = .+\nchecksum = .+$/gm;

const otherCrates = () =>
  keyOf(...readFileSync(join(root, "Cargo.lock"), "utf8").match(OTHER_CRATES));

const sets = new Map();

/** The hash of a set of SETS, or of the locked versions. */
export function setHash(name) {
  if (!sets.has(name)) sets.set(name, hashOf(name === "locks" ? LOCKS : SETS[name]()));
  return sets.get(name);
}

const versions = new Map();

/** The version of what a host runs on: a browser, Node, or the Vulkan driver of native tests. */
export function versionOf(host) {
  if (!versions.has(host)) versions.set(host, findVersion(host));
  return versions.get(host);
}

function findVersion(host) {
  // Dawn in Node has no adapter of its own: it takes Chromium's.
  if (host === "node") return `${process.version.split(".")[0]}, ${versionOf("chromium")}`;
  if (host === "native") return driverVersion();
  const browser = findBrowser(host);
  const version = (browser && capture(browser, ["--version"])) ?? `no ${host}`;
  // Chromium brings its own software adapter, Firefox takes the machine's.
  return host === "firefox" ? `${version}, ${driverVersion()}` : version;
}

/** The version of lavapipe: of Debian's package, or else of the library. */
function driverVersion() {
  const description = lavapipe();
  if (!description) return "no lavapipe";
  const known = capture("dpkg-query", ["--show", "mesa-vulkan-drivers"]);
  if (known) return known;
  const { library_path: library } = JSON.parse(readFileSync(description, "utf8")).ICD;
  const path = library.includes("/") ? resolve(dirname(description), library) : library;
  return existsSync(path) ? fileHash(relative(root, path)) : library;
}

/** What is built is no source: the sets have what it is built from. */
const BUILT = {
  name: "built",
  setup: ({ onResolve }) =>
    onResolve({ filter: /^\/|(^|\/)(dist|target)\// }, ({ path, kind }) =>
      kind === "entry-point" ? undefined : { path, external: true },
    ),
};

const READS = /^\/\/ reads: (.+)$/gm;

/**
 * What a test file depends on: the modules that it imports, followed to the end, and the files and folders that a line
 * `// reads: PATH …` of it, or of one of these modules, names. A file with the line `// needs no build` runs before
 * anything is built.
 *
 * @returns `{ modules, reads, built }`, paths from the root; `reads` are those of the lines.
 */
export async function closureOf(file) {
  const { build } = await import("esbuild"); // the checks need it not, and run before it is installed
  const { metafile } = await build({
    absWorkingDir: root,
    entryPoints: [file],
    bundle: true,
    metafile: true,
    write: false,
    platform: "node",
    format: "esm",
    target: "node20",
    packages: "external",
    plugins: [BUILT],
    logLevel: "silent",
  });
  // What decides whether a test runs does not change what it finds.
  const outside = /node_modules|^tests\/gate\/(?!core)/;
  const all = Object.keys(metafile.inputs).filter((path) => !outside.test(path));
  const modules = file.startsWith("tests/gate/") ? Object.keys(metafile.inputs) : all;
  const lines = modules.flatMap((path) => [
    ...readFileSync(join(root, path), "utf8").matchAll(READS),
  ]);
  const reads = [...new Set(lines.flatMap(([, paths]) => paths.trim().split(/\s+/)))];
  const built = !/^\/\/ needs no build$/m.test(readFileSync(join(root, file), "utf8"));
  return { modules, reads, built };
}

/**
 * The key of a kernel case on a lane.
 *
 * @param host - "native" or a browser.
 * @param listings - what each device of the lane says that the case depends on: `{ name, file, key }`. Without a key it is
 *   all of the crate.
 */
export function caseKey(host, listings) {
  const [{ name, file }] = listings;
  const keys = listings.map(({ key }) => key ?? `${setHash("crate")} ${setHash("shaders")}`);
  const common = [setHash("harness"), otherCrates(), versionOf(host), process.arch];
  return keyOf(name, ...keys, hashOf(caseFiles(file)), ...common);
}

const USES = /\b(super|crate::testing|crate::kernels::\w+::cases)::(?:\{|(\w+))/g;

/** A case's file, and those of tests that it uses, followed to the end: checks of outputs are in no listing. */
function caseFiles(file, found = new Set()) {
  if (found.has(file) || !existsSync(join(root, file))) return [...found];
  found.add(file);
  for (const [, path, name] of readFileSync(join(root, file), "utf8").matchAll(USES)) {
    const below =
      path === "super"
        ? dirname(file)
        : path.replace("crate", /^.*?\bsrc\b/.exec(file)).replaceAll("::", "/");
    caseFiles(`${below}.rs`, found);
    if (name) caseFiles(`${below}/${name}.rs`, found);
  }
  return [...found];
}

let kernels;
const products = new Map();

/**
 * What a test of the product depends on.
 *
 * @param made - the kernels that it makes, where that is known: other kernels are none of the test's.
 */
export function productKey(made) {
  if (!made) return keyOf(...["locks", "rust", "shaders", "package"].map(setHash), process.arch);
  const known = made.join(" ");
  if (!products.has(known)) {
    kernels ??= new Kernels();
    const other = kernels.without(made);
    const files = [...SETS.rust(), ...SETS.shaders()].filter((file) => !other(file));
    products.set(
      known,
      keyOf(setHash("locks"), hashOf(files), setHash("package"), process.arch, "its kernels"),
    );
  }
  return products.get(known);
}

/** The key of a whole kernel lane: where it has passed, no case of it has to be listed. */
export function laneKey(host) {
  const sets = ["crate", "shaders", "harness"].map(setHash);
  return keyOf(host, ...sets, otherCrates(), versionOf(host), process.arch);
}

/** Parts of a document, by the words behind `#` in a `// reads:` line: prose around them is none of the test's. */
const PARTS = {
  code: /^```[\s\S]*?^```/gm,
  tables: /^\|.*$/gm,
  links: /\]\([^)\s]*\)/g,
};

/** The files of a path: a file, a folder with all below it, or those of a folder by their ending (`tests/*.rs`). */
function expanded(path) {
  const [folder, ending] = path.split("/*");
  if (ending === undefined) return sourcesBelow([path]);
  const own = (file) => dirname(file) === folder && file.endsWith(ending);
  return sourcesBelow([folder]).filter(own);
}

/** The hash of what a test reads: files, all files of folders, or a part of a document (`README.md#code`). */
export function readHash(reads) {
  const parts = reads.filter((path) => path.includes("#"));
  const texts = parts.map((one) => {
    const [path, part] = one.split("#");
    if (!PARTS[part]) throw new Error(`"// reads: ${one}": no document has a part ${part}`);
    return [one, ...(readFileSync(join(root, path), "utf8").match(PARTS[part]) ?? [])].join("\n");
  });
  const files = reads.filter((path) => !parts.includes(path)).flatMap(expanded);
  return keyOf(hashOf(files), ...texts);
}

/** The key of a test file as it stands, by the kernels that it makes. */
export async function fileKey(file) {
  const { modules, reads } = await closureOf(file);
  const hosts = ["node", "chromium", "firefox"].map(versionOf);
  const own = [hashOf(modules), readHash(reads)];
  return (made) => keyOf(...own, productKey(made), ...hosts);
}
