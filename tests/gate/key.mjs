// Keys: short hashes of what a test depends on.
import { createHash } from "node:crypto";

/** A short hash of texts: 60 bits, in letters that a line of text can hold. */
export function keyOf(...parts) {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(`${part}\0`);
  return hash.digest("base64url").slice(0, 10);
}
