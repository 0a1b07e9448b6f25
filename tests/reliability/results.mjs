// Results of the parts: kept as JSON in bench/results, from where the documents' table is made.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { newestFiles } from "../../bench/figures/sources.mjs";
import { root, target } from "../../scripts/lib.mjs";

export const median = (list) => list.toSorted((a, b) => a - b)[list.length >> 1];

/** An adapter's name, such as "google-swiftshader". */
export const adapterName = ({ vendor, architecture, description }) =>
  [vendor || description, architecture]
    .filter(Boolean)
    .join("-")
    .toLowerCase()
    .replace(/[^a-z0-9-]+/g, "-") || "unnamed";

/**
 * Writes a part's result: `reliability-PART-ADAPTER-DATE.json`.
 *
 * @param host - stands behind the part where several hosts have one.
 * @param short - whether the run was shorter than by default: its result is no document's, and goes to
 *   `target/reliability`.
 * @returns the file's path.
 */
export function keep(part, adapter, result, { host, short = false } = {}) {
  const date = new Date().toISOString().slice(0, 10);
  const name = adapterName(adapter);
  const file = ["reliability", part, ...(host ? [host] : []), name, date].join("-");
  const text = JSON.stringify({ part, date, ...result, adapter: name }, null, 1);
  const folder = short ? join(target, "reliability") : join(root, "bench", "results");
  mkdirSync(folder, { recursive: true });
  const path = join(folder, `${file}.json`);
  writeFileSync(path, `${text}\n`);
  return path;
}

/** The newest results of a part, one for each host and adapter: `{ file, ...result }`. */
export function newest(part) {
  const name = new RegExp(`^reliability-(${part}(?:-.+)?)-\\d{4}-\\d\\d-\\d\\d\\.json$`);
  return newestFiles((file) => name.exec(file)?.[1])
    .map(({ file, results }) => ({ file, ...results }))
    .filter((one) => one.part === part);
}
