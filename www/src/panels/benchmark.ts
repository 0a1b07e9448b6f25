/** One click measures the reference models; the result is a file and a picture to share. */
import { adapterName } from "../adapter.ts";
import type { Measured, Report, Said } from "../benchmark.ts";
import { byId, clock, download, whole } from "../dom.ts";
import { fill, tableRow } from "../table.ts";
import { attemptNoting, showError } from "./status.ts";

/** Rows of a whole measurement: three sizes, trained and decoded. */
const ROWS = 6;

/** What was measured, as a row of the table has it. */
function cellsOf(row: Measured): [string, string, string] {
  if ("skipped" in row) return [row.workload, `skipped: ${String(row["skipped"])}`, ""];
  const { workload, milliseconds, tokensPerSecond } = row;
  const time = milliseconds === undefined ? "" : `${milliseconds.toFixed(1)} ms per step`;
  return [workload, `${whole(tokensPerSecond)} tokens per second`, time];
}

export class BenchmarkPanel {
  readonly #button = byId("benchmark", HTMLButtonElement);
  readonly #note = byId("benchmark-note", HTMLElement);
  readonly #files = byId("benchmark-files", HTMLElement);
  #report: Report | undefined;
  #busy = true;

  /** Ends the measurement. */
  #cancel: AbortController | undefined;

  constructor() {
    this.#button.addEventListener("click", () => {
      if (this.#cancel) this.#cancel.abort();
      else void this.#measure();
    });
    byId("benchmark-json", HTMLButtonElement).addEventListener("click", () => {
      const text = `${JSON.stringify(this.#report, null, 2)}\n`;
      download(new Blob([text], { type: "application/json" }), `${this.#name}.json`);
    });
    byId("benchmark-picture", HTMLButtonElement).addEventListener("click", () => {
      picture(this.#report!)
        .then((image) => download(image, `${this.#name}.png`))
        .catch(showError);
    });
  }

  /** While a model trains, times would be of both. */
  set busy(value: boolean) {
    this.#busy = value;
    this.#enable();
  }

  get #name(): string {
    return `tinyloom-${this.#report!.date}`;
  }

  #enable(): void {
    this.#button.disabled = this.#busy && !this.#cancel;
    this.#button.textContent = this.#cancel ? "Stop measuring" : "Measure this GPU";
  }

  async #measure(): Promise<void> {
    const cancel = new AbortController();
    const began = performance.now();
    this.#cancel = cancel;
    this.#enable();
    this.#files.hidden = true;
    const heads = ["What", "Speed", "Time"];
    const table = byId("benchmark-rows", HTMLTableElement);
    await attemptNoting(this.#note, "That could not be measured.", async () => {
      const report = await measureInWorker(cancel.signal, (rows, next) => {
        const filled = rows.map((row) => tableRow(...cellsOf(row)));
        fill(table, heads, filled);
        const passed = clock((performance.now() - began) / 1000);
        this.#note.textContent = next
          ? `Measuring: ${next}, ${rows.length + 1} of ${ROWS}, ${passed} min so far…`
          : "";
      });
      if (!report) {
        this.#note.textContent = "Stopped. Rows that are done are below.";
        return;
      }
      this.#report = report;
      this.#note.textContent = "Measured. The file has the form of the project's own results.";
      this.#files.hidden = false;
    });
    this.#cancel = undefined;
    this.#enable();
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
async function picture(report: Report): Promise<Blob> {
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
