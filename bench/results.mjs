// Where results are kept: a file per day, adapter and suite.
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** The folder of results that the project keeps. */
export const RESULTS = join(dirname(fileURLToPath(import.meta.url)), "results");

/** An adapter's maker and architecture, as part of a file's name. */
function slug({ vendor, architecture }) {
  return (
    [vendor, architecture]
      .filter(Boolean)
      .join("-")
      .toLowerCase()
      .replace(/[^a-z0-9-]+/g, "-") || "unnamed"
  );
}

/**
 * Writes what was measured into `folder`, and prints the file's name.
 *
 * @param parts - what the name says behind date and adapter: the browser, the suite.
 */
export function writeResults(folder, parts, measured) {
  const date = new Date().toISOString().slice(0, 10);
  const name = `${[date, slug(measured.adapter), ...parts].join("-")}.json`;
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, name), `${JSON.stringify(measured, null, 2)}\n`);
  console.log(`written: ${name}`);
}
