// Short names for what the wasm module imports. wasm-bindgen's end in a hash of 16 digits each, which no
// compression shortens: 4 KB of the module and of its glue together.
import { readFileSync, writeFileSync } from "node:fs";

const IMPORTS = 2;
const text = new TextDecoder();

/** Reads a wasm binary from `at` on. */
class Reader {
  constructor(bytes, at = 0) {
    this.bytes = bytes;
    this.at = at;
  }

  byte() {
    return this.bytes[this.at++];
  }

  /** An unsigned LEB128 number. */
  number() {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = this.byte();
      value += (byte & 127) * 2 ** shift;
      if (byte < 128) return value;
    }
  }

  take(length) {
    this.at += length;
    return this.bytes.subarray(this.at - length, this.at);
  }

  name() {
    return text.decode(this.take(this.number()));
  }

  /** The rest of an import: its kind and type, as they are. */
  description() {
    const begin = this.at;
    const kind = this.byte();
    const limits = () => {
      const flags = this.byte();
      this.number();
      if (flags & 1) this.number();
    };
    if (kind === 1) this.byte(); // a table's element type
    if (kind === 0) this.number();
    else if (kind === 1 || kind === 2) limits();
    else if (kind === 3) this.take(2);
    else throw new Error(`an import of kind ${kind}`);
    return this.bytes.subarray(begin, this.at);
  }
}

function leb(value) {
  const bytes = [];
  for (let left = value; ; left = Math.floor(left / 128)) {
    if (left < 128) return Uint8Array.from([...bytes, left]);
    bytes.push((left % 128) + 128);
  }
}

function named(name) {
  const bytes = Buffer.from(name);
  return Buffer.concat([leb(bytes.length), bytes]);
}

/** Gives the module's imports short names, in its file and in that of its glue. */
export function shortenImports(wasm, glue) {
  const bytes = readFileSync(wasm);
  const names = new Map();
  const parts = [bytes.subarray(0, 8)];
  const reader = new Reader(bytes, 8);
  while (reader.at < bytes.length) {
    const begin = reader.at;
    const id = reader.byte();
    const size = reader.number();
    const content = reader.take(size);
    if (id !== IMPORTS) {
      parts.push(bytes.subarray(begin, reader.at));
      continue;
    }
    const section = Buffer.concat(renamed(content, names));
    parts.push(Uint8Array.of(id), leb(section.length), section);
  }
  const js = readFileSync(glue, "utf8");
  const found = new Set();
  const short = js.replace(/\b__wb\w+/g, (name) => {
    if (names.has(name)) found.add(name);
    return names.get(name) ?? name;
  });
  const missing = [...names.keys()].filter((name) => !found.has(name));
  if (missing.length > 0) throw new Error(`the glue has no ${missing.join(", ")}`);
  writeFileSync(wasm, Buffer.concat(parts));
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
    section.push(named(from), named(short), reader.description());
  }
  return section;
}
