// Makes sure of everything a job needs, installing what is missing and announcing each step.
// Looks only where a thing is there already, which takes well under a second.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import {
  capture,
  exitCode,
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
  which,
} from "./lib.mjs";
import { browserVariable, findBrowser, lavapipe, softwareOnly, swiftshader } from "./machine.mjs";
import { referencePython } from "./reference.mjs";

const WASM = "wasm32-unknown-unknown";

/**
 * Prepares the machine.
 *
 * @param needs - `rust`: compiler target and wasm-bindgen; `components`: of rustup, for the checks;
 *   `browsers`: any of "chromium", "firefox", "node" (Dawn); `native`: Vulkan for native tests;
 *   `reference`: the Python that tests compare with.
 */
export async function setup({
  rust = true,
  components = [],
  browsers = [],
  native = false,
  reference = false,
} = {}) {
  // Side by side: the one waits for the network, the other compiles.
  await Promise.all([
    npmPackages(),
    rustParts(rust, components),
    systemPackages(browsers, native),
    reference && referencePython(),
  ]);
}

async function rustParts(rust, components) {
  if (rust) await wasmTarget();
  await rustComponents(components);
  if (rust) await wasmBindgen();
}

/** The packages of package-lock.json, again whenever it changed. */
async function npmPackages() {
  const manifests = ["package-lock.json", "package.json", "pkg/package.json", "www/package.json"];
  const print = fingerprint(manifests.filter((path) => existsSync(join(root, path))));
  await unlessDone("npm", print, ["node_modules/.package-lock.json"], async () => {
    step("installing the locked npm packages");
    await run("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"]);
  });
}

async function wasmTarget() {
  if (!which("cargo")) {
    throw new Failure("Rust is missing: install it from https://rustup.rs and run this again.");
  }
  const libraries = capture("rustc", ["--print", "target-libdir", "--target", WASM]);
  if (libraries && existsSync(libraries)) return;
  if (!which("rustup")) {
    throw new Failure(`the Rust target ${WASM} is missing: install it with your package manager.`);
  }
  step(`adding the Rust target ${WASM}`);
  await run("rustup", ["target", "add", WASM]);
}

async function rustComponents(names) {
  const missing = names.filter(
    (name) => !capture("cargo", [name === "rustfmt" ? "fmt" : name, "--version"]),
  );
  if (missing.length === 0) return;
  step(`adding the Rust components ${missing.join(", ")}`);
  await run("rustup", ["component", "add", ...missing]);
}

/** The version of a crate in a lockfile of cargo. */
function locked(name, lockfile) {
  const lock = readFileSync(join(root, lockfile), "utf8");
  const version = new RegExp(`name = "${name}"\r?\nversion = "([^"]+)"`).exec(lock)?.[1];
  if (!version) throw new Failure(`${lockfile} has no ${name}`);
  return version;
}

const BINDGEN = "scripts/bindgen";
/** Where the binder's crate is described. */
export const bindgenManifest = join(root, BINDGEN, "Cargo.toml");
const bindgenTarget = join(target, "tools", "bindgen");

/** The program of scripts/bindgen, which `setup` builds. */
export const bindgenProgram = join(
  bindgenTarget,
  "debug",
  process.platform === "win32" ? "bindgen.exe" : "bindgen",
);

async function wasmBindgen() {
  const wanted = locked("wasm-bindgen", "Cargo.lock");
  const own = locked("wasm-bindgen-cli-support", `${BINDGEN}/Cargo.lock`);
  if (own !== wanted) {
    throw new Failure(
      `${BINDGEN} has wasm-bindgen ${own}, and Cargo.lock ${wanted}: write ${wanted} into ` +
        `${BINDGEN}/Cargo.toml and run \`cargo update\` there`,
    );
  }
  await unlessDone("bindgen", fingerprint(filesBelow([BINDGEN])), [bindgenProgram], async () => {
    step(`building the binder of wasm-bindgen ${own}, once (about half a minute)`);
    const where = ["--manifest-path", bindgenManifest];
    await run("cargo", ["build", "--locked", "--quiet", ...where, "--target-dir", bindgenTarget]);
  });
}

/** Browsers and Vulkan drivers, by apt-get where that can be done unasked. */
async function systemPackages(browsers, native) {
  const missing = missingPackages(browsers, native);
  if (missing.length === 0) return;
  const apt = existsSync("/etc/debian_version") && which("apt-get") && process.getuid?.() === 0;
  if (!apt) throw new Failure(whatToInstall(missing));
  const names = missing.map(({ name }) => name);
  step(`installing ${names.join(", ")} with apt-get`);
  const env = { DEBIAN_FRONTEND: "noninteractive" };
  const code = await exitCode("apt-get", ["-qq", "update"], { env });
  if (code !== 0) step(`apt-get update ended with ${code}; going on with the lists there are`);
  await run("apt-get", ["-qq", "install", "-y", "--no-install-recommends", ...names], { env });
  const still = missingPackages(browsers, native);
  if (still.length > 0) throw new Failure(whatToInstall(still));
}

function missingPackages(browsers, native) {
  const onLinux = process.platform === "linux";
  const missing = [];
  if (browsers.includes("chromium") && !findBrowser("chromium")) {
    missing.push({
      name: "chromium",
      say: `Chrome, Chromium or Edge (or set ${browserVariable("chromium")})`,
    });
  } else if (browsers.includes("node") && onLinux && softwareOnly() && !swiftshader()) {
    missing.push({
      name: "chromium",
      say: "Chromium, whose SwiftShader serves Node without a GPU",
    });
  }
  if (browsers.includes("firefox") && !findBrowser("firefox")) {
    missing.push({ name: "firefox-esr", say: `Firefox (or set ${browserVariable("firefox")})` });
  }
  const vulkan = native || browsers.includes("firefox") || browsers.includes("node");
  if (vulkan && onLinux && softwareOnly() && !lavapipe()) {
    missing.push({
      name: "mesa-vulkan-drivers",
      say: "mesa's Vulkan drivers (mesa-vulkan-drivers)",
    });
  }
  return missing;
}

function whatToInstall(missing) {
  return `Please install ${missing.map(({ say }) => say).join(" and ")}, then run this again.`;
}

if (isMain(import.meta.url)) {
  const components = process.argv.includes("--checks") ? ["rustfmt", "clippy"] : [];
  const browsers = ["chromium", "firefox", "node"];
  await main(() => setup({ components, browsers, native: true, reference: true }));
}
