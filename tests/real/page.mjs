// docs/real-models.md: the rows of `npm run test:real`, each with the day and the adapter of its last run; and what formats
// cost, in the guide.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "../../scripts/lib.mjs";
import { table } from "./compare.mjs";

const ROWS = join(root, "tests/real/rows.json");
const PAGE = join(root, "docs/real-models.md");
const GUIDE = join(root, "docs/guides/gguf.md");
const COSTS = /(<!-- costs -->\n)[\s\S]*?(<!-- end of costs -->)/;

const HEAD = `# Real models

What \`npm run test:real\` compares: tokenizers, templates, adapters and files that people have, beside Python's programs and
llama.cpp, and two real models, one of them also in chats in a page, beside transformers, PEFT and llama.cpp
([tests/real](../tests/real/README.md)). \`worst\` is the largest difference, and \`limit\` the largest that passes.
\`npm run test:real -- --write\` writes this page. It keeps the rows of checks that did not run.
`;

const keyOf = ({ model, weights, check }) => [model, weights, check].join("|");

/** Browsers tell no description. */
const nameOf = ({ description, vendor, architecture } = {}) =>
  description || [vendor, architecture].filter(Boolean).join(" ") || "GPU";

/** Bytes of a weight of a layer, by format and by llama.cpp's type, from the finest. */
const BYTES = {
  f16: 2,
  F16: 2,
  int8: 9 / 8,
  Q8_0: 34 / 32,
  Q5_1: 24 / 32,
  int5: 44 / 64,
  Q5_0: 22 / 32,
  int4: 20 / 32,
  Q4_1: 20 / 32,
  Q4_0: 18 / 32,
};

/** What formats and types add to the loss of each model. */
export function costs(rows) {
  const ofCost = rows.filter(({ check }) => check === "loss on dithered weights");
  const models = [...new Set(ofCost.map(({ model }) => model))];
  const risen = (model, weights) =>
    ofCost.find((row) => row.model === model && row.weights === weights)?.worst;
  const formats = Object.keys(BYTES).filter((one) =>
    models.some((model) => risen(model, one) !== undefined),
  );
  const lines = formats.map((weights) => {
    const name = weights === weights.toUpperCase() ? `llama.cpp's ${weights}` : `\`"${weights}"\``;
    const cells = models.map((model) => risen(model, weights)?.toFixed(3) ?? "");
    return `| ${[name, BYTES[weights], ...cells].join(" | ")} |`;
  });
  return [
    `| weights | bytes | ${models.join(" | ")} |`,
    `|---|--:|${models.map(() => "--:|").join("")}`,
    ...lines,
  ].join("\n");
}

/** Takes the rows of a run into the page and the guide. */
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
  const guide = readFileSync(GUIDE, "utf8");
  writeFileSync(
    GUIDE,
    guide.replace(COSTS, (_, begin, end) => `${begin}\n${costs(all)}\n\n${end}`),
  );
}
