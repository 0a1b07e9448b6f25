// Reads the fixtures of tests/reference, over HTTP in a page and from the disk in Node.
// reads: tests/reference/fixtures

/** Address of a file or folder of the fixtures. */
export const referenceUrl = (path) => new URL(`../../reference/fixtures/${path}`, import.meta.url);

/** The bytes of a fixture's file. */
export async function readReference(path) {
  const url = referenceUrl(path);
  if (url.protocol === "file:") {
    const { readFile } = await import("node:fs/promises");
    return Uint8Array.from(await readFile(url)); // a copy: small Buffers share memory
  }
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url.pathname} gave status ${response.status}`);
  return new Uint8Array(await response.arrayBuffer());
}
