/** When the demo loses the GPU on purpose ("pull the plug"): once a visitor can see enough steps done twice. */

/** Steps that have to be made after the last snapshot. */
const WANTED = 10;
/** Steps between two snapshots at least, however slow the steps are. */
export const BETWEEN = 2 * WANTED;

/** Waits for the step at which the plug is pulled. */
export class LossWait {
  /** The step that a lost device goes back to. */
  #snapshot = 0;
  #waiting = false;

  /** A run begins, or goes on, at this step. */
  begin(step: number): void {
    this.#snapshot = step;
    this.stop();
  }

  /** Starts to wait. */
  start(): void {
    this.#waiting = true;
  }

  stop(): void {
    this.#waiting = false;
  }

  get waiting(): boolean {
    return this.#waiting;
  }

  get snapshot(): number {
    return this.#snapshot;
  }

  /** There is a snapshot of this step. */
  snapshotted(step: number): void {
    this.#snapshot = step;
  }

  /** Whether the plug is pulled after this step. That ends the wait. */
  pulls(step: number): boolean {
    if (!this.#waiting || step - this.#snapshot < WANTED) return false;
    this.stop();
    return true;
  }

  /** What is waited for, in words. */
  get words(): string {
    const last =
      this.#snapshot === 0
        ? "There is no snapshot yet."
        : `The last snapshot is of step ${this.#snapshot}.`;
    return `${last} Waits until ${WANTED} steps can be done twice…`;
  }
}
