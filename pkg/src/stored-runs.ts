/** The inner sides of runs of `tinyloom/storage`, which saves and loads reach without loading that entry. */

import type { Source } from "./file-part.js";
import { Inner } from "./inner.js";
import type { Best, Keeping, Target } from "./save-types.js";
import type { StepMetrics } from "./trainer-types.js";

export interface InnerStored {
  /** A new checkpoint of the run. */
  target(keeping?: Keeping): Target;
  /**
   * The files of a checkpoint, which are verified; default: of the newest whole one that has the file which is
   * asked for first.
   */
  source(number?: number): Source;
  /** What its best checkpoint is kept for. */
  best(): Promise<Best | undefined>;
  /** Keeps the metrics of a step. */
  note(metrics: StepMetrics): void;
  /** Writes its description with another name. */
  rename(to: string): Promise<void>;
}

/** Runs of `tinyloom/storage`. */
export const stored = new Inner<InnerStored>();
