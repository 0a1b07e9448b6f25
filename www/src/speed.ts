import type { StepMetrics } from "tinyloom/worker";

/** The past fades by this share each step: a sample or a test now and then changes little. */
const FADE = 0.04;

/** Tokens per second by the clock, over the last steps: with evaluations, samples and tests between them. */
export class Speed {
  #tokens = 0;
  #milliseconds = 0;
  #steps = 0;
  #last = 0;
  /** Steps until there is a pace: the first one compiles, and so does what is asked of the model after it. */
  #ahead = 2;

  /**
   * @param now - when the step was done, in milliseconds.
   * @returns nothing for the first two steps.
   */
  add({ tokens }: StepMetrics, now = performance.now()): number | undefined {
    const elapsed = now - this.#last;
    this.#last = now;
    if (this.#ahead > 0) {
      this.#ahead--;
      return undefined;
    }
    const kept = 1 - FADE;
    this.#tokens = this.#tokens * kept + tokens;
    this.#milliseconds = this.#milliseconds * kept + elapsed;
    this.#steps = this.#steps * kept + 1;
    return (this.#tokens * 1000) / Math.max(this.#milliseconds, 1e-3);
  }

  /** Seconds of a step, once there is a pace. */
  get seconds(): number {
    return this.#milliseconds / this.#steps / 1000;
  }
}
