// Builds the wasm module, the npm package and, when asked, the demo page and the tests' module.
// Each step is skipped while its inputs are the same.
import { mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, relative } from "node:path";
import { gzipSync } from "node:zlib";
import {
  modelingSource,
  olderTypes,
  oneFile,
  packModule,
  reportScripts,
  threadSource,
  workerFiles,
  zipWriter,
} from "./bundle.mjs";
import {
  capture,
  Failure,
  filesBelow,
  fingerprint,
  isMain,
  main,
  root,
  run,
  step,
  target,
  unlessDone,
} from "./lib.mjs";
import { bindgenProgram, setup } from "./setup.mjs";

/**
 * Most bytes that the module may take on the wire, gzipped. docs/decisions/023-module-size.md says how it is kept
 * small.
 */
const WASM_BUDGET = 705_000;

const dist = join(root, "pkg", "dist");
const testing = join(target, "testing-wasm");

/**
 * Keeps wasm-opt from inlining functions with one caller: LLVM has inlined what pays, and what is left
 * compresses better apart. With its own limits the module was 3 % smaller, and 7 % larger gzipped, before it was
 * optimised at link time.
 */
const WITHOUT_INLINING = [
  "--one-caller-inline-max-function-size=0",
  "--flexible-inline-max-function-size=0",
  "--always-inline-max-function-size=0",
];

/** Puts functions of one crate and module, whose code is alike, beside each other: gzip finds more to repeat. */
const ORDER = ["--reorder-functions-by-name"];

/** Drops the sections that say which compiler made the module, and with which features. */
const UNNAMED = ["--strip-producers", "--strip-target-features"];

/** What rustc emits for this target; wasm-opt refuses instructions it was not told of. */
const WASM_FEATURES = [
  "--enable-bulk-memory",
  "--enable-bulk-memory-opt",
  "--enable-multivalue",
  "--enable-mutable-globals",
  "--enable-nontrapping-float-to-int",
  "--enable-reference-types",
  "--enable-sign-ext",
  "--enable-simd",
];

/**
 * Builds pkg/dist.
 *
 * @param wants - `page`: also www/dist; `job`: also www/dist-node (the headless job for Node);
 *   `testing`: also the module with the kernel tests.
 */
export async function build({ page = false, job = false, testing: tests = false } = {}) {
  // Both of one profile, so that what they depend on compiles once. The one is optimised while the other compiles.
  const wasm = await cargo("tinyloom");
  const modules = await Promise.allSettled([wasmModule(wasm), ...(tests ? [testingModule()] : [])]);
  const failed = modules.find(({ status }) => status === "rejected");
  if (failed) throw failed.reason;
  await typescript();
  await bundles();
  if (page) await demoPage();
  if (job) await nodeJob();
}

/** The module of a crate as cargo makes it. */
const compiled = (crate) =>
  join(target, "wasm32-unknown-unknown", "wasm", `${crate.replace("-", "_")}.wasm`);

/** Compiles a crate's library, and gives its path. */
async function cargo(crate) {
  // As a cdylib: an rlib is not optimised at link time, and neither is what is both.
  const library = ["--lib", "--crate-type", "cdylib", "--target", "wasm32-unknown-unknown"];
  const args = ["rustc", "-p", crate, ...library, "--profile", "wasm", "--locked", "--quiet"];
  const sources = [...filesBelow(["src", "crates", "shaders"]), "Cargo.toml", "Cargo.lock"];
  const compiler = [capture("rustc", ["-vV"]) ?? "", process.env.RUSTFLAGS ?? ""];
  await unlessDone(
    `compiled-${crate}`,
    fingerprint(sources, ...compiler, ...args),
    [compiled(crate)],
    async () => {
      step(`compiling the wasm module of ${crate}`);
      // By their contents: see crates/kernels/build.rs.
      const shaders = fingerprint(filesBelow(["shaders"]));
      await run("cargo", args, { env: { TINYLOOM_SHADERS: shaders } });
    },
  );
  return compiled(crate);
}

/** @param form - `expression`, where the JavaScript is to be one, and no ES module. */
async function bindgen(wasm, folder, ...form) {
  await run(bindgenProgram, [wasm, folder, "tinyloom", ...form]);
}

/**
 * Makes of wasm-bindgen's expression a module with a function that evaluates it. What wasm-bindgen writes has one instance
 * of the wasm module, which is of no use after a panic. Each call of the function gives another.
 */
function makeInstances(folder) {
  const [glue, types] = ["tinyloom.js", "tinyloom.d.ts"].map((name) => join(folder, name));
  const made = readFileSync(glue, "utf8");
  writeFileSync(glue, `export function instance() {\n${made}\nreturn wasm_bindgen;\n}\n`);
  const declared = "export declare function instance(): typeof wasm_bindgen;\n";
  writeFileSync(types, readFileSync(types, "utf8") + declared);
}

/**
 * Binds and optimises the module that cargo made.
 *
 * @param folder - where the module and its JavaScript are to lie.
 * @param more - further flags of wasm-opt, such as `-g`, which keeps the functions' names.
 * @returns the module's path.
 */
