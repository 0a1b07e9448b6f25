// `npm run sizes`: what the bytes of the wasm module are spent on, by crate and by room of `src`. The module
// is the published one with the names of its functions left in.
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { build, optimised } from "./build.mjs";
import { main } from "./lib.mjs";

const [IMPORTS, CODE, DATA] = [2, 10, 11];

/** Reads the numbers and byte strings of a module one after the other. */
class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }

  /** An unsigned number in LEB128. */
  number() {
    for (let [value, scale] = [0, 1]; ; scale *= 128) {
      const byte = this.bytes[this.at++];
      value += (byte & 127) * scale;
      if (byte < 128) return value;
    }
  }

  /** As many bytes as the number before them says. */
  part() {
    const length = this.number();
    this.at += length;
    return this.bytes.subarray(this.at - length, this.at);
  }

  skip(count) {
    this.at += count;
  }
}

const text = (bytes) => new TextDecoder().decode(bytes);

/** Sections of the module by number, the custom ones by name. */
function sections(bytes) {
  const found = new Map();
  const reader = new Reader(bytes);
  reader.skip(8);
  while (reader.at < bytes.length) {
    const id = bytes[reader.at++];
    const body = new Reader(reader.part());
    const name = id === 0 ? text(body.part()) : id;
    found.set(name, body);
  }
  return found;
}

/** How many functions the module imports: the first of its own has this number. */
function importedFunctions(reader) {
  let count = 0;
  for (let left = reader.number(); left > 0; left--) {
    reader.part();
    reader.part();
    const kind = reader.bytes[reader.at++];
    if (kind === 0) {
      count++;
      reader.number();
      continue;
    }
    // Tables and memories have limits; globals a type and whether they change.
    if (kind === 1) reader.skip(1);
    if (kind === 3) reader.skip(2);
    else {
      const flags = reader.number();
      reader.number();
      if (flags & 1) reader.number();
    }
  }
  return count;
}

/** Names of functions by number, from the section of names. */
function functionNames(reader) {
  const names = new Map();
  while (reader.at < reader.bytes.length) {
    const kind = reader.bytes[reader.at++];
    const body = new Reader(reader.part());
    if (kind !== 1) continue;
    for (let left = body.number(); left > 0; left--) names.set(body.number(), text(body.part()));
  }
  return names;
}

/** The crate that a function is of, and for this crate the room: `tinyloom kernels`. */
function owner(name = "") {
  // Exported methods, and their asynchronous bodies, which the compiler puts into the promise's function.
  if (name.startsWith("raw") || name.startsWith("js_sys::futures")) return "tinyloom web, calls";
  const path = /([a-z][a-z0-9_]*)::(?:_::<impl )?([a-z0-9_]*)/;
  const [, crate, room] = path.exec(name.replace(/\[[0-9a-f]+\]/g, "")) ?? [];
  if (crate === "tinyloom") return `tinyloom ${room}`;
  if (["core", "alloc", "std", "compiler_builtins"].includes(crate)) return "Rust's own library";
  return crate ?? "other";
}

function table(bytes) {
  const found = sections(bytes);
  const names = functionNames(found.get("name"));
  const first = importedFunctions(found.get(IMPORTS));
  const code = found.get(CODE);
  const owners = new Map();
  const count = code.number();
  for (let index = 0; index < count; index++) {
    const who = owner(names.get(first + index));
    const bodies = owners.get(who) ?? [];
    bodies.push(code.part());
    owners.set(who, bodies);
  }
  const rows = [...owners].map(([who, bodies]) => [who, Buffer.concat(bodies)]);
  rows.push(["constants and the shaders' text", found.get(DATA).bytes]);
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
