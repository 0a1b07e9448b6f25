// Formatting, lints, types and spelling. `--write` formats instead of checking the format. `--cargo` does what takes
// the compiler, and the audit; `--quick` does the rest.
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { audit } from "./audit.mjs";
import { capture, exitCode, Failure, isMain, main, run, step, target, which } from "./lib.mjs";
import { bindgenManifest, setup } from "./setup.mjs";

/** Version of the spelling checker, as released on PyPI. */
const TYPOS = "1.52.0";

const require = createRequire(import.meta.url);
const tsc = () => require.resolve("typescript/bin/tsc");
const biome = () => require.resolve("@biomejs/biome/bin/biome");

/** The checks by name, quick ones first. */
function checks(write) {
  const clippy = ["clippy", "--locked", "--quiet"];
  const strict = ["--", "-D", "warnings"];
  const wasm = ["--lib", "--target", "wasm32-unknown-unknown"];
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

if (isMain(import.meta.url)) {
  await main(async () => {
    const [write, quick, compiled] = ["--write", "--quick", "--cargo"].map((word) =>
      process.argv.includes(word),
    );
    await setup({ components: ["rustfmt", "clippy"] });
    const failed = [];
    const all = Object.entries(checks(write));
    const cargo = all.filter(([name]) => /^(clippy|cargo)/.test(name));
    const others = all.filter((one) => !cargo.includes(one));
    // Those of cargo wait for one another; the others use the second core meanwhile.
    await Promise.all(
      [...(quick ? [] : [cargo]), ...(compiled ? [] : [others])].map(async (group) => {
        for (const [name, check] of group) {
          step(`check: ${name}`);
          if ((await check()) !== 0) failed.push(name);
        }
      }),
    );
    const audits = write || quick ? { failed: [], unchecked: [] } : await audit();
    failed.push(...audits.failed);
    if (failed.length > 0) throw new Failure(`failed: ${failed.join(", ")}`);
    const open = audits.unchecked;
    step(`all checks passed${open.length > 0 ? `; not checked: ${open.join(", ")}` : ""}`);
  });
}
