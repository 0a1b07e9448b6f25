/** Saving into storage while a trainer of preference works. */

import { check, integer, invalid, type Rules } from "../options.js";
import type { StoredRun } from "../storage/stored-run.js";
import type { Trainer } from "../trainer.js";
import type { StepMetrics } from "../trainer-types.js";
import type { Anywhere } from "./checks.js";

/** Where and when a trainer of preference saves. */
export interface AlignCheckpoint {
  /** An open run of `tinyloom/storage`. It also keeps the metrics of every step. */
  run: Anywhere<StoredRun>;
  /**
   * Saves once each multiple of this number of the trainer's steps is reached, and at the last step; default 100. With
   * several `updates` of {@link grpo} it saves after the last update of the same texts.
   */
  every?: number;
}

const CHECKPOINT: Rules<AlignCheckpoint> = {
  run: (value) =>
    typeof (value as StoredRun | null)?.addMetrics === "function"
      ? undefined
      : "what runs.create or runs.open gave",
  every: integer(1),
};

/** Notes steps, and saves where that is due. */
export type Keep = (metrics: StepMetrics, whole: boolean, last: boolean) => Promise<void>;

/**
 * What keeps the steps of a trainer in a run.
 *
 * @param whole - of each step, whether a resumed trainer could go on after it.
 */
export function keeper(
  where: string,
  trainer: Trainer,
  given: AlignCheckpoint | undefined,
  signal: AbortSignal | undefined,
): Keep {
  if (given === undefined) return async () => {};
  const { run, every = 100 } = check(`${where}: checkpoint`, given, CHECKPOINT, "run");
  let due = Math.floor(trainer.steps / every) + 1;
  return async (metrics, whole, last) => {
    await run.addMetrics(metrics);
    if (!last && !(whole && metrics.step >= due * every)) return;
    due = Math.floor(metrics.step / every) + 1;
    await trainer.save({ to: run, ...(signal && { signal }) });
  };
}

/** The rule of the option `checkpoint`, which {@link keeper} judges. */
export const checkpointRule = (value: unknown): string | undefined =>
  typeof value === "object" && value !== null ? undefined : "an object with a run";

/** Refuses a number of steps that would end amid the updates of the same texts. */
export function expectWhole(where: string, steps: number, updates: number): void {
  if (steps % updates === 0) return;
  throw invalid(
    `${where}: steps is ${steps} and updates is ${updates}; give a multiple of updates`,
  );
}