export async function optimised(folder, more = []) {
  const made = join(folder, "tinyloom_bg.wasm");
  await bindgen(compiled("tinyloom"), folder, "expression");
  const optimiser = createRequire(import.meta.url).resolve("binaryen/package.json");
  const tool = join(dirname(optimiser), "bin", "wasm-opt");
  // Nothing lies in the first kilobyte: rustc links with --stack-first, and it is the stack's far end.
  const size = [
    "-Os",
    "--converge",
    "--low-memory-unused",
    ...WITHOUT_INLINING,
    ...UNNAMED,
    ...ORDER,
  ];
  await run(process.execPath, [tool, ...size, ...WASM_FEATURES, ...more, made, "-o", made]);
  return made;
}

async function wasmModule(wasm) {
  const print = fingerprint([
    relative(root, wasm),
    "scripts/build.mjs",
    ...filesBelow(["scripts/bindgen"]),
    "Cargo.lock",
  ]);
  const made = join(dist, "tinyloom_bg.wasm");
  await unlessDone("wasm", print, [made, join(dist, "tinyloom.js")], async () => {
    step("binding and optimising the wasm module");
    await optimised(dist);
    makeInstances(dist);
    reportSize(made);
  });
}

function reportSize(path) {
  const size = gzipSync(readFileSync(path), { level: 9 }).length;
  const kb = (bytes) => `${(bytes / 1000).toFixed(1)} KB`;
  step(`tinyloom_bg.wasm: ${kb(statSync(path).size)}, gzipped ${kb(size)} of ${kb(WASM_BUDGET)}`);
  if (size > WASM_BUDGET) {
    throw new Failure(
      `the wasm module is ${size} bytes gzipped, and at most ${WASM_BUDGET} are allowed`,
    );
  }
}

async function testingModule() {
  const wasm = await cargo("tinyloom-testing");
  const print = fingerprint([
    relative(root, wasm),
    ...filesBelow(["scripts/bindgen"]),
    "Cargo.lock",
  ]);
  await unlessDone("testing-wasm", print, [join(testing, "tinyloom.js")], () =>
    bindgen(wasm, testing),
  );
}

async function typescript() {
  const inputs = filesBelow([
    "pkg/src",
    "pkg/tsconfig.json",
    "tsconfig.base.json",
    "package-lock.json",
  ]);
  await unlessDone("typescript", fingerprint(inputs), [join(dist, "index.js")], async () => {
    step("compiling the TypeScript package");
    const tsc = createRequire(import.meta.url).resolve("typescript/bin/tsc");
    await run(process.execPath, [tsc, "-p", "pkg"]);
  });
}

/** What is made of both: the module as JavaScript, the one file for CDNs, the worker's, older declarations. */
async function bundles() {
  const inputs = filesBelow(
    ["pkg/dist"],
    /\.d\.ts$|\.map$|(packed|\.min|worker-thread|thread-source|modeling-source|comlink|fflate|worker\/text)\.js$/,
  );
  const made = [
    "modeling-source.js",
    "packed.js",
    "storage/fflate.js",
    "text/thread-source.js",
    "tinyloom.inline.min.js",
    "worker/text.js",
    "ts5/index.d.ts",
  ];
  const sources = ["scripts/bundle.mjs", "pkg/package.json", "pkg/src/modeling_tinyloom.py"];
  const print = fingerprint([...inputs, ...sources]);
  await unlessDone(
    "bundles",
    print,
    made.map((name) => join(dist, name)),
    async () => {
      packModule();
      modelingSource();
      olderTypes();
      await threadSource();
      await zipWriter();
      await oneFile();
      await workerFiles();
      await reportScripts();
    },
  );
}

/** What the page and the job are made of: their sources and the package as built. */
function webInputs() {
  const built = filesBelow(["pkg/dist"], /\.d\.ts$/);
  const bench = ["workloads.mjs", "kernels.mjs", "configs.json"].map((name) => `bench/${name}`);
  const sources = ["www", "package-lock.json", ...bench];
  return fingerprint([...filesBelow(sources), ...built]);
}

async function demoPage() {
  await unlessDone("page", webInputs(), ["www/dist/index.html"], async () => {
    step("building the demo page");
    // Not by npm, which takes most of a second itself.
    const vite = dirname(createRequire(import.meta.url).resolve("vite/package.json"));
    const bin = join(vite, "bin", "vite.js");
    await run(process.execPath, [bin, "build"], { cwd: join(root, "www") });
  });
}

async function nodeJob() {
  await unlessDone("job", webInputs(), ["www/dist-node/job.js"], async () => {
    step("building the headless job for Node");
    const vite = await import("vite");
    const folder = join(root, "www", "dist-node");
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder, { recursive: true });
    await vite.build({
      configFile: false,
      logLevel: "warn",
      root: join(root, "www"),
      build: {
        outDir: folder,
        target: "node20",
        minify: false,
        lib: { entry: "src/job.ts", formats: ["es"], fileName: "job" },
        rolldownOptions: { external: ["tinyloom", /^node:/] },
      },
    });
  });
}

if (isMain(import.meta.url)) {
  await main(async () => {
    await setup();
    const wants = ["page", "job", "testing"].map((name) => [
      name,
      process.argv.includes(`--${name}`),
    ]);
    await build(Object.fromEntries(wants));
  });
}
