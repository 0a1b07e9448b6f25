/** Reads a Blob piece by piece. */

import { arrived } from "../firefox.js";

/** Bytes of a Blob that are copied at a time. */
const PIECE = 8 << 20;

/** Gives a Blob's bytes, one piece after the other. */
export async function eachPiece(blob: Blob, take: (bytes: Uint8Array) => unknown): Promise<void> {
  const whole = await arrived(blob);
  for (let at = 0; at < whole.size; at += PIECE) {
    await take(new Uint8Array(await whole.slice(at, at + PIECE).arrayBuffer()));
  }
}
