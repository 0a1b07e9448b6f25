// Which results a figure shows, and the mark by which a test knows that it shows them.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "../../scripts/lib.mjs";
import { RESULTS, resultFiles } from "../results.mjs";

const NAME = /^(?<place>.+)\/(?<date>\d{4}-\d\d-\d\d)-(?<workload>.+)\.json$/;

/** The newest results of a workload, one for each host and adapter: `{ file, place, results, date }`. */
export function newestOf(workload) {
  const found = new Map();
  for (const file of resultFiles()) {
    const name = NAME.exec(file)?.groups;
    // Files of a place are sorted by date.
    if (name?.workload === workload) found.set(name.place, { file, ...name });
  }
  return [...found.values()].map(({ file, place, date }) => {
    return { file, place, date, results: JSON.parse(readFileSync(join(RESULTS, file), "utf8")) };
  });
}

/** The newest results of a workload at one place; by default in headless Chromium on an H200. */
export function newest(workload, place = "chromium-nvidia-h200") {
  const found = newestOf(workload).find((one) => one.place === place);
  if (!found) throw new Error(`bench/results/${place} has no ${workload}`);
  return found;
}

/** What a figure is made of besides results: the charts, and what draws them. */
const DRAWN_BY = ["charts.mjs", "build.mjs", "package-lock.json"].map((name) =>
  join(root, "bench", "figures", name),
);

/** What a figure drawn from a file of results says of it. */
export function mark(file) {
  const hash = createHash("sha256");
  for (const path of [join(RESULTS, file), ...DRAWN_BY]) hash.update(readFileSync(path));
  return `drawn from bench/results/${file}; sha256 of it and of what draws it: ${hash.digest("hex")}`;
}

/** An SVG with the mark as its description. */
export const stamp = (svg, file) => svg.replace(/(<svg[^>]*>)/, `$1<desc>${mark(file)}</desc>`);
