// Seeded damage: to bytes, and to values of JSON.
import { mulberry32 } from "../random.mjs";

/** Choices of a generator. */
export class Chance {
  constructor(seed) {
    this.next = mulberry32(seed);
  }

  below(n) {
    return Math.floor(this.next() * n);
  }

  of(list) {
    return list[this.below(list.length)];
  }
}

const NUMBERS = [
  0,
  -0,
  1,
  -1,
  2,
  3,
  7,
  63,
  64,
  65,
  0.5,
  -0.5,
  1e-45,
  1e-300,
  255,
  256,
  65_535,
  65_536,
  2 ** 31,
  2 ** 31 - 1,
  2 ** 32,
  2 ** 32 - 1,
  2 ** 53,
  2 ** 53 - 1,
  2 ** 63,
  2 ** 64,
  1e300,
  -1e300,
];
const VALUES = [
  ...NUMBERS,
  null,
  true,
  false,
  "",
  "x",
  "0",
  "llama",
  "gpt2",
  "NaN",
  "\u0000",
  "\ud800",
  "__proto__",
  "é😀",
  "x".repeat(5000),
  [],
  {},
  [0],
  [null],
  [[]],
  [1, 2, 3],
  { "": 0 },
  { type: "x" },
  { rope_type: "yarn" },
];

/** Every place of a JSON value: its holder and its key. */
function placesOf(value, found = []) {
  if (typeof value !== "object" || value === null) return found;
  for (const key of Object.keys(value)) {
    found.push([value, key]);
    placesOf(value[key], found);
  }
  return found;
}

/** Changes one place of a JSON value. */
const CHANGES = {
  replace: ([holder, key], { of }) => {
    holder[key] = structuredClone(of(VALUES));
  },
  nudge: ([holder, key], { of }) => {
    const old = holder[key];
    if (typeof old === "number")
      holder[key] = of([old + 1, old - 1, -old, old * 2, old / 2, old * 2 ** 32]);
    else if (typeof old === "string")
      holder[key] = of([`${old}x`, old.slice(1), old.toUpperCase()]);
    else holder[key] = of([null, 1, "x"]);
  },
  remove: ([holder, key]) => {
    if (Array.isArray(holder)) holder.splice(Number(key), 1);
    else delete holder[key];
  },
  rename: ([holder, key], { of }) => {
    const value = holder[key];
    if (Array.isArray(holder)) return void holder.push(structuredClone(value));
    delete holder[key];
    holder[of([`${key}x`, key.slice(1), "", "__proto__x", key.toUpperCase()])] = value;
  },
  swap: ([holder, key], chance, places) => {
    const [other, name] = chance.of(places);
    const [mine, theirs] = structuredClone([holder[key], other[name]]);
    holder[key] = theirs;
    other[name] = mine;
  },
  nest: ([holder, key], { below }) => {
    let deep = holder[key];
    for (let depth = [1, 10, 200, 20_000][below(4)]; depth > 0; depth--) deep = [deep];
    holder[key] = deep;
  },
};

/** JSON with a changed value; undefined where it cannot be written, such as one nested too deeply. */
export function damagedJson(text, chance) {
  const root = { value: JSON.parse(text) };
  const places = placesOf(root.value);
  if (places.length === 0) return "null";
  const bound = { of: (list) => chance.of(list), below: (n) => chance.below(n) };
  const times = chance.of([1, 1, 1, 2]);
  for (let i = 0; i < times; i++) {
    const [name, change] = chance.of(Object.entries(CHANGES));
    // Of a tree that an earlier change made deeper than the stack, nothing is left to be changed.
    try {
      change(chance.of(i === 0 ? places : placesOf(root.value)) ?? [root, "value"], bound, places);
      if (name === "nest") break;
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
    }
  }
  if (chance.below(40) === 0) root.value = structuredClone(chance.of(VALUES));
  let json;
  try {
    json = JSON.stringify(root.value);
  } catch {
    json = `${"[".repeat(50_000)}${"]".repeat(50_000)}`; // deeper, or in a circle
  }
  if (chance.below(12) === 0) json = json.replace(/"[^"]*":/, (key) => `${key}1,${key}`); // twice
  return json ?? "null";
}

/** Bytes with one kind of damage. */
const DAMAGE = {
  flip: (bytes, chance) => {
    bytes[chance.below(bytes.length)] ^= 1 << chance.below(8);
    return bytes;
  },
  set: (bytes, chance) => {
    const at = chance.below(bytes.length);
    bytes.fill(chance.of([0, 255, 127, 128, 34, 48, 125]), at, at + 1 + chance.below(16));
    return bytes;
  },
  cut: (bytes, chance) => bytes.slice(0, chance.below(bytes.length)),
  drop: (bytes, chance) => {
    const at = chance.below(bytes.length);
    const rest = bytes.slice(at + 1 + chance.below(32));
    const kept = new Uint8Array(at + rest.length);
    kept.set(bytes.subarray(0, at));
    kept.set(rest, at);
    return kept;
  },
  grow: (bytes, chance) => {
    const more = chance.of([1, 4, 8, 256, 4096]);
    const grown = new Uint8Array(bytes.length + more);
    const at = chance.of([0, bytes.length, chance.below(bytes.length)]);
    grown.set(bytes.subarray(0, at));
    grown.set(bytes.subarray(at), at + more);
    return grown;
  },
  move: (bytes, chance) => {
    const length = 1 + chance.below(Math.min(256, bytes.length));
    const [from, to] = [chance.below(bytes.length), chance.below(bytes.length)];
    bytes.copyWithin(to, from, from + length);
    return bytes;
  },
  length: (bytes, chance) => {
    if (bytes.length < 8) return bytes.slice(0, 0);
    const view = new DataView(bytes.buffer, bytes.byteOffset);
    const old = view.getBigUint64(0, true);
    const n = BigInt(chance.below(64));
    view.setBigUint64(0, chance.of([0n, old + n, old - n, 1n << n, (1n << 64n) - 1n - n]), true);
    return bytes;
  },
  empty: () => new Uint8Array(0),
};

/** A damaged copy of bytes. */
export function damagedBytes(bytes, chance) {
  let copy = bytes.slice();
  const names = Object.keys(DAMAGE);
  for (let times = chance.of([1, 1, 1, 2, 4]); times > 0 && copy.length > 0; times--) {
    copy = DAMAGE[chance.next() < 0.02 ? "empty" : chance.of(names.slice(0, -1))](copy, chance);
  }
  return copy;
}

const encode = (text) => new TextEncoder().encode(text);
const decode = (bytes) => new TextDecoder().decode(bytes);

/** A damaged copy of a file: of its bytes, or of the JSON that it is or begins with. */
export function damagedFile(name, bytes, chance) {
  if (chance.next() < 0.4) return damagedBytes(bytes, chance);
  if (/\.json$/.test(name)) return encode(damagedJson(decode(bytes), chance));
  if (!/\.safetensors$/.test(name)) return damagedBytes(bytes, chance);
  const length = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
  const header = encode(damagedJson(decode(bytes.subarray(8, 8 + length)), chance));
  const file = new Uint8Array(8 + header.length + bytes.length - 8 - length);
  new DataView(file.buffer).setBigUint64(0, BigInt(header.length), true);
  file.set(header, 8);
  file.set(bytes.subarray(8 + length), 8 + header.length);
  return file;
}
