// What is known against the dependencies: licences, bans and sources of crates, and advisories of crates and npm
// packages. And whether crates.io would take the crates (tests/package does the same for npm). A service that does not answer, or a program that is not here, is "not checked", and never passed.
// `node scripts/audit.mjs` first installs cargo-deny; the checks use it where it is.
import { spawn } from "node:child_process";
import { join, relative } from "node:path";
import { capture, Failure, isMain, main, root, run, step, target } from "./lib.mjs";
import { bindgenManifest } from "./setup.mjs";

/** Version of cargo-deny that is installed. */
const DENY = "0.20.2";
/** Milliseconds for a service to answer. */
const PATIENCE = 60_000;
const TOOLS = join(target, "tools");
/** The project's crates, and the binder, which runs where the module is built. */
const MANIFESTS = [join(root, "Cargo.toml"), bindgenManifest];

/** `cargo deny` on PATH, or where `installDeny` puts it. */
function findDeny() {
  const own = join(TOOLS, "bin", process.platform === "win32" ? "cargo-deny.exe" : "cargo-deny");
  return ["cargo-deny", own].find((path) => capture(path, ["--version"]));
}

/** Builds cargo-deny under target/tools: two minutes, once. */
async function installDeny() {
  if (findDeny()) return;
  step(`building cargo-deny ${DENY}, once (about two minutes)`);
  const args = ["install", "cargo-deny", "--version", DENY, "--locked", "--quiet", "--root", TOOLS];
  const profile = { OPT_LEVEL: "0", LTO: "off", CODEGEN_UNITS: "16" };
  const names = Object.entries(profile).map(([name, value]) => [
    `CARGO_PROFILE_RELEASE_${name}`,
    value,
  ]);
  await run("cargo", args, { env: Object.fromEntries(names) });
}

/** Runs a program; gives its exit code and what it printed. */
function outcome(command, args) {
  return new Promise((done) => {
    const child = spawn(command, args, { cwd: root, timeout: PATIENCE });
    let [out, err] = ["", ""];
    child.stdout.on("data", (text) => {
      out += text;
    });
    child.stderr.on("data", (text) => {
      err += text;
    });
    child.on("error", (error) => done({ code: error.message, out, err }));
    child.on("close", (code, signal) => done({ code: code ?? signal, out, err }));
  });
}

const failed = (why) => ({ state: "failed", why });
const unchecked = (why) => ({ state: "not checked", why });
const PASSED = { state: "passed" };

/** What one check of cargo-deny comes to. */
export function judgeDeny({ code, err }) {
  if (code === 0) return PASSED;
  const away = /failed to (?:fetch|clone|open|update)[^\n]*/.exec(err)?.[0];
  const found = / FAILED/.test(err); // its summary, which it prints when it has checked
  if (found) return failed(err.trim());
  return unchecked(away ?? `cargo-deny ended with ${code}: ${err.trim().slice(-400)}`);
}

/** What a rehearsal of `cargo publish` comes to. */
export function judgePublish({ code, err }) {
  if (code === 0) return PASSED;
  const away = /failed to (?:fetch|download|update|query)[^\n]*|HTTP request[^\n]*/.exec(err)?.[0];
  // A signal: the registry has not answered in time.
  return away || typeof code === "string" ? unchecked(away ?? code) : failed(err.trim());
}

/** What the answer of `npm audit --json` comes to: high and critical advisories fail. */
export function judgeNpm({ code, out, err }) {
  let report;
  try {
    report = JSON.parse(out);
  } catch {
    // no answer
  }
  const counts = report?.metadata?.vulnerabilities;
  if (!counts) {
    const why = report?.message ?? report?.error?.summary ?? err.trim().split("\n").at(-1);
    return unchecked(why || `npm audit ended with ${code}`);
  }
  const grave = (counts.high ?? 0) + (counts.critical ?? 0);
  if (grave > 0) {
    const names = Object.values(report.vulnerabilities)
      .filter(({ severity }) => /^(high|critical)$/.test(severity))
      .map(({ name, severity }) => `${name} (${severity})`);
    return failed(`${grave} packages with advisories: ${names.join(", ")}; see npm audit`);
  }
  return PASSED;
}

/** Packs each crate as crates.io would get it. That it builds is for the other checks. */
const REHEARSAL = [
  "publish",
  "--workspace",
  "--dry-run",
  "--no-verify",
  "--locked",
  "--allow-dirty",
  "--quiet",
];

/** Each audit by name: `{ state: "passed" | "failed" | "not checked", why }`. */
export const AUDITS = {
  "cargo deny: licences, bans, sources": () => deny(["licenses", "bans", "sources"], ["--offline"]),
  "cargo deny: advisories": () => deny(["advisories"]),
  "cargo publish, as a rehearsal": async () => judgePublish(await outcome("cargo", REHEARSAL)),
  "npm audit": async () => judgeNpm(await outcome("npm", ["audit", "--json"])),
};

async function deny(checks, options = []) {
  const program = findDeny();
  if (!program) return unchecked("cargo-deny is not here; npm run audit installs it");
  const args = [
    "--color",
    "never",
    "--workspace",
    "--all-features",
    "--config",
    join(root, "deny.toml"),
  ];
  const check = ["check", "--hide-inclusion-graph", ...checks];
  for (const manifest of MANIFESTS) {
    const where = ["--manifest-path", manifest];
    const judged = judgeDeny(await outcome(program, [...options, ...args, ...where, ...check]));
    // A service that is away for the one is away for the other.
    if (judged.state !== "passed") {
      return { ...judged, why: `${relative(root, manifest)}: ${judged.why}` };
    }
  }
  return PASSED;
}

/** Runs the audits and says what each came to; gives the names of those that failed and were not made. */
export async function audit() {
  const result = { failed: [], unchecked: [] };
  for (const [name, work] of Object.entries(AUDITS)) {
    const { state, why } = await work();
    step(`${name}: ${state}${why ? `: ${why}` : ""}`);
    if (state === "failed") result.failed.push(name);
    if (state === "not checked") result.unchecked.push(name);
  }
  return result;
}

if (isMain(import.meta.url)) {
  await main(async () => {
    await installDeny();
    const { failed: wrong, unchecked: open } = await audit();
    if (wrong.length > 0) throw new Failure(`failed: ${wrong.join(", ")}`);
    step(open.length > 0 ? `not checked: ${open.join(", ")}` : "all audits passed");
  });
}
