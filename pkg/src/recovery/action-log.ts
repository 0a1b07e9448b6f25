/** Adds to a model a log of what was done to it and its trainers since a snapshot, to be done again. */

import type { Data } from "../data.js";
import type { TinyloomError } from "../error.js";
import type { RawHandle } from "../raw-handle.js";
import type { RawMetrics, RawModel, RawTrainer } from "../raw-types.js";
import type { Recovered } from "../trainer-types.js";

/** A trainer that comes back with its model. */
export interface RecoveredTrainer {
  readonly handle: RawHandle<RawTrainer>;
  /** As JSON, of a trainer that was made; undefined of one that was resumed with its model. */
  readonly options: string | undefined;
  /** What the next metrics tell. */
  recovered: Recovered | undefined;
  /** Its steps that no stored run has; none of a freed trainer. */
  unsaved(): number;
}

/** Something done that has to be done again. */
export type Entry = Step | Change | WeightChange;

/** A step, or a part of one. */
export class Step {
  readonly trainer: RecoveredTrainer;
  readonly begin: (raw: RawTrainer, stop: () => boolean) => Promise<RawMetrics>;
  /** What its caller asks between its parts. */
  readonly stop: () => boolean;
  /** How often it has been asked, which is how many parts are done. */
  calls = 0;
  /** How many parts were done when it ended early. */
  limit: number | undefined;
  /** Whether its loss was what weights give that are not ruined. */
  sound = false;
  /** Its metrics, or why it failed when it was done again. */
  metrics: RawMetrics | undefined;
  error: TinyloomError | undefined;
  /** Whether the weights are known to have it though its metrics did not arrive. */
  unread = false;
  /** Nobody waits for it any more, and it has not begun again. */
  cancelled = false;
  /** Lets go of the data that it draws from again, which may be freed meanwhile. */
  readonly release: (() => void) | undefined;

  constructor(
    trainer: RecoveredTrainer,
    begin: Step["begin"],
    stop: () => boolean,
    data: Data | undefined,
  ) {
    this.trainer = trainer;
    this.begin = begin;
    this.stop = stop;
    this.release = data?.hold();
  }

  /** Whether it is not known yet what came of it. */
  get waiting(): boolean {
    return this.metrics === undefined && this.limit === undefined;
  }

  readonly asked = (): boolean => {
    this.calls += 1;
    return this.stop();
  };
}

/** A change of an option. */
export interface Change {
  readonly trainer: RecoveredTrainer;
  readonly change: (raw: RawTrainer) => void;
  /** The step before it, and how often that had been asked to stop: it may be under way still. */
  readonly after: Step | undefined;
  readonly calls: number;
}

/** An adapter that was added to the model, or a parameter that was set. */
export interface WeightChange {
  apply(model: RawModel): Promise<void>;
  /** The parameter that was set. */
  readonly parameter?: string;
}

/** Adds a change of weights; of those of a parameter that nothing came between the last one counts. */
export function logged(log: Entry[], change: WeightChange): void {
  for (let at = log.length - 1; at >= 0; at--) {
    const entry = log[at];
    if (change.parameter === undefined || !(entry && "apply" in entry) || !entry.parameter) break;
    if (entry.parameter === change.parameter) log.splice(at, 1);
  }
  log.push(change);
}

/** Takes entries out of the log, by default all: they are never done again. */
export function cut(log: Entry[], start = 0, count = log.length): void {
  for (const entry of log.splice(start, count)) {
    if (entry instanceof Step) entry.release?.();
  }
}
