/**
 * What the package's modules share of an object and its users cannot reach: neither by a name nor by a
 * symbol.
 */

import type { Adapter } from "./adapter.js";
import type { Data } from "./data.js";
import type { Dataset } from "./dataset.js";
import { TinyloomError } from "./error.js";
import type { Source } from "./file-source.js";
import type { Model } from "./model.js";
import type { ModelNotes } from "./notes.js";
import type { Handle, Queue } from "./raw-handle.js";
import type { Recovery } from "./recovery/device-recovery.js";
import type { Journal } from "./recovery/model-recovery.js";
import type { Counters, Owned, Runtime } from "./runtime.js";
import type { Target } from "./save-options.js";
import type { Allocation, Tensor } from "./tensor.js";
import type { Trainer } from "./trainer.js";
import type { StepMetrics } from "./trainer-types.js";
import type { RawModel, RawModule, RawRuntime, RawTrainer } from "./wasm-instance.js";

/** The inner sides of a class's objects. */
class Inner<O extends object, I> {
  readonly #inner = new WeakMap<O, I>();

  /** Keeps the inner side of an object that is being made. */
  set(object: O, inner: I): I {
    this.#inner.set(object, inner);
    return inner;
  }

  /** The inner side of an object, if it has one. */
  find(object: unknown): I | undefined {
    return this.#inner.get(object as O);
  }

  /** The inner side of an object that has one. */
  of(object: O): I {
    const inner = this.#inner.get(object);
    if (inner) return inner;
    throw new TinyloomError(
      "invalid-options",
      "this object was not made by tinyloom, or by another copy of it; use what its functions give",
    );
  }
}

export interface InnerRuntime {
  /** Order of the operations on this runtime's tensors. */
  readonly queue: Queue;
  /** The wasm module that this runtime's objects come from. */
  readonly module: RawModule;
  own(one: Owned): void;
  disown(one: Owned): void;
  /** A call on the raw runtime that ends at once, with its errors worded. */
  now<T>(operation: (raw: RawRuntime) => T): T;
  /** One that takes its time. */
  call<T>(operation: (raw: RawRuntime, module: RawModule) => Promise<T> | T): Promise<T>;
  /** The same, made again on the next device where this one is lost. */
  lasting<T>(
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

/** What is freed with a model: a trainer, or an adapter. */
export interface OwnedByModel {
  free(): void;
  readonly lora?: true;
}

/** What the modules share of a model, or of an adapter with its base under it. */
export interface InnerModel {
  readonly runtime: InnerRuntime;
  /** The model under an adapter. */
  readonly base?: Model;
  /** Names of its files: config and weights. */
  readonly names: readonly string[];
  /** Order of the operations of the model, its adapters and their trainers. */
  readonly queue: Queue;
  readonly handle: Handle<RawModel>;
  /** What its files say besides. */
  readonly notes: ModelNotes;
  /** What the model comes back by after a lost device. */
  readonly journal: Journal | undefined;
  own(one: OwnedByModel): void;
  disown(one: OwnedByModel): void;
}

export interface InnerAdapter extends InnerModel {
  readonly base: Model;
  /** Ends its life; `why` is told to whoever uses it later. */
  end(why?: string): void;
}

export interface InnerTrainer {
  readonly handle: Handle<RawTrainer>;
  /** Bytes of the activation slots, as shared and without sharing; for the project's tests. */
  activationBytes(): { shared: number; unshared: number };
}

export interface InnerTensor {
  readonly allocation: Allocation;
  /** The buffer's number in the wasm module. */
  id(): number;
}

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

export const runtimes = new Inner<Runtime, InnerRuntime>();
export const models = new Inner<Model | Adapter, InnerModel>();
export const trainers = new Inner<Trainer, InnerTrainer>();
export const datasets = new Inner<Dataset, Data>();
/** Runs of `tinyloom/storage`. */
export const stored = new Inner<object, InnerStored>();
export const tensors = new Inner<Tensor, InnerTensor>();
