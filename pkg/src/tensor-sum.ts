/** Sums of a tensor's bytes as they come. */

import { crc32, hex } from "./crc32.js";
import { corrupt } from "./file-part.js";

/** xxHash32's factors. */
const P1 = 0x9e3779b1 | 0;
const P2 = 0x85ebca77 | 0;
const P3 = 0xc2b2ae3d | 0;
const P4 = 0x27d4eb2f;
const P5 = 0x165667b1;

/** Bytes that are not those of their checksum. */
export function damaged(what: string, found: string, stated: string) {
  return corrupt(
    `${what} is damaged: its CRC-32 is ${found}, and was ${stated} when it was saved; use another copy, ` +
      "or, if you changed the file yourself, remove its crc32 fields",
  );
}

/** CRC-32 where the file states one. Else {@link fingerprint}, which takes a quarter of the time. */
export class TensorSum {
  readonly #stated: string | undefined;
  #sum = 0;

  constructor(stated: string | undefined) {
    this.#stated = stated;
  }

  add(bytes: Uint8Array): void {
    const by = this.#stated === undefined ? fingerprint : crc32;
    this.#sum = by(bytes, this.#sum);
  }

  /**
   * The sum of all bytes.
   *
   * @throws {@link TinyloomError} `invalid-checkpoint` where the file states another one.
   */
  end(what: string): number {
    if (this.#stated !== undefined && this.#stated !== hex(this.#sum)) {
      throw damaged(what, hex(this.#sum), this.#stated);
    }
    return this.#sum;
  }
}

/**
 * Tells a content from another one within this page: xxHash32, as its specification has it. It is stored nowhere.
 *
 * @param before - the seed: the fingerprint of what is in front of these bytes.
 */
export function fingerprint(bytes: Uint8Array, before = 0): number {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  // `| 0` keeps every sum an integer of 32 bits, not a double.
  let a = (before + P1 + P2) | 0;
  let b = (before + P2) | 0;
  let c = before | 0;
  let d = (before - P1) | 0;
  let at = 0;
  for (; at + 16 <= bytes.length; at += 16) {
    a = round(a, view.getInt32(at, true));
    b = round(b, view.getInt32(at + 4, true));
    c = round(c, view.getInt32(at + 8, true));
    d = round(d, view.getInt32(at + 12, true));
  }
  let sum = at > 0 ? turned(a, 1) + turned(b, 7) + turned(c, 12) + turned(d, 18) : before + P5;
  sum += bytes.length;
  for (; at + 4 <= bytes.length; at += 4) {
    sum = Math.imul(turned(sum + Math.imul(view.getInt32(at, true), P3), 17), P4);
  }
  for (; at < bytes.length; at++) {
    sum = Math.imul(turned(sum + Math.imul(bytes[at] as number, P5), 11), P1);
  }
  sum = Math.imul(sum ^ (sum >>> 15), P2);
  sum = Math.imul(sum ^ (sum >>> 13), P3);
  return (sum ^ (sum >>> 16)) >>> 0;
}

const round = (sum: number, word: number) =>
  Math.imul(turned((sum + Math.imul(word, P2)) | 0, 13), P1);

/** Rotates a word left by `by` bits. */
const turned = (word: number, by: number) => (word << by) | (word >>> (32 - by));
