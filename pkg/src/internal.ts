/**
 * What the package's modules share of an object and its users cannot reach: neither by a name nor by a
 * symbol.
 */

import type { CallQueue } from "./call-queue.js";
import type { Data } from "./data.js";
import { Inner } from "./inner.js";
import type { InnerRuntime } from "./inner-runtime.js";
import type { ModelNotes } from "./notes.js";
import type { RawHandle } from "./raw-handle.js";
import type { RawModel, RawTrainer } from "./raw-types.js";
import type { ModelRecovery } from "./recovery/model-recovery.js";
import type { Allocation } from "./tensor-allocation.js";

/** What is freed with a model: a trainer, or an adapter. */
export interface OwnedByModel {
  free(): void;
  readonly lora?: true;
}

/** What the modules share of a model, or of an adapter with its base under it. */
export interface InnerModel {
  readonly runtime: InnerRuntime;
  /** The model under an adapter. */
  readonly base?: InnerModel;
  /** Names of its files: config and weights. */
  readonly names: readonly string[];
  /** Order of the operations of the model, its adapters and their trainers. */
  readonly queue: CallQueue;
  readonly handle: RawHandle<RawModel>;
  /** What its files say besides. */
  readonly notes: ModelNotes;
  /** How it comes back after a lost device. */
  readonly recovery: ModelRecovery | undefined;
  own(one: OwnedByModel): void;
  disown(one: OwnedByModel): void;
}

export interface InnerAdapter extends InnerModel {
  readonly base: InnerModel;
  /** Ends its life; `why` is told to whoever uses it later. */
  end(why?: string): void;
}

export interface InnerTrainer {
  readonly handle: RawHandle<RawTrainer>;
  /** Bytes of the activation slots, as shared and without sharing; for the project's tests. */
  activationBytes(): { shared: number; unshared: number };
}

export interface InnerTensor {
  readonly allocation: Allocation;
  /** The buffer's number in the wasm module. */
  id(): number;
}

export const runtimes = new Inner<InnerRuntime>();
export const models = new Inner<InnerModel>();
export const trainers = new Inner<InnerTrainer>();
export const datasets = new Inner<Data>();
export const tensors = new Inner<InnerTensor>();
