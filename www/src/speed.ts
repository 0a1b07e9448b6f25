import type { StepMetrics } from "tinyloom/worker";

/** Tokens per second over the last steps, without the time of evaluations and samples. */
export class Speed {
  #tokens = 0;
  #milliseconds = 0;
  #steps = 0;

  add({ tokens, milliseconds }: StepMetrics): number {
    // The past fades by a tenth each step, and the first step (it compiles) is soon forgotten.
    this.#tokens = this.#tokens * 0.9 + tokens;
    this.#milliseconds = this.#milliseconds * 0.9 + milliseconds;
    this.#steps = this.#steps * 0.9 + 1;
    return (this.#tokens * 1000) / this.#milliseconds;
  }

  /** Seconds of a step. */
  get seconds(): number {
    return this.#milliseconds / this.#steps / 1000;
  }
}
