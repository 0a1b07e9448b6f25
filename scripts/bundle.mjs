// What is made of the compiled package with esbuild: the module as JavaScript, the one file for CDNs, the
// worker's file, declarations for older TypeScript, and the size that apps pay.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { gzipSync } from "node:zlib";
import { Failure, root, step } from "./lib.mjs";

/**
 * Most bytes that `tinyloom` may add to an app's JavaScript, minified and gzipped, lazy parts aside. The names that the
 * binder gives change with each build of the module, and the size with them by some ten bytes. 500 of them say what a
 * newcomer's call was meant to be, and read a picked folder: calls that fail at once cannot wait for a part that does.
 */
export const SCRIPT_BUDGET = 42_500;

const dist = join(root, "pkg", "dist");
const kb = (bytes) => `${(bytes / 1000).toFixed(1)} KB`;
const gzipped = (bytes) => gzipSync(bytes, { level: 9 }).length;

/** The package that users install for themselves, and which is loaded when it is needed. */
const PEERS = ["@huggingface/tokenizers"];

/** The worker in which tokenizers are trained, as a text: it is opened from a Blob, so that no host has to serve it. */
export async function threadSource() {
  const esbuild = await import("esbuild");
  const { outputFiles } = await esbuild.build({
    entryPoints: [join(dist, "text", "thread.js")],
    bundle: true,
    minify: true,
    write: false,
    format: "esm",
    target: "es2022",
  });
  const text = JSON.stringify(outputFiles[0].text);
  writeFileSync(join(dist, "text", "thread-source.js"), `export default ${text};\n`);
}

/** What transformers computes models of our own with, as a text that a save writes. */
export function modelingSource() {
  const text = readFileSync(join(root, "pkg", "src", "modeling_tinyloom.py"), "utf8");
  writeFileSync(join(dist, "modeling-source.js"), `export default ${JSON.stringify(text)};\n`);
}

/** The module as base64 of gzip: what is imported where the wasm file does not answer. */
export function packModule() {
  const zipped = gzipSync(readFileSync(join(dist, "tinyloom_bg.wasm")), { level: 9 });
  writeFileSync(join(dist, "packed.js"), `export default "${zipped.toString("base64")}";\n`);
}

/** `tinyloom/inline` with all it imports, as one file. */
export async function oneFile() {
  const esbuild = await import("esbuild");
  const { version } = JSON.parse(readFileSync(join(root, "pkg", "package.json"), "utf8"));
  const outfile = join(dist, "tinyloom.inline.min.js");
  await esbuild.build({
    entryPoints: [join(dist, "inline.js")],
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2022",
    external: PEERS,
    banner: { js: `/*! tinyloom ${version}, MIT OR Apache-2.0 */` },
    outfile,
  });
  const bytes = readFileSync(outfile);
  step(`tinyloom.inline.min.js: ${kb(bytes.length)}, gzipped ${kb(gzipped(bytes))}`);
}

/** The writer of zip archives of `fflate`, bundled so that users need not install it. */
export async function zipWriter() {
  const esbuild = await import("esbuild");
  const require = createRequire(join(root, "pkg", "package.json"));
  const licence = readFileSync(
    join(dirname(require.resolve("fflate/package.json")), "LICENSE"),
    "utf8",
  );
  await esbuild.build({
    stdin: { contents: 'export { Zip } from "fflate";', resolveDir: join(root, "pkg") },
    bundle: true,
    format: "esm",
    target: "es2022",
    banner: { js: `/*! fflate\n${licence} */` },
    outfile: join(dist, "storage", "fflate.js"),
  });
}

/**
 * What is not compiled of `tinyloom/worker`: Comlink, so that users need not install it, and the worker's
 * file, in one piece so that any bundler takes it as it is.
 */
