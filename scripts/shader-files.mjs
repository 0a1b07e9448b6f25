// Which files a kernel's text can be joined from, by the name of its entry point. tests/shaders.rs holds the names of the
// files, and their `// uses:` lines, to what kernels are joined from.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { filesBelow, root } from "./lib.mjs";

const USES = "// uses: ";

/** Files below `shaders`, without the ending, and what each names in its first line. */
function readShaders() {
  const files = filesBelow(["shaders"]).filter((file) => file.endsWith(".wgsl"));
  return new Map(
    files.map((file) => {
      const name = file.slice("shaders/".length, -".wgsl".length);
      const [first] = readFileSync(join(root, file), "utf8").split("\n", 1);
      const line = first.startsWith(USES) ? first.slice(USES.length) : "";
      return [name, line.split(/, | or /).map((module) => `lib/${module.trim()}`)];
    }),
  );
}

const isEntry = (file) => /^\d\d_/.test(file);

/**
 * Whether an entry point can be of a file: its name begins with the file's, or with the file's without the last word,
 * which may name a form. More files fit than can be joined, and none is missing.
 */
function leads(entry, file) {
  const name = file.slice("00_".length);
  const formless = name.slice(0, Math.max(0, name.lastIndexOf("_")));
  const begins = (part) => part !== "" && `${entry}_`.startsWith(`${part}_`);
  return begins(name) || begins(formless);
}

/**
 * The files, from the project's root, that a kernel of this name can be joined from: its entry point's, and the modules
 * that these name. Every file, where no file fits the name.
 */
export function shaderFiles(entry) {
  const shaders = readShaders();
  const found = new Set([...shaders.keys()].filter((file) => isEntry(file) && leads(entry, file)));
  if (found.size === 0) for (const file of shaders.keys()) found.add(file);
  // A set that grows is walked to its end. What names no file, Rust writes.
  for (const file of found)
    for (const module of shaders.get(file)) if (shaders.has(module)) found.add(module);
  return [...found].sort().map((file) => `shaders/${file}.wgsl`);
}
