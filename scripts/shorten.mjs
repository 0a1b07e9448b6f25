// Short names for what the wasm module imports and exports. wasm-bindgen's imports end in a hash of 16 digits each, which
// no compression shortens: 4 KB of the module and of its glue together. Its exports take another 1.2 KB of the module and
// 0.4 KB of the glue. The declarations get the same names.
import { readFileSync, writeFileSync } from "node:fs";
import { EXPORTS, IMPORTS, leb, named, Reader, sections, withSections } from "./wasm.mjs";

/** Exports by which `pkg/src/wasm-compile.ts` knows the module. */
const KEPT = ["memory", "rawruntime_create"];
/** The exports that the glue uses. */
const USED = /(?<=\bwasm\.)\w+/g;
/** Those that the declarations of the module, and of what the glue makes of it, have. */
const DECLARED = /(?<=^(?:export const| {4}readonly) )\w+(?=:)/gm;

/** Gives the module's imports and exports short names, in its file, in that of its glue and in the declarations of both. */
export function shortenNames(wasm, glue) {
  const bytes = readFileSync(wasm);
  const js = readFileSync(glue, "utf8");
  const imports = new Map();
  const used = js.match(USED).filter((name) => !KEPT.includes(name));
  const exports = new Map([...new Set(used)].map((name, at) => [name, `e${at.toString(36)}`]));
  const parts = sections(bytes).map((part) => {
    if (part.id === IMPORTS) return { ...part, content: renamedImports(part.content, imports) };
    if (part.id === EXPORTS) return { ...part, content: renamedExports(part.content, exports) };
    return part;
  });
  const short = replaced(js, /\b__wb\w+/g, imports);
  writeFileSync(wasm, withSections(bytes, parts));
  writeFileSync(glue, replaced(short, USED, exports));
  for (const file of [`${wasm}.d.ts`, glue.replace(/\.js$/, ".d.ts")]) {
    writeFileSync(file, replaced(readFileSync(file, "utf8"), DECLARED, exports));
  }
}

/** The glue, or a declaration, with other names, each of which it has to have. */
function replaced(source, pattern, names) {
  const found = new Set();
  const text = source.replace(pattern, (name) => {
    if (names.has(name)) found.add(name);
    return names.get(name) ?? name;
  });
  const missing = [...names.keys()].filter((name) => !found.has(name));
  if (missing.length > 0) throw new Error(`it has no ${missing.join(", ")}`);
  return text;
}

/** The import section with short names, which are added to the map. */
function renamedImports(content, names) {
  const reader = new Reader(content);
  const count = reader.number();
  const section = [leb(count)];
  for (let at = 0; at < count; at++) {
    const from = reader.name();
    const field = reader.name();
    const short = names.get(field) ?? `i${names.size.toString(36)}`;
    names.set(field, short);
    section.push(named(from), named(short), reader.description().bytes);
  }
  return Buffer.concat(section);
}

/** The export section with short names for those in the map. */
function renamedExports(content, names) {
  const reader = new Reader(content);
  const count = reader.number();
  const section = [leb(count)];
  for (let at = 0; at < count; at++) {
    const name = reader.name();
    section.push(named(names.get(name) ?? name));
    section.push(Uint8Array.of(reader.byte()), leb(reader.number()));
  }
  return Buffer.concat(section);
}