export async function workerFiles() {
  const esbuild = await import("esbuild");
  const require = createRequire(join(root, "pkg", "package.json"));
  const comlink = join(dirname(require.resolve("comlink")), "..", "esm", "comlink.mjs");
  const text = readFileSync(comlink, "utf8").replace(/^\/\/# sourceMappingURL.*$/m, "");
  writeFileSync(join(dist, "worker", "comlink.js"), text);
  const outfile = join(dist, "worker-thread.js");
  await esbuild.build({
    entryPoints: [join(dist, "worker", "thread.js")],
    bundle: true,
    format: "esm",
    target: "es2022",
    external: PEERS,
    plugins: [withoutModule],
    minify: true,
    keepNames: true, // messages have those of classes
    outfile,
  });
  // What is left are Node's modules and the peers; minifying dropped the comments that tell bundlers so.
  // Rollup knows no such comment, and splits a worker where a name stands in `import()`. Parcel puts
  // other imports of the file into `Promise.resolve().then(() => …)`, which esbuild makes of a lazy part.
  const made = readFileSync(outfile, "utf8")
    .replaceAll(/\bimport\(/g, "import(/* @vite-ignore *//* webpackIgnore: true */")
    .replaceAll(
      /\bPromise\.resolve\(\)\.then\(\(\)=>\(([^()]+\(\),[^()]+)\)\)/g,
      "(async()=>($1))()",
    )
    .replaceAll(/(import\([^()]*)"(@huggingface)\/(\w+)"/g, '$1["$2","$3"].join("/")');
  writeFileSync(outfile, made);
  writeFileSync(join(dist, "worker", "text.js"), `export default ${JSON.stringify(made)};\n`);
  step(`worker-thread.js: ${kb(made.length)}, gzipped ${kb(gzipped(made))}`);
}

/** The worker's file has no `import()`, which several bundlers refuse in a worker: it asks its page. */
const withoutModule = {
  name: "without the module",
  setup({ onResolve, onLoad }) {
    const contents = 'export { packedOfPage as packedModule } from "./page-services.js";';
    onResolve({ filter: /^\.\/packed-module\.js$/ }, ({ path }) => ({ path, namespace: "asking" }));
    onLoad({ filter: /./, namespace: "asking" }, () => ({ contents, resolveDir: dist }));
  },
};

/**
 * Bytes that an app's bundle gains by `import * from "tinyloom"`: what loads at once, and what would
 * load where the wasm file does not answer. Both minified and gzipped.
 */
export async function scriptSize(entry = join(dist, "index.js")) {
  const esbuild = await import("esbuild");
  const { outputFiles, metafile } = await esbuild.build({
    stdin: { contents: `export * from ${JSON.stringify(entry)};`, resolveDir: root },
    bundle: true,
    external: PEERS,
    splitting: true,
    minify: true,
    metafile: true,
    write: false,
    format: "esm",
    target: "es2022",
    outdir: join(root, "target", "size"),
    absWorkingDir: root,
  });
  const outputs = Object.entries(metafile.outputs);
  const eager = new Set();
  const visit = (path) => {
    if (eager.has(path)) return;
    eager.add(path);
    for (const one of metafile.outputs[path].imports) {
      if (one.kind === "import-statement") visit(one.path);
    }
  };
  visit(outputs.find(([, { entryPoint }]) => entryPoint === "<stdin>")[0]);
  const size = { eager: 0, lazy: 0 };
  for (const { path, contents } of outputFiles) {
    const of = outputs.map(([name]) => name).find((name) => join(root, name) === path);
    size[eager.has(of) ? "eager" : "lazy"] += gzipped(contents);
  }
  return size;
}

/** Fails where the budget is passed. */
export async function reportScripts() {
  const { eager, lazy } = await scriptSize();
  step(
    `JavaScript of tinyloom, minified: gzipped ${kb(eager)} of ${kb(SCRIPT_BUDGET)}; ` +
      `${kb(lazy)} more in parts that load when they are needed`,
  );
  if (eager > SCRIPT_BUDGET) {
    throw new Failure(
      `the JavaScript of tinyloom is ${eager} bytes gzipped, and at most ${SCRIPT_BUDGET} are allowed`,
    );
  }
}

/**
 * Entry declarations for TypeScript before version 6, which does not know WebGPU: they take its names
 * from `@webgpu/types` where that is installed. Otherwise nothing is known of these objects but the mark
 * that `@webgpu/types` gives them too: without a member of its own a type would be met by every value, and
 * `tinyloom/worker`, which leaves GPU objects out, would leave out all.
 */
export function olderTypes() {
  const folder = join(dist, "ts5");
  mkdirSync(folder, { recursive: true });
  const names = ["GPU", "GPUAdapter", "GPUBuffer", "GPUDevice"];
  const known = '// @ts-ignore: an optional peer\n/// <reference types="@webgpu/types" />\n';
  const declared = names.map((name) => `interface ${name} { readonly __brand: "${name}" }\n`);
  writeFileSync(join(folder, "webgpu.d.ts"), known + declared.join(""));
  for (const entry of entries()) {
    const text = `/// <reference path="./webgpu.d.ts" />\nexport * from "../${entry}.js";\n`;
    writeFileSync(join(folder, `${entry.replaceAll("/", "-")}.d.ts`), text);
  }
}

/** The modules that `exports` names, as paths below dist without their ending. */
export function entries() {
  const { exports } = JSON.parse(readFileSync(join(root, "pkg", "package.json"), "utf8"));
  return Object.values(exports)
    .map((one) => /^\.\/dist\/(.+)\.js$/.exec(one.default ?? "")?.[1])
    .filter(Boolean);
}
