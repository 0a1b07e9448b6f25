// Short names for what the wasm module imports. wasm-bindgen's end in a hash of 16 digits each, which no
// compression shortens: 4 KB of the module and of its glue together.
import { readFileSync, writeFileSync } from "node:fs";
import { IMPORTS, leb, named, Reader, sections, withSections } from "./wasm.mjs";

/** Gives the module's imports short names, in its file and in that of its glue. */
export function shortenImports(wasm, glue) {
  const bytes = readFileSync(wasm);
  const names = new Map();
  const parts = sections(bytes).map((part) =>
    part.id === IMPORTS ? { ...part, content: renamed(part.content, names) } : part,
  );
  const js = readFileSync(glue, "utf8");
  const found = new Set();
  const short = js.replace(/\b__wb\w+/g, (name) => {
    if (names.has(name)) found.add(name);
    return names.get(name) ?? name;
  });
  const missing = [...names.keys()].filter((name) => !found.has(name));
  if (missing.length > 0) throw new Error(`the glue has no ${missing.join(", ")}`);
  writeFileSync(wasm, withSections(bytes, parts));
  writeFileSync(glue, short);
}

/** The import section with short names, which are added to the map. */
function renamed(content, names) {
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
