/** The inner sides of runs of `tinyloom/storage`, which saves and loads reach without loading that entry. */

import type { Source } from "./file-part.js";
import { Inner } from "./inner.js";
import type { Target } from "./save-types.js";
import type { StepMetrics } from "./trainer-types.js";

export interface InnerStored {
  /**
   * A new checkpoint of the run. Once it is whole, older ones of its kind are removed until `keep` are left;
   * default: as many as the run was last asked to keep. Before that, `kept` is called with its number.
   */
  target(keep: number | undefined, kept?: (number: number) => void): Target;
  /**
   * The files of a checkpoint, which are verified; default: of the newest whole one that has the file which is
   * asked for first.
   */
  source(number?: number): Source;
  /** Keeps the metrics of a step. */
  note(metrics: StepMetrics): void;
  /** Takes over a changed description. */
  renamed(record: object): void;
}

/** Runs of `tinyloom/storage`. */
export const stored = new Inner<InnerStored>();
