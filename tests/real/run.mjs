// `npm run test:real`: real tokenizers, templates, adapters and files beside Python, and two real models in Node with Dawn
// beside what transformers and PEFT compute of the same weights. Prints a table, writes target/real/results.json, and fails
// if a row fails or a model cannot be had.
//   --quick          SmolLM2 in f32: its ids, and the logits of one text
//   --models a,b     of smollm2, gemma3
//   --formats a,b    of f32, f16, int8, int4
//   --checks a,b     of forms (tokenizers, templates, adapters, files), ids, gguf, logits, greedy, loss, lora, and in a page
//                    of Chromium chat and tuned, behind which peft asks PEFT
//   --files a,b      of forms: the test files with these words in their path
//   --write          docs/real-models.md gets the rows; those of other checks stay as they were
//   --built          nothing is installed or built: pkg/dist is there
//   --prepared       nor is anything downloaded or asked of Python: target/real is there
//   --folder PATH    instead of target/real
//   --packages PATH  instead of node_modules: where @wllama/wllama and @huggingface/tokenizers are
import { mkdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { commandLine, Failure, main, root, step } from "../../scripts/lib.mjs";
import { told } from "../child.mjs";
import { chatRows, peftRows, tunedRows } from "./chats.mjs";
import { COST, table } from "./compare.mjs";
import { formsRows } from "./forms.mjs";
import { writePage } from "./page.mjs";
import { askPeft, CACHE, MODELS, prepare } from "./prepare.mjs";

/** Seconds that one model may take: hours on a software adapter. */
const PATIENCE = 6 * 3600;

const host = join(import.meta.dirname, "host.mjs");

function listed(text, known, what) {
  const words = text.split(",");
  const wrong = words.find((word) => !known.includes(word));
  if (wrong !== undefined)
    throw new Failure(`there is no ${what} ${wrong}; there is ${known.join(", ")}`, 2);
  return words;
}

const IN_NODE = ["ids", "gguf", "logits", "greedy", "loss", "lora"];
const IN_PAGE = ["chat", "tuned", "peft"];
const OF_MODELS = [...IN_NODE, ...IN_PAGE];
const CHECKS = ["forms", ...OF_MODELS];
/** Those that only some models have, by what a model says of itself. */
const NEEDS = { lora: "lora", chat: "chats", tuned: "chats", peft: "chats" };

/** The rows of a model's chats in a page, and the adapter that computed. */
async function chatted(key, where, { checks, quick, prepared }) {
  const all = { rows: [], about: {} };
  const add = async (work) => {
    const began = performance.now();
    const { about, rows } = await work();
    const seconds = (performance.now() - began) / 1000;
    all.about = about;
    for (const row of rows) all.rows.push({ model: MODELS[key].name, ...row, seconds });
  };
  if (checks.includes("chat")) await add(() => chatRows(where, quick));
  if (checks.includes("tuned")) await add(() => tunedRows(where));
  if (checks.includes("peft") && !prepared) {
    await askPeft(key, where.folder);
    await add(() => peftRows(where));
  }
  return all;
}

/** The rows of a model, and the adapter that computed. */
async function compared(key, plan) {
  const { name } = MODELS[key];
  const rows = [];
  let about = {};
  const onMessage = ({ row, ...more }) => {
    if (!row) {
      about = more;
      return;
    }
    rows.push({ model: name, ...row });
    step(`${name} ${row.weights} ${row.check}: ${row.worst} in ${row.seconds.toFixed(1)} s`);
  };
  const args = [JSON.stringify(plan)];
  const { printed, code } = await told(host, { args, seconds: PATIENCE, onMessage });
  const missing = code === 0 ? [] : [`${name}: the process ended with ${code}: ${printed.trim()}`];
  return { rows, about, missing };
}

await main(async () => {
  const { values } = commandLine({
    options: {
      quick: { type: "boolean", default: false },
      built: { type: "boolean", default: false },
      prepared: { type: "boolean", default: false },
      write: { type: "boolean", default: false },
      models: { type: "string" },
      formats: { type: "string" },
      checks: { type: "string" },
      files: { type: "string" },
      folder: { type: "string" },
      packages: { type: "string" },
    },
  });
  const { quick, prepared } = values;
  const cache = values.folder ? resolve(values.folder) : CACHE;
  const packages = resolve(values.packages ?? join(root, "node_modules"));
  const all = Object.keys(MODELS);
  const models = listed(values.models ?? (quick ? "smollm2" : all.join()), all, "model");
  const known = Object.keys(COST);
  const formats = listed(values.formats ?? (quick ? "f32" : known.join()), known, "format");
  const checks = listed(
    values.checks ?? (quick ? "ids,gguf,logits" : CHECKS.join()),
    CHECKS,
    "check",
  );
  if (!prepared && !values.built) {
    const { setup } = await import("../../scripts/setup.mjs");
    await setup({ browsers: ["node"], reference: true });
    const { build } = await import("../../scripts/build.mjs");
    await build({});
  }
  const results = { quick, rows: [], missing: [] };
  if (checks.includes("forms")) results.rows.push(...(await formsRows(values.files?.split(","))));
  for (const key of checks.some((check) => OF_MODELS.includes(check)) ? models : []) {
    try {
      const ofModel = checks.filter((check) => !NEEDS[check] || MODELS[key][NEEDS[check]]);
      const folder = prepared ? join(cache, key) : await prepare(key, ofModel, cache);
      const plan = { folder, formats, checks: ofModel, quick };
      const parts = [];
      if (ofModel.some((check) => IN_NODE.includes(check))) parts.push(await compared(key, plan));
      if (ofModel.some((check) => IN_PAGE.includes(check)))
        parts.push(await chatted(key, { folder, packages }, { ...plan, prepared }));
      for (const { rows, about, missing = [] } of parts) {
        Object.assign(results, about);
        results.rows.push(...rows);
        results.missing.push(...missing);
      }
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      results.missing.push(`${MODELS[key].name}: ${error.message}`);
    }
  }
  mkdirSync(cache, { recursive: true });
  writeFileSync(join(cache, "results.json"), `${JSON.stringify(results, null, 1)}\n`);
  console.log(table(results.rows));
  if (values.write) writePage(results);
  for (const line of results.missing) console.log(`missing: ${line}`);
  const failed = results.rows.filter(({ ok }) => !ok).length;
  console.log(`${results.rows.length - failed} passed, ${failed + results.missing.length} failed`);
  if (failed + results.missing.length > 0 || results.rows.length === 0) process.exitCode = 1;
});
