// docs/real-models.md: the rows of `npm run test:real`, each with the day and the adapter of its last run.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "../../scripts/lib.mjs";
import { table } from "./compare.mjs";

const ROWS = join(root, "tests/real/rows.json");
const PAGE = join(root, "docs/real-models.md");

const HEAD = `# Real models

What \`npm run test:real\` compares: tokenizers, templates, adapters and files that people have, beside Python's programs and
llama.cpp, and two real models, one of them also in chats in a page, beside transformers, PEFT and llama.cpp
([tests/real](../tests/real/README.md)). \`worst\` is the largest difference, and \`limit\` the largest that passes.
\`npm run test:real -- --write\` writes this page. It keeps the rows of checks that did not run.
`;

const keyOf = ({ model, weights, check }) => [model, weights, check].join("|");

/** Browsers tell neither device nor description. */
const nameOf = ({ device, description, vendor, architecture } = {}) =>
  [device?.replace(/-+$/, ""), description].filter(Boolean).join(", ") ||
  `${[vendor, architecture].filter(Boolean).join(" ") || "GPU"}, as a browser names it`;

/** Takes the rows of a run into the page. */
export function writePage({ rows, adapter }, today = new Date().toISOString().slice(0, 10)) {
  const kept = new Map(JSON.parse(readFileSync(ROWS, "utf8")).map((row) => [keyOf(row), row]));
  for (const { seconds: _, ...row } of rows) {
    const on = row.weights === "" ? "host" : nameOf(adapter);
    // JSON has no infinity and no NaN.
    const limit = row.limit === Number.POSITIVE_INFINITY ? "none" : row.limit;
    const worst = Number.isFinite(row.worst) ? row.worst : String(row.worst);
    kept.set(keyOf(row), { ...row, worst, limit, date: today, on });
  }
  const all = [...kept.values()];
  writeFileSync(ROWS, `${JSON.stringify(all, null, 2)}\n`);
  const days = [...new Set(all.map(({ date, on }) => `${date}, ${on}`))];
  const parts = days.map((day) => {
    const own = all.filter(({ date, on }) => `${date}, ${on}` === day);
    return `## ${day}\n\n${table(own)}\n`;
  });
  writeFileSync(PAGE, [HEAD, ...parts].join("\n"));
}
