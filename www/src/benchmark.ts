/** Measures the reference configurations with the code of `npm run bench`. Nothing leaves the page. */
import type { Capabilities, ModelConfig, Runtime } from "tinyloom";
import type { Row } from "../../bench/workloads.mjs";
import { bytes, duration } from "./dom.ts";
import { memoryLimit } from "./memory-limit.ts";

/** Steps and decoded tokens that are timed: as `npm run bench` has them, and where the CPU computes. */
const [STEPS, SOFTWARE_STEPS] = [40, 3];
const [TOKENS, SOFTWARE_TOKENS] = [256, 32];
/** What takes longer is skipped. */
const PATIENCE = 120;

/** A row as `bench/results` has it, or why there is none. */
export type Measured = Row | { readonly workload: string; readonly skipped: string };

/** The file, in the schema of `bench/results`. */
export interface Report extends Capabilities {
  readonly date: string;
  readonly userAgent: string;
  readonly steps: number;
  readonly results: readonly Measured[];
}

type Tinyloom = typeof import("tinyloom");

/** What the worker of the benchmark says: rows so far and what comes next, and at its end the report or an error. */
export type Said =
  | { readonly rows: readonly Measured[]; readonly next: string | undefined }
  | { readonly report: Report }
  | { readonly error: unknown };

/**
 * Trains and decodes each configuration that fits.
 *
 * @param tinyloom - the package on the runtime's own thread: through a worker's messages each step takes longer.
 * @param onRow - hears each row, and what is measured next.
 */
export async function measureAll(
  tinyloom: Tinyloom,
  runtime: Runtime,
  onRow: (rows: readonly Measured[], next: string | undefined) => void,
): Promise<Report> {
  const { CONFIGS, train, decode } = await import("../../bench/workloads.mjs");
  const { capabilities } = runtime;
  const { software } = capabilities;
  const [steps, tokens] = software ? [SOFTWARE_STEPS, SOFTWARE_TOKENS] : [STEPS, TOKENS];
  const rows: Measured[] = [];
  for (const name of Object.keys(CONFIGS)) {
    const skipped = await reasonToSkip(tinyloom, runtime, CONFIGS[name]!, steps);
    for (const [what, work] of [
      ["train", () => train(tinyloom, runtime, name, { steps })],
      ["decode", () => decode(tinyloom, runtime, name, { tokens })],
    ] as const) {
      const workload = `${what} ${name}`;
      onRow(rows, workload);
      rows.push(skipped ? { workload, skipped } : await work());
    }
  }
  onRow(rows, undefined);
  const date = new Date().toISOString().slice(0, 10);
  return { date, userAgent: navigator.userAgent, steps, ...capabilities, results: rows };
}

async function reasonToSkip(
  tinyloom: Tinyloom,
  { capabilities }: Runtime,
  { config, tokens }: { config: ModelConfig; tokens: number },
  steps: number,
): Promise<string | undefined> {
  const trainer = { tokensPerStep: tokens };
  const { bytes: needed, milliseconds } = await tinyloom.estimate(
    config,
    { trainer },
    capabilities,
  );
  const most = memoryLimit(capabilities);
  if (needed.total > most) {
    return `needs ${bytes(needed.total)}, and this page takes at most ${bytes(most)}`;
  }
  // Each of four rounds takes this number of steps.
  const seconds = (4 * steps * (milliseconds?.step ?? 0)) / 1000;
  return seconds > PATIENCE ? `would take about ${duration(seconds)} on this adapter` : undefined;
}
