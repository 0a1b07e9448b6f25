/** The loss of a model that knows only how often each letter of a text occurs. */

/** Bytes of a text that are counted at most. */
const COUNTED = 1 << 18;

/** The entropy of the bytes, in nats per byte: the loss of guessing by their frequencies. */
export function letterEntropy(bytes: Uint8Array): number {
  const counts = new Float64Array(256);
  for (const byte of bytes) counts[byte]!++;
  let entropy = 0;
  for (const count of counts) {
    if (count > 0) entropy -= (count / bytes.length) * Math.log(count / bytes.length);
  }
  return entropy;
}

/** That of a text's beginning; undefined for one without letters. */
export async function entropyOf(text: Blob): Promise<number | undefined> {
  const bytes = new Uint8Array(await text.slice(0, COUNTED).arrayBuffer());
  return bytes.length > 0 ? letterEntropy(bytes) : undefined;
}
