// `npm run sizes`: what the bytes of the wasm module are spent on, by crate, and those of tinyloom by module. The module
// is the published one with the names of its functions left in.
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { build, optimised } from "./build.mjs";
import { main } from "./lib.mjs";
import { DATA, functionNames, functions, sections } from "./wasm.mjs";

/** The crate that a function is of, and for our own the module: `tinyloom_kernels lower`. */
function owner(name) {
  // Exported methods, and their asynchronous bodies, which the compiler puts into the promise's function.
  if (name.startsWith("raw") || name.startsWith("js_sys::futures")) return "tinyloom web, calls";
  const path = /([a-z][a-z0-9_]*)::(?:_::<impl )?([a-z0-9_]*)/;
  const [, crate, module] = path.exec(name.replace(/\[[0-9a-f]+\]/g, "")) ?? [];
  if (crate?.startsWith("tinyloom")) return `${crate} ${module}`;
  if (["core", "alloc", "std", "compiler_builtins"].includes(crate)) return "Rust's own library";
  return crate ?? "other";
}

function table(bytes) {
  const parts = sections(bytes);
  const names = functionNames(parts);
  const { first, bodies } = functions(parts);
  const owners = new Map();
  for (const [index, body] of bodies.entries()) {
    const who = owner(names.get(first + index) ?? "");
    owners.set(who, [...(owners.get(who) ?? []), body]);
  }
  const rows = [...owners].map(([who, own]) => [who, Buffer.concat(own)]);
  rows.push(["constants and the shaders' text", parts.find(({ id }) => id === DATA).content]);
  return rows
    .map(([who, part]) => [who, part.length, gzipSync(part, { level: 9 }).length])
    .sort((a, b) => b[2] - a[2]);
}

await main(async () => {
  await build();
  const folder = mkdtempSync(join(tmpdir(), "sizes-"));
  try {
    const rows = table(readFileSync(await optimised(folder, ["-g"])));
    const few = rows.filter(([, , zipped]) => zipped >= 1000);
    const rest = rows.slice(few.length);
    const sum = (column) => rest.reduce((total, row) => total + row[column], 0);
    console.log("| part | KB | gzipped by itself, KB |\n|---|---|---|");
    for (const [who, size, zipped] of [...few, ["smaller ones", sum(1), sum(2)]]) {
      console.log(`| ${who} | ${(size / 1000).toFixed(1)} | ${(zipped / 1000).toFixed(1)} |`);
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
});
