// Formatting, lints, types and spelling. `--write` formats instead of checking the format. `--quick` leaves out what takes
// the compiler, and the audit. `--keyed` leaves out of these what has passed with the same sources.
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { hashOf, sourcesBelow } from "../tests/gate/inputs.mjs";
import { keyOf } from "../tests/gate/key.mjs";
import { openTests } from "../tests/gate/passed.mjs";
import { audit } from "./audit.mjs";
import { capture, exitCode, Failure, isMain, main, run, step, target, which } from "./lib.mjs";
import { bindgenManifest, setup } from "./setup.mjs";

/** Version of the spelling checker, as released on PyPI. */
const TYPOS = "1.52.0";

const require = createRequire(import.meta.url);
const tsc = () => require.resolve("typescript/bin/tsc");
const biome = () => require.resolve("@biomejs/biome/bin/biome");
const oxlint = () => join(dirname(require.resolve("oxlint/package.json")), "bin", "oxlint");

/** The checks by name, quick ones first. */
function checks(write) {
  const clippy = ["clippy", "--locked", "--quiet"];
  const strict = ["--", "-D", "warnings"];
  // The crate that people use, and those below it, without what tests add.
  const wasm = ["-p", "tinyloom", "--lib", "--target", "wasm32-unknown-unknown"];
  return {
    rustfmt: () => exitCode("cargo", ["fmt", "--all", ...(write ? [] : ["--check"])]),
    "rustfmt, the binder": () =>
      exitCode("cargo", ["fmt", "--manifest-path", bindgenManifest, ...(write ? [] : ["--check"])]),
    biome: () =>
      exitCode(process.execPath, [
        biome(),
        "check",
        ...(write ? ["--write"] : []),
        "--error-on-warnings",
      ]),
    // Types count. `import()` does not, which Biome's rule counts too: a lazy part needs the classes that it fills.
    "circles of imports": () => exitCode(process.execPath, [oxlint(), "pkg/src", "www"]),
    "tsc, the package": () => exitCode(process.execPath, [tsc(), "-p", "pkg"]),
    "tsc, the demo page": () => exitCode(process.execPath, [tsc(), "-p", "www", "--noEmit"]),
    typos: async () => exitCode(await typos(), write ? ["--write-changes"] : []),
    "clippy, wasm32": () => exitCode("cargo", [...clippy, ...wasm, ...strict]),
    "cargo doc": () =>
      exitCode("cargo", ["doc", "--no-deps", "--locked", "--quiet"], {
        env: { RUSTDOCFLAGS: "-D warnings" },
      }),
    // With the tests' bodies, which are most of the code. Dead code that only they use is found by the run for wasm32,
    // which builds without them.
    "clippy, native": () =>
      exitCode("cargo", [...clippy, "--all-targets", "--features", "testing", ...strict]),
  };
}

/** The spelling checker: on PATH, or its PyPI wheel under target, or built by cargo. */
async function typos() {
  if (which("typos")) return "typos";
  const home = join(target, "tools", `typos-${TYPOS}`);
  const program = join(home, "bin", process.platform === "win32" ? "typos.exe" : "typos");
  if (existsSync(program)) return program;
  const python = which("python3") ?? which("python");
  if (python && capture(python, ["-m", "pip", "--version"])) {
    step(`installing typos ${TYPOS} from PyPI`);
    const pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--root-user-action=ignore"];
    await run(python, [...pip, "--target", home, `typos==${TYPOS}`]);
  } else {
    step(`building typos ${TYPOS}, once`);
    const args = ["install", "typos-cli", "--version", TYPOS, "--locked", "--quiet"];
    await run("cargo", [...args, "--root", home]);
  }
  return program;
}

/** The checks that take the compiler, as tests with keys: each depends on the whole crate. */
function compilerTests(names) {
  const rust = sourcesBelow(["src", "crates", "shaders", "scripts", "examples"]).filter((path) =>
    /\.(rs|wgsl|toml)$/.test(path),
  );
  const more = ["Cargo.toml", "Cargo.lock", "clippy.toml", "scripts/check.mjs"];
  const inputs = hashOf([...rust, ...more]);
  const compiler = [capture("rustc", ["-vV"]) ?? "", process.env.RUSTFLAGS ?? ""];
  const key = (name) => keyOf(name, inputs, ...compiler);
  return names.map((name) => ({ name, group: name.replaceAll(" ", "-"), key: key(name) }));
}

if (isMain(import.meta.url)) {
  await main(async () => {
    const [write, quick, keyed] = ["--write", "--quick", "--keyed"].map((word) =>
      process.argv.includes(word),
    );
    const all = Object.entries(checks(write));
    const ofCompiler = ([name]) => /^(clippy|cargo)/.test(name);
    const tests = compilerTests(all.filter(ofCompiler).map(([name]) => name));
    const gate = openTests("checks", tests, keyed ? "rest" : "whole");
    const chosen = gate.run.map(({ name }) => name);
    const compiled = quick ? [] : all.filter(([name]) => chosen.includes(name));
    await setup({ rust: compiled.length > 0, components: ["rustfmt", "clippy"] });
    const failed = [];
    // Those of cargo wait for one another; the others use the second core meanwhile.
    await Promise.all(
      [compiled, all.filter((one) => !ofCompiler(one))].map(async (group) => {
        for (const [name, check] of group) {
          step(`check: ${name}`);
          if ((await check()) !== 0) failed.push(name);
          else if (chosen.includes(name)) gate.passed(name);
        }
      }),
    );
    if (failed.length === 0 && compiled.length === chosen.length) gate.ended();
    const audits = write || quick ? { failed: [], unchecked: [] } : await audit();
    failed.push(...audits.failed);
    if (failed.length > 0) throw new Failure(`failed: ${failed.join(", ")}`);
    const left = all.length - compiled.length - all.filter((one) => !ofCompiler(one)).length;
    const open = audits.unchecked;
    step(
      `all checks passed${left > 0 ? `; ${left} of the compiler ${quick ? "were left out" : "had passed as they are"}` : ""}` +
        `${open.length > 0 ? `; not checked: ${open.join(", ")}` : ""}`,
    );
  });
}
