// The table of docs/guides/adapters.md: what estimate() says that fine-tuning takes. Needs the built package, no GPU.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "../../scripts/lib.mjs";
import { MODELS } from "../../scripts/random-checkpoint.mjs";

export const ESTIMATES = "docs/guides/adapters.md";
const REGION = /(<!-- estimates -->\n)[\s\S]*?(<!-- end of estimates -->)/;

const FORMATS = ["f32", "f16", "int8", "int4"];
export const FINE_TUNING = {
  adapter: { rank: 16, targets: "all-linear" },
  trainer: { tokensPerStep: 512 },
};

const megabytes = (bytes) => `${Math.round(bytes / 1e6).toLocaleString("en")} MB`;

/** The table as Markdown. */
export async function estimates({ estimate }) {
  const lines = [
    `| model | the whole model | ${FORMATS.map((format) => `adapter on ${format}`).join(" | ")} |`,
    `|${"---|".repeat(FORMATS.length + 2)}`,
  ];
  for (const [name, config] of Object.entries(MODELS)) {
    const bytes = async (options) => megabytes((await estimate(config, options)).bytes.total);
    const cells = [await bytes({ trainer: FINE_TUNING.trainer })];
    for (const weights of FORMATS) cells.push(await bytes({ ...FINE_TUNING, weights }));
    lines.push(`| ${name} | ${cells.join(" | ")} |`);
  }
  return lines.join("\n");
}

/** The document's text, and what it should be. */
export async function documentWithEstimates(tinyloom) {
  const text = readFileSync(join(root, ESTIMATES), "utf8");
  const table = await estimates(tinyloom);
  return { text, wanted: text.replace(REGION, (_, begin, end) => `${begin}\n${table}\n\n${end}`) };
}
