// Which results a figure shows, and the mark by which a test knows that it shows them.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "../../scripts/lib.mjs";

const FOLDER = join(root, "bench", "results");

/** The newest results of a suite; by default those from headless Chromium on an H200. */
export function newest(suite, machine = "nvidia-h200-chromium") {
  const ending = `-${machine}${suite}.json`;
  const file = readdirSync(FOLDER)
    .filter((name) => name.slice("2026-01-01".length) === ending)
    .sort()
    .at(-1);
  if (!file) throw new Error(`bench/results has no file of ${ending}`);
  const results = JSON.parse(readFileSync(join(FOLDER, file), "utf8"));
  return { file, results, date: file.slice(0, "2026-01-01".length) };
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
