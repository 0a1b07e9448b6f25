// Sums of a tensor's bytes: each byte counts, and what a file states is held against what has come.
// reads: pkg/src/tensor-sum.ts pkg/src/crc32.ts
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { root } from "../../scripts/lib.mjs";

const from = (file) => import(pathToFileURL(join(root, "pkg", "dist", file)).href);
const { fingerprint, TensorSum } = await from("tensor-sum.js");
const { crc32, hex } = await from("crc32.js");

const bytes = Uint8Array.from({ length: 103 }, (_, i) => (i * 89) & 255);
const sumOf = (stated, pieces) => {
  const sum = new TensorSum(stated);
  for (const piece of pieces) sum.add(piece);
  return sum.end("tensor x");
};

test("the fingerprint is xxHash32", () => {
  const of = (text, seed) => fingerprint(new TextEncoder().encode(text), seed);
  assert.equal(of(""), 0x02cc5d05);
  assert.equal(of("abc"), 0x32d153ff);
  assert.equal(of("Nobody inspects the spammish repetition"), 0xe2293b2f);
});

test("each bit of each byte changes the fingerprint", () => {
  const seen = new Set([fingerprint(bytes)]);
  for (let bit = 0; bit < 8 * bytes.length; bit++) {
    const other = bytes.slice();
    other[bit >> 3] ^= 1 << (bit & 7);
    seen.add(fingerprint(other));
  }
  assert.equal(seen.size, 1 + 8 * bytes.length);
  // Words that change places, and pieces too.
  const moved = Uint8Array.from([...bytes.slice(4, 8), ...bytes.slice(0, 4), ...bytes.slice(8)]);
  const lanes = Uint8Array.from([
    ...bytes.slice(16, 32),
    ...bytes.slice(0, 16),
    ...bytes.slice(32),
  ]);
  const [a, b] = [bytes.subarray(0, 48), bytes.subarray(48)];
  const all = [sumOf(undefined, [a, b]), sumOf(undefined, [b, a])];
  assert.equal(new Set([fingerprint(bytes), fingerprint(moved), fingerprint(lanes)]).size, 3);
  assert.notEqual(...all);
  // Bytes at any place of memory are the same bytes.
  for (let at = 0; at < 8; at++) {
    const memory = new Uint8Array(bytes.length + 8);
    memory.set(bytes, at);
    assert.equal(fingerprint(memory.subarray(at, at + bytes.length)), fingerprint(bytes));
  }
});

test("a stated sum is CRC-32 of all pieces, and another one is refused", () => {
  const stated = hex(crc32(bytes));
  const pieces = [bytes.subarray(0, 40), bytes.subarray(40)];
  assert.equal(sumOf(stated, pieces), crc32(bytes));
  assert.throws(() => sumOf(stated, [bytes.subarray(1)]), {
    code: "invalid-checkpoint",
    message: new RegExp(`^tensor x is damaged: .* was ${stated}`),
  });
});
