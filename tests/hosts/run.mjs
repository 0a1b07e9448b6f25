// `npm run hosts`: the packed package in every host, as a table; fails if a row fails. Words select rows:
// `npm run hosts -- vite`. `--write` puts the rows that ran into the table of docs/tested-hosts.md,
// with the date and versions, and the sizes of files into its sentences.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Failure, isMain, main, root, step } from "../../scripts/lib.mjs";
import { pack } from "../../scripts/pack.mjs";
import { closeBrowser, within } from "./kit.mjs";
import { rows } from "./rows.mjs";
import { withSizes } from "./sizes.mjs";

/** Farthest that a loss may be from the first row's: other adapters round otherwise. */
const TOLERANCE = 1e-3;

/** What the body says of a tokenizer: only one of a file needs the library that is not there. */
const TEXT = "same text, module-unavailable";

/** What the body of a program says of a run in a folder. */
const STORED = JSON.stringify({
  where: "folder",
  steps: [6, 3],
  same: true,
  kept: true,
  room: true,
  twice: "in-use",
  other: "in-use",
  left: [],
});

/** Longest that a row may take, with its installation, in milliseconds. */
const PATIENCE = 900_000;

/** Runs rows one after the other and gives their outcomes, each with `ok` and what was wrong. */
export async function runHosts(chosen, onRow = () => {}) {
  const { tarball } = await pack();
  const outcomes = [];
  let reference;
  try {
    for (const row of chosen) {
      const began = Date.now();
      const running = within(PATIENCE, row.run(tarball));
      const outcome = await running.catch((error) => ({ error: error.message }));
      reference ??= outcome.loss;
      const wrong = outcome.error ?? problem(outcome, reference);
      const seconds = Math.round((Date.now() - began) / 1000);
      const done = { ...row, ...outcome, ok: !wrong, wrong, seconds };
      onRow(done);
      outcomes.push(done);
    }
  } finally {
    await closeBrowser();
  }
  return outcomes;
}

/** What is wrong with an outcome, if anything. */
function problem(outcome, reference) {
  if (outcome.types) return undefined;
  const { steps, tokens, first, loss, text, stored } = outcome;
  if (steps !== 25 || tokens !== 12) return `${steps} steps and ${tokens} tokens, not 25 and 12`;
  if (text !== TEXT) return `text: ${text}, not ${TEXT}`;
  if (stored !== undefined && stored !== STORED) return `stored: ${stored}, not ${STORED}`;
  if (!(loss < first - 0.5)) return `the loss went from ${first} to ${loss}`;
  const distance = Math.abs(loss - reference);
  return distance <= TOLERANCE ? undefined : `the loss is ${loss}, the first row's ${reference}`;
}

const kb = (bytes) => (bytes === undefined ? "" : `${Math.round(bytes / 1000)} KB`);

/** A row of the table in Markdown. */
function line(one) {
  const from = one.file === undefined ? "" : one.file ? "file" : "JavaScript";
  const cells = [
    one.host,
    one.way,
    one.version ?? "",
    one.ok ? (one.types ? "compiles" : "works") : "fails",
    one.loss?.toFixed(6) ?? "",
    one.ok ? from : "",
    one.spare === undefined ? "" : kb(one.loaded),
    one.spare === undefined ? "" : kb(Math.max(0, one.spare)),
    new Date().toISOString().slice(0, 10),
  ];
  return `| ${cells.join(" | ")} |`;
}

const HEAD = `| host | way | version | outcome | loss of step 25 | module from | JavaScript loaded | not loaded | date |
|---|---|---|---|---|---|---|---|---|`;

function write(outcomes) {
  const path = join(root, "docs", "tested-hosts.md");
  const text = readFileSync(path, "utf8");
  const [before, old, after] = text.split(/<!-- table -->\n|<!-- end of table -->/);
  // Rows that did not run stay as they were.
  const begins = (one) => `| ${one.host} | ${one.way} |`;
  const lines = rows.flatMap((row) => {
    const ran = outcomes.find((one) => begins(one) === begins(row));
    return ran ? [line(ran)] : old.split("\n").filter((kept) => kept.startsWith(begins(row)));
  });
  const table = `${HEAD}\n${lines.join("\n")}\n`;
  writeFileSync(path, withSizes(`${before}<!-- table -->\n${table}<!-- end of table -->${after}`));
}

if (isMain(import.meta.url)) {
  await main(async () => {
    const words = process.argv.slice(2).filter((word) => !word.startsWith("--"));
    const named = ({ host, way }) => {
      const text = `${host} ${way}`.toLowerCase();
      return words.some((word) => text.includes(word.toLowerCase()));
    };
    const chosen = words.length === 0 ? rows : rows.filter((row, at) => at === 0 || named(row));
    const { setup } = await import("../../scripts/setup.mjs");
    await setup({ browsers: ["chromium", "node"], native: true });
    const { build } = await import("../../scripts/build.mjs");
    await build();
    const outcomes = await runHosts(chosen, (one) => {
      step(
        `${one.ok ? "works" : "FAILS"}: ${one.host}, ${one.way} (${one.seconds} s) ${one.wrong ?? ""}`,
      );
    });
    console.log([HEAD, ...outcomes.map(line)].join("\n"));
    if (process.argv.includes("--write")) {
      write(outcomes);
    }
    const failed = outcomes.filter(({ ok }) => !ok);
    if (failed.length > 0) throw new Failure(`${failed.length} of ${outcomes.length} rows failed`);
  });
}
