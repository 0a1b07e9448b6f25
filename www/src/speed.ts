import type { StepMetrics } from "tinyloom/worker";

/** The past fades by this share each step: a sample or a test now and then changes little. */
const FADE = 0.04;

/** Tokens per second by the clock, over the last steps: with evaluations, samples and tests between them. */
export class Speed {
  #tokens = 0;
  #milliseconds = 0;
  #steps = 0;
  #last: number | undefined;
  /** Whether there is the first step alone, which compiles. */
  #first = false;

  /** @param now - when the step was done, in milliseconds. */
  add({ tokens, milliseconds }: StepMetrics, now = performance.now()): number {
    // Of the first step only its own time is known. It is forgotten with the second one.
    const elapsed = this.#last === undefined ? milliseconds : now - this.#last;
    const kept = this.#first ? 0 : 1 - FADE;
    this.#first = this.#last === undefined;
    this.#last = now;
    this.#tokens = this.#tokens * kept + tokens;
    this.#milliseconds = this.#milliseconds * kept + elapsed;
    this.#steps = this.#steps * kept + 1;
    return (this.#tokens * 1000) / Math.max(this.#milliseconds, 1e-3);
  }

  /** Seconds of a step. */
  get seconds(): number {
    return this.#milliseconds / this.#steps / 1000;
  }
}
