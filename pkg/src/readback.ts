/** Reads tensors back, for files of safetensors that are written. */

import { hex } from "./crc32.js";
import { CHECKSUMS, framed, HEADER_CHECKSUM, headerSum, PREFIX, parse } from "./safetensors.js";

/** Bytes of readbacks under way, beyond which no further one begins. */
const AHEAD = 32 << 20;

/** Sizes in bytes of the tensors that a file's first bytes describe, in the order of their data. */
export function tensorSizes(header: Uint8Array): number[] {
  return parse(header.subarray(PREFIX)).order.map(
    ([
      ,
      {
        data_offsets: [begin, end],
      },
    ]) => end - begin,
  );
}

/** A file's first bytes, with its tensors' checksums in the header; as long for any checksums. */
export function withChecksums(first: Uint8Array, sums: readonly number[]): Uint8Array {
  const { metadata, tensors } = parse(first.subarray(PREFIX));
  const __metadata__ = {
    ...metadata,
    [CHECKSUMS]: sums.map(hex).join(" "),
    [HEADER_CHECKSUM]: headerSum(tensors),
  };
  return framed({ __metadata__, ...tensors });
}

/**
 * Reads tensors in order with the next ones under way, since it takes a browser a while to notice
 * that a readback is done. Leaving the loop waits for what is under way.
 */
export async function* readAhead<T>(
  sizes: readonly number[],
  read: (index: number) => Promise<T>,
  ahead = AHEAD,
): AsyncGenerator<T, void, undefined> {
  const running: Promise<T>[] = [];
  let bytes = 0;
  try {
    for (let next = 0, done = 0; done < sizes.length; done++) {
      while (next < sizes.length && (next === done || bytes < ahead)) {
        const one = read(next);
        one.catch(() => {}); // its error is reported where it is awaited
        running.push(one);
        bytes += sizes[next++] ?? 0;
      }
      yield await (running[0] as Promise<T>);
      running.shift();
      bytes -= sizes[done] ?? 0;
    }
  } finally {
    await Promise.allSettled(running);
  }
}
