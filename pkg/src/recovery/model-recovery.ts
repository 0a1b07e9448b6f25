/** Adds to a model that it comes back after a lost device: from a snapshot, or how it began, and what was done since. */

import { either } from "../abortable.js";
import type { CallQueue } from "../call-queue.js";
import { TinyloomError, toError } from "../error.js";
import { dispose, type RawHandle, type Restorer } from "../raw-handle.js";
import type { RawModel, RawRuntime, RawTrainer, Releasable } from "../raw-types.js";
import type { SaveOptions } from "../save-types.js";
import { stored } from "../stored-runs.js";
import { cut, type Entry, logged, type RecoveredTrainer } from "./action-log.js";
import type { DeviceRecovery, RecoveredModel } from "./device-recovery.js";
import type { Origin } from "./origin.js";
import { Replay } from "./replay.js";
import { fileOf, loadAgain, restored } from "./snapshot.js";
import { SnapshotSchedule, type Snapshotted } from "./snapshot-schedule.js";

/** A model that is to come back. */
export interface ModelParts {
  readonly handle: RawHandle<RawModel>;
  readonly queue: CallQueue;
  readonly on: RawRuntime;
  readonly origin: Origin;
}

/** How one model comes back, with its trainers. */
export class ModelRecovery implements RecoveredModel, Snapshotted {
  readonly device: DeviceRecovery;
  readonly handle: RawHandle<RawModel>;
  readonly queue: CallQueue;
  readonly origin: Origin;
  readonly snapshots: SnapshotSchedule;
  trainers: RecoveredTrainer[] = [];
  /** Steps of freed trainers that the model alone has, and no stored run. */
  unsavedOfFreed = 0;
  /** What was begun since the snapshot, in order. */
  readonly log: Entry[] = [];
  /** The raw runtime that its raw objects are on. */
  #on: RawRuntime;
  #restoring: Promise<void> | undefined;
  #gone: TinyloomError | undefined;

  constructor(device: DeviceRecovery, { handle, queue, on, origin }: ModelParts) {
    this.device = device;
    this.handle = handle;
    this.queue = queue;
    this.origin = origin;
    this.#on = on;
    this.snapshots = new SnapshotSchedule(this);
    handle.restorer = this.restorer(handle);
    device.add(this);
  }

  /** Why it does not come back, while other models of the runtime may. */
  get gone(): TinyloomError | undefined {
    return this.#gone;
  }

  /** Whether it is being brought back, or waits for a device. */
  get restoring(): boolean {
    return this.#restoring !== undefined;
  }

  /** The model has been freed: nothing of it is kept. */
  end(): void {
    this.snapshots.newest = undefined;
    this.snapshots.good = undefined;
    cut(this.log);
    this.device.forget(this);
  }

  /** What a handle of the model, or of a trainer, waits for after a lost device. */
  restorer<R extends Releasable>(handle: RawHandle<R>): Restorer<R> {
    return {
      replaced: (failed, signal) => this.restored(() => handle.raw !== failed, signal),
      orAborted: (call, signal) => this.device.orAborted(call, signal),
    };
  }

  /** Steps of its trainers that no stored run has, also of those that were freed. */
  unsaved(): number {
    return this.trainers.reduce((sum, trainer) => sum + trainer.unsaved(), this.unsavedOfFreed);
  }

  /** In the model's turn: the model was saved without a trainer. */
  saved({ to }: SaveOptions): void {
    if (stored.find(to)) this.unsavedOfFreed = 0;
  }

  /** In the model's turn: it serves on the newest device from then on. */
  current(): Promise<void> {
    return this.restored(() => this.#on === this.device.raw);
  }

  /**
   * In the model's turn: an adapter is about to be merged into it.
   *
   * @returns to be called when it was.
   */
  async merging(adapter: RawModel): Promise<() => void> {
    const { module } = this.device;
    await this.#othersKept(adapter);
    const copy = await adapter.snapshot();
    const weights = await fileOf(copy).finally(() => dispose(copy));
    const config = adapter.config();
    const apply = async (model: RawModel) => {
      const again = await loadAgain(module, await model.adaptAs(config), weights);
      await again.merge(() => false).finally(() => dispose(again));
    };
    return () => logged(this.log, { apply });
  }

  /**
   * In the model's turn: a parameter is about to be set.
   *
   * @returns to be called when it was.
   */
  async setting(parameter: string, values: Float32Array): Promise<() => void> {
    if (!this.origin.adapted) await this.#othersKept();
    const apply = (model: RawModel) => model.writeNamed(parameter, values);
    return () => logged(this.log, { apply, parameter });
  }

  /** Steps of others are not to be done again on weights that change now. */
  async #othersKept(adapter?: RawModel): Promise<void> {
    for (const other of this.device.sharing(this.queue)) {
      if (other !== this) await other.snapshotBesides(adapter);
    }
  }

