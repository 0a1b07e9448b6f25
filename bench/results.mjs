// Where results are kept: HOST-GPU/DATE-WORKLOAD.json. The newest of a workload stays; git has those before it.
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "../scripts/lib.mjs";

/** The folder of results that the project keeps. */
export const RESULTS = join(root, "bench", "results");

/** An adapter's name, such as "google-swiftshader". */
export const adapterName = ({ vendor, architecture, description }) =>
  [vendor || description, architecture]
    .filter(Boolean)
    .join("-")
    .toLowerCase()
    .replace(/[^a-z0-9-]+/g, "-") || "unnamed";

/** Every file of results, as HOST-GPU/DATE-WORKLOAD.json, sorted. */
export const resultFiles = () =>
  readdirSync(RESULTS)
    .flatMap((folder) => readdirSync(join(RESULTS, folder)).map((name) => `${folder}/${name}`))
    .sort();

/**
 * Writes what was measured into `folder`, prints the file's name and gives its path.
 *
 * @param host - the browser, "node" or what else ran it.
 */
export function writeResults(folder, host, workload, measured, adapter = measured.adapter) {
  const date = new Date().toISOString().slice(0, 10);
  const within = join(folder, `${host}-${adapterName(adapter)}`);
  const path = join(within, `${date}-${workload}.json`);
  mkdirSync(within, { recursive: true });
  writeFileSync(path, `${JSON.stringify(measured, null, 2)}\n`);
  console.log(`written: ${path}`);
  return path;
}
