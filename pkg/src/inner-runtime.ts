/** The inner side of a runtime. */

import type { CallQueue } from "./call-queue.js";
import type { RawModule, RawRuntime } from "./raw-types.js";
import type { Recovery } from "./recovery/index.js";
import type { Counters, Owned } from "./runtime-types.js";

export interface InnerRuntime {
  /** Order of the operations on this runtime's tensors. */
  readonly queue: CallQueue;
  /** The wasm module that this runtime's objects come from. */
  readonly module: RawModule;
  own(one: Owned): void;
  disown(one: Owned): void;
  /** A call on the raw runtime that ends at once, with its errors worded. */
  callSync<T>(operation: (raw: RawRuntime) => T): T;
  /** One that takes its time, and ends with the device. */
  callUnrepeated<T>(operation: (raw: RawRuntime, module: RawModule) => Promise<T> | T): Promise<T>;
  /** The same, made again on the next device where this one is lost. */
  call<T>(
    operation: (raw: RawRuntime, module: RawModule) => Promise<T>,
    signal?: AbortSignal,
  ): Promise<T>;
  /** What brings back what is lost with the device; undefined with `recover: false`. */
  readonly recovery: Recovery | undefined;
  /** Keeps what has been measured since. */
  remember(): Promise<void>;
  /** For the project's tests. */
  counters(): Counters;
}
