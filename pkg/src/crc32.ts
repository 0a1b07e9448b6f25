/** CRC-32 as zlib and zip compute it, eight bytes at a time (Kounavis and Berry, slicing-by-8, 2005). */

let tables: Uint32Array | undefined;

/** `tables[256 · k + b]`: what byte `b` does to the sum when `k` more bytes follow it. */
function makeTables(): Uint32Array {
  const made = new Uint32Array(2048);
  for (let at = 0; at < 2048; at++) {
    let sum = at < 256 ? at : (made[at - 256] as number);
    if (at < 256) for (let bit = 0; bit < 8; bit++) sum = (sum >>> 1) ^ (0xedb88320 & -(sum & 1));
    else sum = (sum >>> 8) ^ (made[sum & 255] as number);
    made[at] = sum;
  }
  return made;
}

/** The checksum of the bytes, or of what `before` is the checksum of and the bytes after it. */
export function crc32(bytes: Uint8Array, before = 0): number {
  tables ??= makeTables();
  const t = tables as unknown as { readonly [index: number]: number };
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const even = bytes.length & ~7;
  let sum = ~before;
  for (let at = 0; at < even; at += 8) {
    const a = sum ^ view.getInt32(at, true);
    const b = view.getInt32(at + 4, true);
    sum =
      t[1792 + (a & 255)]! ^
      t[1536 + ((a >>> 8) & 255)]! ^
      t[1280 + ((a >>> 16) & 255)]! ^
      t[1024 + (a >>> 24)]! ^
      t[768 + (b & 255)]! ^
      t[512 + ((b >>> 8) & 255)]! ^
      t[256 + ((b >>> 16) & 255)]! ^
      t[b >>> 24]!;
  }
  for (let at = even; at < bytes.length; at++) sum = (sum >>> 8) ^ t[(sum ^ bytes[at]!) & 255]!;
  return ~sum >>> 0;
}

/** A checksum as eight hexadecimal digits. */
export const hex = (sum: number) => sum.toString(16).padStart(8, "0");
