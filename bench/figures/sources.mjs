// Which results a figure shows, and the mark by which a test knows that it shows them.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "../../scripts/lib.mjs";

const FOLDER = join(root, "bench", "results");

const dateOf = (file) => /\d{4}-\d\d-\d\d/.exec(file)?.[0];

/**
 * The newest file of each key in bench/results, in the order of the keys: `{ file, results, date }`.
 *
 * @param keyOf - the key of a file's name, or undefined where the file does not count.
 */
export function newestFiles(keyOf) {
  const found = new Map();
  for (const file of readdirSync(FOLDER)) {
    const key = keyOf(file);
    const before = found.get(key);
    if (key !== undefined && !(before && dateOf(before) > dateOf(file))) found.set(key, file);
  }
  const sorted = [...found].sort(([a], [b]) => a.localeCompare(b));
  return sorted.map(([, file]) => ({
    file,
    results: JSON.parse(readFileSync(join(FOLDER, file), "utf8")),
    date: dateOf(file),
  }));
}

/** The newest results of a suite; by default those from headless Chromium on an H200. */
export function newest(suite, machine = "nvidia-h200-chromium") {
  const ending = `-${machine}${suite}.json`;
  const [found] = newestFiles((name) =>
    name.slice("2026-01-01".length) === ending ? ending : undefined,
  );
  if (!found) throw new Error(`bench/results has no file of ${ending}`);
  return found;
}

/** What a figure is made of besides results: the charts, and what draws them. */
const DRAWN_BY = ["charts.mjs", "build.mjs", "package-lock.json"].map((name) =>
  join(root, "bench", "figures", name),
);

/** What a figure drawn from a file of results says of it. */
export function mark(file) {
  const hash = createHash("sha256");
  for (const path of [join(FOLDER, file), ...DRAWN_BY]) hash.update(readFileSync(path));
  return `drawn from bench/results/${file}; sha256 of it and of what draws it: ${hash.digest("hex")}`;
}

/** An SVG with the mark as its description. */
export const stamp = (svg, file) => svg.replace(/(<svg[^>]*>)/, `$1<desc>${mark(file)}</desc>`);
