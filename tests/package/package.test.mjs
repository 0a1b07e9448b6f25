// The package as users get it: safe to import anywhere, typed, and only what they need in it.
// reads: README.md#links scripts LICENSE-MIT LICENSE-APACHE tests/package/types
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { Worker } from "node:worker_threads";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { address } from "../../scripts/address.mjs";
import { entries, SCRIPT_BUDGET, scriptSize } from "../../scripts/bundle.mjs";
import { absolute, pack, REFUSAL, stage } from "../../scripts/pack.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "../..");

const IMPORT = `
  const before = Reflect.ownKeys(globalThis).map(String).sort().join();
  globalThis.fetch = () => { throw new Error("fetched on import") };
  const tinyloom = await import("tinyloom");
  const ops = await import("tinyloom/ops");
  const inline = await import("tinyloom/inline");
  if (Object.keys(inline).join() !== Object.keys(tinyloom).join()) throw new Error("inline differs");
  const worker = await import("tinyloom/worker");
  const storage = await import("tinyloom/storage");
  if (Object.keys(storage).sort().join() !== "Runs,StoredRun,TinyloomError,zip") throw new Error("storage");
  const after = Reflect.ownKeys(globalThis).map(String).sort().join();
  if (before !== after) throw new Error("globals changed on import");
  const code = await tinyloom.Runtime.create().catch((error) => error.code);
  const text = await tinyloom.Dataset.fromText("abc", new tinyloom.ByteTokenizer());
  if (!text) throw new Error("no dataset");
`;

test("importing touches neither the GPU nor globals", () => {
  const program = `${IMPORT}; console.log(code, Object.keys(tinyloom).sort().join(), Object.keys(ops).sort().join(), Object.keys(worker).sort().join());`;
  const stdout = execFileSync(process.execPath, ["--input-type=module", "-e", program], {
    cwd: root,
    encoding: "utf8",
  });
  assert.equal(
    stdout.trim(),
    "webgpu-unavailable Adapter,BpeTokenizer,ByteTokenizer,Dataset,IGNORE_INDEX,Model,Runtime,Tensor,TinyloomError,Tokenizer,Trainer,chat,chatPrompt,estimate,readConfig Tensor,TinyloomError,attention,softmax ByteTokenizer,IGNORE_INDEX,TinyloomError,connect,serve,transfer",
  );
});

test("inner members are out of reach", async () => {
  const tinyloom = { ...(await import("tinyloom")), ...(await import("tinyloom/ops")) };
  const inner = [];
  for (const [name, one] of Object.entries(tinyloom)) {
    if (typeof one !== "function" || one.prototype === undefined) continue;
    for (const [where, object] of [
      [name, one],
      [`${name}.prototype`, one.prototype],
    ]) {
      const symbols = Object.getOwnPropertySymbols(object).filter(
        (symbol) => symbol !== Symbol.dispose && symbol !== Symbol.asyncDispose,
      );
      const names = Object.getOwnPropertyNames(object).filter((key) => key.startsWith("_"));
      inner.push(...[...names, ...symbols].map((key) => `${where}.${String(key)}`));
    }
  }
  const own = Reflect.ownKeys(tinyloom.Dataset.fromTokens([1, 2])).map(String);
  assert.deepEqual(inner, []);
  const properties = [
    "documents",
    "hash",
    "sequenceLength",
    "tokenizer",
    "tokens",
    "validationTokens",
  ];
  assert.deepEqual(own.sort(), properties);
  const path = "tinyloom/dist/internal.js";
  await assert.rejects(import(path), { code: "ERR_PACKAGE_PATH_NOT_EXPORTED" });
});

test("it imports in a worker", async () => {
  const program = `import("tinyloom").then(({ Runtime }) =>
    require("node:worker_threads").parentPort.postMessage(typeof Runtime.create));`;
  const worker = new Worker(program, { eval: true, filename: join(root, "worker.js") });
  const type = await new Promise((done, fail) => worker.once("message", done).once("error", fail));
  assert.equal(type, "function");
});

test("its types serve strict users, and match the wasm module", () => {
  const tsc = createRequire(import.meta.url).resolve("typescript/bin/tsc");
  for (const project of ["bundler.json", "node.json"]) {
    execFileSync(process.execPath, [tsc, "-p", join(here, "types", project)], { stdio: "inherit" });
  }
});

