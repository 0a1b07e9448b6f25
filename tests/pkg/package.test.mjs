// The package as users get it: safe to import anywhere, typed, and only what they need in it.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "../..");

const IMPORT = `
  const before = Reflect.ownKeys(globalThis).map(String).sort().join();
  globalThis.fetch = () => { throw new Error("fetched on import") };
  const tinyloom = await import("tinyloom");
  const ops = await import("tinyloom/ops");
  const after = Reflect.ownKeys(globalThis).map(String).sort().join();
  if (before !== after) throw new Error("globals changed on import");
  const code = await tinyloom.Runtime.create().catch((error) => error.code);
  const text = await tinyloom.Dataset.fromText("abc", new tinyloom.ByteTokenizer());
  if (!text) throw new Error("no dataset");
`;

test("importing touches neither the GPU nor globals", () => {
  const program = `${IMPORT}; console.log(code, Object.keys(tinyloom).sort().join(), Object.keys(ops).sort().join());`;
  const stdout = execFileSync(process.execPath, ["--input-type=module", "-e", program], {
    cwd: root,
    encoding: "utf8",
  });
  assert.equal(
    stdout.trim(),
    "webgpu-unavailable ByteTokenizer,Dataset,Model,Runtime,Tensor,TinyloomError,Trainer Tensor,TinyloomError,attention,softmax",
  );
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

test("npm would publish only what users need", () => {
  const json = execFileSync("npm", ["pack", "--dry-run", "--json", "--loglevel=error"], {
    cwd: join(root, "pkg"),
    encoding: "utf8",
    shell: process.platform === "win32",
  });
  const result = JSON.parse(json);
  const [{ files, size }] = Array.isArray(result) ? result : Object.values(result);
  const names = files.map(({ path }) => path);
  for (const needed of [
    "package.json",
    "README.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "dist/index.js",
    "dist/index.d.ts",
    "dist/ops.js",
    "dist/ops.d.ts",
    "dist/tinyloom.js",
    "dist/tinyloom_bg.wasm",
  ]) {
    assert.ok(names.includes(needed), `${needed} is missing`);
  }
  const stray = names.filter(
    (name) => !/^(dist\/[\w.-]+\.(js|d\.ts|wasm)|README\.md|LICENSE-\w+|package\.json)$/.test(name),
  );
  assert.deepEqual(stray, []);
  assert.ok(size < 700_000, `the package is ${size} bytes`);
});
