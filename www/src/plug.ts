/** When the plug is pulled: once a visitor can see enough steps done twice, and after a few snapshots in any case. */

/** Steps behind the last snapshot that are waited for. */
const WANTED = 10;
/** Snapshots that are waited for at the most. */
const PATIENCE = 3;

/** Waits for the step at which the plug is pulled. */
export class PlugWait {
  /** The step that a lost device goes back to. */
  #snapshot = 0;
  /** Steps that have to lie behind it; undefined while nobody waits. */
  #wanted: number | undefined;
  /** Snapshots since the wait began. */
  #came = 0;

  /** A run begins, or goes on, at this step. */
  begin(step: number): void {
    this.#snapshot = step;
    this.stop();
  }

  /** Starts to wait. */
  start(): void {
    this.#wanted = WANTED;
    this.#came = 0;
  }

  stop(): void {
    this.#wanted = undefined;
  }

  get waiting(): boolean {
    return this.#wanted !== undefined;
  }

  get snapshot(): number {
    return this.#snapshot;
  }

  /** There is a snapshot of this step. */
  snapshotted(step: number): void {
    const between = step - this.#snapshot;
    this.#snapshot = step;
    if (this.#wanted === undefined) return;
    this.#came += 1;
    // The first may have been due when the wait began: only the next ones tell how many steps lie between two.
    if (this.#came > 1) this.#wanted = Math.max(1, Math.min(this.#wanted, between - 1));
    if (this.#came >= PATIENCE) this.#wanted = 0;
  }

  /** Whether the plug is pulled after this step. That ends the wait. */
  pulls(step: number): boolean {
    if (this.#wanted === undefined || step - this.#snapshot < this.#wanted) return false;
    this.stop();
    return true;
  }

  /** What is waited for, in words. */
  get words(): string {
    const last = `The last snapshot is of step ${this.#snapshot}.`;
    const wanted = this.#wanted ?? 0;
    if (wanted === 0) return `${last} Pulls after the next step…`;
    const steps = wanted === 1 ? "1 step lies" : `${wanted} steps lie`;
    const why = wanted < WANTED ? `: ${WANTED} take longer here than the time between two` : "";
    return `${last} Waits until ${steps} behind it${why}…`;
  }
}
