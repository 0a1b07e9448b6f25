/** What a page sets and hears of recovery. */

/** Options of `Runtime.create`'s `recover`. */
export interface RecoverOptions {
  /**
   * How many failures in a row end recovery: a device that cannot be opened, or one that is lost again
   * within a minute and before any call has ended well. Default 5. Waiting for a browser that gives no
   * adapter after a loss is no failure until two minutes have passed.
   */
  attempts?: number;
  /**
   * The most bytes of host memory that the snapshots of a model and its trainers may take: with AdamW
   * 24 per weight, since the last one stays until the next is whole. Default 512 MiB. Above that there are none, `onState`
   * says so, and a trainer that has made steps does not come back, unless it is saved into a run of
   * `tinyloom/storage`: the run's last checkpoint then serves. 0: none in memory.
   */
  snapshotBytes?: number;
  /**
   * The least time from one snapshot to the next; default 1000. Steps since the last one are done again, so a
   * longer time costs more of them. Snapshots are as rare as their cost asks in any case.
   */
  snapshotMilliseconds?: number;
  /**
   * The fewest steps from one snapshot to the next, micro-steps where gradients accumulate; default 1. Steps since
   * the last one are done again, so more of them cost more.
   */
  snapshotSteps?: number;
  /** Hears of each stage. What it throws is an error of the page, in Node a line of the console, and ends nothing. */
  onState?: (state: RecoveryState) => void;
}

/** A step that was done twice. */
export interface RepeatedStep {
  readonly step: number;
  /** The loss in nats per token; null where it was not finite. */
  readonly loss: number | null;
  /** The loss when the step was done again. On the same adapter it is equal to the bit. */
  readonly repeated: number | null;
}

/** A stage of recovery. */
export type RecoveryState =
  /** The device is gone, and another one is asked for. */
  | { readonly state: "lost"; readonly reason: string }
  /**
   * The browser gives no adapter: Chromium refuses them to a site that has lost two within two minutes.
   * A reload by the user ends that too. In Node an adapter is asked for as long.
   */
  | {
      readonly state: "waiting";
      /** When the browser may give an adapter again, in milliseconds since 1970. */
      readonly until: number;
      /**
       * Steps of this runtime's trainers that no run of `tinyloom/storage` has: a reload loses these. Those of a
       * freed trainer count until its model is freed, or saved into a run. With 0 a page can show "reload now,
       * nothing is lost".
       */
      readonly unsaved: number;
      readonly message: string;
    }
  /** Another device is open. */
  | {
      readonly state: "reopened";
      /** Whether it is of the same adapter. On another one kernels differ, and bits may differ too. */
      readonly sameAdapter: boolean;
      /** Milliseconds since the device was lost. */
      readonly milliseconds: number;
    }
  /** A model and its trainers are back. */
  | {
      readonly state: "recovered";
      /** Steps that were done again. */
      readonly repeated: number;
      /** Both losses of each step whose metrics had been given out: before the device was lost, and afterwards. */
      readonly losses: readonly RepeatedStep[];
      /** Milliseconds since the device was lost. */
      readonly milliseconds: number;
    }
  /** A step that was done again gave another loss than before. */
  | ({ readonly state: "different" } & RepeatedStep)
  /** There is a new snapshot. */
  | {
      readonly state: "snapshot";
      /** Steps of each trainer of the model. */
      readonly steps: readonly number[];
      /** Bytes that it takes of the host's memory. */
      readonly bytes: number;
      /** How long it took to read, and how long that held the steps up. */
      readonly milliseconds: number;
      readonly cost: number;
    }
  /** A model has no snapshots from here on. */
  | { readonly state: "snapshots-off"; readonly message: string }
  /** Something does not come back: a model, or with it the whole runtime. */
  | { readonly state: "failed"; readonly message: string };
