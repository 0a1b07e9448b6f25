/** One click measures the reference models; the result is a file and a picture to share. */
import type { Report } from "../benchmark.ts";
import { byId, download } from "../dom.ts";
import { unreachable } from "../words.ts";
import { attemptNoting, showError } from "./status.ts";

/** What measures: most visitors never ask for it. */
const measuring = () => import("./measuring.ts").catch(unreachable);

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
      measuring()
        .then(({ picture }) => picture(this.#report!))
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
    this.#cancel = cancel;
    this.#enable();
    this.#files.hidden = true;
    await attemptNoting(this.#note, "That could not be measured.", async () => {
      const { measure } = await measuring();
      const report = await measure(this.#note, cancel.signal);
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
