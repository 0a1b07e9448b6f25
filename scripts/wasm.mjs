// Reads the binary format of wasm, as far as `npm run sizes` needs it.

/** Numbers of sections. Custom ones have number 0 and a name. */
const CUSTOM = 0;
const IMPORTS = 2;
const CODE = 10;
export const DATA = 11;

const decoder = new TextDecoder();

/** Reads numbers, byte strings and names one after the other. */
class Reader {
  constructor(bytes, at = 0) {
    this.bytes = bytes;
    this.at = at;
  }

  get done() {
    return this.at >= this.bytes.length;
  }

  byte() {
    return this.bytes[this.at++];
  }

  /** An unsigned number in LEB128. */
  number() {
    for (let [value, scale] = [0, 1]; ; scale *= 128) {
      const byte = this.byte();
      value += (byte & 127) * scale;
      if (byte < 128) return value;
    }
  }

  take(length) {
    this.at += length;
    return this.bytes.subarray(this.at - length, this.at);
  }

  /** As many bytes as the number before them says. */
  part() {
    return this.take(this.number());
  }

  name() {
    return decoder.decode(this.part());
  }

  /** Passes the rest of an import, and gives its kind: 0 is a function. */
  kind() {
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
    return kind;
  }
}

/** The module's sections in their order: number, name of a custom one, and content, which begins with that name. */
export function sections(bytes) {
  const found = [];
  const reader = new Reader(bytes, 8);
  while (!reader.done) {
    const id = reader.byte();
    const content = reader.part();
    const name = id === CUSTOM ? new Reader(content).name() : undefined;
    found.push({ id, name, content });
  }
  return found;
}

/** Bodies of the module's own functions, and the number of the first, before which the imported ones come. */
export function functions(parts) {
  const content = (wanted) => parts.find(({ id }) => id === wanted).content;
  const imports = new Reader(content(IMPORTS));
  let first = 0;
  for (let left = imports.number(); left > 0; left--) {
    imports.name();
    imports.name();
    if (imports.kind() === 0) first++;
  }
  const code = new Reader(content(CODE));
  const bodies = Array.from({ length: code.number() }, () => code.part());
  return { first, bodies };
}

/** Names of functions by number: none in a module without a section of names. */
export function functionNames(parts) {
  const names = new Map();
  const section = parts.find(({ name }) => name === "name");
  if (!section) return names;
  const reader = new Reader(section.content);
  reader.name();
  while (!reader.done) {
    const kind = reader.byte();
    const body = new Reader(reader.part());
    if (kind !== 1) continue;
    for (let left = body.number(); left > 0; left--) names.set(body.number(), body.name());
  }
  return names;
}
