// Results of the parts: kept as JSON in bench/results, from where the documents' table is made.
import { join } from "node:path";
import { newestOf } from "../../bench/figures/sources.mjs";
import { adapterName, RESULTS, writeResults } from "../../bench/results.mjs";
import { target } from "../../scripts/lib.mjs";

export { adapterName };

export const median = (list) => list.toSorted((a, b) => a - b)[list.length >> 1];

/**
 * Writes a part's result.
 *
 * @param host - where it ran: a host's name, or "all".
 * @param short - whether the run was shorter than by default: its result is no document's, and goes to
 *   `target/reliability`.
 * @returns the file's path.
 */
export function keep(part, host, adapter, result, { short = false } = {}) {
  const folder = short ? join(target, "reliability") : RESULTS;
  const measured = { part, ...result, adapter: adapterName(adapter) };
  return writeResults(folder, host, `reliability-${part}`, measured, adapter);
}

/** The newest results of a part, one for each host and adapter: `{ file, date, ...result }`. */
export const newest = (part) =>
  newestOf(`reliability-${part}`).map(({ file, date, results }) => ({ ...results, file, date }));
