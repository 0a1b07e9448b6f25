// Loaded into each test file's process: a file of the repository that is read and not among the file's inputs makes it
// fail. Otherwise the file's key would not change with what it reads. It also writes down which kernels the file's pages
// dispatched.
//
// What its child processes read is not seen.
import processes from "node:child_process";
import fs, { existsSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { dirname, join, relative, resolve, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { isMainThread } from "node:worker_threads";
import { root } from "../../scripts/lib.mjs";
import { Kernels, madeFile } from "./made.mjs";
import { recorded } from "./record.mjs";

/** What no key has to have: what is built or installed, the gate, and what the sets of inputs.mjs have for every test. */
const FREE =
  /^(target|node_modules|\.git|pkg|tests\/gate|www\/(dist|dist-node|node_modules)|docs\/api|shaders|src|crates\/(model|gpu))(\/|$)|^crates\/kernels\/(?!tests|src\/(testing|twins))|^(crates|Cargo\.(toml|lock)|package-lock\.json)?$/;

const file = relative(root, process.argv[1] ?? "")
  .split(sep)
  .join("/");
const ownKeys = existsSync(join(root, file.replace(/\.test\.mjs$/, ".keys.mjs")));
if (isMainThread && file.endsWith(".test.mjs") && !file.startsWith("tests/gate/") && !ownKeys) {
  const { closureOf } = await import("./inputs.mjs");
  const { modules, reads } = await closureOf(file);
  watch([...modules, ...reads.map((path) => path.split("#")[0])]);
  tellKernels();
}

function watch(inputs) {
  const unknown = new Set();
  const within = (input) => {
    const [folder, ending] = input.split("/*");
    return ending === undefined
      ? (path) => path === input || path.startsWith(`${input}/`)
      : (path) => path === folder || (dirname(path) === folder && path.endsWith(ending));
  };
  const inside = (path) => inputs.some((input) => within(input)(path));
  const note = (given) => {
    const path =
      given instanceof URL ? fileURLToPath(given) : typeof given === "string" ? given : undefined;
    if (path === undefined) return;
    const own = relative(root, resolve(path)).split(sep).join("/");
    if (own.startsWith("..") || FREE.test(own) || inside(own)) return;
    if (existsSync(path)) unknown.add(own);
  };
  const heard = (owner, names) => {
    for (const name of names) {
      const original = owner[name];
      owner[name] = function (path, ...rest) {
        note(path);
        return original.call(this, path, ...rest);
      };
    }
  };
  heard(fs, [
    "readFileSync",
    "readFile",
    "createReadStream",
    "readdirSync",
    "readdir",
    "openAsBlob",
  ]);
  heard(fs.promises, ["readFile", "readdir"]);
  syncBuiltinESMExports();
  process.on("exit", () => {
    if (unknown.size === 0) return;
    console.error(
      `${relative(root, process.argv[1])} reads what it does not name, so that its key would stay: add a line "// reads: ${[...unknown].join(" ")}"`,
    );
    process.exitCode = 1;
  });
}

/** What may run kernels unseen: another process than a browser whose pages are recorded, or Dawn in this one. */
function tellKernels() {
  let dawn = false;
  const children = [];
  const { spawn, fork, spawnSync, execFileSync, execSync } = processes;
  const started =
    (start) =>
    (...given) => {
      const child = start(...given);
      children.push(child);
      return child;
    };
  processes.spawn = started(spawn);
  processes.fork = started(fork);
  // Of those that run to their end only what runs JavaScript or tests can use a GPU.
  const runs = /\b(node|npm|npx|cargo)\b/;
  const awaited =
    (start) =>
    (command, ...given) => {
      if (command === process.execPath || runs.test(command)) children.push({});
      return start(command, ...given);
    };
  Object.assign(processes, {
    spawnSync: awaited(spawnSync),
    execFileSync: awaited(execFileSync),
    execSync: awaited(execSync),
  });
  syncBuiltinESMExports();
  const { dlopen } = process;
  process.dlopen = (module, path, ...flags) => {
    dawn ||= /dawn/.test(path);
    return dlopen.call(process, module, path, ...flags);
  };
  process.on("exit", () => {
    const { browsers, complete, texts } = recorded;
    const known = complete && !dawn && browsers.size > 0;
    const own = known && children.every(({ pid }) => browsers.has(pid));
    const kernels = own ? new Kernels().of([...texts.values()]) : undefined;
    fs.mkdirSync(dirname(madeFile(file)), { recursive: true });
    fs.writeFileSync(madeFile(file), JSON.stringify(kernels ?? null));
  });
}