  /** In the model's turn: waits until `done`, which the next recovery brings about. */
  async restored(done: () => boolean, signal?: AbortSignal): Promise<void> {
    while (!done()) {
      if (this.#gone) {
        cut(this.log);
        throw this.#gone;
      }
      this.#restoring ??= this.#restore().finally(() => {
        this.#restoring = undefined;
      });
      await either(this.#restoring, signal);
    }
  }

  /** In the model's turn: takes a snapshot, unless it is that adapter. */
  async snapshotBesides(adapter: RawModel | undefined): Promise<void> {
    if (this.handle.raw !== adapter) await this.snapshots.fresh();
  }

  /** No step is done again. */
  dropSteps(): void {
    void this.queue.run(() => cut(this.log));
  }

  /** Comes back in its turn, even if nobody calls. */
  restoreSoon(): void {
    const restore = async () => this.handle.freed || (await this.current());
    this.queue.run(restore).catch(() => undefined); // a call will hear of it
  }

  async #restore(): Promise<void> {
    try {
      await this.device.replaced(this.#on);
      for (;;) {
        const on = this.device.raw;
        try {
          return await this.device.module.guarded(() => this.#build(on));
        } catch (thrown) {
          const error = toError(thrown);
          // Another device brings neither this model back nor the one under it.
          const final = [this.#gone, this.origin.adapted?.under?.gone];
          if (error.code !== "device-lost" || final.includes(error)) throw error;
          await this.device.replaced(on);
        }
      }
    } catch (thrown) {
      void this.handle.raw; // freed meanwhile
      void this.device.raw;
      this.#gone ??= this.device.failed ?? this.#lostFor(toError(thrown));
      cut(this.log);
      throw this.#gone;
    }
  }

  #lostFor(cause: TinyloomError): TinyloomError {
    const what = this.origin.adapted ? "adapter" : "model";
    const message = `the ${what} does not come back from the lost GPU device: ${cause.message}`;
    this.device.tell({ state: "failed", message });
    return new TinyloomError("device-lost", message, { cause });
  }

  /** Makes everything again, does again what was done since, and takes it into use. */
  async #build(on: RawRuntime): Promise<void> {
    const { module } = this.device;
    const { newest, off } = this.snapshots;
    if (off) {
      this.#gone = this.#lostFor(new TinyloomError("device-lost", off));
      throw this.#gone;
    }
    const raws = new Map<RecoveredTrainer, RawTrainer>();
    let model: RawModel | undefined;
    try {
      model = newest
        ? await restored(module, on, newest, raws, this.origin)
        : await this.#begin(on, raws);
      for (const trainer of this.trainers) {
        if (raws.has(trainer) || trainer.options === undefined) continue;
        raws.set(trainer, await module.RawTrainer.create(model, trainer.options, () => false));
      }
      const replay = new Replay(this.device, this.log, model, raws);
      await replay.all();
      // From here on nothing waits: nobody sees a part of it.
      this.#serve(on, model, raws);
      replay.told();
    } catch (error) {
      for (const raw of [...raws.values(), ...(model ? [model] : [])]) dispose(raw);
      throw error;
    }
  }

  #serve(on: RawRuntime, model: RawModel, raws: ReadonlyMap<RecoveredTrainer, RawTrainer>): void {
    void this.handle.raw;
    for (const [trainer, raw] of raws) {
      if (trainer.handle.freed) dispose(raw);
      else trainer.handle.swap(raw);
    }
    this.handle.swap(model);
    this.#on = on;
  }

  /** Makes the model as it was made at first. */
  async #begin(on: RawRuntime, raws: Map<RecoveredTrainer, RawTrainer>): Promise<RawModel> {
    const seen = { sum: 0 };
    const { model, trainer } = await this.origin.again(on, seen).catch((cause) => {
      const error = toError(cause);
      if (error.code === "device-lost") throw error;
      throw new TinyloomError(error.code, `its source cannot be read again (${error.message})`, {
        cause,
      });
    });
    const resumed = this.trainers.find(({ options }) => options === undefined);
    if (trainer && resumed) raws.set(resumed, trainer);
    else if (trainer) dispose(trainer);
    if (this.origin.seen && this.origin.seen.sum !== seen.sum) {
      dispose(model);
      throw new TinyloomError(
        "invalid-checkpoint",
        "its source has changed since it was loaded; load it again",
      );
    }
    return model;
  }
}
