/** The kernels of a training step as a timeline by phase; each tells why it was chosen, and its text. */
import { byId } from "../dom.ts";
import { disable, isDisabled } from "../focus.ts";
import type { Training } from "../training.ts";
import { unreachable } from "../words.ts";
import { attemptNoting } from "./status.ts";

export class KernelsPanel {
  readonly #button = byId("measure", HTMLButtonElement);
  readonly #note = byId("timeline-note", HTMLElement);
  readonly #host = byId("timeline", HTMLElement);
  readonly #detail = byId("kernel", HTMLElement);
  #training: Training | undefined;
  #measuring = false;
  #where = "on the GPU";

  constructor() {
    this.#button.addEventListener("click", () => void this.#measure());
  }

  /** @param software - whether the CPU computes what a GPU else does. */
  start(training: Training, software: boolean): void {
    this.#training = training;
    this.#where = software ? "on the CPU, in place of a GPU" : "on the GPU";
    this.#host.replaceChildren();
    this.#detail.hidden = true;
    this.#note.textContent = "Measure to see them, after the first step.";
    this.#enable();
  }

  /** There is no GPU any more. */
  end(): void {
    this.#training = undefined;
    this.#enable();
  }

  /** Times are those of a batch, so there has to be a step first. */
  stepped(): void {
    if (isDisabled(this.#button)) this.#enable();
  }

  #enable(): void {
    disable(this.#button, this.#measuring || !this.#training?.profiled);
  }

  async #measure(): Promise<void> {
    const training = this.#training;
    if (!training) return;
    this.#measuring = true;
    this.#enable();
    this.#note.textContent = "Measuring…";
    await attemptNoting(this.#note, "That could not be measured.", async () => {
      const { showKernels } = await import("./kernel-times.ts").catch(unreachable);
      this.#note.textContent = await showKernels(training, this.#where);
    });
    this.#measuring = false;
    this.#enable();
  }
}
