// npm run figures
// Draws docs/figures/*.svg from the newest results of headless Chromium on an NVIDIA H200, and writes
// the documents' tables. Pictures of the demo page are made by demo.mjs and moving.mjs beside this file.
import { mkdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fingerprint, main, root, run, step, unlessDone } from "../../scripts/lib.mjs";
import { FIGURES } from "./charts.mjs";
import { documentWithEstimates, ESTIMATES } from "./estimates.mjs";
import { newest, stamp } from "./sources.mjs";
import { DOCUMENTS, documentWithTables } from "./tables.mjs";

const folder = join(root, "bench", "figures");
const from = (path) => `bench/figures/${path}`;

await main(async () => {
  step("writing the tables of the documents");
  for (const path of DOCUMENTS) writeFileSync(join(root, path), documentWithTables(path).wanted);
  const { wanted } = await documentWithEstimates(await import("tinyloom"));
  writeFileSync(join(root, ESTIMATES), wanted);
  const locked = fingerprint([from("package.json"), from("package-lock.json")]);
  await unlessDone("figures-npm", locked, [from("node_modules")], async () => {
    step("installing what draws the figures");
    await run("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"], { cwd: folder });
  });
  const require = createRequire(join(folder, "build.mjs"));
  const vega = await import(require.resolve("vega"));
  const { compile } = await import(require.resolve("vega-lite"));
  mkdirSync(join(root, "docs", "figures"), { recursive: true });
  for (const [name, { workload, draw }] of Object.entries(FIGURES)) {
    const { file, results, date } = newest(workload);
    step(`drawing ${name} from ${file}`);
    const device = `headless Chromium, NVIDIA H200, ${date}`;
    const view = new vega.View(vega.parse(compile(draw(results, device)).spec), {
      renderer: "none",
    });
    const svg = await view.toSVG();
    writeFileSync(join(root, "docs", "figures", `${name}.svg`), `${stamp(svg, file)}\n`);
  }
});
