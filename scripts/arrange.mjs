// Puts the functions of the wasm module into an order in which gzip finds more to repeat. It looks back 32 KB,
// and what the compiler makes of one generic function for several types lies all over 900 KB.
import {
  CUSTOM,
  counted,
  functionNames,
  functions,
  leb,
  named,
  sections,
  withSections,
} from "./wasm.mjs";

/** Bytes of a sequence that two functions may have in common: gzip repeats three at least. */
const SEQUENCE = 5;
/** Counts to each function's length: otherwise those of a few bytes would come first for the least likeness. */
const LEAST = 128;
/** How much less a function counts with each one that is put behind it. */
const FADING = 0.985;
/** How much less a sequence counts the more functions have it: the power of their number. */
const COMMON = 0.75;

/**
 * Names the module's functions so that their order by name is the new one. wasm-opt can sort by it, and then
 * numbers the calls anew.
 *
 * @returns the module with these names, each with the old one behind a space.
 */
export function arranged(bytes) {
  const parts = sections(bytes);
  const { first, bodies } = functions(parts);
  const old = functionNames(parts);
  const places = new Map(
    order(bodies).map((index, place) => [index, String(place).padStart(6, "0")]),
  );
  const entries = bodies.map((_, index) => {
    const name = `${places.get(index)} ${old.get(first + index) ?? ""}`;
    return Buffer.concat([leb(first + index), named(name)]);
  });
  const list = counted(Buffer.concat([leb(entries.length), ...entries]));
  const content = Buffer.concat([named("name"), Uint8Array.of(1), list]);
  const others = parts.filter(({ name }) => name !== "name");
  return withSections(bytes, [...others, { id: CUSTOM, content }]);
}

/** The name that a function had before. */
export function nameBefore(name) {
  return name.replace(/^\d{6} /, "");
}

/** Numbers of the bodies, each behind those that it has most in common with for its length. */
function order(bodies) {
  const found = bodies.map((body) => [...sequences(body)]);
  const holders = new Map();
  for (const [index, ones] of found.entries()) {
    for (const one of ones) {
      if (!holders.has(one)) holders.set(one, []);
      holders.get(one).push(index);
    }
  }
  const placed = [];
  const left = new Set(bodies.keys());
  const likeness = new Float64Array(bodies.length);
  for (let next = 0; left.size > 0; ) {
    placed.push(next);
    left.delete(next);
    for (const index of left) likeness[index] *= FADING;
    for (const one of found[next]) {
      const among = holders.get(one);
      for (const index of among) likeness[index] += among.length ** -COMMON;
    }
    let most = -1;
    for (const index of left) {
      const now = likeness[index] / (found[index].length + LEAST);
      if (now > most) [most, next] = [now, index];
    }
  }
  return placed;
}

/** The body's sequences of bytes, each as a number. */
function sequences(body) {
  const found = new Set();
  for (let at = 0; at + SEQUENCE <= body.length; at++) found.add(body.readUIntBE(at, SEQUENCE));
  return found;
}