const packed = pack();

/** The paths in the tarball. */
async function packedNames() {
  const { tarball } = await packed;
  const list = execFileSync("tar", ["-tzf", tarball], { encoding: "utf8" });
  return list
    .trim()
    .split(/\r?\n/)
    .map((path) => path.replace(/^package\//, ""));
}

test("the declarations of the wasm module have the names of its exports", async () => {
  const dist = join(root, "pkg/dist");
  const module = await WebAssembly.compile(readFileSync(join(dist, "tinyloom_bg.wasm")));
  // wasm-bindgen declares none of the two that have to do with aborts.
  const exported = WebAssembly.Module.exports(module)
    .map(({ name }) => name)
    .filter((name) => !/^__(abort_handler|instance_terminated)$/.test(name));
  const declared = readFileSync(join(dist, "tinyloom_bg.wasm.d.ts"), "utf8");
  const names = (text, pattern) => Array.from(text.matchAll(pattern), ([, name]) => name);
  assert.deepEqual(names(declared, /^export const (\w+):/gm).sort(), exported.toSorted());
  const [output] = /interface InitOutput {[^}]*}/.exec(
    readFileSync(join(dist, "tinyloom.d.ts"), "utf8"),
  );
  assert.deepEqual(names(output, /^ {4}readonly (\w+):/gm).sort(), exported.toSorted());
});

test("npm would publish only what users need, with sources and their maps", async () => {
  const names = await packedNames();
  for (const needed of [
    "package.json",
    "README.md",
    "CHANGELOG.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "dist/index.js",
    "dist/index.js.map",
    "dist/index.d.ts",
    "dist/ops.js",
    "dist/ops.d.ts",
    "dist/align/index.js",
    "dist/inline.js",
    "dist/inline.d.ts",
    "dist/packed.js",
    "dist/text/index.js",
    "dist/text/thread-source.js",
    "dist/tinyloom.inline.min.js",
    "dist/worker/index.js",
    "dist/worker/index.d.ts",
    "dist/worker/comlink.js",
    "dist/worker/text.js",
    "dist/worker-thread.js",
    "dist/tinyloom.js",
    "dist/tinyloom_bg.wasm",
    "dist/ts5/index.d.ts",
    "align/package.json",
    "inline/package.json",
    "ops/package.json",
    "worker/package.json",
    "storage/package.json",
    "dist/storage/fflate.js",
    "dist/storage/index.js",
    "src/index.ts",
  ]) {
    assert.ok(names.includes(needed), `${needed} is missing`);
  }
  const allowed =
    /^((docs|examples)\/[\w/.-]+|bench\/peers\/README\.md|CONTRIBUTING\.md|dist\/([\w-]+\/)*[\w.-]+\.(js|d\.ts|wasm)(\.map)?|src\/([\w-]+\/)*[\w.-]+\.ts|src\/modeling_tinyloom\.py|([\w-]+\/)?package\.json|README\.md|CHANGELOG\.md|LICENSE-\w+)$/;
  assert.deepEqual(
    names.filter((name) => !allowed.test(name)),
    [],
  );
  const { folder, tarball } = await packed;
  for (const name of names.filter((one) => one.endsWith(".map"))) {
    const { sources } = JSON.parse(readFileSync(join(folder, name), "utf8"));
    for (const source of sources)
      assert.ok(existsSync(join(folder, dirname(name), source)), `${name} names ${source}`);
  }
  // The module is in it three times: the file, its fallback and the file for CDNs. It has a budget of its own. What is
  // said of a wrong call is in it six times: as source, as a file with its map, in the file for CDNs, and twice in the
  // worker's.
  const module = gzipSync(readFileSync(join(folder, "dist/tinyloom_bg.wasm"))).length;
  const documents = names.filter((name) => /^(docs|examples)\//.test(name));
  const sizes = documents.map((name) => gzipSync(readFileSync(join(folder, name))).length);
  const rest = statSync(tarball).size - 3 * module - sizes.reduce((sum, one) => sum + one, 0);
  assert.ok(rest < 1_640_000, `the package is ${rest} bytes beside the module and the documents`);
});

test("the worker's file needs no other, and its copy is the same text", async () => {
  const { folder } = await packed;
  const file = readFileSync(join(folder, "dist/worker-thread.js"), "utf8");
  // Rollup looks up each name that stands in `import()`, and splits the worker, which Vite 6 and 7 refuse.
  assert.doesNotMatch(file, /\bimport\((\/\*.*?\*\/|\s)*["'`]/);
  // By a parser: the Python file that a worker may save has imports too.
  const options = { bundle: true, external: ["*"], format: "esm", write: false, metafile: true };
  const { metafile } = await build({ stdin: { contents: file }, ...options, logLevel: "silent" });
  const imports = Object.values(metafile.inputs).flatMap((input) => input.imports);
  assert.deepEqual(
    imports.filter(({ kind }) => kind === "import-statement"),
    [],
  );
  // Node's modules and optional packages alone: several bundlers refuse a worker with further files.
  const calls = file.match(/\bimport\(.{0,30}/g) ?? [];
  for (const one of calls) assert.match(one, /^import\(\/\* @vite-ignore \*\//);
  assert.equal(calls.length, 7); // one of them is the method Runs.import
  // Parcel mistakes this form of a lazy part for another import of the file.
  assert.doesNotMatch(file, /Promise\.resolve\(\)\.then\(\(\)=>\(/);
  const { default: text } = await import(join(folder, "dist/worker/text.js"));
  assert.equal(text, file);
});

test("publint and attw find nothing", async () => {
  const { folder, tarball } = await packed;
  const tool = (name, ...args) => {
    const { status, stdout, stderr } = spawnSync("npx", ["--no", name, ...args], {
      cwd: root,
      encoding: "utf8",
      shell: process.platform === "win32",
    });
    assert.equal(status, 0, `${name}: ${stdout}${stderr}`);
  };
  tool("publint", "--strict", folder);
  // There is no CommonJS: `require` gets the ES module, which Node gives from version 22 on.
  tool(
    "attw",
    tarball,
    "--ignore-rules",
    "cjs-resolves-to-esm",
    "--exclude-entrypoints",
    "./tinyloom_bg.wasm",
    "./worker-thread.js",
  );
});

test("npm publish refuses until the project has an address", async () => {
  assert.equal(address, undefined, "it has one: this test and the refusal have done their work");
  const { folder } = await packed;
  for (const what of [join(root, "pkg"), folder]) {
    const { status, stderr } = spawnSync("npm", ["publish", "--dry-run", what], {
      encoding: "utf8",
      shell: process.platform === "win32",
    });
    assert.notEqual(status, 0, what);
    assert.ok(stderr.includes(REFUSAL), stderr);
  }
  // npm runs no script of a tarball that it is given, but publishes nothing private.
  assert.equal(JSON.parse(readFileSync(join(folder, "package.json"), "utf8")).private, true);
});

/** The addresses of a document's links and pictures, without those of programs. */
const linksOf = (markdown) =>
  [
    ...markdown.replace(/```.*?```/gs, "").matchAll(/\]\(([^)\s]+)\)|\s(?:src|href)="([^"]+)"/g),
  ].map(([, link, attribute]) => link ?? attribute);

test("without an address, README's links lead to files of the package", async () => {
  const { folder } = await packed;
  const links = linksOf(readFileSync(join(folder, "README.md"), "utf8"));
  const files = links
    .filter((link) => !/^([a-z]+:|#)/.test(link))
    .map((link) => link.split("#")[0]);
  assert.ok(files.length > 20, `${files.length} of ${links.length} links`);
  assert.deepEqual(
    files.filter((path) => !existsSync(join(folder, path))),
    [],
  );
});

test("with an address, npm would publish it", (t) => {
  const folder = mkdtempSync(join(tmpdir(), "tinyloom-publish-"));
  t.after(() => rmSync(folder, { recursive: true }));
  stage({ address: "https://code.example/someone/tinyloom", folder });
  const args = [
    "publish",
    "--dry-run",
    "--offline",
    "--loglevel",
    "notice",
    "--access",
    "public",
    folder,
  ];
  const shell = process.platform === "win32";
  const { status, stdout, stderr } = spawnSync("npm", args, { encoding: "utf8", shell });
  assert.equal(status, 0, stderr);
  const { name, version, files } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  assert.ok(stdout.includes(`+ ${name}@${version}`), stdout);
  assert.ok(!files.includes("docs"), "its links lead to the address");
  assert.doesNotMatch(stderr, /auto-corrected/);
});

test("with an address, package.json and every link of README name it", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "tinyloom-pack-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const base = "https://code.example/someone/tinyloom";
  stage({ address: base, folder });
  const { repository, homepage, bugs, ...manifest } = JSON.parse(
    readFileSync(join(folder, "package.json"), "utf8"),
  );
  assert.deepEqual(
    [repository.url, homepage, bugs.url, manifest.private],
    [`git+${base}.git`, `${base}#readme`, `${base}/issues`, undefined],
  );
  const readme = readFileSync(join(folder, "README.md"), "utf8");
  assert.deepEqual(
    linksOf(readme).filter((link) => !/^(https?:|#)/.test(link)),
    [],
  );
  const text = 'see ![a](docs/a.svg) [b](./docs/b.md#c) [d](https://x.y) [e](#f) <img src="g.png">';
  assert.equal(
    absolute(text, "B/", "v1"),
    'see ![a](B/raw/v1/docs/a.svg) [b](B/blob/v1/docs/b.md#c) [d](https://x.y) [e](#f) <img src="B/raw/v1/g.png">',
  );
});

test("what apps pay: the budget of JavaScript holds, and the module's copy loads lazily", async () => {
  const { eager, lazy } = await scriptSize();
  assert.ok(eager > 10_000 && eager <= SCRIPT_BUDGET, `${eager} bytes at once`);
  assert.ok(lazy > 300_000, `${lazy} bytes lazily`);
});

test("no file of the package imports itself through others, nor one that is not packed", async () => {
  const { folder } = await packed;
  const { metafile } = await build({
    entryPoints: entries().map((entry) => join(folder, "dist", `${entry}.js`)),
    bundle: true,
    packages: "external",
    metafile: true,
    write: false,
    format: "esm",
    outdir: join(root, "target/imports"),
  });
  const { inputs } = metafile;
  const circles = [];
  const done = new Set();
  const visit = (file, before) => {
    if (before.includes(file))
      circles.push([...before.slice(before.indexOf(file)), file].join(" → "));
    if (done.has(file)) return;
    done.add(file);
    // What a part imports by `import()` is there by the time that the part is.
    for (const { kind, path } of inputs[file]?.imports ?? []) {
      if (kind === "import-statement") visit(path, [...before, file]);
    }
  };
  for (const file of Object.keys(inputs)) visit(file, []);
  assert.ok(done.size > 100, `${done.size} files`);
  assert.deepEqual(circles, []);
});

test("JavaScript and Rust number the fields of an operation's call alike", async () => {
  const rust = (path) => readFileSync(join(root, "crates/kernels/src/ops", path), "utf8");
  const upper = (name) => name.replace(/[A-Z]/g, "_$&").toUpperCase();
  const { FIELD, OPERATION, ROLE } = await import(pathToFileURL(join(root, "pkg/dist/fields.js")));
  const constants = [...rust("fields.rs").matchAll(/^const ([A-Z_]+): usize = (\d+);/gm)];
  assert.deepEqual(
    Object.entries(FIELD).map(([name, number]) => [upper(name), number]),
    constants.map(([, name, number]) => [name, Number(number)]),
  );
  const listed = (text, pattern) => [...text.matchAll(pattern)].map(([, name]) => name);
  const [, body] = /pub enum Role \{([^}]+)\}/.exec(rust("mod.rs"));
  const roles = listed(body, /^ {4}(\w+),/gm).map((name) => upper(name).slice(1));
  const { input, ...others } = ROLE;
  const [, tensors] = /pub const TENSORS: usize = (.+);/.exec(rust("mod.rs"));
  assert.equal(tensors, "Role::Mask as usize", "roles before the mask are tensors");
  assert.deepEqual(
    Object.entries(others).map(([name, number]) => [upper(name), number]),
    roles.slice(0, roles.indexOf("MASK")).map((name, number) => [name, number]),
  );
  assert.equal(input, 0, "softmax's only tensor");
  const [, order] = /const ATTENTION:[^=]+=\s*\[([^\]]+)\]/.exec(rust("fields.rs"));
  assert.deepEqual(
    Object.keys(OPERATION).map((name) => name.toLowerCase()),
    [...listed(order, /AttentionOperation::(\w+)/g).map((name) => name.toLowerCase()), "softmax"],
  );
});
