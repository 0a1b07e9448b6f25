// node bench/finetune.mjs [PART OF A ROW'S NAME …] [--steps 20] [--checkpoints FOLDER] [--out FOLDER]
// Fine-tunes models of true sizes in Chromium on this machine's GPU, from the built package and without a network:
// milliseconds per step while more are queued behind it, seconds to the first one, bytes of GPU and host. The
// checkpoints are random weights in BF16 under the real tensors' names (scripts/random-checkpoint.mjs), since no
// real ones can be fetched here.
import { existsSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { openPage } from "../scripts/browser.mjs";
import { commandLine } from "../scripts/lib.mjs";
import { MODELS, writeCheckpoint } from "../scripts/random-checkpoint.mjs";
import { serve } from "../scripts/server.mjs";
import { launch } from "./browser.mjs";
import configs from "./configs.json" with { type: "json" };
import { RESULTS, writeResults } from "./results.mjs";

const root = dirname(dirname(fileURLToPath(import.meta.url)));

/** Configs of published models, and a Llama of the size and vocabulary of GPT-2 small. */
const CONFIGS = { ...MODELS, "Llama-12x768": configs["Llama-12x768"].config };

/** What is trained: a model whole, or an adapter of this rank on every linear matrix of a base in these weights. */
const ROWS = [
  { model: "SmolLM2-135M", tokens: 512 },
  { model: "SmolLM2-135M", rank: 16, weights: "f32", tokens: 512 },
  { model: "Qwen3-0.6B", rank: 16, weights: "int4", tokens: 512 },
  { model: "Qwen3-0.6B", rank: 16, weights: "f16", tokens: 512 },
  { model: "Gemma-3-270M", rank: 16, weights: "int4", tokens: 512 },
  { model: "Gemma-3-270M", rank: 16, weights: "f16", tokens: 512 },
  { model: "Qwen3-0.6B", tokens: configs["Qwen3-0.6B"].tokens },
  { model: "Llama-12x768", tokens: configs["Llama-12x768"].tokens },
];

const nameOf = ({ model, rank, weights }) =>
  rank ? `${model}, adapter of rank ${rank} on ${weights}` : `${model}, whole`;

const { values, positionals } = commandLine({
  options: {
    steps: { type: "string", default: "20" },
    checkpoints: { type: "string", default: join(tmpdir(), "tinyloom-checkpoints") },
    out: { type: "string", default: RESULTS },
  },
  allowPositionals: true,
});
if (!existsSync(join(root, "pkg/dist/tinyloom_bg.wasm"))) {
  console.error("pkg/dist/tinyloom_bg.wasm is missing; run: npm run build");
  process.exit(1);
}
const chosen = ROWS.filter(
  (row) => positionals.length === 0 || positionals.some((word) => nameOf(row).includes(word)),
);
if (chosen.length === 0) {
  console.error(`no row has ${positionals.join(" or ")}; there is ${ROWS.map(nameOf).join("; ")}`);
  process.exit(2);
}
for (const model of new Set(chosen.map((row) => row.model))) {
  const folder = join(values.checkpoints, model);
  if (!existsSync(join(folder, "model.safetensors"))) await writeCheckpoint(folder, CONFIGS[model]);
}
const server = await serve(
  {
    "/blank.html": Buffer.from(
      '<!doctype html><link rel="icon" href="data:,"><title>bench</title>',
    ),
    "/pkg": join(root, "pkg", "dist"),
    "/bench": join(root, "bench"),
    "/checkpoints": values.checkpoints,
  },
  { isolated: true },
);
const rows = [];
for (const row of chosen) rows.push(await measured(row));
await server.close();
writeResults(values.out, "chromium", "finetune", {
  ...rows[0].about,
  rows: rows.map(withoutAbout),
});
process.exit(0);

function withoutAbout({ about: _, ...row }) {
  return row;
}

/** A row in a browser of its own, so that its peak is its own. */
async function measured(row) {
  const browser = await launch("chromium");
  try {
    const page = await openPage(browser, `${server.url}/blank.html`, () => {});
    const told = await page.evaluate(
      async (base, row, steps) => {
        const { finetune } = await import(`${base}/bench/finetune-page.mjs`);
        return finetune(base, row, steps).catch((error) => {
          throw new Error(`${error.code ?? error.name}: ${error.message}`); // puppeteer keeps a plain error's text
        });
      },
      server.url,
      row,
      Number(values.steps),
    );
    const one = { name: nameOf(row), ...told, peakRendererBytes: await rendererPeak(browser) };
    const tflops = ((6 * told.parameters * row.tokens) / told.millisecondsQueued) * 1e-9;
    if (!row.rank) one.teraflopsPerSecond = tflops;
    console.log(
      `${one.name}: ${told.millisecondsQueued.toFixed(1)} ms per step of ${row.tokens} tokens`,
    );
    return one;
  } finally {
    await browser.close();
  }
}

/** The most bytes that the page's process has had resident; undefined where the system does not tell. */
async function rendererPeak(browser) {
  const session = await browser.target().createCDPSession();
  const { processInfo } = await session.send("SystemInfo.getProcessInfo");
  const peaks = processInfo
    .filter(({ type, id }) => type === "renderer" && existsSync(`/proc/${id}/status`))
    .map(({ id }) =>
      Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${id}/status`, "utf8"))?.[1]),
    );
  return peaks.length > 0 ? 1024 * Math.max(...peaks) : undefined;
}
