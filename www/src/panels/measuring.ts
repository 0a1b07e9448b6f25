/** What the benchmark's panel does once it is asked to: it measures, and draws. */
import { adapterName } from "../adapter.ts";
import type { Measured, Report, Said } from "../benchmark.ts";
import { byId, clock, make, whole } from "../dom.ts";
import { fill, tableRow } from "../table.ts";

/** Rows of a whole measurement: three sizes, trained and decoded. */
const ROWS = 6;

/** What was measured, as a row of the table has it. */
function cellsOf(row: Measured): [string, string, string] {
  if ("skipped" in row) return [row.workload, `skipped: ${String(row["skipped"])}`, ""];
  const { workload, milliseconds, tokensPerSecond } = row;
  const time = milliseconds === undefined ? "" : `${milliseconds.toFixed(1)} ms per step`;
  return [workload, `${whole(tokensPerSecond)} tokens per second`, time];
}

/**
 * Measures, and shows each row. The clock goes on within a row: on a CPU one takes minutes.
 *
 * @param note - says what is measured, and for how long that has gone on.
 * @returns nothing where the signal has ended it.
 */
export async function measure(note: HTMLElement, signal: AbortSignal): Promise<Report | undefined> {
  if (signal.aborted) return undefined;
  const began = performance.now();
  // No screen reader says each second of it.
  const passed = make("span", "");
  passed.setAttribute("role", "timer");
  const tick = () => {
    passed.textContent = clock((performance.now() - began) / 1000);
  };
  const ticking = setInterval(tick, 500);
  try {
    return await measureInWorker(signal, (rows, next) => {
      const filled = rows.map((row) => tableRow(...cellsOf(row)));
      fill(byId("benchmark-rows", HTMLTableElement), ["What", "Speed", "Time"], filled);
      if (!next) return;
      tick();
      const what = `Measuring: ${next}, ${rows.length + 1} of ${ROWS}, `;
      note.replaceChildren(what, passed, " min so far…");
    });
  } finally {
    clearInterval(ticking);
  }
}

/** Measures in a worker that ends with the measurement; gives nothing once that is to end before. */
function measureInWorker(
  signal: AbortSignal,
  onRow: (rows: readonly Measured[], next: string | undefined) => void,
): Promise<Report | undefined> {
  const worker = new Worker(new URL("../benchmark-worker.ts", import.meta.url), { type: "module" });
  const measured = new Promise<Report | undefined>((resolve, reject) => {
    signal.addEventListener("abort", () => resolve(undefined));
    worker.onmessage = ({ data }: MessageEvent<Said>) => {
      if ("report" in data) resolve(data.report);
      else if ("error" in data) reject(data.error);
      else onRow(data.rows, data.next);
    };
    worker.onerror = ({ message }) => reject(new Error(message || "the worker did not start"));
  });
  return measured.finally(() => worker.terminate());
}

/** The rows as a picture of 1200 × 630 pixels, as social networks show it. */
export async function picture(report: Report): Promise<Blob> {
  const canvas = new OffscreenCanvas(1200, 630);
  const context = canvas.getContext("2d")!;
  const style = getComputedStyle(document.body);
  const color = (name: string) => style.getPropertyValue(`--${name}`).trim();
  const write = (text: string, x: number, y: number, font: string, ink = color("ink")) => {
    context.font = font;
    context.fillStyle = ink;
    context.fillText(text, x, y, 1200 - x - 64);
  };
  context.fillStyle = color("surface");
  context.fillRect(0, 0, 1200, 630);
  context.fillStyle = color("madder");
  context.fillRect(0, 0, 1200, 16);
  const sans = "32px system-ui, sans-serif";
  write("tinyloom", 64, 110, `600 64px ${color("serif")}`);
  const adapter = adapterName(report);
  write(`trains language models in a browser tab, on ${adapter}`, 64, 160, sans, color("muted"));
  for (const [at, row] of report.results.entries()) {
    const [what, speed, time] = cellsOf(row);
    const y = 240 + 56 * at;
    write(what, 64, y, sans);
    write(speed, 360, y, sans);
    write(time, 900, y, sans, color("muted"));
  }
  write(report.date, 64, 596, "24px system-ui, sans-serif", color("muted"));
  return canvas.convertToBlob();
}
