// Shared by every script: paths, announced steps, child processes. Imports nothing but Node.
import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { delimiter, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

/** The project's root folder. */
export const root = dirname(dirname(fileURLToPath(import.meta.url)));
/** Where cargo, and these scripts, keep what can be made again. */
export const target = resolve(root, process.env.CARGO_TARGET_DIR ?? "target");

const windows = process.platform === "win32";

/** A failure that a person can act on: printed without a stack. */
export class Failure extends Error {
  constructor(message, exitCode = 1) {
    super(message);
    this.exitCode = exitCode;
  }
}

/** Announces a step on stderr: stdout belongs to results. */
export function step(text) {
  const bold = process.stderr.isTTY && !process.env.NO_COLOR;
  process.stderr.write(bold ? `\x1b[1m▸ ${text}\x1b[0m\n` : `> ${text}\n`);
}

/** Runs a command to its end, its output on stderr; throws a Failure unless it exits with 0. */
export async function run(command, args, options = {}) {
  const code = await exitCode(command, args, options);
  if (code !== 0) throw new Failure(`${command} ${args.join(" ")} ended with exit code ${code}`);
}

/** Runs a command to its end and gives its exit code. */
export function exitCode(command, args, { env, cwd = root } = {}) {
  return new Promise((done, fail) => {
    const child = spawn(command, args, {
      cwd,
      env: { ...process.env, ...env },
      stdio: ["ignore", process.stderr, process.stderr],
      shell: windows && command === "npm",
    });
    child.on("error", (error) =>
      fail(new Failure(`${command} could not be started: ${error.message}`)),
    );
    child.on("exit", (code, signal) => done(code ?? `signal ${signal}`));
  });
}

/** A command's stdout, or undefined when it cannot be run or fails. */
export function capture(command, args) {
  const result = spawnSync(command, args, {
    cwd: root,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "ignore"],
  });
  return result.status === 0 ? result.stdout.trim() : undefined;
}

/** Full path of a command on PATH, or undefined. */
export function which(name) {
  const names = windows ? [`${name}.exe`, `${name}.cmd`] : [name];
  for (const folder of (process.env.PATH ?? "").split(delimiter)) {
    for (const file of names) {
      const path = join(folder, file);
      if (folder && existsSync(path)) return path;
    }
  }
  return undefined;
}

/** Every file below the given files and folders, sorted, as paths from the root. */
export function filesBelow(paths, skip = /(^|\/)(node_modules|dist|dist-node|target|\.git)(\/|$)/) {
  const found = [];
  const visit = (path) => {
    const full = resolve(root, path);
    // What a link leads to has a path of its own.
    const entry = lstatSync(full, { throwIfNoEntry: false });
    if (skip.test(path) || !entry || entry.isSymbolicLink()) return;
    if (!entry.isDirectory()) return void found.push(path);
    for (const name of readdirSync(full)) visit(`${path}/${name}`);
  };
  for (const path of paths) visit(path);
  return found.sort();
}

/** A hash over the names and contents of files, and over further strings. */
export function fingerprint(files, ...more) {
  const hash = createHash("sha256");
  for (const file of files) {
    hash.update(`${file}\0`);
    hash.update(readFileSync(resolve(root, file)));
  }
  for (const text of more) hash.update(`\0${text}`);
  return hash.digest("hex");
}

/**
 * Runs `work` unless it ran before with the same fingerprint and its outputs are still there.
 * Returns whether it ran.
 */
export async function unlessDone(name, print, outputs, work) {
  const stamp = join(target, "stamps", name);
  const done = existsSync(stamp) && readFileSync(stamp, "utf8") === print;
  if (done && outputs.every((path) => existsSync(resolve(root, path)))) return false;
  rmSync(stamp, { force: true }); // work that fails may have written some of its outputs
  await work();
  mkdirSync(dirname(stamp), { recursive: true });
  writeFileSync(stamp, print);
  return true;
}

/** Runs a script's main function: a Failure prints as one message, a defect with its stack. */
export async function main(work) {
  try {
    await work();
  } catch (error) {
    console.error(error instanceof Failure ? `\n${error.message}` : error);
    process.exitCode = error instanceof Failure ? error.exitCode : 1;
  }
}

/** What `parseArgs` says, without its advice. */
export const complaint = ({ message }) => message.split(". To specify")[0];

/** As `parseArgs`; ends the program with the message, and no stack, where the command line is wrong. */
export function commandLine(config) {
  try {
    return parseArgs(config);
  } catch (error) {
    const known = Object.keys(config.options).map((name) => `--${name}`);
    const unknown = error.code === "ERR_PARSE_ARGS_UNKNOWN_OPTION";
    console.error(unknown ? `${complaint(error)}; there is ${known.join(", ")}` : error.message);
    return process.exit(2);
  }
}

/** Whether the module of this URL is the program that Node was started with. */
export function isMain(url) {
  return process.argv[1] !== undefined && resolve(process.argv[1]) === fileURLToPath(url);
}
